"""Comparisons as people and machines read them: time, money, and what the money was taken from."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace

from trnbench.answers.compare import CompareAnswer
from trnbench.answers.quote import DAY_S, Quote, price_day
from trnbench.answers.row import Row
from trnbench.report.quote_text import (
    cluster_text,
    degree_columns,
    money_text,
    span_text,
    tokens_text,
)
from trnbench.report.report import Column, Report, draw_rows
from trnbench.report.scaling import cost_plot
from trnbench.report.text_table import Style, wrap
from trnbench.units import Dimension, Scale, scale_for

CONVENTIONS = {
    "days": "from start to end: training, checkpoints, failures, restarts, gaps between purchases",
    "cost_usd": "what is billed by the purchase option, blocks and terms whole; with storage_usd",
    "low_, high_": "ends of an 80 % interval",
    "relative_time, relative_cost": "over the baseline's days and cost",
    "break_even_mfu": "the MFU at which this cluster would cost as much as the baseline",
    "bottleneck": "the category that takes most of a training step",
    "mfu": "model FLOP (causal attention, nothing computed twice) over the tensor units' peak",
}


def compare_report(
    answer: CompareAnswer, inputs: Mapping[str, object], *, plot: bool = False
) -> Report:
    """Return the report of a comparison, a row a cluster."""
    report = Report(
        verb="compare",
        inputs=inputs,
        rows=tuple(one.row() for one in answer.compared),
        columns=_columns(answer),
        summary={
            "footing": answer.footing,
            "baseline": answer.baseline,
            "layouts": [one.plain for one in answer.looked],
            "complete": answer.complete,
            "not_looked_at": answer.unseen,
            "conventions": CONVENTIONS,
        },
    )
    return replace(report, people=functools.partial(_draw, answer, plot))


def _columns(answer: CompareAnswer) -> tuple[Column, ...]:
    quotes = [one.quote for one in answer.compared]
    return (
        Column(key="instance", title="instance"),
        Column(key="nodes", title="nodes"),
        *degree_columns(quotes),
        Column(key="tokens_per_s", title="tokens/s"),
        Column(key="mfu", title="MFU", dimension=Dimension.RATIO, digits=3),
        Column(key="days", title="days"),
        Column(key="cost_usd", title="cost", dimension=Dimension.USD),
        Column(key="usd_per_million_tokens", title="USD/M tokens"),
        Column(key="relative_time", title="x time"),
        Column(key="relative_cost", title="x cost"),
        Column(key="bottleneck", title="bottleneck"),
        Column(key="purchase", title="purchase"),
        Column(key="region", title="region"),
        Column(key="price_date", title="price of"),
        Column(key="usd_per_hour", title="USD/h", digits=6),
        Column(key="evidence", title="evidence"),
    )


def _draw(answer: CompareAnswer, plot: bool, style: Style) -> str:
    quotes = [one.quote for one in answer.compared]
    blocks = [_heading(answer, style)]
    if quotes:
        blocks += [_times(answer, style), _money(answer, style)]
    if plot:
        blocks.append(cost_plot(quotes, style))
    blocks.append("\n".join(wrap(note, style.width, "") for note in _notes(answer)))
    return "\n\n".join(block for block in blocks if block)


def _heading(answer: CompareAnswer, style: Style) -> str:
    quotes = [one.quote for one in answer.compared]
    what = f"{answer.model}, {tokens_text(quotes[0])}" if quotes else answer.model
    lines = [style.strong(what), wrap(answer.footing, style.width, "")]
    cheapest = min(
        (one for one in answer.compared if one.quote.cost_usd and one.quote.feasible),
        key=lambda one: one.quote.cost_usd.value if one.quote.cost_usd else 0.0,
        default=None,
    )
    if cheapest is not None and cheapest.quote.cost_usd is not None:
        words = f"cheapest: {cluster_text(cheapest.quote)}, "
        words += money_text(cheapest.quote.cost_usd.value)
        if cheapest.cost is not None and cheapest.quote.instance != answer.baseline:
            words += f", {span_text(cheapest.cost)} times {answer.baseline}"
        lines.append(wrap(words, style.width, ""))
    return "\n".join(lines)


def _times(answer: CompareAnswer, style: Style) -> str:
    """Return the table of layouts and days."""
    quotes = [one.quote for one in answer.compared]
    rows: list[Row] = []
    for one in answer.compared:
        quote, elapsed, share = one.quote, one.quote.elapsed_s, one.quote.bottleneck
        rows.append(
            {
                **quote.row(),
                "days": span_text(elapsed.scaled(1 / DAY_S) if elapsed else None),
                "time": span_text(one.time),
                "bottleneck": f"{share[0]} {100 * share[1]:.0f} %" if share else "-",
            }
        )
    columns = (
        Column(key="instance", title="instance"),
        Column(key="nodes", title="nodes"),
        *degree_columns(quotes),
        Column(key="tokens_per_s", title="tokens/s", dimension=Dimension.COUNT),
        Column(key="mfu", title="MFU", dimension=Dimension.RATIO, digits=3),
        Column(key="days", title="days"),
        Column(key="time", title="x time", spare=True),
        Column(key="bottleneck", title="bottleneck", spare=True),
        Column(key="goodput", title="goodput", dimension=Dimension.RATIO, digits=3, spare=True),
        Column(key="basis", title="speed is", spare=True),
        *(() if all(q.feasible for q in quotes) else (Column(key="feasible", title="will do"),)),
    )
    table = Report(verb="compare", inputs={}, rows=tuple(rows), columns=columns)
    return draw_rows(table, style)


def _money(answer: CompareAnswer, style: Style) -> str:
    """Return the table of bills and of the prices they come from."""
    quotes = [one.quote for one in answer.compared]
    scale = _money_scale(quotes)
    rows: list[Row] = []
    for one in answer.compared:
        quote = one.quote
        rows.append(
            {
                **quote.row(),
                "cost": span_text(quote.cost_usd, scale),
                "each": span_text(quote.usd_per_million_tokens),
                "ratio": span_text(one.cost),
                "even": one.break_even_mfu,
                "purchase": quote.bill.option if quote.bill else "no price",
            }
        )
    unit = scale.unit.replace("USD", "").strip()
    columns = (
        Column(key="instance", title="instance"),
        Column(key="cost", title=f"USD ({unit})" if unit else "USD"),
        Column(key="ratio", title="x cost"),
        Column(key="purchase", title="purchase"),
        Column(key="usd_per_hour", title="USD/h", digits=6),
        Column(key="price_date", title="price of", spare=True),
        *(
            (Column(key="each", title="USD/M tokens", spare=True),)
            if any(quote.tokens is not None for quote in quotes)
            else ()
        ),
        Column(key="even", title="even at MFU", dimension=Dimension.RATIO, digits=3, spare=True),
        Column(key="region", title="region", spare=True),
        Column(key="billed_hours", title="hours", digits=5, spare=True),
    )
    table = Report(verb="compare", inputs={}, rows=tuple(rows), columns=columns)
    told = (
        f"x time, x cost: over {answer.baseline}; even at MFU: where its bill would be that of "
        f"{answer.baseline}; in brackets: 80 % intervals{_price_days(quotes)}"
    )
    return f"{draw_rows(table, style)}\n{style.faint(wrap(told, style.width, ''))}"


def _price_days(quotes: Sequence[Quote]) -> str:
    """Return between which days the rates were read."""
    days = sorted({day for quote in quotes if quote.bill and (day := price_day(quote.bill))})
    if not days:
        return ""
    return f"; prices as read on {' to '.join(dict.fromkeys((days[0], days[-1])))}"


def _notes(answer: CompareAnswer) -> list[str]:
    every = {one.quote.instance for one in answer.compared}

    def named(names: Sequence[str]) -> str:
        return "all" if len(every) > 1 and every == set(names) else ", ".join(names)

    notes: dict[str, list[str]] = {}
    for one in answer.compared:
        quote = one.quote
        for note in (
            *(f"no: {reason}" for reason in quote.reasons),
            *(f"warning: {warning}" for warning in quote.step.warnings),
            *quote.notes,
        ):
            names = notes.setdefault(note, [])
            names += [quote.instance] if quote.instance not in names else []
    lines = [f"{named(names)}: {note}" for note, names in notes.items()]
    weakest: dict[str, dict[str, None]] = {}
    for one in answer.compared:
        weakest.setdefault(one.quote.step.evidence.word, {})[one.quote.instance] = None
    lines += [f"{named([*names])}: weakest evidence: {word}" for word, names in weakest.items()]
    looked = ", ".join(f"{one.instance} {one.feasible:,} of {one.legal:,}" for one in answer.looked)
    told = [f"layouts that fit, of those legal: {looked}"] if looked else []
    if not answer.complete:
        unseen = f"; not looked at: {', '.join(answer.unseen)}" if answer.unseen else ""
        told.append(f"interrupted: the best of what was looked at{unseen}")
    return [*lines, *told]


def _money_scale(quotes: Sequence[Quote]) -> Scale:
    sums = sorted(quote.cost_usd.value for quote in quotes if quote.cost_usd)
    return scale_for(sums[len(sums) // 2] if sums else 1.0, Dimension.USD)
