"""The one error tree of trnbench. Layer 0: imports nothing of the package.

    TrnbenchError               exit code 70: our bug, unless a subclass says otherwise
      InputError                2   what the user gave is malformed
        UnitError               2   a text that is not a quantity of the wanted kind
        UnknownNameError        2   a name that is not in the catalogue
        DataFileError           2   a file with one or more faults
      EnvironmentFault          3   a file, folder, terminal or package is not usable here
      GapError                  70  a kind of thing that one of our modules has no rule for

An answer of "no" (it does not fit, does not divide, has no price) is a result with reasons, never
one of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Never

FEW = 16
"""As many names as one line of help can list."""
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


class UnknownNameError(InputError):
    """A name that is not in the catalogue; proposes the nearest."""

    def __init__(self, what: str, name: str, known: Iterable[str], *, where: str = "") -> None:
        candidates = sorted(set(known))
        place = f" in {where}" if where else ""
        super().__init__(
            f"unknown {what} {name!r}{place}{did_you_mean(name, candidates)}",
            hint=f"known: {', '.join(candidates)}" if 0 < len(candidates) <= FEW else None,
        )
        self.name = name


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
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


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the nearest known name, or nothing."""
    near = get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""
