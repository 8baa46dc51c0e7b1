"""A measuring session: runs the worker and keeps its rows as they arrive.

Rows survive an early end by the budget, Ctrl-C or a crash.
"""

from __future__ import annotations

import json
import os
import selectors
import tempfile
from collections.abc import Callable, Iterator, Sequence
from subprocess import PIPE, Popen, TimeoutExpired
from typing import IO, Any, Literal

from trnbench.errors import EnvironmentFault, InputError
from trnbench.evidence.measure.worker import WorkRequest
from trnbench.facts.processes.children import how_ended, python_words, started
from trnbench.facts.records import State, asdict, field

SessionProgress = Callable[[int, int, str], None]
Stopped = Literal["budget", "interrupt", "crash"]

WORKER = "trnbench.evidence.measure.worker:main"
_POLL_S = 0.2
_GRACE_S = 5.0


class Session(State):
    """Results of a session: rows by column, skipped work with reasons, and an early end."""

    device: dict[str, str] = field(default_factory=dict)
    rows: list[dict[str, str]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    stopped: Stopped | None = None

    def hear(self, event: dict[str, Any], progress: SessionProgress) -> bool:
        """Record an event; True for the last one."""
        match event["event"]:
            case "devices":
                self.device, self.remarks = event["cells"], list(event["remarks"])
            case "next":
                progress(event["done"], event["total"], event["what"])
            case "row":
                self.rows.append(event["cells"])
            case "skipped":
                self.skipped.append((event["what"], event["reason"]))
            case "budget":
                self.stopped = "budget"
                self.skipped += [(what, "the budget was spent") for what in event["left"]]
            case "failed":
                kind = InputError if event["exit_code"] == InputError.exit_code else None
                raise (kind or EnvironmentFault)(event["message"], hint=event["hint"])
            case _:
                return True
        return False


def run_session(
    request: WorkRequest,
    *,
    progress: SessionProgress,
    cancel: Callable[[], bool],
    worker: Sequence[str] | None = None,
) -> Session:
    """Rows measured by the worker process, until its end or until `cancel` is true.

    `worker` replaces the command line of the measuring process.
    """
    session = Session()
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        process = started(worker or python_words(WORKER), stdin=PIPE, stdout=PIPE, stderr=said)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(asdict(request)).encode())
            process.stdin.close()
            ended = False
            for line in _lines(process.stdout, cancel):
                if line is None:
                    session.stopped = "interrupt"
                    ended = True
                    break
                if session.hear(json.loads(line), progress):
                    ended = True
            if not ended and session.stopped is None:
                _crashed(session, process.wait(), said)
        finally:
            _end(process)
    return session


def _lines(stream: IO[bytes], cancel: Callable[[], bool]) -> Iterator[bytes | None]:
    """Yield lines as they arrive; a final None means that `cancel` was true."""
    rest = b""
    with selectors.DefaultSelector() as ready:
        ready.register(stream, selectors.EVENT_READ)
        while True:
            if cancel():
                yield None
                return
            if not ready.select(_POLL_S):
                continue
            output = os.read(stream.fileno(), 1 << 16)
            if not output:
                return
            *lines, rest = (rest + output).split(b"\n")
            yield from lines


def _crashed(session: Session, code: int, said: IO[str]) -> None:
    said.seek(0)
    how = how_ended(code, said.read())
    if not session.rows:
        raise EnvironmentFault(f"the process that measures {how}")
    session.stopped = "crash"
    session.remarks.append(f"the process that measures {how}; the rows before that are kept")


def _end(process: Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_GRACE_S)
        except TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        process.stdout.close()
