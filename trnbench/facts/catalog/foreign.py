"""One guard for all that reads what others wrote: content of any shape ends in one clear message.

A reader is right about the files it was written for. Of all others it learns by what fails in it: a
number of 400 digits, a list where an object stands, a thing nested a thousand deep. The guard makes
of each such failure the project's error, which names the file and, where it is known, the place.

It goes around the reading alone. What computes with values that were read stays outside: a fault
there is ours, and must not look like one of the file.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from trnbench.errors import TrnbenchError
from trnbench.facts.catalog.text_file import refused
from trnbench.facts.records import State
from trnbench.facts.terminal_text import shown

_Args = ParamSpec("_Args")
_Read = TypeVar("_Read")

FAILURES = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError),
    *(MemoryError, csv.Error),
)
"""What reading raises where content is not what the reader expects; UnicodeError is among them."""
MOST_DIGITS = 300
"""A number of more is no float; nothing that is measured or configured has it."""
_MANY_DIGITS = re.compile(rf"\d{{{MOST_DIGITS + 1}}}")
_MOST_SHOWN = 80
REMEDY = "correct it or leave it out"


class ReadingPlace(State):
    """Where a reader is in a file, such as "line 7" or "key results.3"; empty where unknown."""

    where: str = ""


@contextmanager
def foreign(path: Path, what: str, *, remedy: str = REMEDY) -> Iterator[ReadingPlace]:
    """Guard the reading of a file that others wrote; `what` names such content, as in "a log".

    The reader may keep `where` of the place it is given up to date, so that the message has it.
    """
    place = ReadingPlace()
    try:
        yield place
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
    """Guard a function that reads the file which is its first argument (not a generator)."""

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
    """Return in plain words what a failure of a reader tells of what it read."""
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
    """Return what the text of a JSON file says: of any shape, with numbers that are numbers."""
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
    """Return a whole number of JSON; raise ValueError for one of so many digits that it is none."""
    count = len(digits.lstrip("-"))
    if count > MOST_DIGITS:
        raise ValueError(f"a number of {count:,} digits")
    return int(digits)


def _digits_at(text: str) -> int:
    found = _MANY_DIGITS.search(text)
    return found.start() if found else 0


def _short(value: object, *, quoted: bool = True) -> str:
    """Return a value, or a message, as a part of one line: without what would end it."""
    text = shown(repr(value) if quoted else str(value))
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."
