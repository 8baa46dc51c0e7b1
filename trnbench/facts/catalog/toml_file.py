"""Reading and writing one TOML file; the only module that knows TOML's parser and writer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

from trnbench.facts.catalog.kept import digest_of, keep, kept
from trnbench.facts.catalog.text_file import read_text, refused
from trnbench.facts.terminal_text import control_character, shown

MAX_BYTES = 1 << 20
"""Hand-written data is far below a mebibyte; a larger file is refused before reading."""
_KIND = "tables"


def read_toml(path: Path) -> dict[str, object]:
    return _parsed(path, read_text(path, what="TOML", max_bytes=MAX_BYTES))


def read_known(path: Path) -> dict[str, object]:
    """The table in a file that many commands read, through the cache."""
    text = read_text(path, what="TOML", max_bytes=MAX_BYTES)
    digest = digest_of(text)
    if (found := _with_dates(kept(_KIND, digest))) is not None:
        return found
    table = _parsed(path, text)
    with suppress(TypeError):  # a time of day: nothing that JSON holds
        keep(_KIND, digest, _without_dates(table))
    return table


def _parsed(path: Path, text: str) -> dict[str, object]:
    import tomli  # not needed for tables from the cache

    try:
        table = tomli.loads(text)
    except RecursionError:
        raise refused(path, "not valid TOML: nested too deeply") from None
    except ValueError as error:
        raise refused(path, f"not valid TOML: {error}") from None
    # Control characters stand in the file as such, or come from an escape: without a backslash and
    # without such a character no text has to be looked at.
    for place, said in _texts(table, "") if "\\" in text or control_character(text) else ():
        if character := control_character(said):
            raise refused(path, f"{shown(place)}: has the control character {character}; remove it")
    return table


def _without_dates(table: dict[str, object]) -> dict[str, object]:
    """A table for JSON: its dates are moved to a list, each with its path."""
    dates: list[tuple[list[object], str]] = []

    def plain(value: object, place: list[object]) -> object:
        if isinstance(value, dict):
            return {key: plain(item, [*place, key]) for key, item in value.items()}
        if isinstance(value, list):
            return [plain(item, [*place, i]) for i, item in enumerate(value)]
        if type(value) is date:
            dates.append((place, value.isoformat()))
            return None
        return value

    return {"table": plain(table, []), "dates": dates}


def _with_dates(content: Any) -> dict[str, object] | None:  # noqa: ANN401 - what JSON holds
    """The cached table with its dates; None if absent or malformed."""
    try:
        table = content["table"]
        for (*place, last), text in content["dates"]:
            within = table
            for key in place:
                within = within[key]
            within[last] = date.fromisoformat(text)
    except (TypeError, ValueError, LookupError):
        return None
    return table if isinstance(table, dict) else None


def _texts(value: object, place: str) -> Iterator[tuple[str, str]]:
    """Yield the texts of a table, keys included, with their places."""
    match value:
        case str():
            yield place, value
        case dict():
            for key, item in value.items():
                yield place or "a key", key
                yield from _texts(item, f"{place}.{key}" if place else key)
        case list():
            for i, item in enumerate(value):
                yield from _texts(item, f"{place}[{i}]")


def toml_text(table: Mapping[str, object]) -> str:
    import tomli_w

    return tomli_w.dumps(table, indent=2)
