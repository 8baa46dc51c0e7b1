"""What is asked of a plan."""

from __future__ import annotations

from trnbench.answers.plan import Asked
from trnbench.app.run_request import DEADLINE_S, RunRequest
from trnbench.errors import InputError
from trnbench.facts.records import Record
from trnbench.money.objective import Limits, Objective


class PlanRequest(Record):
    """A run to be planned.

    Without an objective the cheapest plan is wanted, or the fastest within a budget. The cheapest
    is wanted within a usual deadline if none is given: it would take years otherwise. `confirm`
    plays so many of the best configurations in the emulator. `baseline` is what the others are
    held against at break-even: the plan itself, unless named.
    """

    run: RunRequest
    deadline_s: float | None = None
    budget_usd: float | None = None
    objective: Objective | None = None
    confirm: int = 0
    baseline: str | None = None

    def __post_init__(self) -> None:
        """Refuse limits that nothing can keep."""
        if self.deadline_s is not None and not self.deadline_s > 0:
            raise InputError("the deadline must be above 0")
        if self.budget_usd is not None and not self.budget_usd > 0:
            raise InputError("the budget must be above 0")
        if self.confirm < 0:
            raise InputError("the number of configurations to play must not be negative")

    @property
    def asked(self) -> Asked:
        """What the plan has to keep and what decides."""
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
        asked = self.asked
        return Limits(deadline_s=asked.deadline_s, budget_usd=asked.budget_usd)


def inputs_of(request: PlanRequest) -> dict[str, object]:
    """Return the request as plain data, for outputs that repeat what was asked."""
    asked = request.asked
    return request.run.inputs() | {
        "objective": asked.objective,
        "deadline_s": asked.deadline_s,
        "deadline_assumed": asked.assumed_deadline,
        "budget_usd": asked.budget_usd,
        "confirm": request.confirm,
        "baseline": request.baseline,
    }
