"""A table as the text of a TOML file, in the style of the shipped data files.

What stands beside a number stays on its line; other tables get a heading of their own, lists of
more than one line a line for each item.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping

WIDTH = 100
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(table: Mapping[str, object]) -> str:
    """Return a table, whose tables hold no further headings, as TOML."""
    plain = {key: value for key, value in table.items() if not _is_section(value)}
    blocks = [_lines(plain)]
    for key, value in table.items():
        if key not in plain and isinstance(value, Mapping):
            blocks.append(f"[{_key(key)}]\n{_lines(value)}")
    return "\n".join(blocks)


def _is_section(value: object) -> bool:
    return isinstance(value, Mapping) and "value" not in value


def _lines(table: Mapping[str, object]) -> str:
    return "".join(_line(key, value) for key, value in table.items())


def _line(key: str, value: object) -> str:
    line = f"{_key(key)} = {_value(value)}\n"
    if len(line) > WIDTH and isinstance(value, list | tuple):
        items = "".join(f"  {_value(item)},\n" for item in value)
        return f"{_key(key)} = [\n{items}]\n"
    return line


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else json.dumps(key, ensure_ascii=False)


def _value(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case datetime.date():
            return value.isoformat()
        case Mapping():
            return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + " }"
        case list() | tuple():
            return "[" + ", ".join(map(_value, value)) + "]"
        case _:
            return json.dumps(str(value), ensure_ascii=False)
