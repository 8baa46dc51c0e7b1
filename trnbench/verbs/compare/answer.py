"""Answer of `compare`: quotes beside a baseline, and the footing of the comparison."""

from __future__ import annotations

from collections.abc import Mapping

from trnbench.facts.records import Record
from trnbench.predict.assumption import Assumption
from trnbench.predict.search.result import Tally
from trnbench.show.row import Interval, Row, cells, interval_cells
from trnbench.verbs.quotes.answer import Quote
from trnbench.verbs.quotes.capacity import CapacityCheck
from trnbench.verbs.quotes.lead import Verdict
from trnbench.verbs.quotes.tipping import Tipping


class ComparedQuote(Record):
    """A quote beside the baseline: `time` and `cost` are ratios to its own, None without a figure.

    `break_even_mfu`: the MFU at which this very cluster would cost as much as the baseline.
    """

    quote: Quote
    time: Interval | None
    cost: Interval | None
    break_even_mfu: float | None

    def row(self) -> Row:
        """Return the quote's row with its ratios to the baseline."""
        return {
            **self.quote.figures(),
            **interval_cells("relative_time", self.time),
            **interval_cells("relative_cost", self.cost),
            "break_even_mfu": self.break_even_mfu,
            **self.quote.grounds(),
        }


def tally_row(instance: str, tally: Tally) -> Row:
    counts = cells(tally, "considered", "legal", "feasible", "priced", "rejected_by_reason")
    return {"instance": instance, **counts, "complete": not tally.unseen}


class OtherStack(Record):
    """Row with another training stack that was measured on its instance."""

    stack: str
    quote: Quote


class CompareAnswer(Record):
    """A comparison: a row a cluster. `footing` says in words what makes them comparable.

    `looked` counts the layouts of each instance type, over all clusters and parts of a run.
    `draws` from `seed` on are common to all rows, and `verdict` rests on them.
    `assumed`: what of the question nobody said.
    `unseen`: instance types that were not looked at, because the search was cancelled.
    """

    model: str
    footing: str
    baseline: str
    compared: tuple[ComparedQuote, ...]
    looked: Mapping[str, Tally]
    verdict: Verdict = Verdict()
    draws: int = 0
    seed: int = 0
    deadline_s: float | None = None
    confidence: float | None = None
    assumed: tuple[Assumption, ...] = ()
    other_stacks: tuple[OtherStack, ...] = ()
    capacity: tuple[CapacityCheck, ...] = ()
    """Capacity Blocks on offer, where they were asked for."""
    sensitivity: tuple[Tipping, ...] | None = None
    """Moves of inputs that change the choice, nearest first; None where nobody asked."""
    unseen: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        return not self.unseen and not any(tally.unseen for tally in self.looked.values())

    @property
    def positive(self) -> bool:
        """True when a cluster can do what was asked, at a price."""
        quotes = [one.quote for one in self.compared]
        return any(one.feasible and one.cost_usd is not None for one in quotes)
