"""An option: its name, what it says of itself, and how its texts become values and back."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from trnbench.errors import InputError
from trnbench.facts import parsing
from trnbench.facts.parsing import count_text, number_text, share_text, size_text, time_text

Given: TypeAlias = Mapping[str, Any]
"""Options by name, as texts or as values."""
Several: TypeAlias = Literal["", "commas", "repeated", "one text"]
"""How more than one value is given; "one text" is parsed to all of them, as `both` engines."""
_WRITERS: Mapping[object, Callable[[Any], str]] = {
    parsing.duration: time_text,
    parsing.deadline: time_text,
    parsing.share: share_text,
    parsing.confidence: share_text,
    parsing.count: count_text,
    parsing.size: size_text,
}
"""How a value is written that such a parser reads."""
METAVARS: Mapping[object, str] = {
    **{parsing.date: "YYYY-MM-DD", parsing.short_text: "TEXT"},
    **dict.fromkeys((parsing.duration, parsing.deadline), "TIME"),
    **dict.fromkeys((parsing.share, parsing.confidence), "SHARE"),
    **dict.fromkeys((parsing.whole, parsing.count, parsing.sequence), "N"),
    **{parsing.money: "USD", parsing.size: "SIZE"},
}
"""What stands for the value of an option in the help, by what reads it."""


class Option(NamedTuple):
    """An option of a question; see `trnbench.verbs.asking.question.option`."""

    field: str
    name: str
    help: str
    default: Any = None
    factory: Callable[[], Any] | None = None
    kind: type = str
    """What one text is read to where it has no parser: bool, int, float, Path or str."""
    read: Callable[[str], Callable[[str], Any]] | None = None
    parse: Callable[[str], Any] | None = None
    write: Callable[[Any], str] | None = None
    choices: tuple[str, ...] = ()
    several: Several = ""
    metavar: str | None = None
    completes: tuple[str, ...] = ()
    argument: bool = False
    required: bool = False
    shown: bool = True
    short: str = ""
    spelled: str = ""
    """What the command line calls an option whose name is a word of Python: from."""
    variable: str | None = None
    fills: Callable[[Path], Mapping[str, Any]] | None = None
    bounds: tuple[int, int | None] | None = None

    @property
    def flag(self) -> str:
        return self.name if self.argument else f"--{(self.spelled or self.name).replace('_', '-')}"

    @property
    def is_switch(self) -> bool:
        return self.kind is bool and self.parse is None and self.read is None

    def value(self, given: Any) -> Any:  # noqa: ANN401
        """Return the given value, read where it is a text; the default where it is empty."""
        if self.several in ("", "one text"):
            return self._one(given)
        if given in (None, (), [], ""):
            return self.default
        many = isinstance(given, Sequence) and not isinstance(given, str)
        listed = tuple(given) if many else (given,)
        if self.several == "commas" and isinstance(given, str):
            listed = parsing.names(self.flag, given)
        return tuple(self._one(item) for item in listed)

    def text(self, value: Any) -> Any:  # noqa: ANN401
        """Return a value as the command line takes it: a text, a switch, or a list of texts."""
        if self.is_switch:
            return value
        if self.several not in ("", "one text"):
            texts = [self._text(item) for item in value]
            return texts if self.argument or self.several == "repeated" else ",".join(texts)
        return self._text(value)

    def _one(self, given: Any) -> Any:  # noqa: ANN401
        if self.choices and (isinstance(given, str) or self.parse is None):
            parsing.one_of(self.name.replace("_", " "), self.choices)(str(given))
        if not isinstance(given, str):
            return given
        if self.read is not None:
            return self.read(self.flag)(given)
        if self.parse is not None:
            return self.parse(given)
        try:
            return given if self.is_switch else self.kind(given)
        except ValueError:
            raise InputError(f"{self.flag}: {given!r} is not a number") from None

    def _text(self, value: Any) -> str:  # noqa: ANN401
        if self.write is not None:
            return self.write(value)
        if self.read in _WRITERS:
            return _WRITERS[self.read](value)
        if isinstance(value, int | float):
            return number_text(value)
        return value.isoformat() if isinstance(value, datetime.date) else str(value)
