"""Quotes in words: days, money, layouts and purchases as people write them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from trnbench.facts.records import Record
from trnbench.facts.units import (
    DAY_S,
    HOUR_S,
    Dimension,
    counted,
    money_text,
    scale_for,
    show,
    significant,
)
from trnbench.facts.workload.layout import KNOBS
from trnbench.facts.workload.partial_layout import PartialLayout, shown_degrees
from trnbench.money.billing import Bill, added
from trnbench.show.figures import FIGURES
from trnbench.show.report import Column, cell_text, columns, interval_text
from trnbench.show.row import Interval
from trnbench.verbs.quotes.answer import Quote

DIGITS = 3
EXACT = 6
"""Digits of a rate."""
LEAST = 1e-4
"""A part of a run's time that is less than this is not worth a word."""


class TimeUnit(Record, kw_only=False):
    """A unit of time: its length in seconds, its word, and what stands behind a single number."""

    seconds: float
    word: str
    behind: str


DAYS = TimeUnit(DAY_S, "days", "days")
TIME_UNITS = (DAYS, TimeUnit(HOUR_S, "hours", "h"), TimeUnit(60.0, "minutes", "min"))


def time_unit(seconds: Iterable[float]) -> TimeUnit:
    """Return the longest unit in which the middle one of some times is at least 1."""
    known = sorted(seconds)
    middle = known[len(known) // 2] if known else DAY_S
    return next((unit for unit in TIME_UNITS if middle >= unit.seconds), TIME_UNITS[-1])


def time_text(seconds: float) -> str:
    """Return a time in a unit that suits it: 5.8 days, 1.6 h, 40 min."""
    unit = time_unit((seconds,))
    number = cell_text(seconds / unit.seconds, FIGURES["days"])
    return f"{number} {'day' if unit is DAYS and number == '1' else unit.behind}"


def span_text(elapsed_s: Interval) -> str:
    """Return the duration of a run as text, 5.8 days, or only its ends: 5.8-12.1 days."""
    if elapsed_s.known:
        return time_text(elapsed_s.value)
    unit = time_unit((elapsed_s.value,))
    return f"{interval_text(elapsed_s.scaled(1 / unit.seconds), FIGURES['days'])} {unit.behind}"


def layout_text(layout: PartialLayout) -> str:
    """Return the degrees that matter: TP 16 x PP 4 x DP 64; empty where none was found."""
    degrees = ((name, layout[name]) for name in shown_degrees([layout]))
    return " x ".join(f"{name.upper()} {value}" for name, value in degrees if value is not None)


def cluster_text(quote: Quote) -> str:
    """Return the machines of a quote: 64 x trn2.48xlarge."""
    return f"{quote.nodes:,} x {quote.instance}"


def purchase_text(bill: Bill) -> str:
    """Return the purchase in words: as one 28-day Capacity Block."""
    if bill.tariff.option == "capacity-block":
        days = added(bill.blocks_days)
        several = len(bill.blocks_days) > 1 or len(bill.block_sizes) > 1
        block = f"Capacity Blocks of {days} days" if several else f"one {days}-day Capacity Block"
        sizes = f", {added(bill.block_sizes)} machines" if len(bill.block_sizes) > 1 else ""
        return f"as {block}{sizes}"
    return {
        "on-demand": "on demand",
        "spot": "on spot machines",
        "reserved": "as reserved instances",
        "savings-plan": "on a savings plan",
        "quote": "at your own price",
    }.get(bill.tariff.option, bill.tariff.option)


def chain_text(quote: Quote) -> list[str]:
    """Return the parts of the time and of the cost, a line each."""
    lines = []
    wall, bill, elapsed = quote.wall, quote.bill, quote.elapsed_s
    if elapsed is not None and not math.isfinite(elapsed.value):
        lines.append("no end within 1,000 years")
    elif wall is not None and elapsed is not None:
        spot = bill is not None and bill.tariff.option == "spot"
        away = "waiting for machines" if spot else "between purchases"
        parts = {
            "training": wall.work_s,
            "start": wall.start_s,
            "checkpoints": wall.checkpoint_s,
            "work lost": wall.lost_s,
            "restarts": wall.restart_s,
            away: elapsed.value - wall.wall_s,
        }
        told = [f"{name} {_time(s)}" for name, s in parts.items() if s > elapsed.value * LEAST]
        # Of times without a known middle these are the parts of one between the ends.
        about = "" if elapsed.known else f", one of them {time_text(elapsed.value)}"
        lines.append(f"{span_text(elapsed)}{about}: {', '.join(told)}")
        size = show(wall.checkpoint_bytes, Dimension.BYTES)
        lines.append(
            f"{significant(wall.failures, DIGITS)} failures expected; a checkpoint of {size} every "
            f"{_time(wall.interval_s)}"
        )
    if bill is not None:
        lines += bill_lines(bill)
    return lines


def bill_lines(bill: Bill) -> list[str]:
    """Return the terms of a bill as lines, the sum first."""
    tariff, charged = bill.tariff, bill.charged
    machines = charged.cost_usd - bill.storage_usd - bill.once_usd
    lines = [
        f"{counted(bill.machines, 'machine')} x "
        f"{significant(charged.billed_hours, DIGITS)} h x "
        f"{significant(tariff.usd_per_hour, EXACT)} USD/h = {significant(machines, DIGITS)} USD"
    ]
    if tariff.discount:
        listed = significant(tariff.list_usd_per_hour, EXACT)
        lines.append(f"{listed} USD/h less {100 * tariff.discount:.3g} %")
    if bill.storage_usd:
        lines.append(
            f"checkpoints kept: {significant(bill.storage_usd)} USD, "
            f"{significant(charged.cost_usd, DIGITS)} USD in all"
        )
    if bill.once_usd:
        lines.append(
            f"migration, once: {significant(bill.once_usd)} USD, "
            f"{significant(charged.cost_usd, DIGITS)} USD in all"
        )
    if tariff.source is not None:
        lines.append(
            f"rate: {tariff.option} in {tariff.region}, of {tariff.price_to}: {tariff.source.title}"
        )
    return lines


def _time(seconds: float) -> str:
    if seconds >= DAY_S:
        return f"{significant(seconds / DAY_S)} d"
    return show(seconds, Dimension.SECONDS, digits=DIGITS)


def tokens_text(quote: Quote) -> str:
    if quote.tokens is None:
        return f"{show(quote.samples, Dimension.COUNT)} samples"
    return f"{show(quote.tokens, Dimension.COUNT)} tokens"


def run_text(model: str, quote: Quote) -> str:
    job = quote.step.layout["job"]
    named = (f"job {job}",) if job not in (None, KNOBS["job"].default) else ()
    return ", ".join((model, *named, tokens_text(quote)))


def settings_text(quotes: Iterable[Quote]) -> str:
    """Return sequence, global batch and precision of the steps, said or assumed."""
    layouts = [step.layout for quote in quotes for step in quote.steps]
    parts = []
    for name in ("sequence", "global_batch", "precision"):
        values = dict.fromkeys(one[name] for one in layouts if one[name] is not None)
        shown = [f"{value:,}" if isinstance(value, int) else str(value) for value in values]
        if shown:
            parts.append(f"{KNOBS[name].title} {' or '.join(shown)}")
    return ", ".join(parts)


def degree_columns(quotes: Sequence[Quote]) -> tuple[Column, ...]:
    return columns(*shown_degrees([quote.step.layout for quote in quotes]), spare=True)


def sentence(quote: Quote) -> str:
    """Return a quote in one line: days, machines, layout, money, purchase."""
    elapsed, cost, bill = quote.elapsed_s, quote.cost_usd, quote.bill
    where = ", ".join(filter(None, (cluster_text(quote), layout_text(quote.step.layout))))
    if elapsed is None:
        return where
    unit = time_unit((elapsed.value,))
    span = interval_text(elapsed.scaled(1 / unit.seconds), FIGURES["days"])
    told = f"{span} {unit.behind} on {where}"
    if cost is None or bill is None:
        return f"{told}, no price"
    scale = scale_for(cost.value, Dimension.USD)
    low, high = (cell_text(end, FIGURES["cost_usd"], scale) for end in (cost.low, cost.high))
    return f"{told}, {money_text(cost.value)} ({low}-{high}) {purchase_text(bill)}"
