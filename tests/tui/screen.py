"""What stands on the screen of a terminal, read from the bytes that were written to it."""

from __future__ import annotations

import os
import re
import sys

from tests.fuzz.terminal import Terminal

_PIECE = re.compile(
    rb"\x1b\[(?P<at>\d*;?\d*)H|\x1b\[[\x20-\x3f]*[\x40-\x7e]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)"
    rb"|\x1bP[^\x1b]*\x1b\\|\x1b.|(?P<text>[^\x1b]+)"
)
_UNFINISHED = re.compile(
    rb"(\x1b(\[[\x20-\x3f]*|\][^\x07\x1b]*|P[^\x1b]*)?|[\xc0-\xff][\x80-\xbf]*)$"
)


class ScreenTerminal(Terminal):
    """`trnbench tui` in a pty, and what it shows: the application moves to a place and writes."""

    def __init__(self, *arguments, home, columns=80, lines=24, command=None):
        names = ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "HOME")
        environment = {**os.environ, **dict.fromkeys(names, str(home)), "TERM": "xterm-256color"}
        command = command or [sys.executable, "-m", "trnbench", "tui", *arguments]
        super().__init__(command, environment, columns=columns, lines=lines, cwd=home)
        self._size = (columns, lines)
        self._read_to = 0
        self._lines: list[str] = []
        self._cells: dict[tuple[int, int], str] = {}
        self._place = (0, 0)

    def resize(self, columns, lines):
        super().resize(columns, lines)
        self._size = (columns, lines)
        self._lines = []

    @property
    def shown(self):
        """The lines on the screen."""
        if self._read_to == len(self.written) and self._lines:
            return self._lines
        unfinished = _UNFINISHED.search(self.written, self._read_to)
        end = unfinished.start() if unfinished else len(self.written)
        for piece in _PIECE.finditer(self.written, self._read_to, end):
            if piece["at"] is not None:
                row, _, column = piece["at"].partition(b";")
                self._place = (int(column or 1) - 1, int(row or 1) - 1)
            elif piece["text"]:
                self._write(piece["text"].decode(errors="replace"))
        self._read_to = end
        columns, lines = self._size
        self._lines = [
            "".join(self._cells.get((x, y), " ") for x in range(columns)).rstrip()
            for y in range(lines)
        ]
        return self._lines

    def _write(self, text):
        x, y = self._place
        for letter in text:
            if letter == "\n":
                y += 1
            elif letter == "\r":
                x = 0
            else:
                self._cells[x, y] = letter
                x += 1
        self._place = (x, y)

    def shows(self, text, *, absent="", wait_s=0.1):
        """Read until a text is on the screen, and another is not."""
        tries = 0
        while text not in (shown := "\n".join(self.shown)) or (absent and absent in shown):
            assert tries < 30 / wait_s, f"no {text!r} (or still {absent!r}) in\n{shown}"
            assert self.read(wait_s), f"ended without {text!r} in\n{shown}"
            tries += 1
        return shown
