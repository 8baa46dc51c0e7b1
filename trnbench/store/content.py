"""Contents as they are kept: compressed, with their size and digest, and checked when read."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from typing import Any

FAST = 1
"""How hard to compress: what is kept is small, and the user waits."""
LARGEST = 256 << 20
"""Bytes of a content at most: a file of runs may come from anybody."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_SHORT_SEAL = 32


class WrongContent(ValueError):
    """A content is not what was kept."""


def plain(text: str) -> str:
    """Return a text that UTF-8 can hold: bytes of names that are no text are written out."""
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def json_text(value: object) -> str:
    """Return plain data as JSON that UTF-8 can hold."""
    # A surrogate stands in a string, where its backslash is to be one.
    text = json.dumps(value, ensure_ascii=False)
    return _SURROGATE.sub(lambda found: f"\\\\u{ord(found[0]):04x}", text)


def digest(data: bytes) -> str:
    """Return the name of a content."""
    return hashlib.sha256(data).hexdigest()


def packed(value: object) -> tuple[bytes, int]:
    """Return what JSON can hold, compressed, and its bytes before."""
    return squeezed(json_text(value).encode())


def squeezed(data: bytes) -> tuple[bytes, int]:
    """Return a content compressed, and its bytes before."""
    return zlib.compress(data, FAST), len(data)


def inflated(content: bytes, size_bytes: int) -> bytes:
    """Return a content of so many bytes as it was; no more than these are ever unpacked."""
    if not 0 <= size_bytes <= LARGEST:
        raise WrongContent(f"its size is given as {size_bytes} bytes")
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(content, size_bytes + 1)
    except zlib.error as error:
        raise WrongContent(f"it cannot be unpacked: {error}") from None
    if len(data) != size_bytes or not unpacking.eof:
        raise WrongContent(f"it has not the {size_bytes} bytes that were kept")
    return data


def unpacked(content: bytes, size_bytes: int) -> Any:  # noqa: ANN401 - plain data of any shape
    """Return what was packed."""
    try:
        return json.loads(inflated(content, size_bytes))
    except (ValueError, RecursionError) as error:
        raise WrongContent(str(error)) from None


def inflated_bytes(content: object) -> int:
    """Return the bytes of a content that was kept without its size; -1 where it is damaged."""
    if not isinstance(content, bytes):
        return -1
    unpacking = zlib.decompressobj()
    try:
        size = len(unpacking.decompress(content, LARGEST))
    except zlib.error:
        return -1
    return size if unpacking.eof else -1


def sealed(*values: object) -> str:
    """Return the seal of the cells of a row: another for any other cells."""
    told = hashlib.sha256()
    for value in values:
        data = value if isinstance(value, bytes) else repr(value).encode()
        told.update(b"%d %d:" % (isinstance(value, bytes), len(data)))
        told.update(data)
    return told.hexdigest()[:_SHORT_SEAL]
