"""Tries many seeds: `python -m tests.fuzz.run inputs|lines|kills|keys FIRST COUNT [SECONDS]`.

Each seed is an input with the command lines that read it, one command line, one run that is killed,
or keys that are pressed in the terminal UI. What is wrong is printed with the seed that makes it
again. Keys that once went wrong, of tests/fuzz/corpus/keys, are pressed first; keys that go wrong
are written there.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.fuzz import inputs, lines
from tests.fuzz.judge import Ended, ended
from tests.fuzz.keys import CORPUS, pressed, read_steps, steps_of, written_steps
from tests.fuzz.kills import killed

MOST_BYTES = 4 * 1024**3
HOMES = ("DATA", "STATE", "CONFIG", "CACHE")


def tried(kind: str, seed: int) -> Iterator[tuple[Sequence[str], Ended]]:
    """Yield the command lines of a seed, and how each ended, in a folder and a home of its own."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        for home in HOMES:
            os.environ[f"XDG_{home}_HOME"] = f"{folder}/.home"
        os.environ.pop("TRNBENCH_SPEC_PATH", None)
        os.chdir(folder)
        try:
            if kind == "lines":
                asked = [lines.line(seed, Path(folder))]
            else:
                asked = inputs.asked(seed, Path(folder))
            for line in asked:
                yield line, ended(line)
        finally:
            os.chdir(before)


def main(kind: str, first: int, count: int, for_s: float) -> int:
    """Try seeds until they are done or the time is; return how many were wrong."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    codes: Counter[int] = Counter()
    wrong, longest, tries, seed = 0, (0.0, 0), 0, first
    end = time.monotonic() + for_s
    while seed < first + count and time.monotonic() < end:
        for line, found in tried(kind, seed):
            codes[found.code] += 1
            tries += 1
            longest = max(longest, (found.processor_s, seed))
            if found.wrong:
                wrong += 1
                print(f"{kind} {seed}: {found.wrong}\n    {line}", flush=True)
        seed += 1
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(
        f"{kind}: seeds {first} to {seed - 1}, {tries} command lines, {wrong} wrong; exit codes "
        f"{dict(sorted(codes.items()))}; longest {longest[0]:.1f} s (seed {longest[1]}); {peak} MB"
    )
    return wrong


def try_processes(kind: str, first: int, count: int, for_s: float) -> int:
    """Start a process for each seed until the time is over; return how many went wrong."""
    wrong, seed, end = again() if kind == "keys" else 0, first, time.monotonic() + for_s
    while seed < first + count and time.monotonic() < end:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            if kind == "kills":
                found = killed(seed, Path(folder))
            else:
                found = pressed(steps_of(seed), Path(folder))
        if found:
            wrong += 1
            print(f"{kind} {seed}: {found}", flush=True)
        if found and kind == "keys":
            (CORPUS / f"seed-{seed}.txt").write_text(written_steps(steps_of(seed)), "utf-8")
        seed += 1
    print(f"{kind}: seeds {first} to {seed - 1}; {wrong} wrong")
    return wrong


def again() -> int:
    """Press the keys that once went wrong; return how many do."""
    wrong = 0
    for path in sorted(CORPUS.glob("*.txt")):
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            if found := pressed(read_steps(path), Path(folder)):
                wrong += 1
                print(f"keys {path.name}: {found}", flush=True)
    return wrong


if __name__ == "__main__":
    kind, first, count, *rest = sys.argv[1:]
    for_s = float(rest[0]) if rest else float("inf")
    if kind in ("kills", "keys"):
        sys.exit(min(try_processes(kind, int(first), int(count), for_s), 1))
    sys.exit(min(main(kind, int(first), int(count), for_s), 1))
