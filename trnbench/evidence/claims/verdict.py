"""What becomes of claims: cases in which one is tried, verdicts of each and of all together."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

from trnbench.facts.catalog.provenance import Source
from trnbench.facts.records import Record

Verdict = Literal["holds", "holds only if", "does not", "cannot be told"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


class Case(Record):
    """One way to try a claim: `what` is looked at, and `says` what is found there, as text.

    `value` with its ends is the gain in the claim's own terms (a share, a multiple), or the figure
    in base SI; None where nothing is known. `proviso`: what has to be granted for it to hold.
    """

    what: str
    verdict: Verdict
    says: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    proviso: str | None = None


class Move(Record):
    """The verdict at the prices of a day, over its cases; `region` where buyers rarely look.

    `best` is the case that speaks most for the claim; None where nothing has a price.
    """

    price_date: datetime.date
    region: str | None
    verdict: Verdict
    best: Case | None
    cases: tuple[Case, ...]


class Finding(Record):
    """What the specs or the model say of a claim, in words and case by case.

    Where it turns on prices, the cases are those of `moves`, day by day.
    """

    verdict: Verdict
    says: str
    reason: str
    cases: tuple[Case, ...] = ()
    moves: tuple[Move, ...] = ()


class Words(Record):
    """What one source says; `by` is its id in the file."""

    text: str
    by: str
    source: Source


class Claimed(Record):
    """A claim with its finding: the words of every source, the file's title, the kind of check.

    `aspect`: which part of the words was checked. `note` explains the outcome.
    """

    id: str
    group: str
    said: tuple[Words, ...]
    aspect: str | None
    note: str | None
    check: str
    finding: Finding


def together(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict on a claim that was tried in several cases."""
    found = set(verdicts)
    if found == {"holds"}:
        return "holds"
    if found & {"holds", "holds only if"}:
        return "holds only if"
    return "cannot be told" if not found or "cannot be told" in found else "does not"


def of_interval(low: float, high: float, threshold: float) -> Verdict:
    """True when a figure with an interval reaches a threshold."""
    if low >= threshold:
        return "holds"
    return "does not" if high < threshold else "cannot be told"


def listed(names: Sequence[str], most: int = 3) -> str:
    """The first of several names and how many more there are."""
    unique = list(dict.fromkeys(names))
    more = len(unique) - most
    shown = ", ".join(unique[:most])
    return f"{shown} and {more} more" if more > 0 else shown
