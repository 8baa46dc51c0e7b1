"""Processes by a mark in their environment, which all that they start inherit."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

MARK = "TRNBENCH_TEST_MARK"
T = TypeVar("T")


def marked(mark: str) -> dict[int, str]:
    """Return the command lines of living processes with a mark, by number."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):
                if f"{MARK}={mark}\0".encode() in (folder / "environ").read_bytes():
                    words = (folder / "cmdline").read_bytes().decode(errors="replace")
                    found[int(folder.name)] = words.replace("\0", " ")
    return found


def until(wanted: Callable[[], T], longest_s: float = 60.0) -> T:
    """Return what is wanted as soon as it is there; it has so long to come."""
    end = time.monotonic() + longest_s
    while time.monotonic() < end:
        if found := wanted():
            return found
        time.sleep(0.01)
    raise AssertionError(f"this never came to be; the last answer was {wanted()!r}")


@contextmanager
def begun(
    words: Sequence[str],
    folder: Path,
    *,
    stdout: int = subprocess.DEVNULL,
    stderr: int = subprocess.DEVNULL,
):
    """Start a command line in a folder of its own session; yield it and the mark of its tree."""
    mark = str(folder)
    homes = {f"XDG_{name}_HOME": str(folder / name) for name in ("DATA", "STATE", "CONFIG")}
    process = subprocess.Popen(
        words,
        env={**os.environ, **homes, MARK: mark, "TRNBENCH_KEEP": "1"},
        cwd=folder,
        start_new_session=True,
        text=True,
        stdout=stdout,
        stderr=stderr,
    )
    try:
        yield process, mark
    finally:
        process.kill()
        process.communicate()
