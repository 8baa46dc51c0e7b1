"""Parsers of the texts that people type on the command line and in forms, and exact texts back.

Every parser is made with the name of the option it reads, and raises InputError with the text found
and the text expected. Numbers follow `trnbench.facts.units`, with two additions: a sequence of 8k
has 8,192 tokens, and a size of 1K has 1,024 bytes, as nccl-tests counts; a bare size is in bytes.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TypeVar, get_args

from trnbench.errors import InputError, OutOfRange, UnitError, UnknownNameError
from trnbench.facts.units import BINARY_PREFIXES, COUNT_SUFFIXES, DAY_S, Dimension, parse

T = TypeVar("T")

MOST = 2**31 - 1
MOST_NODES = 1_000_000
MOST_CHARACTERS = 100
HUNDRED = 100
LEAST_SURE, MOST_SURE = 0.5, 0.99
"""The draws tell no more of the tails than this."""
OPEN = ("", "any", "auto", "best")
"""Texts that leave a choice to the program."""
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_MOVES = re.compile(r"(?<![eE])([+-])")
_DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}")
_CHANGED = re.compile(r"(?P<name>[^=\s]+)\s*=\s*(?P<percent>[+-]\d+(\.\d+)?)\s*%")
_BINARY = re.compile(r"(?P<number>.*[\d.])\s*(?P<prefix>[kKmMgGtT])")


def short_text(what: str, *, most: int = MOST_CHARACTERS) -> Callable[[str], str]:
    """Parser of texts of at most `most` characters, which fit into a list."""

    def parsed(text: str) -> str:
        if len(text) > most:
            raise InputError(f"{what} has {len(text):,} characters; {most} are the most")
        return text

    return parsed


def whole(what: str, *, least: int = 1, most: int = MOST) -> Callable[[str], int]:
    """Parser of whole numbers such as 4096, 4k or 1,024."""
    return lambda text: _within(what, text, _number(what, text, "a whole number", "8"), least, most)


def sequence(what: str) -> Callable[[str], int]:
    """Parser of sequence lengths, tokens: 4096, or 8k for 8,192."""

    def parsed(text: str) -> int:
        tokens = _number(what, _binary(text, ""), "a number of tokens", "8192 or 8k", shown=text)
        return _within(what, text, tokens, 1, MOST)

    return parsed


def count(what: str) -> Callable[[str], float]:
    """Parser of numbers above 0 such as 1.25 or 2T."""
    return lambda text: _positive(what, text, _number(what, text, "a count", "2T or 500B"))


def quantity(what: str, dimension: Dimension, *, example: str = "") -> Callable[[str], float]:
    return lambda text: _positive(what, text, _parse(what, text, dimension, example=example))


def duration(what: str) -> Callable[[str], float]:
    """Parser of durations such as 30 min, 12h, 60 days, 2w or 3mo (of 30 days), in seconds."""
    return quantity(what, Dimension.SECONDS, example="60d, 8w, 3mo or 36h")


def deadline(what: str) -> Callable[[str], float]:
    """Parser of durations that may be moved, such as 60d, 60d+15d or 60d-10%, in seconds.

    A date such as 2027-02-01 is the time from now on to the beginning of that day, in UTC.
    """

    def parsed(text: str) -> float:
        day = _DATE.match(text.strip())
        first, *moves = _MOVES.split(text.strip().removeprefix(day[0] if day else ""))
        if not day and not first.strip() and moves:
            raise InputError(f"{what}: nothing is there to move by {text!r}; write e.g. 60d+15d")
        if day and first.strip():
            raise InputError(f"{what}: {text!r} is not a date; write e.g. 2027-02-01")
        seconds = _until(what, day[0]) if day else duration(what)(first)
        for sign, moved in zip(moves[::2], moves[1::2], strict=True):
            by = _parse(what, moved, Dimension.RATIO) if "%" in moved else None
            step = duration(what)(moved) if by is None else by * seconds
            seconds += step if sign == "+" else -step
        return _positive(what, text, seconds)

    return parsed


def _until(what: str, text: str) -> float:
    """Seconds from today to a date."""
    days = (date(what)(text) - datetime.datetime.now(tz=datetime.UTC).date()).days
    if days <= 0:
        raise InputError(f"{what}: {text} is not in the future; name a later day")
    return days * DAY_S


def moved_text(base: str | float | None, text: object) -> object:
    """A text such as +15d behind what it moves; any other stays as it is."""
    moves = isinstance(text, str) and text.strip().startswith(("+", "-"))
    if base is None or base == "" or not (moves and isinstance(text, str)):
        return text
    return f"{base if isinstance(base, str) else time_text(base)}{text.strip()}"


def changed_name(what: str, text: str, most: float) -> tuple[str, float] | None:
    """(name, factor) of "trn2.48xlarge=-20%", at most `most` times as much; None of any other."""
    match = _CHANGED.fullmatch(text.strip())
    if match is None:
        return None
    factor = 1 + float(match["percent"]) / 100
    if not 0 < factor <= most:
        raise InputError(f"{what} must change by more than -100%, and +{most - 1:.0%} at most")
    return match["name"], factor


def size(what: str) -> Callable[[str], float]:
    """Parser of sizes such as 1KiB, 64 MB, 1K or 4096, in bytes."""
    return lambda text: _positive(
        what, text, _parse(what, _binary(text, " B"), Dimension.BYTES, bare=True)
    )


def money(what: str) -> Callable[[str], float]:
    """Parser of sums in USD: 5M, 5M USD or 5,000,000."""

    def parsed(text: str) -> float:
        bare = not text.strip().casefold().endswith("usd")
        kind = Dimension.COUNT if bare else Dimension.USD
        return _positive(what, text, _parse(what, text, kind, example="5M or 5,000,000"))

    return parsed


def share(what: str) -> Callable[[str], float]:
    """Parser of shares from 0 to below 1, such as 18% or 0.18; an empty text is 0."""

    def parsed(text: str) -> float:
        value = _parse(what, text, Dimension.RATIO) if text.strip() else 0.0
        if not 0 <= value < 1:
            sign = _with_percent(text, value)
            raise InputError(f"{what} must be from 0 to below 100%, found {text!r}{sign}")
        return value

    return parsed


def _with_percent(text: str, value: float) -> str:
    missing = 1 <= value < HUNDRED and not text.rstrip().endswith("%")
    return f"; write {text.strip()}%" if missing else ""


def confidence(what: str) -> Callable[[str], float]:
    """Parser of confidence levels (share of draws within the limits), such as 80% or 0.8."""

    def parsed(text: str) -> float:
        value = _parse(what, text, Dimension.RATIO)
        if not LEAST_SURE <= value <= MOST_SURE:
            ends = f"from {LEAST_SURE:.0%} to {MOST_SURE:.0%}"
            raise InputError(f"{what} must be {ends}, found {text!r}{_with_percent(text, value)}")
        return value

    return parsed


def date(what: str) -> Callable[[str], datetime.date]:
    """Parser of dates such as 2026-11-21."""

    def parsed(text: str) -> datetime.date:
        try:
            return datetime.date.fromisoformat(text.strip())
        except ValueError:
            raise InputError(f"{what}: {text!r} is not a date; write e.g. 2026-11-21") from None

    return parsed


def file_name(text: str) -> str:
    """Check a file name: letters, digits and `._-`, without a path to another folder."""
    if not _FILE_NAME.fullmatch(text):
        raise InputError(f"{text!r} is not a file name: use letters, digits, '.', '_' and '-'")
    return text


def one_of(what: str, names: Sequence[str]) -> Callable[[str], str]:
    """Parser of one of these names."""

    def parsed(text: str) -> str:
        if text not in names:
            raise UnknownNameError(what, text, names)
        return text

    return parsed


def several(what: str, parser: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    """Parser of a list separated by commas or blanks, without duplicates."""

    def parsed(text: str) -> tuple[T, ...]:
        parts = text.split(",")
        if not all(map(str.strip, parts)):
            raise InputError(f"{what}: an empty name in {text!r}; name one or more")
        # Compared as values, not as texts: 4k and 4096 are the same size.
        values = tuple(parser(word) for part in parts for word in part.split())
        for value in values:
            if values.count(value) > 1:
                raise InputError(f"{what}: {value} is named twice in {text!r}")
        return values

    return parsed


def optional(parser: Callable[[str], T]) -> Callable[[str], T | None]:
    """Parser for which an empty text, `any`, `auto` and `best` leave the choice open: None."""
    return lambda text: None if text.strip().casefold() in OPEN else parser(text)


def place(what: str, name: Callable[[str], str] = str) -> Callable[[str], tuple[str, int]]:
    """Parser of INSTANCE or INSTANCE:NODES; `name` checks the instance."""

    def parsed(text: str) -> tuple[str, int]:
        instance, colon, nodes = text.strip().partition(":")
        if not instance:
            raise InputError(f"{what}: an empty name in {text!r}")
        try:
            number = whole("nodes", most=MOST_NODES)(nodes) if colon else 1
        except InputError:
            raise InputError(
                f"{what}: nodes must be a number from 1 to {MOST_NODES:,}, found {nodes!r}"
            ) from None
        return name(instance), number

    return parsed


def read(parser: Callable[[str], T], given: T | str) -> T:
    """Parse a text; a value of another type passes unchanged."""
    return parser(given) if isinstance(given, str) else given


def names(what: str, given: str | Sequence[T]) -> tuple[str | T, ...]:
    """Names of a list, or of a text that lists them."""
    return several(what, str)(given) if isinstance(given, str) else tuple(given)


def texts(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def clusters(given: str | Sequence[str]) -> tuple[tuple[str, int], ...]:
    """(instance, nodes) of one or several texts INSTANCE or INSTANCE:NODES."""
    return tuple(place("--on")(name) for name in names("--on", given))


def literal(what: str, given: T, kind: object) -> T:
    one_of(what, get_args(kind))(str(given))
    return given


def _parse(
    what: str, text: str, dimension: Dimension, *, bare: bool = False, example: str = ""
) -> float:
    try:
        return parse(text, dimension, bare=bare, example=example)
    except UnitError as error:
        raise InputError(f"{what}: {error.message}") from None


def _number(what: str, text: str, kind: str, example: str, *, shown: str | None = None) -> float:
    try:
        return parse(text, Dimension.COUNT)
    except OutOfRange as error:
        raise InputError(f"{what}: {error.message}") from None
    except UnitError:
        given = text if shown is None else shown
        raise InputError(f"{what}: {given!r} is not {kind}; write e.g. {example}") from None


def _within(what: str, text: str, value: float, least: int, most: int) -> int:
    if value != int(value):
        raise InputError(f"{what}: {text!r} is not a whole number")
    if not least <= value <= most:
        raise InputError(f"{what} must be from {least:,} to {most:,}, found {text!r}")
    return int(value)


def _positive(what: str, text: str, value: float) -> float:
    if not 0 < value < math.inf:
        raise InputError(f"{what} must be above 0, found {text!r}")
    return value


def _binary(text: str, unit: str) -> str:
    """Write out a trailing bare K, M, G or T as a power of two."""
    # Only a bare letter is binary: in 64 KB or 64 KiB the unit behind says which factor holds.
    match = _BINARY.fullmatch(text.strip())
    if match is None:
        return text
    factor = BINARY_PREFIXES[f"{match['prefix'].upper()}i"]
    try:
        return f"{parse(match['number'], Dimension.COUNT) * factor!r}{unit}"
    except UnitError:
        return text


def number_text(number: float) -> str:
    """The shortest text that reads back to the same number."""
    return repr(number).removesuffix(".0")


def count_text(number: float) -> str:
    """A count with its suffix, exact: 2T, 1.5B, 123."""
    for suffix, factor in sorted(COUNT_SUFFIXES.items(), key=lambda pair: -pair[1]):
        # Division may round: only a text that reads back to the same number is exact.
        text = number_text(number / factor) + suffix
        if number >= factor > 1 and parse(text, Dimension.COUNT) == number:
            return text
    return number_text(number)


def time_text(time_s: float) -> str:
    days = time_s / DAY_S
    return f"{int(days)}d" if days == int(days) else f"{number_text(time_s)}s"


def share_text(share: float) -> str:
    return f"{(Decimal(repr(share)) * 100).normalize():f}%"


def size_text(size_bytes: float) -> str:
    """A size in the largest binary unit of which the size is a whole number."""
    for prefix, factor in sorted(BINARY_PREFIXES.items(), key=lambda pair: -pair[1]):
        if size_bytes % factor == 0:
            return f"{size_bytes / factor:.0f}{prefix}B"
    return number_text(size_bytes)


def place_text(instance: str, nodes: int) -> str:
    return instance if nodes == 1 else f"{instance}:{nodes}"


def engine_text(engines: Sequence[str]) -> str:
    return "both" if len(engines) > 1 else engines[0]
