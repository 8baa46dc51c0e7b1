"""Presses random keys in the terminal UI, in a pty that changes its size: it can still be left."""

from __future__ import annotations

import os
import random
import re
import sys
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


def pressed(seed: int, folder: Path, count: int = 60) -> str | None:
    """Press keys of a seed, then leave; return what is wrong with how that ended, if anything."""
    chance = random.Random(seed)
    home = {f"XDG_{name}_HOME": str(folder) for name in ("DATA", "STATE", "CONFIG", "CACHE")}
    environment = {**os.environ, **home, "HOME": str(folder), "TERM": "xterm-256color"}
    environment["TRNBENCH_DEBUG"] = "1"
    terminal = Terminal([sys.executable, "-m", "trnbench", "tui"], environment, cwd=folder)
    try:
        terminal.until(b"Compa")
        for _ in range(count):
            text = chance.choice(KEYS) if chance.random() < 0.9 else chance.choice(JUNK)
            terminal.press(text.encode())
            if chance.random() < 0.1:
                terminal.resize(*chance.choice(SIZES))
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
