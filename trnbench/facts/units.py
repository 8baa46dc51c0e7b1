"""Quantities <-> text: the only prefix table of the project. Layer 0.

Inside the program every quantity is a float in base SI (bytes, bytes/s, FLOP/s, Hz, s, USD). Text
has a number and a unit: "96 GiB", "2.9 TB/s", "200 Gbit/s", "1.3 us", "78.64 TFLOP/s". `B` is a
byte and `bit` a bit, `GB` is 1e9 bytes and `GiB` 2^30; `Gb` is refused: it could be either.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from enum import Enum
from functools import cache

from trnbench.errors import OutOfRange, UnitError, did_you_mean
from trnbench.facts.records import Record

DECIMAL_PREFIXES: Mapping[str, float] = {
    **{"f": 1e-15, "p": 1e-12, "n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0},
    **{"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18},
}
BINARY_PREFIXES: Mapping[str, float] = {
    f"{prefix}i": 1024.0**power for power, prefix in enumerate("KMGTPE", 1)
}
_LONGEST = 40
"""Characters of a quantity shown in a message."""
COUNT_SUFFIXES: Mapping[str, float] = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}

_ENLARGING = {p: f for p, f in DECIMAL_PREFIXES.items() if f >= 1}
_REDUCING = {p: f for p, f in DECIMAL_PREFIXES.items() if f <= 1}
# Users of collective benchmarks write KB for 1000 bytes; k and K are one prefix for bytes and bits.
_BYTE_PREFIXES = {**_ENLARGING, "K": 1e3, **BINARY_PREFIXES}
BITS_PER_BYTE = 8
FLOP_PER_MULTIPLY_ADD = 2
"""One multiplication and one addition, the usual convention."""


def counted(count: int, noun: str) -> str:
    """A count with its noun: "1 step", "1,000 steps"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _prefixed(symbol: str, prefixes: Mapping[str, float], scale: float = 1.0) -> dict[str, float]:
    return {prefix + symbol: factor * scale for prefix, factor in prefixes.items()}


_BYTES = _prefixed("B", _BYTE_PREFIXES) | _prefixed("bit", _BYTE_PREFIXES, 1 / BITS_PER_BYTE)
HOUR_S, DAY_S = 3600.0, 86400.0
MILLION = 1e6
_TIMES = {"m": 60.0, "min": 60.0, "h": HOUR_S, "d": DAY_S, "w": 7 * DAY_S, "mo": 30 * DAY_S}
_SPELLED = {
    spelling: _TIMES[unit]
    for unit, spellings in {
        "min": ("mins", "minute", "minutes"),
        "h": ("hr", "hrs", "hour", "hours"),
        "d": ("day", "days"),
        "w": ("wk", "wks", "week", "weeks"),
        "mo": ("month", "months"),
    }.items()
    for spelling in spellings
}
"""Times as people write them; a month has 30 days."""


class Dimension(Enum):
    """The dimension of a quantity; the value is the name of its base unit in attribute names."""

    BYTES = "bytes"
    BYTES_PER_S = "bytes_per_s"
    FLOP = "flop"
    FLOP_PER_S = "flop_per_s"
    HERTZ = "hz"
    SECONDS = "s"
    USD = "usd"
    USD_PER_HOUR = "usd_per_hour"
    WATTS = "w"
    COUNT = "count"
    RATIO = "ratio"


