"""Reading files that others wrote, JSON among them: any failure becomes one clear message.

A reader is correct for the files it was written for. Any other content fails inside the reader: a
number of 400 digits, a list in place of an object, a nesting of a thousand levels. The guard turns
each failure into the project's error, with the file and, where known, the place in it.

Only the reading is guarded. A fault in later computations is ours, and must not look like a fault
of the file.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from math import isinf
from pathlib import Path
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar

from trnbench.errors import TrnbenchError
from trnbench.facts.catalog.text_file import read_text, refused
from trnbench.facts.records import State
from trnbench.facts.terminal_text import shown

_Args = ParamSpec("_Args")
_Read = TypeVar("_Read")

FAILURES = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError),
    *(MemoryError, csv.Error),
)
"""Exceptions of readers on unexpected content; UnicodeError is a ValueError."""
MOST_DIGITS = 300
"""Digits of the longest number: longer ones are no float, and no measurement has them."""
_MANY_DIGITS = re.compile(rf"\d{{{MOST_DIGITS + 1}}}")
_MOST_SHOWN = 80
REMEDY = "correct it or leave it out"


class ReadingPlace(State):
    """A reader's position in a file, such as "line 7" or "key results.3"; empty where unknown."""

    where: str = ""


@contextmanager
def foreign(path: Path, what: str, *, remedy: str = REMEDY) -> Iterator[ReadingPlace]:
    """Guard the reading of a foreign file; `what` names the expected content, as in "a log".

    The reader may update `where` of the yielded place, which the message then shows.
    """
    place = ReadingPlace()
    try:
        yield place
    # Already one clear message with its place.
    except TrnbenchError:
        raise
    except FAILURES as error:
        at = f"{place.where}: " if place.where else ""
        raise refused(path, f"{at}is not {what}: {why(error)}; {remedy}") from error


def reads(
    what: str, *, remedy: str = REMEDY
) -> Callable[
    [Callable[Concatenate[Path, _Args], _Read]], Callable[Concatenate[Path, _Args], _Read]
]:
    """Guard a function whose first argument is the file to read (not a generator)."""

    def around(
        read: Callable[Concatenate[Path, _Args], _Read],
    ) -> Callable[Concatenate[Path, _Args], _Read]:
        @wraps(read)
        def guarded(path: Path, /, *args: _Args.args, **named: _Args.kwargs) -> _Read:
            with foreign(path, what, remedy=remedy):
                return read(path, *args, **named)

        return guarded

    return around


def why(error: BaseException) -> str:
    """Plain explanation of a reader's failure."""
    match error:
        case RecursionError():
            return "it is nested too deeply"
        case MemoryError():
            return "it is too large for the memory of this machine"
        case UnicodeError():
            return "it has bytes that are not UTF-8"
        case OverflowError():
            return "it has a number out of range"
        case ZeroDivisionError():
            return "it has a 0 where none can be"
        case KeyError():
            return f"it lacks {_short(error.args[0] if error.args else '')}"
        case IndexError():
            return "it has fewer values than it should"
        case ValueError() if "integer string conversion" in str(error):
            return "it has a number of too many digits"
        case csv.Error() | ValueError():
            return _short(str(error), quoted=False)
        case _:
            return f"it has a value of another kind ({_short(str(error), quoted=False)})"


def json_value(path: Path, text: str, what: str = "JSON") -> Any:  # noqa: ANN401 - plain data
    """Value of a JSON text of any shape, without numbers of too many digits."""
    long = _MANY_DIGITS.search(text) is not None
    try:
        # The hook is Python, and slow: it is for the few texts that have such a number at all.
        return json.loads(text, parse_int=bounded_int if long else None)
    except RecursionError:
        raise refused(path, f"not valid {what}: nested too deeply") from None
    except json.JSONDecodeError as error:
        raise refused(path, f"not valid {what}: {error}") from None
    except ValueError as error:
        line = text.count("\n", 0, _digits_at(text)) + 1
        raise refused(path, f"line {line}: {why(error)}; {REMEDY}") from None


def bounded_int(digits: str) -> int:
    """A whole number of JSON; ValueError beyond `MOST_DIGITS` digits."""
    count = len(digits.lstrip("-"))
    if count > MOST_DIGITS:
        raise ValueError(f"a number of {count:,} digits")
    return int(digits)


def _digits_at(text: str) -> int:
    number = _MANY_DIGITS.search(text)
    return number.start() if number else 0


def _short(value: object, *, quoted: bool = True) -> str:
    text = shown(repr(value) if quoted else str(value))
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."


_MOST_JSON_BYTES = 8 << 20
"""Configurations have some kilobytes, even with 20,000 class names less than two mebibytes."""


def read_object(path: Path) -> dict[str, object]:
    """The JSON object in `path`, or DataFileError."""
    try:
        value = json.loads(
            read_text(path, what="JSON", max_bytes=_MOST_JSON_BYTES),
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
            raise ValueError(f"key {key!r:.60} is given twice in one object")
        table[key] = value
    return table
