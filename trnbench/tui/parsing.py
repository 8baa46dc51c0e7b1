"""What people type into fields -> values; every refusal is a message that can be shown."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import TypeVar

from trnbench.errors import InputError, UnitError, UnknownNameError
from trnbench.units import Dimension, parse

T = TypeVar("T")
MOST = 1_000_000
ANY = ("", "any", "auto", "best")
"""What leaves a choice open."""


def whole(what: str, *, least: int = 1, most: int = MOST) -> Callable[[str], int]:
    """Return a parser of whole numbers such as 4096, 4k or 1,024."""

    def parsed(text: str) -> int:
        try:
            value = parse(text, Dimension.COUNT)
        except UnitError:
            raise InputError(f"{what}: {text!r} is not a number; try e.g. 1024") from None
        if value != int(value) or not least <= value <= most:
            raise InputError(f"{what} must be a whole number from {least:,} to {most:,}")
        return int(value)

    return parsed


def count(what: str) -> Callable[[str], float]:
    """Return a parser of positive counts such as 2T."""

    def parsed(text: str) -> float:
        try:
            value = parse(text, Dimension.COUNT)
        except UnitError:
            raise InputError(f"{what}: {text!r} is not a count; try e.g. 2T or 500B") from None
        if value <= 0:
            raise InputError(f"{what} must be positive")
        return value

    return parsed


def quantity(what: str, dimension: Dimension, example: str) -> Callable[[str], float]:
    """Return a parser of positive quantities with units."""

    def parsed(text: str) -> float:
        try:
            value = parse(text, dimension)
        except UnitError:
            raise InputError(f"{what}: {text!r} is no quantity; try e.g. {example}") from None
        if value <= 0:
            raise InputError(f"{what} must be positive")
        return value

    return parsed


def share(text: str) -> float:
    """Return a share from 0 to below 1, such as 18%."""
    if not text:
        return 0.0
    try:
        value = parse(text, Dimension.RATIO)
    except UnitError:
        raise InputError(f"{text!r} is not a share; try e.g. 18%") from None
    if not 0 <= value < 1:
        raise InputError("must be from 0 to below 100%")
    return value


def date(text: str) -> datetime.date:
    """Return a day such as 2026-11-21."""
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise InputError(f"{text!r} is not a day; write e.g. 2026-11-21") from None


def one_of(what: str, names: Sequence[str]) -> Callable[[str], str]:
    """Return a parser of one of these names."""

    def parsed(text: str) -> str:
        if text not in names:
            raise UnknownNameError(what, text, names)
        return text

    return parsed


def several(one: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    """Return a parser of a list with commas or blanks between; nothing stands there twice."""

    def parsed(text: str) -> tuple[T, ...]:
        found = tuple(dict.fromkeys(one(part) for part in text.replace(",", " ").split()))
        if not found:
            raise InputError("nothing is chosen; name one or more")
        return found

    return parsed


def optional(one: Callable[[str], T]) -> Callable[[str], T | None]:
    """Return a parser that takes nothing, `any` and `auto` for an open choice."""

    def parsed(text: str) -> T | None:
        return None if text.casefold() in ANY else one(text)

    return parsed


def place(name: Callable[[str], str]) -> Callable[[str], tuple[str, int]]:
    """Return a parser of INSTANCE or INSTANCE:NODES."""

    def parsed(text: str) -> tuple[str, int]:
        instance, colon, nodes = text.partition(":")
        return name(instance), whole("nodes")(nodes) if colon else 1

    return parsed
