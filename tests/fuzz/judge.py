"""Runs a command line in this process and says what is wrong with how it ended, if anything is."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import resource
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from trnbench.cli.main import main

ANSWERED = (0, 1, 2, 3)
LONGEST_S = 10.0
"""Processor time of a line: its questions are small."""
MOST_BYTES = 1e9
TROUBLE = re.compile(r"Traceback|internal error|Warning:")
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a line ended: its exit code, what is wrong with that, and what it took."""

    code: int
    wrong: str | None
    processor_s: float


class _Stream(io.TextIOWrapper):
    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", errors="backslashreplace", newline="")

    def text(self) -> str:
        self.flush()
        held: bytes = self.buffer.getvalue()  # type: ignore[attr-defined]
        return held.decode("utf-8", "replace")


class TooLong(BaseException):
    """The line has had its processor time."""


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, LONGEST_S, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def ended(line: Sequence[str]) -> Ended:
    """Return how a line ended."""
    out, err = _Stream(), _Stream()
    began, peak_before = time.process_time(), _peak_bytes()
    code, wrong = -1, None
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                with _limited():
                    code = main(list(line))
            except TooLong:
                wrong = f"more than {LONGEST_S:g} s of processor time"
    took_s = time.process_time() - began
    said, written = err.text(), out.text()
    if wrong is None:
        wrong = wrong_with(line, code, written, said)
    if wrong is None and warned:
        wrong = f"warning: {warned[0].message} ({warned[0].filename}:{warned[0].lineno})"
    # The peak of a process never falls: at fault is who raised it.
    if wrong is None and _peak_bytes() > max(MOST_BYTES, peak_before):
        wrong = f"{_peak_bytes() / 1e6:.0f} MB"
    return Ended(code=code, wrong=wrong, processor_s=took_s)


def _peak_bytes() -> int:
    """Return the most memory that this process has ever held."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def wrong_with(line: Sequence[str], code: int, written: str, said: str) -> str | None:
    """Return what is wrong with an exit code and what was written to stdout and stderr."""
    if code not in ANSWERED:
        return f"exit code {code}: {said.strip()[:300]}"
    if TROUBLE.search(said) or "Traceback" in written:
        return f"trouble: {said.strip()[:300]}"
    if RAW.search(said) or RAW.search(written):
        return f"raw control characters: {RAW.findall(said + written)[:3]}"
    if code in (2, 3) and not (said or written) and not {"-o", "--output"} & set(line):
        return "refused without a word"
    if code in (2, 3) and said.count("\n") > 3:
        return f"a long refusal: {said[:300]}"
    return _nonsense(line, written)


def _nonsense(line: Sequence[str], written: str) -> str | None:
    """Return what no reader of a machine's format could take, or that cannot be true."""
    if written.startswith('{\n  "schema"'):
        try:
            document = json.loads(written, parse_constant=_refuse)
        except ValueError as error:
            return f"no JSON: {error}"
        for row in document["rows"]:
            for key in ("mfu", "hfu", "efficiency"):
                share = row.get(key)
                if isinstance(share, float) and not 0 <= share <= 1:
                    return f"{key} {share}"
    if ("--format", "csv") in pairwise(line):
        for row in csv.reader(io.StringIO(written)):
            for cell in row:
                if cell.lower() in ("nan", "inf", "-inf") or (cell[:1] in "=@" and len(cell) > 1):
                    return f"CSV cell {cell!r}"
    return None


def _refuse(token: str) -> float:
    raise ValueError(f"the token {token}")
