"""A file of any length as blocks of whole lines; logs of gigabytes need little memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from trnbench.facts.catalog.text_file import chunks
from trnbench.facts.records import Record

BLOCK_BYTES = 4 << 20
_PART_BYTES = 512 << 10
"""Size of later blocks, which fit a core's cache; the first block determines the format."""
_ESCAPE = b"\x1b"
_CODES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
_RESIDUE = re.compile(rb"\[[0-9;]{1,8}m")
"""Remains of colour codes without their escape byte."""


class LineBlock(Record):
    """Whole lines of a file; `line` is the number of the first."""

    text: bytes
    line: int

    def line_of(self, place: int) -> int:
        return self.line + self.text.count(b"\n", 0, place)


def blocks(path: Path, block_bytes: int = 0) -> Iterator[LineBlock]:
    """Yield a file as blocks of whole lines without terminal codes; refuse binary files."""
    block_bytes = block_bytes or BLOCK_BYTES
    line, rest, size = 1, b"", 2 * block_bytes
    for read in chunks(path, what="log", size=block_bytes):
        whole = rest + read
        end = max(whole.rfind(b"\n"), whole.rfind(b"\r")) + 1
        if not end and len(whole) > BLOCK_BYTES:
            end = len(whole)  # no log has such a line: it is cut, not gathered
        text, rest = whole[:end], whole[end:]
        for part in _parts(text, size):
            yield LineBlock(text=_plain(part), line=line)
            line += part.count(b"\n")
            size = _PART_BYTES
    if rest:
        yield LineBlock(text=_plain(rest), line=line)


def _parts(text: bytes, size: int) -> Iterator[bytes]:
    """Yield whole lines, about `size` bytes at a time."""
    start = 0
    while start < len(text):
        stop = start + size
        end = max(text.rfind(b"\n", start, stop), text.rfind(b"\r", start, stop)) + 1
        end = end if end and stop < len(text) else len(text)
        yield text[start:end]
        start = end


def _plain(text: bytes) -> bytes:
    text = _CODES.sub(b"", text) if _ESCAPE in text else text
    return _RESIDUE.sub(b"", text) if _RESIDUE.search(text) else text
