"""Question of `fleet`: a file of jobs, and when the search for a plan stops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.facts import parsing
from trnbench.facts.records import replace
from trnbench.verbs.asking.question import Question, option
from trnbench.verbs.quotes.question import MAX_AGE_VARIABLE

if TYPE_CHECKING:
    from trnbench.facts.catalog.search import Catalog
    from trnbench.facts.workload.fleet import FleetFile
    from trnbench.money.fleet.programme import Effort


class FleetQuestion(Question):
    """A fleet to be planned, and when to stop: see `Effort`. `limit_costs`: ask for them too.

    Rates read more than `max_price_age_s` before the price date are warned of. `contents`: what
    the file says, once the question is settled.
    """

    file: str = option(
        "A fleet file, or the name of a shipped one.",
        metavar="FILE",
        argument=True,
        required=True,
        completes=("fleets",),
    )
    gap: float | None = option(
        "Optimality gap: stop this near to the least cost; default: 0.1%.", read=parsing.share
    )
    time_limit_s: float | None = option(
        "Stop each search after this; then the same question may have another answer.",
        read=parsing.duration,
    )
    limit_costs: bool = option("Solve again without each limit, to price it.", default=True)
    max_price_age_s: float | None = option(
        "Warn if a price is older than this on the price date: 90d.",
        read=parsing.duration,
        variable=MAX_AGE_VARIABLE,
    )
    contents: FleetFile | None = None

    @property
    def fleet(self) -> FleetFile:
        if self.contents is None:
            raise ValueError("the question is not settled: its file is not read")
        return self.contents

    @property
    def effort(self) -> Effort:
        """Limits of the search for a plan."""
        from trnbench.money.fleet.programme import Effort

        usual = Effort(time_s=self.time_limit_s)
        return usual if self.gap is None else replace(usual, gap=self.gap)

    def settled(self, catalog: Catalog) -> FleetQuestion:
        from trnbench.verbs.fleet.jobs import fleet_named

        return self.but(contents=fleet_named(catalog, self.file))

    def inputs(self) -> dict[str, object]:
        """Return the question as plain data, with what its file says of all jobs."""
        file, effort = self.fleet, self.effort
        return {
            "name": file.name,
            "starts_on": file.starts_on.isoformat(),
            "horizon_days": file.horizon_days,
            "objective": file.objective,
            "budget_usd": file.budget,
            "month_budgets_usd": {one.month: one.usd for one in file.month},
            "blocks_usd": [one.usd for one in file.block if one.usd is not None],
            "discount": file.discount,
            "prices": list(file.prices),
            "assumed_prices": list(file.assumed_prices),
            "jobs": [job.name for job in file.job],
            "gap": effort.gap,
            "branches": effort.branches,
            "time_limit_s": effort.time_s,
        }
