"""Texts kept of the files behind an answer, and the secrets masked in them.

Launch scripts, configurations and logs contain keys of clusters and services. Only their digest is
kept, and of their content only the part that the answer shows.
"""

from __future__ import annotations

import re
from pathlib import Path

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


def _without_value(found: re.Match[str]) -> str:
    name, value = found["name"], found["value"]
    quote = next((mark for mark in ('"""', "'''", '"', "'") if value.startswith(mark)), "")
    bare = value.strip("\"'")
    said = name.strip(" \t\"':=-")
    if said.casefold() in _QUESTIONS or (not _ALWAYS.search(said) and _HARMLESS.fullmatch(bare)):
        return found[0]
    return f"{name}{quote}{MASK}{quote}"
