"""The one error tree of trnbench. Layer 0: imports nothing of the package.

    TrnbenchError               exit code 70: our bug, unless a subclass says otherwise
      InputError                2   what the user gave is malformed
        UnitError               2   a text that is not a quantity of the wanted kind
          OutOfRange            2   a quantity that nothing real has
        UnknownNameError        2   a name that is not in the catalogue
        DataFileError           2   a file with one or more faults
      EnvironmentFault          3   a file, folder, terminal or package is not usable here
      GapError                  70  a kind of thing that one of our modules has no rule for

An answer of "no" (it does not fit, does not divide, has no price) is a result with reasons, never
one of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from difflib import SequenceMatcher
from typing import NamedTuple, Never

FEW = 16
"""As many names as one line of help can list."""
MOST_NAMED = 4
"""As many names as one suggestion offers."""
ALIKE = 0.66
"""A name that is less like what was typed than this would be an absurd suggestion."""
LISTS_FAULTS = "`trnbench spec validate FILE` or `workload validate FILE` lists them all"


class TrnbenchError(Exception):
    """Root of the tree; carries the exit code and an optional remedy."""

    exit_code = 70

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InputError(TrnbenchError):
    """Something the user wrote is malformed."""

    exit_code = 2


class UnitError(InputError, ValueError):
    """A text that is not a quantity of the wanted dimension."""


class OutOfRange(UnitError):
    """A quantity that nothing real has."""


class UnknownNameError(InputError):
    """A name that is not in the catalogue; proposes the nearest.

    `known` has names before aliases, or is a set. `lists` is the command that lists them where
    they are many, `remedy` what to say in place of the nearest names.
    """

    def __init__(
        self,
        what: str,
        name: str,
        known: Iterable[str],
        *,
        where: str = "",
        lists: str = "",
        remedy: str = "",
    ) -> None:
        candidates = [*dict.fromkeys(sorted(known) if isinstance(known, AbstractSet) else known)]
        place = f" in {where}" if where else ""
        hint = f"`{lists}` lists them" if lists else None
        if 0 < len(candidates) <= FEW:
            hint = f"known: {', '.join(sorted(candidates))}"
        super().__init__(
            f"unknown {what} {name!r}{place}{remedy or did_you_mean(name, candidates)}", hint=hint
        )
        self.name = name


class Fault(NamedTuple):
    """One thing wrong in a file: where (key path), what was found, what was expected."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class DataFileError(InputError):
    """A data file with faults; the message names the file and the first fault.

    `hint` tells where the others are; without one, the command that lists them.
    """

    def __init__(self, file: str, faults: Sequence[Fault], *, hint: str = LISTS_FAULTS) -> None:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        super().__init__(f"{file}: {faults[0]}{more}", hint=hint if more else None)
        self.file = file
        self.faults = tuple(faults)


class EnvironmentFault(TrnbenchError):
    """Something outside the input is missing or not usable on this machine."""

    exit_code = 3


class GapError(TrnbenchError):
    """A kind of thing that the program knows in one place and has no rule for in another."""

    def __init__(self, thing: object, lacks: str) -> None:
        name = getattr(thing, "name", None)
        kind = type(thing).__name__
        what = repr(thing) if isinstance(thing, str) else f"{kind} {name!r}" if name else kind
        super().__init__(f"{what} has no {lacks}")


def unhandled(thing: Never, lacks: str) -> Never:
    """Close a choice between kinds: the type checker finds a kind left out, and so does a run."""
    raise GapError(thing, lacks)


def did_you_mean(name: str, known: Iterable[str], *, most: int = MOST_NAMED) -> str:
    """Return "; did you mean 'x' or 'y'?" for the known names that are meant, or nothing."""
    near = [repr(word) for word in nearest_names(name, known)][:most]
    return f"; did you mean {listed(near, 'or')}?" if near else ""


def nearest_names(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names that begin with what was typed, else those most like it."""
    typed, names = name.casefold(), [*dict.fromkeys(known)]
    begun = [word for word in names if len(typed) > 1 and word.casefold().startswith(typed)]
    if begun:
        return begun[:MOST_NAMED]
    likeness = {word: _likeness(typed, word.casefold()) for word in names}
    best = max(likeness.values(), default=0.0)
    near = [word for word in names if likeness[word] == best >= ALIKE]
    plain = [word for word in near if not any(word.startswith(f"{other}-") for other in near)]
    return plain[:MOST_NAMED]


def _likeness(typed: str, name: str) -> float:
    """Return the likeness (0 to 1) of a name to typed text, which may be only its beginning."""
    begun = name[: len(typed)] if len(typed) > MOST_NAMED else name
    alike = [SequenceMatcher(None, typed, part) for part in dict.fromkeys((name, begun))]
    # What cannot be like enough is not looked at closely: the bound takes a tenth of the time.
    return max(matcher.ratio() if matcher.quick_ratio() >= ALIKE else 0.0 for matcher in alike)


def listed(words: Sequence[str], joint: str = "and") -> str:
    """Return words as a sentence lists them: a, b and c."""
    *first, last = words
    return f"{', '.join(first)} {joint} {last}" if first else last
