"""Question of `plan`: a run, its limits, what decides, and how the plan is shown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trnbench.errors import InputError
from trnbench.facts import parsing
from trnbench.money import Objective
from trnbench.verbs.asking.option import Given
from trnbench.verbs.asking.question import Question, group, option
from trnbench.verbs.asking.shared_options import DETAILS
from trnbench.verbs.quotes.question import DEADLINE_S, SENSITIVITY, RunRequest

if TYPE_CHECKING:
    from trnbench.facts.catalog.search import Catalog
    from trnbench.money.objective import Limits
    from trnbench.verbs.plan.answer import Asked


class PlanQuestion(Question):
    """A run to be planned.

    The default objective is the cheapest plan, or the fastest within a budget. The cheapest has a
    usual deadline if none is given: it would take years otherwise. `confirm` is the number of the
    best configurations that are simulated. `baseline` is the reference of break-even: the plan
    itself, unless named.
    """

    run: RunRequest = group(RunRequest)
    deadline_s: float | None = option(
        "Finish in this time or by this day: 30d, 8w, 2027-02-01; default for least cost: 60d.",
        read=parsing.deadline,
    )
    budget_usd: float | None = option("Spend at most, e.g. 5M.", read=parsing.money)
    objective: Objective | None = option(
        "What to minimise; default: cost, or time with --budget alone.", metavar="cost|time|pareto"
    )
    sensitivity: bool = SENSITIVITY
    confirm: int = option(
        "Simulate the best K layouts in the emulator too.", default=0, metavar="K", bounds=(0, None)
    )
    baseline: str | None = option(
        "Instance type for the break-even MFU; default: that of the plan.",
        metavar="INSTANCE",
        completes=("instances",),
    )
    assumed: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        """Refuse limits that nothing can keep."""
        if self.deadline_s is not None and not self.deadline_s > 0:
            raise InputError("the deadline must be above 0")
        if self.budget_usd is not None and not self.budget_usd > 0:
            raise InputError("the budget must be above 0")
        if self.confirm < 0:
            raise InputError("the number of configurations to play must not be negative")
        if self.sensitivity and self.goal.objective != "cost":
            raise InputError("--sensitivity asks which type is cheapest; add --objective cost")

    @property
    def goal(self) -> Asked:
        """Limits of the plan and its objective."""
        from trnbench.verbs.plan.answer import Asked

        budget_alone = self.budget_usd is not None and self.deadline_s is None
        objective = self.objective or ("time" if budget_alone else "cost")
        assumed = objective == "cost" and self.deadline_s is None
        return Asked(
            objective=objective,
            deadline_s=DEADLINE_S if assumed else self.deadline_s,
            budget_usd=self.budget_usd,
            assumed_deadline=assumed,
            confidence=self.run.confidence,
        )

    @property
    def limits(self) -> Limits:
        """The limits of a plan; it needs a price."""
        from trnbench.money.objective import Limits

        asked = self.goal
        return Limits(deadline_s=asked.deadline_s, budget_usd=asked.budget_usd)

    @classmethod
    def filled(cls, given: Given, catalog: Catalog) -> Given:
        """Return the options with those of a fleet's job, and usual ones where none are said."""
        from trnbench.verbs.quotes.usual import with_usual

        whole, assumed = with_usual(catalog, given)
        if whole.get("objective") in (None, "cost"):
            whole["deadline"] = parsing.moved_text(DEADLINE_S, whole.get("deadline"))
        return {**whole, "assumed": assumed}

    def settled(self, catalog: Catalog) -> PlanQuestion:
        return self.but(run=self.run.settled(catalog), objective=self.goal.objective)

    def inputs(self) -> dict[str, object]:
        """Return the question as plain data, with the limits that are kept."""
        asked = self.goal
        return self.run.inputs() | {
            "objective": asked.objective,
            "deadline_s": asked.deadline_s,
            "deadline_assumed": asked.assumed_deadline,
            "budget_usd": asked.budget_usd,
            "sensitivity": self.sensitivity,
            "confirm": self.confirm,
            "baseline": self.baseline,
        }


class PlanShowing(Question):
    """Columns of a plan, and the files that start it."""

    into: Path | None = option(
        "Write the files that start the plan there.", name="launch", metavar="FOLDER"
    )
    pilot: Path | None = option("Write the files of the best pilot run there.", metavar="FOLDER")
    scheduler: str | None = option(
        "With --launch or --pilot: see `launch --list`.", name="with", metavar="SCHEDULER"
    )
    plot: bool = option("Draw cost over days.")
    details: bool = DETAILS
