"""Presses keys in the terminal UI, in a pty that changes its size: it can still be left.

What is pressed is made from a seed, or read from a file: a line is a text in JSON, the keys that
are sent together, or two numbers, the columns and lines that the terminal has from then on.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.terminal import Terminal
from tests.fuzz.texts import JUNK

KEYS = (
    *("\t", "\x1b[Z", "\r", " ", "\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D", "\x1b[5~", "\x1b[6~"),
    *(
        "1",
        "2",
        "3",
        "4",
        "5",
        "6",
        "7",
        "8",
        "9",
        "m",
        "i",
        "u",
        "c",
        "?",
        "/",
        "w",
        "o",
        "t",
        "y",
        "s",
        "g",
        "e",
        "f",
        "n",
    ),
    *(
        "\x10",
        "\x1b[15~",
        "\x7f",
        "\x1b",
        "\x1b[<0;10;10M\x1b[<0;10;10m",
        "\x1b[200~paste\x1b[201~",
    ),
)
SIZES = ((120, 40), (80, 24), (40, 10), (10, 3), (300, 100))
LEAVE = "\x1b\x1b\x11y\x11y"
CORPUS = Path(__file__).with_name("corpus") / "keys"
"""Files of what once went wrong."""
Steps = Sequence[str | list[int]]
"""Keys that are sent together, or the columns and lines of the terminal from then on."""


def steps_of(seed: int, count: int = 60) -> Steps:
    """Return what a seed presses."""
    chance = random.Random(seed)
    steps: list[str | list[int]] = []
    for _ in range(count):
        steps.append(chance.choice(KEYS) if chance.random() < 0.9 else chance.choice(JUNK))
        if chance.random() < 0.1:
            steps.append([*chance.choice(SIZES)])
    return steps


def read_steps(path: Path) -> Steps:
    """Return what a file presses."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def written_steps(steps: Steps) -> str:
    """Return the file of what is pressed."""
    return "".join(f"{json.dumps(step)}\n" for step in steps)


def pressed(steps: Steps, folder: Path) -> str | None:
    """Press keys, then leave; return what is wrong with how that ended, if anything."""
    home = {f"XDG_{name}_HOME": str(folder) for name in ("DATA", "STATE", "CONFIG", "CACHE")}
    environment = {**os.environ, **home, "HOME": str(folder), "TERM": "xterm-256color"}
    environment["TRNBENCH_DEBUG"] = "1"
    terminal = Terminal([sys.executable, "-m", "trnbench", "tui"], environment, cwd=folder)
    try:
        terminal.until(b"Compa")
        for step in steps:
            if isinstance(step, str):
                terminal.press(step.encode())
            else:
                terminal.resize(*step)
            if not terminal.read(0.02):
                break
        terminal.resize(*SIZES[0])
        code = terminal.left_by(LEAVE.encode())
        if b"Traceback" in terminal.written:
            told = terminal.written[terminal.written.rfind(b"Traceback") :].decode(errors="replace")
            places = re.findall(r'File "[^"]*/((?:trnbench|textual)/[^"]*)", line (\d+)', told)
            error = re.search(r"internal error: .*", told)
            return f"{error and error[0].strip()} at {places[-6:]}"
        if code != 0:
            at = max(terminal.written.rfind(b"trnbench: "), 0)
            return f"exit code {code}: {terminal.written[at : at + 300]!r}"
        return None if terminal.restored else "the terminal is not as it was"
    finally:
        terminal.close()
