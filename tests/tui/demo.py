"""`make demo`: a scripted session of the terminal UI in a pty, as pictures and as a recording.

The pictures are what the application itself exports, one at each stop; the recording is a file of
asciinema with waits cut short. README shows them.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from tests.tui.screen import ScreenTerminal

COLUMNS, LINES = 116, 34
PATIENCE_S = 180.0
"""A screen that has not come by then will not: its words have changed."""
LONGEST_WAIT_S = 1.0
"""Waits for answers are no longer than this in the recording."""
KEY_S = 0.25
DOWN, BACKTAB = b"\x1b[B", b"\x1b[Z"
STOPS: tuple[tuple[str, tuple[bytes, ...], str, str], ...] = (
    ("compare", (), "more columns ->", "working on"),
    ("", (BACKTAB,), "USD/h", "what if ..."),
    ("what-if", (*[DOWN] * 5, *[b"-"] * 6), "-30 %", "what if ..."),
    ("", (b"0", b"\t", DOWN, DOWN, b"\r"), " valid", "working on"),
    ("memory", (b"\r",), "a rank of", "working on"),
)
"""Name of a picture if one is made, the keys that lead there, what the screen has then, and not."""


class RecordedTerminal(ScreenTerminal):
    """A terminal that notes when something was written."""

    def __init__(self, **options):
        self.frames: list[tuple[float, bytes]] = []
        super().__init__(**options)

    def read(self, wait_s=0.2):
        before = len(self.written)
        alive = super().read(wait_s)
        if len(self.written) > before:
            self.frames.append((time.monotonic(), self.written[before:]))
        return alive

    @property
    def cast(self):
        """The recording as lines of JSON, in version 2 of the format."""
        lines = [json.dumps({"version": 2, "width": COLUMNS, "height": LINES, "title": "trnbench"})]
        shown_s, last_s = 0.0, self.frames[0][0]
        for at_s, data in self.frames:
            shown_s += min(at_s - last_s, LONGEST_WAIT_S)
            last_s = at_s
            lines.append(json.dumps([round(shown_s, 3), "o", data.decode(errors="replace")]))
        return "\n".join(lines) + "\n"


def waited(screen, wanted, gone):
    """Read until something is on the screen, and something else no longer."""
    end = time.monotonic() + PATIENCE_S
    while wanted not in (shown := "\n".join(screen.shown)) or gone in shown:
        assert screen.read(0.1), f"ended without {wanted!r} in\n{shown}"
        assert time.monotonic() < end, f"no {wanted!r} in\n{shown}"


def pictured(screen, home, wanted):
    """Let the application write a picture of the screen; return its text."""
    known = {*home.glob("*.svg")}
    screen.press(b"\x10")
    waited(screen, "view: Compare", "nothing of this")
    screen.press(b"svg of the screen")
    waited(screen, "export: SVG of the", "view: Compare")
    screen.press(b"\r")
    while not (new := {*home.glob("*.svg")} - known):
        assert screen.read(0.1), "the session ended before its picture was written"
    waited(screen, "written", "nothing of this")
    waited(screen, wanted, "written")
    (path,) = new
    return path.read_text(encoding="utf-8")


def main(folder):
    """Play the session, and write its pictures and its recording into a folder."""
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        screen = RecordedTerminal(home=home, columns=COLUMNS, lines=LINES)
        try:
            for name, keys, wanted, gone in STOPS:
                for key in keys:
                    screen.press(key)
                    screen.read(KEY_S)
                waited(screen, wanted, gone)
                if name:
                    text = pictured(screen, home, wanted)
                    (folder / f"tui-{name}.svg").write_text(text, encoding="utf-8")
                    print(f"{name}: {len(text):,} bytes")
            code = screen.left_by(b"q")
        finally:
            screen.close()
        (folder / "tui.cast").write_text(screen.cast, encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
