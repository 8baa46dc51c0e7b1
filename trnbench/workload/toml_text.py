"""Writing a data file: a table of plain values -> TOML text that reads back as the same table."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence

Value = str | bool | int | float | datetime.date | Sequence["Value"] | Mapping[str, "Value"]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def toml_text(table: Mapping[str, Value]) -> str:
    """Return the table as TOML: plain values first, then a section each; deeper tables inline."""
    plain = [_line(key, value) for key, value in table.items() if not isinstance(value, Mapping)]
    sections = [
        "\n".join([f"[{_key(name)}]", *(_line(key, value) for key, value in section.items())])
        for name, section in table.items()
        if isinstance(section, Mapping)
    ]
    return "\n\n".join(["\n".join(plain), *sections]) + "\n"


def _line(key: str, value: Value) -> str:
    return f"{_key(key)} = {_value(value)}"


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _quoted(key)


def _value(value: Value) -> str:
    match value:
        case str():
            return _quoted(value)
        case bool():
            return str(value).lower()
        case datetime.date():
            return value.isoformat()
        case int() | float():
            return repr(value)
        case Sequence():
            return f"[{', '.join(map(_value, value))}]"
        case _:
            return f"{{ {', '.join(_line(key, item) for key, item in value.items())} }}"


def _quoted(text: str) -> str:
    def escaped(character: str) -> str:
        if character in _ESCAPES:
            return _ESCAPES[character]
        unprintable = ord(character) < 0x20 or ord(character) == 0x7F
        return f"\\u{ord(character):04X}" if unprintable else character

    return f'"{"".join(map(escaped, text))}"'
