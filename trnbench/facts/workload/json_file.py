"""Reading one JSON file with an object; every failure becomes one clear message."""

from __future__ import annotations

import json
from math import isinf
from pathlib import Path
from typing import NoReturn

from trnbench.facts.catalog.foreign import bounded_int
from trnbench.facts.catalog.text_file import read_text, refused

MAX_BYTES = 8 << 20
"""Configurations have some kilobytes, even with 20,000 class names less than two mebibytes."""


def read_object(path: Path) -> dict[str, object]:
    """The JSON object in `path`, or DataFileError."""
    try:
        value = json.loads(
            read_text(path, what="JSON", max_bytes=MAX_BYTES),
            parse_constant=_refuse_constant,
            parse_int=bounded_int,
            parse_float=_bounded_float,
            object_pairs_hook=_without_duplicates,
        )
    except RecursionError:
        raise refused(path, "not valid JSON: nested too deeply") from None
    except ValueError as error:
        raise refused(path, f"not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise refused(path, "expected a JSON object ({ ... }) with the keys of a configuration")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _bounded_float(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise ValueError(f"{text:.40} is out of range")
    return number


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table: dict[str, object] = {}
    for key, value in pairs:
        if key in table:
            raise ValueError(f"key {key!r:.60} stands twice in one object")
        table[key] = value
    return table
