"""A whole run on one cluster bought in one way: the record, and the row machines read of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trnbench.facts.records import Record, replace
from trnbench.facts.units import DAY_S, MILLION
from trnbench.facts.workload.layout import RANK_DEGREES
from trnbench.money.billing import Bill
from trnbench.money.goodput import Goodput
from trnbench.money.objective import Candidate
from trnbench.predict.assumption import Assumption, merged
from trnbench.show.row import Cell, Interval, cells, interval_cells, with_end
from trnbench.verbs.train.answer import TrainAnswer


class Quote(Record):
    """A run on a cluster, bought so.

    `steps` are the training steps of its parts, and `main` says which takes longest. `tokens` are
    of all parts, None for a model that knows none. `elapsed_s` and `wall` are None where it cannot
    run, `cost_usd` and `bill` where there is no price; then `reasons` or `notes` say why.
    `unsold` says why rates that are published cannot buy it. `warnings` are of the purchase.
    `cheapest_probability`: the share of common draws in which no other instance type's best plan is
    cheaper than that of this one's type; None beside a better row of the type.
    """

    instance: str
    nodes: int
    steps: tuple[TrainAnswer, ...]
    main: int
    tokens: float | None
    samples: float
    elapsed_s: Interval | None = None
    wall: Goodput[float] | None = None
    cost_usd: Interval | None = None
    bill: Bill | None = None
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unsold: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    cheapest_probability: float | None = 0.0
    on_time_probability: float | None = None
    """Share of common draws that keep deadline and budget; None without either."""
    mean_cost_usd: float | None = None
    """Mean of the bill over the common draws."""
    regret_usd: float | None = None
    """Mean of the bill less that of the best plan of each draw; None where limits are broken."""
    unsupported: str | None = None
    """End of support of the training software in words; None while it is supported."""

    @property
    def step(self) -> TrainAnswer:
        return self.steps[self.main]

    @property
    def feasible(self) -> bool:
        return not self.reasons

    @property
    def every_warning(self) -> tuple[str, ...]:
        of_steps = (warning for answer in self.steps for warning in answer.warnings)
        return tuple(dict.fromkeys([*of_steps, *self.warnings]))

    @property
    def fit_probability(self) -> float:
        return min(answer.memory.fit_probability if answer.memory else 0.0 for answer in self.steps)

    @property
    def memory_peak_bytes(self) -> float | None:
        return max((one.memory.total_bytes for one in self.steps if one.memory), default=None)

    @property
    def usd_per_million_tokens(self) -> Interval | None:
        if self.cost_usd is None or self.tokens is None:
            return None
        return self.cost_usd.scaled(MILLION / self.tokens)

    @property
    def samples_per_s(self) -> float | None:
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

    @property
    def marks(self) -> tuple[str, ...]:
        """Why the row cannot simply be bought and run, a word each.

        `blocks`: several Capacity Blocks in a row; `zone`: several side by side in one zone;
        `offer`: no published price, so a private offer; `support`: software out of support;
        `beyond-rows`: settings that its stack was not measured with.
        """
        bill = self.bill
        held = {
            "blocks": bill is not None and len(bill.blocks_days) > 1,
            "zone": bill is not None and self.nodes > 1 and len(bill.block_sizes) > 1,
            "offer": bill is None and self.elapsed_s is not None,
            "support": self.unsupported is not None,
            "beyond-rows": any(step.beyond_rows for step in self.steps),
        }
        return tuple(name for name, holds in held.items() if holds)

    def refused(self, reasons: tuple[str, ...]) -> Quote:
        return replace(self, reasons=(*self.reasons, *reasons))

    def is_of(self, candidate: Candidate) -> bool:
        option = self.bill.tariff.option if self.bill else None
        wanted = (candidate.instance, candidate.nodes, candidate.option)
        return (self.instance, self.nodes, option) == wanted

    def row(self) -> dict[str, Cell]:
        return {**self.figures(), **self.grounds()}

    def figures(self) -> dict[str, Cell]:
        """Return the cells of numbers."""
        name, share = self.bottleneck or (None, None)
        own = ("case", "engine", "instance", "nodes", *_OF_RUN, *self.grounds())
        return {
            **cells(self, "instance nodes"),
            **{key: cell for key, cell in self.step.row().items() if key not in own},
            "bottleneck": name,
            "bottleneck_share": share,
            **cells(self, "tokens samples"),
            **_time_cells(self),
            **interval_cells("cost_usd", self.cost_usd),
            **interval_cells("usd_per_million_tokens", self.usd_per_million_tokens),
            **bill_cells(self.bill),
            **cells(
                self, "cheapest_probability on_time_probability mean_cost_usd regret_usd marks"
            ),
            **cells(self, "fit_probability memory_peak_bytes"),
            "phases": [_phase(answer) for answer in self.steps] if len(self.steps) > 1 else [],
        }

    def grounds(self) -> dict[str, Cell]:
        """Return notes on evidence, prices and instances, by group."""
        return {
            **cells(
                self.step, "calibration stack stack_state basis beyond_rows evidence=evidence.word"
            ),
            **cells(self, "feasible reasons warnings=every_warning notes"),
        }


_OF_RUN = ("tokens", "run_share", "days", "cost_usd")
"""What the step of a part says of itself, and a quote of all parts."""


def _time_cells(quote: Quote) -> dict[str, Cell]:
    days = None if quote.elapsed_s is None else quote.elapsed_s.scaled(1 / DAY_S)
    spent = "goodput wall_s start_s work_s checkpoint_s lost_s restart_s failures"
    kept = cells(quote.wall, f"{spent} checkpoint_interval_s=interval_s checkpoint_bytes")
    return interval_cells("days", days) | {key: with_end(one) for key, one in kept.items()}


def bill_cells(bill: Bill | None) -> dict[str, Cell]:
    """Cells of a bill: its rate with date and source, its hours, its parts."""
    tariff, charged = (bill.tariff, bill.charged) if bill else (None, None)
    return {
        **cells(tariff, "purchase=option region"),
        "price_date": bill and price_day(bill),
        **cells(tariff, "price_origin=origin usd_per_hour list_usd_per_hour discount"),
        **cells(bill, "machines"),
        **cells(charged, "billed_hours usable_hours"),
        **cells(bill, "block_restarts=restarts"),
        **cells(charged, "upfront_usd committed_usd share_usd"),
        **cells(bill, "storage_usd migration_usd=once_usd blocks_days block_sizes"),
        **cells(tariff, "price_source=source.title"),
    }


def price_day(bill: Bill) -> str | None:
    """Return the day a published rate was read, the latest it can have been."""
    read_on = bill.tariff.price_to
    return read_on.isoformat() if read_on else None


def _phase(answer: TrainAnswer) -> Mapping[str, object]:
    cells = answer.row()
    shown = ("sequence", *RANK_DEGREES, "micro_batch", "global_batch", "zero", "recompute")
    rates = ("step_time_s", "tokens_per_s", "low_tokens_per_s", "high_tokens_per_s", "mfu")
    memory = ("memory_bytes", "memory_available_bytes", "fit_probability")
    told = {name: cells[name] for name in (*shown, "schedule", *rates, *memory)}
    return {"phase": answer.label, **told, **(answer.part.row() if answer.part else {})}


def quotes_assumed(quotes: Iterable[Quote]) -> tuple[Assumption, ...]:
    """Assumptions of the steps of some quotes, by their clusters where it differs."""
    return merged(
        {
            f"{quote.nodes} x {quote.instance}{step.label and f', {step.label}'}": step.assumptions
            for quote in quotes
            for step in quote.steps
        }
    )