UNITS: Mapping[Dimension, Mapping[str, float]] = {
    Dimension.BYTES: _BYTES,
    Dimension.BYTES_PER_S: {f"{unit}/s": factor for unit, factor in _BYTES.items()},
    Dimension.FLOP: _prefixed("FLOP", _ENLARGING) | _prefixed("OP", _ENLARGING),
    Dimension.FLOP_PER_S: _prefixed("FLOP/s", _ENLARGING) | _prefixed("OP/s", _ENLARGING),
    Dimension.HERTZ: _prefixed("Hz", _ENLARGING),
    Dimension.SECONDS: _prefixed("s", _REDUCING) | _TIMES | _SPELLED,
    Dimension.USD: {f"{suffix} USD".strip(): f for suffix, f in COUNT_SUFFIXES.items()}
    | {f"{suffix}USD": f for suffix, f in COUNT_SUFFIXES.items()},
    Dimension.USD_PER_HOUR: {"USD/h": 1.0},
    Dimension.WATTS: _prefixed("W", _ENLARGING),
    Dimension.COUNT: {**COUNT_SUFFIXES, "k": 1e3},
    Dimension.RATIO: {"": 1.0, "%": 0.01},
}

EXAMPLES: Mapping[Dimension, str] = {
    Dimension.BYTES: "96 GiB",
    Dimension.BYTES_PER_S: "2.9 TB/s or 200 Gbit/s",
    Dimension.FLOP: "4 PFLOP",
    Dimension.FLOP_PER_S: "78.64 TFLOP/s",
    Dimension.HERTZ: "2.8 GHz",
    Dimension.SECONDS: "1.3 us, 90 s or 30 d",
    Dimension.USD: "5M USD",
    Dimension.USD_PER_HOUR: "21.50 USD/h",
    Dimension.WATTS: "700 W",
    Dimension.COUNT: "2T or 1,024",
    Dimension.RATIO: "18% or 0.18",
}

SANE: Mapping[Dimension, tuple[float, float]] = {
    Dimension.BYTES: (0.1, 1e21),
    Dimension.BYTES_PER_S: (0.1, 1e21),
    Dimension.FLOP: (1.0, 1e33),
    Dimension.FLOP_PER_S: (1.0, 1e24),
    Dimension.HERTZ: (1e-3, 1e19),
    Dimension.SECONDS: (1e-15, 1e11),
    Dimension.USD: (1e-6, 1e15),
    Dimension.USD_PER_HOUR: (1e-6, 1e9),
    Dimension.WATTS: (1e-3, 1e19),
    Dimension.COUNT: (1e-15, 1e18),
    Dimension.RATIO: (1e-9, 1e6),
}
"""Range of real quantities in base units, with a wide margin; 0 is always allowed.

Outside of the range arithmetic ends in infinities, and an answer in nonsense.
"""

_NUMBER = re.compile(
    r"(?P<number>[+-]?(?:\d+(?:,\d{3})*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*(?P<unit>.*)",
    re.DOTALL,
)


def parse(text: str, dimension: Dimension, *, bare: bool = False, example: str = "") -> float:
    """Value of `text` in base SI; `bare` allows no unit, `example` replaces the usual one."""
    match = _NUMBER.fullmatch(text.strip())
    expected = f"expected e.g. {example or EXAMPLES[dimension]}"
    if match is None:
        raise UnitError(f"{text!r} is not a quantity; {expected}")
    unit = " ".join(match["unit"].split())
    factor = 1.0 if bare and not unit else _factor(unit, text, dimension, expected)
    # Decimal: 600 ns is then 6e-07 to the bit, as it would be written in base units.
    try:
        # Exact product first, one rounding last.
        value = float(Decimal(match["number"].replace(",", "")) * Decimal(repr(factor)))
    except ArithmeticError:
        value = math.inf
    check_sane(value, dimension, text)
    return value


def check_sane(value: float, dimension: Dimension, text: str) -> None:
    """Refuse infinities, NaN, and values outside the range of real quantities."""
    least, most = SANE[dimension]
    if value != 0 and not least <= abs(value) <= most:
        unit = next(unit for unit, factor in UNITS[dimension].items() if factor == 1.0)
        ends = f"{least:g} to {most:g} {unit}".strip()
        shown = text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
        raise OutOfRange(f"{shown!r} is out of range, {ends}")


