"""Text of files, arguments and paths as a terminal may be given it. Layer 0.

A character that moves the cursor, ends a line, turns the direction of reading or begins an escape
sequence would let a data file draw what it likes: it is written as Python writes it, `\\x1b`.
"""

from __future__ import annotations

import re

_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_UNSAFE_BUT_LINES = re.compile(_UNSAFE.pattern.replace("\x00-\x1f", "\x00-\x09\x0b-\x1f"))
_COLOUR = re.compile("(\x1b\\[[0-9;]*m)")
_MAY_STAND = "\t\n\r"
"""In a text of several lines of a data file: harmless when shown, and common."""


def shown(text: str) -> str:
    """Return a text as one line: its control characters are written out."""
    return _UNSAFE.sub(_written, text) if _UNSAFE.search(text) else text


def shown_lines(text: str, *, coloured: bool = False) -> str:
    """Return a text of several lines; with `coloured`, its changes of colour stay."""
    if not _UNSAFE_BUT_LINES.search(text):
        return text
    parts = _COLOUR.split(text) if coloured else [text]
    parts[::2] = [_UNSAFE_BUT_LINES.sub(_written, part) for part in parts[::2]]
    return "".join(parts)


def control_character(text: str) -> str | None:
    """Return the first character of a data file's text that may not stand there, as U+001B."""
    return next(
        (
            f"U+{ord(found[0]):04X}"
            for found in _UNSAFE.finditer(text)
            if found[0] not in _MAY_STAND
        ),
        None,
    )


def markdown_text(text: str) -> str:
    """Return a text that stands in Markdown as it is: on one line, no cell's end, no HTML, no link.

    Who shows Markdown takes what looks like HTML for HTML.
    """
    told = " ".join(text.split()).replace("|", "\\|").replace("](", "]\\(")
    return told.replace("<", "&lt;")


def json_shown(text: str) -> str:
    """Return JSON in which no character can drive a terminal; it reads back as the same."""
    return _UNSAFE_BUT_LINES.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _written(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
