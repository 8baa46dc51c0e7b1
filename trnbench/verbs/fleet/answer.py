"""Answer of `fleet`: a row a job, purchases by day, the bill, and its certainty."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Literal

from trnbench.facts.records import Record, asdict, replace
from trnbench.money.fleet.relax import LimitCost
from trnbench.predict.assumption import Assumption, merged
from trnbench.show.row import Cell, Interval, cells, interval_cells
from trnbench.verbs.quotes.lead import CLEAR, Pilot

FLEET_KEYS = (
    *("name", "model", "job", "instance", "nodes", "region", "purchase"),
    *("starts_on", "ends_on", "days", "cost_usd", "on_time_probability"),
    *("mean_cost_usd", "cheapest_probability", "regret_usd"),
)
FoundBy = Literal["programme", "greedy", "nothing"]


class FleetRow(Record):
    """A job of the plan; all but name, model and job is None where it has no place in it.

    `start_day` counts from the first day. `on_time_probability`: in which share of the draws it
    ends in time, None without a deadline.
    """

    name: str
    model: str
    job: str
    instance: str | None = None
    nodes: int | None = None
    region: str | None = None
    purchase: str | None = None
    starts_on: datetime.date | None = None
    ends_on: datetime.date | None = None
    days: float | None = None
    cost_usd: float | None = None
    on_time_probability: float | None = None
    mean_cost_usd: float | None = None
    """Mean of its bill over the draws."""
    cheapest_probability: float | None = None
    """Share of draws in which no other type in time is cheaper; None where none would do."""
    regret_usd: float | None = None
    """Mean of its bill less that of the cheapest type of each draw."""
    pilots: tuple[Pilot, ...] = ()
    """Measurements that would cut the regret by more than they cost, the best one first."""
    start_day: int = 0
    deadline_day: float | None = None
    reasons: tuple[str, ...] = ()
    assumed: tuple[Assumption, ...] = ()
    """What nobody said of its steps."""

    @property
    def saved_usd(self) -> float:
        """USD that the best measurement saves, less what it costs; 0 without one."""
        if not self.pilots or self.regret_usd is None:
            return 0.0
        return self.regret_usd - self.pilots[0].regret_after_usd - self.pilots[0].cost_usd

    def row(self) -> dict[str, Cell]:
        """Return the row that machines read."""
        cells = {key: getattr(self, key) for key in FLEET_KEYS}
        return {
            key: cell.isoformat() if isinstance(cell, datetime.date) else cell
            for key, cell in cells.items()
        }


class FleetPurchase(Record):
    """Purchase of a day: machines for a job alone, or for all jobs of a pool."""

    on: datetime.date
    until: datetime.date
    what: str
    purchase: str
    usd: float
    jobs: tuple[str, ...]


class MonthBill(Record):
    """Cost of a month under one purchase option."""

    month: str
    purchase: str
    usd: float


class FrontPoint(Record):
    """A plan that no other beats: when its last job ends, and what it costs."""

    finish_days: float
    cost_usd: float


class SpotRisk(Record):
    """A job on spot machines as it was played: days, USD, how often machines were taken back."""

    name: str
    spot_share: float
    days: Interval
    cost_usd: Interval
    reclaims: float
    zones: float


class FleetAnswer(Record):
    """A plan for a fleet. `feasible`: every job has its place.

    `binding` says what stands in the way, each by itself. `cost_usd` is the whole bill with its
    interval, `bound_usd` what no plan can be below, `gap` the distance as a share. `budgets`: the
    probability that each holds. `together`: that every deadline does. `prices`: the rates that are
    paid, with date and source.
    """

    name: str
    title: str
    starts_on: datetime.date
    horizon_days: int
    rows: tuple[FleetRow, ...]
    feasible: bool
    found_by: FoundBy
    objective: str
    cost_usd: Interval | None = None
    finish_days: float = 0.0
    bound_usd: float | None = None
    gap: float | None = None
    branches: int = 0
    columns: int = 0
    binding: tuple[str, ...] = ()
    purchases: tuple[FleetPurchase, ...] = ()
    bill: tuple[MonthBill, ...] = ()
    prices: tuple[Mapping[str, Cell], ...] = ()
    limit_costs: tuple[LimitCost, ...] = ()
    front: tuple[FrontPoint, ...] = ()
    spot: tuple[SpotRisk, ...] = ()
    together: float | None = None
    within_budget: float | None = None
    stopped: bool = False
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    draws: int = 0
    seed: int = 0

    @property
    def regret_usd(self) -> float | None:
        """USD that deciding on these instance types now loses on average, over all jobs."""
        known = [one.regret_usd for one in self.rows if one.regret_usd is not None]
        return sum(known) if known else None

    @property
    def pilot(self) -> tuple[str, Pilot] | None:
        """The job and the measurement that save most, with what all jobs then risk."""
        measured = [row for row in self.rows if row.pilots]
        if not measured or self.regret_usd is None:
            return None
        row = max(measured, key=lambda one: one.saved_usd)
        best, own_usd = row.pilots[0], row.regret_usd or 0.0
        left = self.regret_usd - own_usd + best.regret_after_usd
        return row.name, replace(best, regret_after_usd=left)

    @property
    def verdict_is(self) -> Literal["clear", "tie", "none"]:
        """`clear` where the instance type of every job is the cheapest in most draws."""
        if not self.feasible:
            return "none"
        row = self.least_sure
        return "clear" if row is None or (row.cheapest_probability or 0.0) >= CLEAR else "tie"

    @property
    def least_sure(self) -> FleetRow | None:
        """The job whose instance type is the least likely to be the cheapest."""
        known = [one for one in self.rows if one.cheapest_probability is not None]
        return min(known, key=lambda one: one.cheapest_probability or 0.0, default=None)

    @property
    def assumed(self) -> tuple[Assumption, ...]:
        return merged({row.name: row.assumed for row in self.rows if row.assumed})

    def summary(self) -> dict[str, object]:
        """Return the part of the JSON beside the rows."""
        return {
            **cells(self, "feasible verdict_is found_by objective"),
            "recommended": {row.name: row.instance for row in self.rows if row.instance},
            **interval_cells("cost_usd", self.cost_usd),
            **cells(self, "regret_usd finish_days bound_usd gap branches columns stopped binding"),
            "pilots": [{"name": row.name, **one.row()} for row in self.rows for one in row.pilots],
            "bill": [asdict(one) for one in self.bill],
            "prices": self.prices,
            "purchases": [
                {**asdict(one), "on": one.on.isoformat(), "until": one.until.isoformat()}
                for one in self.purchases
            ],
            "limit_costs": [asdict(one) for one in self.limit_costs],
            "front": [asdict(one) for one in self.front],
            "spot": [asdict(one) for one in self.spot],
            **cells(self, "deadlines_probability=together budget_probability=within_budget"),
            "reasons": {row.name: row.reasons for row in self.rows if row.reasons},
            "gantt": [
                cells(one, "name start_day days") for one in self.rows if one.days is not None
            ],
            **cells(self, "notes warnings draws seed"),
        }