def _factor(unit: str, text: str, dimension: Dimension, expected: str) -> float:
    units = UNITS[dimension]
    if unit in units:
        return units[unit]
    if not unit:
        raise UnitError(f"{text!r} has no unit; {expected}")
    if re.fullmatch(r"[kKMGTPE]i?b(ps|/s)?", unit):
        bits = unit.replace("ps", "/s").replace("b", "bit", 1)
        wanted = f"write {bits!r} or {bits.replace('bit', 'B')!r}"
        raise UnitError(f"{text!r}: {unit!r} does not say bit or byte; {wanted}")
    if dimension is Dimension.BYTES_PER_S and unit in ("K", "k", "M", "G", "T"):
        raise UnitError(f"{text!r} has no unit; write '{unit}bit/s' or '{unit}B/s'")
    raise UnitError(
        f"{text!r}: unknown unit {unit!r}{did_you_mean(unit, units, most=1)}; {expected}"
    )


class Scale(Record, kw_only=False):
    """A prefix chosen for showing numbers: `value / factor` followed by `unit`."""

    unit: str
    factor: float


_SHOWN: Mapping[Dimension, tuple[str, ...]] = {
    Dimension.BYTES: ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"),
    Dimension.BYTES_PER_S: ("B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s", "EB/s"),
    Dimension.FLOP: ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"),
    Dimension.FLOP_PER_S: tuple(f"{p}FLOP/s" for p in ("", "k", "M", "G", "T", "P", "E")),
    Dimension.HERTZ: ("Hz", "kHz", "MHz", "GHz", "THz"),
    Dimension.SECONDS: ("ps", "ns", "us", "ms", "s", "min", "h", "d"),
    Dimension.USD: ("USD", "K USD", "M USD", "B USD"),
    Dimension.USD_PER_HOUR: ("USD/h",),
    Dimension.WATTS: ("W", "kW", "MW"),
    Dimension.COUNT: ("", "K", "M", "B", "T"),
    Dimension.RATIO: ("%",),
}


def unit_scale(unit: str, dimension: Dimension) -> Scale:
    """Scale of a given unit, to show numbers in that unit whatever their size."""
    return Scale(unit, UNITS[dimension][unit])


@cache
def _shown_scales(dimension: Dimension) -> tuple[Scale, ...]:
    return tuple(Scale(unit, UNITS[dimension][unit]) for unit in _SHOWN[dimension])


def scale_for(value: float, dimension: Dimension) -> Scale:
    """Scale of the largest shown prefix that does not exceed |value|."""
    shown = _shown_scales(dimension)
    if value == 0 and dimension is Dimension.SECONDS:
        return Scale("s", 1.0)
    most = abs(value) * (1 + 1e-12)
    return next((scale for scale in reversed(shown) if scale.factor <= most), shown[0])


def show(value: float, dimension: Dimension, *, digits: int = 4, scale: Scale | None = None) -> str:
    """Text for people: `digits` significant digits and a prefix (or the given scale)."""
    if not math.isfinite(value):
        return str(value)
    chosen = scale or scale_for(value, dimension)
    number = significant(value / chosen.factor, digits)
    separator = "" if dimension in (Dimension.COUNT, Dimension.RATIO) else " "
    return f"{number}{separator}{chosen.unit}".strip()


def exact(value: float, dimension: Dimension) -> str:
    """Text that parses back to exactly `value`: full precision, base unit."""
    base = next(unit for unit, factor in UNITS[dimension].items() if factor == 1.0)
    return f"{value!r} {base}".strip()


def significant(number: float, digits: int = 4) -> str:
    """Text of `number` to `digits` significant digits, thousands grouped, no trailing zeros."""
    if number == 0:
        return "0"
    if not math.isfinite(number):
        return str(number)
    decimals = max(digits - 1 - math.floor(math.log10(abs(number))), 0)
    text = f"{number:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def money_text(usd: float) -> str:
    """A sum as people write it: USD 1.54M."""
    scale = scale_for(usd, Dimension.USD)
    suffix = scale.unit.removesuffix("USD").strip()
    return f"USD {significant(usd / scale.factor, 3)}{suffix}"
