"""Verdicts on claims, case by case and overall."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

from trnbench.facts.catalog.provenance import Source
from trnbench.facts.records import Record

Verdict = Literal["holds", "holds only if", "does not", "cannot be told"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


class Case(Record):
    """One trial of a claim."""

    what: str
    """The examined thing; `says`: the result as text."""
    verdict: Verdict
    says: str
    value: float | None = None
    """Gain in the claim's terms (share, multiple) or figure in base SI; None: unknown."""
    low: float | None = None
    high: float | None = None
    proviso: str | None = None
    """Condition under which the claim holds."""


class Move(Record):
    """Verdict at the prices of a day, over its cases."""

    price_date: datetime.date
    region: str | None
    """Region outside of the default ones, if any."""
    verdict: Verdict
    best: Case | None
    """The case most in favour of the claim; None without prices."""
    cases: tuple[Case, ...]


class Finding(Record):
    """Result of a check, in words and case by case."""

    verdict: Verdict
    says: str
    reason: str
    cases: tuple[Case, ...] = ()
    moves: tuple[Move, ...] = ()
    """Verdicts day by day, which hold the cases, where prices decide."""


class Words(Record):
    """Words of one source; `by` is its id in the file."""

    text: str
    by: str
    source: Source


class Claimed(Record):
    """A claim with its finding, the words of every source, and the kind of check."""

    id: str
    group: str
    said: tuple[Words, ...]
    aspect: str | None
    """The checked part of the words; `note`: explanation of the outcome."""
    note: str | None
    check: str
    finding: Finding


def together(verdicts: Iterable[Verdict]) -> Verdict:
    """Overall verdict of several cases."""
    found = set(verdicts)
    if found == {"holds"}:
        return "holds"
    if found & {"holds", "holds only if"}:
        return "holds only if"
    return "cannot be told" if not found or "cannot be told" in found else "does not"


def of_interval(low: float, high: float, threshold: float) -> Verdict:
    """Verdict by a threshold against an interval."""
    if low >= threshold:
        return "holds"
    return "does not" if high < threshold else "cannot be told"


def listed(names: Sequence[str], most: int = 3) -> str:
    """The first `most` names, and the number of the others."""
    unique = list(dict.fromkeys(names))
    more = len(unique) - most
    shown = ", ".join(unique[:most])
    return f"{shown} and {more} more" if more > 0 else shown
