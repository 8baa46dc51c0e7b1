"""What is answered to a comparison: quotes beside a baseline, and what they were compared on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trnbench.answers.interval import Interval, interval_cells
from trnbench.answers.quote import Quote
from trnbench.answers.row import Cell, Row
from trnbench.search.result import Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedQuote:
    """A quote beside the baseline: `time` and `cost` are ratios to its own, None without a figure.

    `break_even_mfu`: the MFU at which this very cluster would cost as much as the baseline.
    """

    quote: Quote
    time: Interval | None
    cost: Interval | None
    break_even_mfu: float | None

    def row(self) -> Row:
        """Return the quote's row with its ratios to the baseline."""
        row = self.quote.row()
        beside: dict[str, Cell] = {
            **interval_cells("relative_time", self.time),
            **interval_cells("relative_cost", self.cost),
            "break_even_mfu": self.break_even_mfu,
        }
        last = ("calibration", "basis", "evidence", "feasible", "reasons", "warnings", "notes")
        return {
            **{name: cell for name, cell in row.items() if name not in last},
            **beside,
            **{name: row[name] for name in last},
        }


def together(tallies: Sequence[Tally]) -> Tally:
    """Return the counts of some searches added up, the commonest reason for rejection first."""
    rejected: dict[str, int] = {}
    for tally in tallies:
        for rule, count in tally.rejected_by_reason.items():
            rejected[rule] = rejected.get(rule, 0) + count
    return Tally(
        considered=sum(tally.considered for tally in tallies),
        legal=sum(tally.legal for tally in tallies),
        feasible=sum(tally.feasible for tally in tallies),
        priced=sum(tally.priced for tally in tallies),
        unseen=sum(tally.unseen for tally in tallies),
        rejected_by_reason=dict(sorted(rejected.items(), key=lambda item: (-item[1], item[0]))),
    )


def tally_row(instance: str, tally: Tally) -> Row:
    """Return how many layouts of an instance type came how far."""
    return {
        "instance": instance,
        "considered": tally.considered,
        "legal": tally.legal,
        "feasible": tally.feasible,
        "priced": tally.priced,
        "rejected_by_reason": tally.rejected_by_reason,
        "complete": not tally.unseen,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareAnswer:
    """A comparison: a row a cluster. `footing` says in words what makes them comparable.

    `looked` counts the layouts of each instance type, over all clusters and parts of a run.
    `unseen`: instance types that were not looked at, because the search was cancelled.
    """

    model: str
    footing: str
    baseline: str
    compared: tuple[ComparedQuote, ...]
    looked: Mapping[str, Tally]
    purchase_asked: bool
    unseen: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether everything was looked at."""
        return not self.unseen and not any(tally.unseen for tally in self.looked.values())

    @property
    def positive(self) -> bool:
        """Whether every cluster can do what was asked, and has the price that was asked for."""
        quotes = [one.quote for one in self.compared]
        priced = all(one.cost_usd is not None for one in quotes) or not self.purchase_asked
        return bool(quotes) and priced and all(one.feasible for one in quotes)
