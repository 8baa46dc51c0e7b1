"""Values of options: text into numbers and names; what is malformed names its option."""

from __future__ import annotations

import math
from typing import get_args

from trnbench.errors import InputError, UnitError, UnknownNameError
from trnbench.units import Dimension, parse


def one_of(option: str, text: str | None, choices: object) -> str | None:
    """Return what is one of a Literal's values; another is an input error."""
    known = get_args(choices)
    if text is not None and text not in known:
        raise UnknownNameError(option, text, known)
    return text


def positive(option: str, value: float | None) -> float | None:
    """Return a number that is above 0 and finite, or None if none was given."""
    if value is not None and not 0 < value < math.inf:
        raise InputError(f"{option} must be a positive number, found {value}")
    return value


def quantity(option: str, text: str, dimension: Dimension) -> float:
    """Return a quantity in base units."""
    try:
        return parse(text, dimension)
    except UnitError as error:
        raise InputError(f"{option}: {error.message}") from None


def money(option: str, text: str) -> float:
    """Return a sum in USD: 5M, 5M USD or 5,000,000."""
    try:
        return parse(text, Dimension.COUNT)
    except UnitError:
        return quantity(option, text, Dimension.USD)


def whole(option: str, text: str) -> int:
    """Return a whole number."""
    digits = text.strip()
    if not (digits.isdecimal() and digits.isascii() and len(digits) < 12):
        raise InputError(f"{option}: {text!r} is not a whole number")
    return int(digits)
