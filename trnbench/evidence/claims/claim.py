"""Vendors' claims on performance and cost, as data: words, source and check, and the verdicts.

A statement has one check, a table that names instances and figures; the engines that evaluate
checks know kinds of checks, never a statement.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, get_args

from trnbench.errors import DataFileError, Fault, UnitError, did_you_mean, unhandled
from trnbench.facts.catalog.document import load
from trnbench.facts.catalog.provenance import Source, Sourced
from trnbench.facts.catalog.quantity import Ratio
from trnbench.facts.catalog.schema import BY_TAG
from trnbench.facts.hardware.instance import PurchaseOption
from trnbench.facts.records import Record, tag_of
from trnbench.facts.units import EXAMPLES, UNITS, Dimension, parse

ClaimVerdict = Literal["holds", "holds only if", "does not", "undecided"]
VERDICTS: tuple[ClaimVerdict, ...] = get_args(ClaimVerdict)


class Case(Record):
    """One trial of a claim."""

    what: str
    """The examined thing; `says`: the result as text."""
    verdict: ClaimVerdict
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
    verdict: ClaimVerdict
    best: Case | None
    """The case most in favour of the claim; None without prices."""
    cases: tuple[Case, ...]


class Finding(Record):
    """Result of a check, in words and case by case."""

    verdict: ClaimVerdict
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


def together(verdicts: Iterable[ClaimVerdict]) -> ClaimVerdict:
    """Overall verdict of several cases."""
    found = set(verdicts)
    if found == {"holds"}:
        return "holds"
    if found & {"holds", "holds only if"}:
        return "holds only if"
    return "undecided" if not found or "undecided" in found else "does not"


def of_interval(low: float, high: float, threshold: float) -> ClaimVerdict:
    if low >= threshold:
        return "holds"
    return "does not" if high < threshold else "undecided"


def listed(names: Sequence[str], most: int = 3) -> str:
    """The first `most` names, and the number of the others."""
    unique = list(dict.fromkeys(names))
    more = len(unique) - most
    shown = ", ".join(unique[:most])
    return f"{shown} and {more} more" if more > 0 else shown


_DIMENSIONS = (Dimension.BYTES, Dimension.BYTES_PER_S, Dimension.FLOP_PER_S, Dimension.COUNT)
_TIMES = re.compile(r"(?P<number>[\d.,]+)\s*x")

_MOST = 100.0
"""Largest plausible gain for the money; more is a typing error."""

Gain = Literal["saving", "better", "times"]
"""Share of cost saved, share more for the money, or multiple of the speed."""


class Measure(Record):
    """A claimed figure: its value in base SI, and its unit."""

    value: float
    dimension: Dimension
    unit: str

    @property
    def other_unit(self) -> str | None:
        """The binary counterpart of a decimal unit, or the reverse; None without one."""
        plain = self.unit.replace("iB", "B")
        other = self.unit.replace("B", "iB") if plain == self.unit else plain
        return other if other != self.unit and other in UNITS[self.dimension] else None

    @property
    def other_value(self) -> float | None:
        """The value if the figure meant that other unit."""
        if self.other_unit is None:
            return None
        units = UNITS[self.dimension]
        return self.value / units[self.unit] * units[self.other_unit]


def measure(text: str) -> Measure:
    """The figure in a text such as "9.8 TB/s", of any dimension."""
    unit = text.lstrip("0123456789.,").strip()
    for dimension in _DIMENSIONS:
        if unit in UNITS[dimension]:
            return Measure(value=parse(text, dimension), dimension=dimension, unit=unit)
    examples = ", ".join(EXAMPLES[dimension] for dimension in _DIMENSIONS)
    raise UnitError(f"{text!r} is not a quantity; expected e.g. {examples}")


def multiple(text: str) -> float:
    """The number in a text such as "4x"."""
    match = _TIMES.fullmatch(text.strip())
    if match is None:
        raise UnitError(f"{text!r} is not a multiple; expected e.g. 4x")
    return parse(match["number"], Dimension.COUNT)


def threshold(gain: Gain, text: str) -> float:
    """Least advantage (their cost over ours, our speed over theirs) for a claimed gain."""
    match gain:
        case "saving":
            return 1 / (1 - _share(text, most=1))
        case "better":
            return 1 + _share(text, most=_MOST)
        case "times":
            return multiple(text)
        case _:
            unhandled(gain, "threshold")


class FigureCheck(Record, tag="figure"):
    """Figures of instances equal `claimed`, up to rounding; with `at_least`, or exceed it."""

    instances: tuple[str, ...]
    figures: tuple[str, ...]
    claimed: str
    at_least: bool = False

    def __post_init__(self) -> None:
        """Refuse an invalid figure."""
        _refuse_empty(self, "instances", "figures")
        if len(self.instances) > 1 and len(self.figures) > 1:
            raise ValueError("expected several `instances` or several `figures`, not both")
        measure(self.claimed)


class RatioCheck(Record, tag="ratio"):
    """Figures of the instances `of` are at least `times` those of `to`, up to rounding."""

    of: tuple[str, ...]
    to: tuple[str, ...]
    figures: tuple[str, ...]
    over: tuple[str, ...] = ()
    """Divisors, one for each of `figures`; empty: the same figures."""
    times: str

    def __post_init__(self) -> None:
        """Refuse an invalid multiple, and figures without a divisor."""
        _refuse_empty(self, "of", "to", "figures")
        if len(self.of) * len(self.to) > 1 and len(self.figures) > 1:
            raise ValueError("expected several instances or several `figures`, not both")
        if self.over and len(self.over) != len(self.figures):
            raise ValueError("`over` needs one figure for each of `figures`")
        multiple(self.times)


class PriceCheck(Record, tag="price"):
    """An instance is cheaper by `saving` as `option` on a day than otherwise, or on another day."""

    instances: tuple[str, ...]
    option: PurchaseOption
    than_option: PurchaseOption | None = None
    on: datetime.date
    than_on: datetime.date | None = None
    saving: str

    def __post_init__(self) -> None:
        """Refuse a price compared with itself."""
        _refuse_empty(self, "instances")
        if self.than_option in (None, self.option) and self.than_on in (None, self.on):
            raise ValueError("expected another option or another day to compare with")
        threshold("saving", self.saving)


class SpeedCheck(Record, tag="speed"):
    """Runs train `times` as fast on equally many of `of` as of `to`."""

    runs: tuple[str, ...]
    of: tuple[str, ...]
    to: tuple[str, ...]
    times: str
    precision: str | None = None
    """Recipe on `of`, if not the run's; `than_precision`: on `to`."""
    than_precision: str | None = None

    def __post_init__(self) -> None:
        _refuse_empty(self, "runs", "of", "to")
        multiple(self.times)


