"""Comparisons as people and machines read them: time, money, and what the money was taken from."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace

from trnbench.answers.compare import CompareAnswer, OtherStack, tally_row
from trnbench.answers.lead import verdict_is
from trnbench.answers.quote import Quote, price_day
from trnbench.report.quote_text import (
    cluster_text,
    degree_columns,
    money_text,
    time_text,
    tokens_text,
)
from trnbench.report.report import Column, Report, columns, draw_rows
from trnbench.report.scaling import cost_plot
from trnbench.report.text_table import Style, wrap
from trnbench.report.verdict import basis_lines, verdict_text

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
            "verdict": verdict_text(answer),
            "verdict_is": verdict_is(answer.lead),
            "draws": answer.draws,
            "seed": answer.seed,
            "footing": answer.footing,
            "baseline": answer.baseline,
            "layouts": [tally_row(name, tally) for name, tally in answer.looked.items()],
            "complete": answer.complete,
            "not_looked_at": answer.unseen,
            "conventions": CONVENTIONS,
        },
    )
    return replace(report, people=functools.partial(_draw, report, answer, plot))


def _columns(answer: CompareAnswer) -> tuple[Column, ...]:
    quotes = [one.quote for one in answer.compared]
    return (
        *columns("instance", "nodes"),
        *degree_columns(quotes),
        *columns("tokens_per_s", "mfu", "days", "cost_usd", "usd_per_million_tokens"),
        *columns("relative_time", "relative_cost", "bottleneck", "purchase", "region"),
        *columns("price_date", "usd_per_hour", "evidence"),
    )


def _draw(report: Report, answer: CompareAnswer, plot: bool, style: Style) -> str:
    quotes = [one.quote for one in answer.compared]
    blocks = [_heading(answer, style)]
    if quotes:
        blocks += [_times(report, answer, style), _money(report, answer, style)]
    if plot:
        blocks.append(cost_plot(quotes, style))
    blocks.append("\n".join(wrap(note, style.width, "") for note in _notes(answer)))
    return "\n\n".join(block for block in blocks if block)


def _heading(answer: CompareAnswer, style: Style) -> str:
    quotes = [one.quote for one in answer.compared]
    what = f"{answer.model}, {tokens_text(quotes[0])}" if quotes else answer.model
    lines = [style.strong(what), wrap(answer.footing, style.width, "")]
    if quotes:
        lines.append(wrap(verdict_text(answer), style.width, ""))
    return "\n".join(lines)


def _times(report: Report, answer: CompareAnswer, style: Style) -> str:
    """Return the table of layouts and days."""
    quotes = [one.quote for one in answer.compared]
    shown = (
        *columns("instance", "nodes"),
        *degree_columns(quotes),
        *columns("tokens_per_s", "mfu"),
        *columns("days", interval=True),
        *columns("relative_time", interval=True, spare=True),
        *columns("bottleneck", "bottleneck_share", "goodput", "basis", spare=True),
        *(() if all(quote.feasible for quote in quotes) else columns("feasible")),
    )
    return draw_rows(replace(report, columns=shown), style)


def _money(report: Report, answer: CompareAnswer, style: Style) -> str:
    """Return the table of bills and of the prices they come from."""
    quotes = [one.quote for one in answer.compared]
    tokens = any(quote.tokens is not None for quote in quotes)
    shown = (
        *columns("instance"),
        *columns("cost_usd", "relative_cost", interval=True),
        *columns("purchase", "usd_per_hour"),
        *columns("price_date", spare=True),
        *(columns("usd_per_million_tokens", interval=True, spare=True) if tokens else ()),
        *columns("break_even_mfu", "region", "billed_hours", spare=True),
    )
    table = replace(report, columns=shown)
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
            *(f"warning: {warning}" for warning in quote.every_warning),
            *quote.notes,
        ):
            names = notes.setdefault(note, [])
            names += [quote.instance] if quote.instance not in names else []
    lines = basis_lines(answer.compared)
    lines += [_other_stack_line(one) for one in answer.other_stacks]
    lines += [f"{named(names)}: {note}" for note, names in notes.items()]
    weakest: dict[str, dict[str, None]] = {}
    for one in answer.compared:
        weakest.setdefault(one.quote.step.evidence.word, {})[one.quote.instance] = None
    lines += [f"{named([*names])}: weakest evidence: {word}" for word, names in weakest.items()]
    looked = ", ".join(
        f"{name} {tally.feasible:,} of {tally.legal:,}" for name, tally in answer.looked.items()
    )
    told = [f"layouts that fit, of those legal: {looked}"] if looked else []
    if not answer.complete:
        unseen = f"; not looked at: {', '.join(answer.unseen)}" if answer.unseen else ""
        told.append(f"interrupted: the best of what was looked at{unseen}")
    return [*lines, *told]


def _other_stack_line(one: OtherStack) -> str:
    quote = one.quote
    where = f"{cluster_text(quote)} with {one.stack}, measured on it too"
    if quote.elapsed_s is None:
        return f"{where}: {', '.join(quote.reasons)}"
    cost = f", {money_text(quote.cost_usd.value)}" if quote.cost_usd else ""
    return f"{where}: {time_text(quote.elapsed_s.value)}{cost} in the same layout"
