"""Kept contents: compressed, with their size and digest, secrets masked, and checked when read.

Launch scripts, configurations and logs contain keys of clusters and services. Only their digest is
kept, and of their content only the part that the answer shows.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from pathlib import Path
from typing import Any

FAST = 1
"""Level of compression: contents are small, and the user waits."""
LARGEST = 256 << 20
"""Largest bytes of a content: a file of runs may come from anybody."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_SHORT_SEAL = 32


class WrongContent(ValueError):
    """A content differs from the kept one."""


def plain(text: str) -> str:
    """Text that UTF-8 can encode: bytes of undecodable names are written as escapes."""
    return _SURROGATE.sub(lambda surrogate: f"\\u{ord(surrogate[0]):04x}", text)


def json_text(value: object) -> str:
    # A surrogate is part of a JSON string, so its backslash needs an escape.
    text = json.dumps(value, ensure_ascii=False)
    return _SURROGATE.sub(lambda surrogate: f"\\\\u{ord(surrogate[0]):04x}", text)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def packed(value: object) -> tuple[bytes, int]:
    return squeezed(json_text(value).encode())


def squeezed(data: bytes) -> tuple[bytes, int]:
    return zlib.compress(data, FAST), len(data)


def inflated(content: bytes, size_bytes: int) -> bytes:
    """A content of `size_bytes` uncompressed; not more than that is ever unpacked."""
    if not 0 <= size_bytes <= LARGEST:
        raise WrongContent(f"its size is given as {size_bytes} bytes")
    # A byte more than expected tells a content that is too long without unpacking all of it.
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(content, size_bytes + 1)
    except zlib.error as error:
        raise WrongContent(f"it cannot be unpacked: {error}") from None
    if len(data) != size_bytes or not unpacking.eof:
        raise WrongContent(f"it has not the {size_bytes} bytes that were kept")
    return data


def unpacked(content: bytes, size_bytes: int) -> Any:  # noqa: ANN401 - plain data of any shape
    """Plain data from compressed JSON."""
    try:
        return json.loads(inflated(content, size_bytes))
    except (ValueError, RecursionError) as error:
        raise WrongContent(str(error)) from None


def inflated_bytes(content: object) -> int:
    """Uncompressed bytes of a content that was kept without its size; -1 where it is damaged."""
    if not isinstance(content, bytes):
        return -1
    unpacking = zlib.decompressobj()
    try:
        size = len(unpacking.decompress(content, LARGEST))
    except zlib.error:
        return -1
    return size if unpacking.eof else -1


def sealed(*values: object) -> str:
    """Seal of a row's cells: a digest that differs for any other cells."""
    checksum = hashlib.sha256()
    for value in values:
        # Kind and length stand before the bytes: no two lists of cells have the same stream.
        data = value if isinstance(value, bytes) else repr(value).encode()
        checksum.update(b"%d %d:" % (isinstance(value, bytes), len(data)))
        checksum.update(data)
    return checksum.hexdigest()[:_SHORT_SEAL]


MASK = "(masked)"
_DATA = frozenset((".csv", ".json", ".jsonl", ".toml"))
_NAME = r"[\w.-]*(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL)[\w.-]*"
_VALUE = (
    r'"""[\s\S]*?"""|' + r"'''[\s\S]*?'''|" + r'"(?:\\.|[^"\\\n])*"|' + r"'[^'\n]*'|[^\s,;}\]#]+"
)
_ASSIGNED = re.compile(
    rf"(?P<name>[\"']?(?<![\w.-]){_NAME}[\"']?[ \t]*[:=][ \t]*|--{_NAME}[ \t]+)(?P<value>{_VALUE})",
    re.IGNORECASE,
)
_BEARER = re.compile(r"(Bearer|Basic)[ \t]+[\w.~+/=-]{8,}", re.IGNORECASE)
_ALWAYS = re.compile("SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
_HARMLESS = re.compile(
    r"\d[\d.,_]*([eE][+-]?\d+)?\s?[a-zA-Z%]{0,3}(@[\w.]+)?|true|false|null|[\[{].*"
)
"""Numbers with or without a unit, and values that are not text: `tokens = "300B"` is no secret."""
_QUESTIONS = ("key", "keys")


def is_data(path: Path) -> bool:
    """True where the text of a file is kept; of other files only a digest is."""
    return path.suffix.lower() in _DATA


def masked(data: bytes) -> bytes:
    """Text of a file without values assigned to names of keys and passwords."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data
    return _BEARER.sub(rf"\1 {MASK}", _ASSIGNED.sub(_without_value, text)).encode()


def _without_value(secret: re.Match[str]) -> str:
    name, value = secret["name"], secret["value"]
    quote = next((mark for mark in ('"""', "'''", '"', "'") if value.startswith(mark)), "")
    bare = value.strip("\"'")
    said = name.strip(" \t\"':=-")
    if said.casefold() in _QUESTIONS or (not _ALWAYS.search(said) and _HARMLESS.fullmatch(bare)):
        return secret[0]
    return f"{name}{quote}{MASK}{quote}"
