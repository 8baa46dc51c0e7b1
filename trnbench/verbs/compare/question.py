"""Question of `compare`: a run, the footing on which instance types are compared, its columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trnbench.errors import InputError
from trnbench.facts import parsing
from trnbench.verbs.asking.option import Given
from trnbench.verbs.asking.question import Question, group, option
from trnbench.verbs.quotes.question import DEADLINE_S, SENSITIVITY, RunRequest

if TYPE_CHECKING:
    from trnbench.facts.catalog.search import Catalog
    from trnbench.money.objective import Limits


class CompareQuestion(Question):
    """A run to compare on its instance types.

    Types are compared at one deadline, or at the given numbers of nodes; default: a usual deadline.
    `baseline` is the first of the instance types unless named. `baseline_nodes` is its cluster size
    at equal cost; default: what finishes in time. `assumed`: names and values of defaults taken.
    """

    run: RunRequest = group(RunRequest)
    deadline_s: float | None = option(
        "Finish in this time or by this day (60d, 8w, 2027-02-01), each on its cheapest cluster; "
        "default, without --nodes: 60d.",
        read=parsing.deadline,
    )
    equal_cost: bool = option(
        "The baseline by --deadline or --nodes N, the others as fast as its cost buys."
    )
    sensitivity: bool = SENSITIVITY
    baseline: str | None = option(
        "Instance type to compare the others with; default: the first.",
        metavar="INSTANCE",
        completes=("instances",),
    )
    baseline_nodes: int | None = None
    assumed: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        """Refuse a deadline that has passed."""
        if self.deadline_s is not None and not self.deadline_s > 0:
            raise InputError("the deadline must be above 0")
        if self.baseline_nodes is not None and self.baseline_nodes not in self.run.node_counts:
            raise InputError(f"the baseline's {self.baseline_nodes} nodes are not looked at")
        if self.run.sizes and self.equal_cost:
            raise InputError("--equal-cost sizes the others itself; give --nodes of the baseline")
        if self.sensitivity and self.equal_cost:
            raise InputError("--sensitivity asks which type is cheapest; leave out --equal-cost")
        if self.run.confidence is not None and not self.has_deadline:
            raise InputError("--confidence keeps a deadline, and there is none: give --deadline")

    @property
    def by_nodes(self) -> bool:
        counted = bool(self.run.nodes) or self.run.all_sized
        return self.deadline_s is None and counted and not self.equal_cost

    @property
    def has_deadline(self) -> bool:
        return not self.by_nodes and not self.baseline_nodes

    @property
    def limits(self) -> Limits:
        """Footing of a comparison, and the limits that a cluster has to keep."""
        from trnbench.money.objective import NO_LIMITS, Limits

        if not self.has_deadline:
            return NO_LIMITS
        return Limits(deadline_s=self.deadline_s or DEADLINE_S, priced=False)

    @classmethod
    def filled(cls, given: Given, catalog: Catalog) -> Given:
        """Return the options with those of a fleet's job, and usual ones where none are said."""
        from trnbench.verbs.quotes.usual import with_usual

        whole, assumed = with_usual(catalog, given)
        if not whole.get("nodes") or whole.get("equal_cost"):
            whole["deadline"] = parsing.moved_text(DEADLINE_S, whole.get("deadline"))
        return {**whole, "assumed": assumed}

    def settled(self, catalog: Catalog) -> CompareQuestion:
        """Return the question with the run's own prices; at equal cost, of clusters of any size."""
        run, baseline_nodes = self.run.settled(catalog), None
        if self.equal_cost and run.nodes and self.deadline_s is None:
            if len(run.nodes) > 1:
                raise InputError("--equal-cost wants one number of --nodes: the baseline's")
            (baseline_nodes,) = run.nodes
            powers = run.but(nodes=()).node_counts
            run = run.but(nodes=tuple(sorted({*powers, baseline_nodes})))
        return self.but(run=run, baseline_nodes=baseline_nodes)

    def said(self) -> dict[str, Any]:
        said = super().said()
        return said if self.baseline_nodes is None else {**said, "nodes": str(self.baseline_nodes)}

    def inputs(self) -> dict[str, object]:
        return super().inputs() | {"deadline_s": self.limits.deadline_s}