class CostCheck(Record, tag="cost"):
    """Runs cost `saving` less on `of` than on `to`, or give `better` more for the money."""

    runs: tuple[str, ...]
    of: tuple[str, ...]
    to: tuple[str, ...]
    options: tuple[PurchaseOption, ...]
    """Purchase options, the same one for both sides."""
    saving: str | None = None
    better: str | None = None
    also_in: tuple[str, ...] = ()
    """Further regions to try, besides the default ones."""

    def __post_init__(self) -> None:
        """Refuse a check with both gains, or with neither."""
        _refuse_empty(self, "runs", "of", "to", "options")
        if (self.saving is None) == (self.better is None):
            raise ValueError("expected either `saving` or `better`")
        threshold(self.gain, self.claimed)

    @property
    def gain(self) -> Gain:
        return "better" if self.saving is None else "saving"

    @property
    def claimed(self) -> str:
        return self.saving or self.better or ""


class NoCheck(Record, tag="untold"):
    """The claim cannot be checked; `why` names the missing data."""

    why: str


Check: TypeAlias = FigureCheck | RatioCheck | PriceCheck | SpeedCheck | CostCheck | NoCheck


class Saying(Record):
    """The words of a source, by its id."""

    text: str
    by: str


class Statement(Record):
    """One claim: id, words with sources, and exactly one check."""

    id: str
    said: tuple[Saying, ...]
    aspect: str | None = None
    """The checked part of the words."""
    note: str | None = None
    """Explanation of the outcome, one line."""
    check: Annotated[Check, BY_TAG]

    def __post_init__(self) -> None:
        _refuse_empty(self, "said")

    @property
    def kind(self) -> str:
        return tag_of(self.check)


class ClaimedRun(Record):
    """A training run in place of a claim's unstated workload; `nodes` of each instance type."""

    name: str
    model: str
    tokens: str
    sequence: int
    global_batch: int
    nodes: int
    precision: str

    def __post_init__(self) -> None:
        parse(self.tokens, Dimension.COUNT)

    @property
    def length(self) -> float:
        """Tokens of the run."""
        return parse(self.tokens, Dimension.COUNT)


class ClaimList(Sourced):
    """Claims on one family of machines."""

    name: str
    title: str
    aliases: tuple[str, ...] = ()
    rounding: Ratio
    """Tolerated relative difference from a rounded claim."""
    run: tuple[ClaimedRun, ...] = ()
    statement: tuple[Statement, ...]


def load_claims(path: Path) -> ClaimList:
    """Claims in a file, or DataFileError with every fault."""
    claims = load(path, ClaimList)
    faults = list(_unknown(claims))
    if faults:
        raise DataFileError(str(path), faults)
    return claims


def instances_of(check: Check) -> tuple[str, ...]:
    """Instances in a check."""
    match check:
        case FigureCheck() | PriceCheck():
            return check.instances
        case RatioCheck() | SpeedCheck() | CostCheck():
            return (*check.of, *check.to)
        case NoCheck():
            return ()
        case unknown:
            unhandled(unknown, "instances")


def _unknown(claims: ClaimList) -> Iterator[Fault]:
    """Yield duplicate ids, and unknown sources and runs."""
    ids = [statement.id for statement in claims.statement]
    runs = [run.name for run in claims.run]
    for i, statement in enumerate(claims.statement):
        if statement.id in ids[:i]:
            yield Fault(path=f"statement[{i}].id", message=f"{statement.id!r} is given twice")
        for j, saying in enumerate(statement.said):
            if saying.by not in claims.provenance.sources:
                hint = did_you_mean(saying.by, claims.provenance.sources)
                message = f"source {saying.by!r} is not in [sources]{hint}"
                yield Fault(path=f"statement[{i}].said[{j}].by", message=message)
        check = statement.check
        for name in check.runs if isinstance(check, SpeedCheck | CostCheck) else ():
            if name not in runs:
                message = f"no run {name!r} in the file{did_you_mean(name, runs)}"
                yield Fault(path=f"statement[{i}].{statement.kind}.runs", message=message)


def _refuse_empty(record: object, *names: str) -> None:
    for name in names:
        if not getattr(record, name):
            raise ValueError(f"`{name}` must not be empty")


def _share(text: str, *, most: float) -> float:
    share = parse(text, Dimension.RATIO)
    if not 0 < share < most:
        raise ValueError(f"{text!r} must be above 0 and below {most:.0%}")
    return share
