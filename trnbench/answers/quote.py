"""A whole run on one cluster bought in one way: the record, and the row machines read of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from trnbench.answers.interval import Interval, interval_cells
from trnbench.answers.row import Cell, Row
from trnbench.answers.train import TrainAnswer
from trnbench.plan.billing import Bill
from trnbench.plan.objective import Candidate
from trnbench.units import DAY_S, MILLION
from trnbench.workload.layout import RANK_DEGREES


@dataclass(frozen=True, slots=True, kw_only=True)
class Wall:
    """What the wall time of a run is made of, seconds, and what failures are expected in it."""

    start_s: float
    work_s: float
    checkpoint_s: float
    lost_s: float
    restart_s: float
    failures: float
    checkpoint_interval_s: float
    checkpoint_bytes: float

    @property
    def total_s(self) -> float:
        """All of it together."""
        return self.start_s + self.work_s + self.checkpoint_s + self.lost_s + self.restart_s

    @property
    def goodput(self) -> float:
        """The share of it that is pure training."""
        return self.work_s / self.total_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A run on a cluster, bought so.

    `steps` are the training steps of its parts, and `main` says which takes longest. `tokens` are
    of all parts, None for a model that knows none. `elapsed_s` and `wall` are None where it cannot
    run, `cost_usd` and `bill` where there is no price; then `reasons` or `notes` say why.
    `warnings` are of the purchase. `cheapest_probability`: the share of common draws in which no
    other row of the answer is cheaper.
    """

    instance: str
    nodes: int
    steps: tuple[TrainAnswer, ...]
    main: int
    tokens: float | None
    samples: float
    elapsed_s: Interval | None = None
    wall: Wall | None = None
    cost_usd: Interval | None = None
    bill: Bill | None = None
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    cheapest_probability: float = 0.0

    @property
    def step(self) -> TrainAnswer:
        """The training step of the part that takes longest."""
        return self.steps[self.main]

    @property
    def feasible(self) -> bool:
        """Whether the run is possible and keeps what was asked of it."""
        return not self.reasons

    @property
    def every_warning(self) -> tuple[str, ...]:
        """What to be warned of: of the steps and of the purchase."""
        of_steps = (warning for answer in self.steps for warning in answer.warnings)
        return tuple(dict.fromkeys([*of_steps, *self.warnings]))

    @property
    def fit_probability(self) -> float:
        """How likely it is that every part of the run fits in memory; 0 without a layout."""
        return min(answer.memory.fit_probability if answer.memory else 0.0 for answer in self.steps)

    @property
    def usd_per_million_tokens(self) -> Interval | None:
        """What a million tokens cost, if there is a price and the model has tokens."""
        if self.cost_usd is None or self.tokens is None:
            return None
        return self.cost_usd.scaled(MILLION / self.tokens)

    @property
    def samples_per_s(self) -> float | None:
        """Samples a second of the part that takes longest, while it trains."""
        step = self.step.step
        return None if step is None else self.step.per_s(step.step_time_s)

    @property
    def bottleneck(self) -> tuple[str, float] | None:
        """The category that takes most of a step, and its share."""
        step = self.step.step
        if step is None:
            return None
        name = max(step.exposed_s, key=lambda category: step.exposed_s[category])
        return name, step.exposed_s[name] / step.step_time_s

    def refused(self, reasons: tuple[str, ...]) -> Quote:
        """Return it with reasons why it will not do."""
        return replace(self, reasons=(*self.reasons, *reasons))

    def is_of(self, candidate: Candidate) -> bool:
        """Tell whether it is the quote of a candidate."""
        option = self.bill.option if self.bill else None
        return (self.instance, self.nodes, option) == (
            candidate.instance,
            candidate.nodes,
            candidate.option,
        )

    def row(self) -> dict[str, Cell]:
        """Return the row of the main step, followed by times and money."""
        step: Row = self.step.row()
        bottleneck = self.bottleneck
        own = (
            "case",
            "engine",
            "reasons",
            "warnings",
            "notes",
            "feasible",
            "calibration",
            "basis",
            "evidence",
        )
        return {
            "instance": self.instance,
            "nodes": self.nodes,
            **{name: cell for name, cell in step.items() if name not in own},
            "bottleneck": bottleneck[0] if bottleneck else None,
            "bottleneck_share": bottleneck[1] if bottleneck else None,
            "tokens": self.tokens,
            "samples": self.samples,
            **_time_cells(self),
            **_money_cells(self),
            "cheapest_probability": self.cheapest_probability,
            "fit_probability": self.fit_probability,
            "phases": [_phase(answer) for answer in self.steps] if len(self.steps) > 1 else [],
            "calibration": self.step.calibration,
            "basis": self.step.basis,
            "evidence": self.step.evidence.word,
            "feasible": self.feasible,
            "reasons": self.reasons,
            "warnings": self.every_warning,
            "notes": self.notes,
        }


def _time_cells(quote: Quote) -> dict[str, Cell]:
    days = None if quote.elapsed_s is None else quote.elapsed_s.scaled(1 / DAY_S)
    wall = quote.wall
    return {
        **interval_cells("days", days),
        "goodput": wall.goodput if wall else None,
        "wall_s": wall.total_s if wall else None,
        "start_s": wall.start_s if wall else None,
        "work_s": wall.work_s if wall else None,
        "checkpoint_s": wall.checkpoint_s if wall else None,
        "lost_s": wall.lost_s if wall else None,
        "restart_s": wall.restart_s if wall else None,
        "failures": wall.failures if wall else None,
        "checkpoint_interval_s": wall.checkpoint_interval_s if wall else None,
        "checkpoint_bytes": wall.checkpoint_bytes if wall else None,
    }


def _money_cells(quote: Quote) -> dict[str, Cell]:
    bill = quote.bill
    cells: dict[str, Cell] = {
        **interval_cells("cost_usd", quote.cost_usd),
        **interval_cells("usd_per_million_tokens", quote.usd_per_million_tokens),
    }
    if bill is None:
        return cells | dict.fromkeys(_BILLED)
    figures: tuple[Cell, ...] = (
        *(bill.option, bill.region, price_day(bill), bill.origin, bill.usd_per_hour),
        *(bill.list_usd_per_hour, bill.discount, bill.machines, bill.billed_hours),
        *(bill.usable_hours, bill.restarts, bill.upfront_usd, bill.committed_usd, bill.share_usd),
        bill.storage_usd,
        *(bill.blocks_days, bill.block_sizes, bill.source.title if bill.source else None),
    )
    return cells | dict(zip(_BILLED, figures, strict=True))


_BILLED = (
    *("purchase", "region", "price_date", "price_origin", "usd_per_hour"),
    *("list_usd_per_hour", "discount", "machines", "billed_hours", "usable_hours"),
    *("block_restarts", "upfront_usd", "committed_usd", "share_usd", "storage_usd"),
    *("blocks_days", "block_sizes", "price_source"),
)


def price_day(bill: Bill) -> str | None:
    """Return the day a published rate was read, the latest it can have been."""
    return bill.price_to.isoformat() if bill.price_to else None


def _phase(answer: TrainAnswer) -> Mapping[str, object]:
    shown = ("sequence", *RANK_DEGREES, "micro_batch", "zero", "recompute")
    cells = answer.row()
    rates = ("step_time_s", "tokens_per_s", "low_tokens_per_s", "high_tokens_per_s", "mfu")
    return {name: cells[name] for name in (*shown, "schedule", *rates)}
