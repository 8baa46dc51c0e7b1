r"""Text of files, arguments and paths, made safe for a terminal. Layer 0.

Control characters that move the cursor, end a line, change the reading direction or start an escape
sequence would let a data file draw on the screen. They are shown escaped, as Python writes `\\x1b`.
"""

from __future__ import annotations

import re

_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
# The same set without the line feed.
_UNSAFE_BUT_LINES = re.compile(_UNSAFE.pattern.replace("\x00-\x1f", "\x00-\x09\x0b-\x1f"))
_COLOUR = re.compile("(\x1b\\[[0-9;]*m)")
_MAY_STAND = "\t\n\r"
"""Control characters that multi-line data files may contain: harmless and common."""


def shown(text: str) -> str:
    """The text on one line, control characters escaped."""
    return _UNSAFE.sub(_written, text) if _UNSAFE.search(text) else text


def shown_lines(text: str, *, coloured: bool = False) -> str:
    """A text of several lines, escaped; with `coloured`, colour sequences stay."""
    if not _UNSAFE_BUT_LINES.search(text):
        return text
    # The pattern has a group, so `split` keeps the colours at odd places: only even ones are text.
    parts = _COLOUR.split(text) if coloured else [text]
    parts[::2] = [_UNSAFE_BUT_LINES.sub(_written, part) for part in parts[::2]]
    return "".join(parts)


def control_character(text: str) -> str | None:
    """The first forbidden character of a data file's text, such as U+001B; None without one."""
    return next(
        (
            f"U+{ord(unsafe[0]):04X}"
            for unsafe in _UNSAFE.finditer(text)
            if unsafe[0] not in _MAY_STAND
        ),
        None,
    )


def markdown_text(text: str) -> str:
    """A text escaped for Markdown: one line, no end of a cell, no HTML, no link."""
    line = " ".join(text.split()).replace("|", "\\|").replace("](", "]\\(")
    return line.replace("<", "&lt;")


def json_shown(text: str) -> str:
    """JSON with control characters escaped; it parses to the same value."""
    return _UNSAFE_BUT_LINES.sub(lambda unsafe: f"\\u{ord(unsafe[0]):04x}", text)


def _written(unsafe: re.Match[str]) -> str:
    return unsafe[0].encode("unicode_escape").decode()
