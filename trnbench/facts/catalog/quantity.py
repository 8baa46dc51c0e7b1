"""Field types of data files, and the strict check of each.

A quantity is a float annotated with its dimension; the file writes a text with a unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated

from trnbench.errors import UnitError
from trnbench.facts.units import EXAMPLES, Dimension, check_sane, parse

Bytes = Annotated[float, Dimension.BYTES]
BytesPerS = Annotated[float, Dimension.BYTES_PER_S]
FlopPerS = Annotated[float, Dimension.FLOP_PER_S]
Hertz = Annotated[float, Dimension.HERTZ]
Seconds = Annotated[float, Dimension.SECONDS]
Usd = Annotated[float, Dimension.USD]
UsdPerHour = Annotated[float, Dimension.USD_PER_HOUR]
Watts = Annotated[float, Dimension.WATTS]
Ratio = Annotated[float, Dimension.RATIO]
Correlation = Annotated[float, "correlation"]
Total = Annotated[int, "total"]
"""A large whole number, such as a number of parameters."""
Count = Annotated[int, "count"]
"""A whole number of existing things: at least 1."""

# A latency, a share or a count may be nothing; a size or a rate of nothing is a slip of the pen.
_MAY_BE_ZERO = (Dimension.SECONDS, Dimension.RATIO, Dimension.COUNT)
_MOST_WHOLE = 2**31 - 1
MOST_LARGE = 10**15


class Misfit(ValueError):
    """A value that the schema rejects; the message names the expected and the found value."""


def quantity(value: object, dimension: Dimension) -> float:
    """Value of a quantity text in base SI; a ratio may also be a bare number."""
    if dimension is Dimension.RATIO and not isinstance(value, str):
        result = number(value, dimension)
    elif not isinstance(value, str):
        shown = "a bare number" if type(value) in (int, float) else kind_of(value)
        raise Misfit(f"expected a quantity with unit such as {EXAMPLES[dimension]}, found {shown}")
    else:
        try:
            result = parse(value, dimension)
        except UnitError as error:
            raise Misfit(error.message) from None
    if result < 0 or (result == 0 and dimension not in _MAY_BE_ZERO):
        raise Misfit(f"must be positive, found {value!r}")
    return result


def number(value: object, dimension: Dimension = Dimension.COUNT) -> float:
    """Check a finite, non-negative number within the range of real quantities."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Misfit(f"expected a number, found {kind_of(value)}")
    shown = f"{value!r:.40}"
    if not 0 <= value < math.inf:
        raise Misfit(f"must be a finite number, not negative; found {shown}")
    try:
        check_sane(value, dimension, shown)
    except UnitError as error:
        raise Misfit(error.message) from None
    return float(value)


def correlation(value: object) -> float:
    """Check a number from -1 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Misfit(f"expected a number, found {kind_of(value)}")
    if not -1 <= value <= 1:
        raise Misfit(f"a correlation must be from -1 to 1; found {value}")
    return float(value)


def whole(value: object, most: int = _MOST_WHOLE, *, least: int = 0) -> int:
    """Check a non-negative whole number, small enough for products not to overflow."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise Misfit(f"expected a whole number, found {kind_of(value)}")
    if not least <= value <= most:
        raise Misfit(f"must be a whole number from {least} to {most:,}, found {value!r:.40}")
    return value


def exactly(kind: type, word: str) -> Callable[[object], object]:
    """Check for values of exactly this type, no subclass."""

    def check(value: object) -> object:
        if type(value) is not kind:
            raise Misfit(f"expected {word}, found {kind_of(value)}")
        return value

    return check


def kind_of(value: object) -> str:
    """The kind of a value, in words for a message."""
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case str():
            return f"the text {value[:40]!r}"
        case int() | float():
            return f"the number {value!r:.40}"
        case list():
            return "a list"
        case dict():
            return "a table"
        case _:
            return f"a {type(value).__name__}"
