"""Comparisons as people and machines read them: time, money, and what the money was taken from."""

from __future__ import annotations

from collections.abc import Mapping

from trnbench.facts.records import replace
from trnbench.facts.units import DAY_S, money_text
from trnbench.money.objective import Limits
from trnbench.predict.assumption import of_all_places
from trnbench.show.figures import FIGURES
from trnbench.show.report import (
    Column,
    Report,
    columns,
    draw_marked,
    draw_rows,
    interval_text,
)
from trnbench.show.row import Row, cells
from trnbench.show.text_table import Style
from trnbench.verbs.compare.answer import CompareAnswer, OtherStack, tally_row
from trnbench.verbs.quotes.answer import Quote
from trnbench.verbs.quotes.charts import Picked, cost_chart, run_charts
from trnbench.verbs.quotes.notes import (
    assumed_block,
    availability_lines,
    by_instance,
    evidence_lines,
    grouped,
    interrupted,
    layout_lines,
    migration_lines,
    price_lines,
    warning_lines,
)
from trnbench.verbs.quotes.text import degree_columns, run_text, settings_text
from trnbench.verbs.quotes.tipping import tipping_block, tipping_chart
from trnbench.verbs.quotes.verdict import (
    Wanted,
    advice_text,
    table_marks,
    verdict_cells,
    verdict_text,
)
from trnbench.verbs.train.tables import phase_blocks

SURE = 0.995
"""Share of draws on time from which on no column says it."""

CONVENTIONS = {
    "days": "from start to end: training, checkpoints, failures, restarts, gaps between purchases",
    "cost_usd": "what is billed by the purchase option, blocks and terms whole; with storage_usd",
    "low_, high_": "ends of an 80 % interval",
    "relative_time, relative_cost": "over the baseline's days and cost",
    "break_even_mfu": "the MFU at which this cluster would cost as much as the baseline",
    "bottleneck": "the category that takes most of a training step",
    "mfu": "model FLOP (causal attention, nothing computed twice) over the tensor units' peak",
}


def asked_of(answer: CompareAnswer) -> Wanted:
    """Limits of the rows of a comparison."""
    limits = Limits(deadline_s=answer.deadline_s, priced=False)
    return Wanted(limits=limits, confidence=answer.confidence)


def compare_verdict_text(answer: CompareAnswer) -> str:
    """The verdict of a comparison in words."""
    quotes = [one.quote for one in answer.compared]
    return verdict_text(answer.verdict, quotes, asked_of(answer))


def compare_report(
    answer: CompareAnswer,
    inputs: Mapping[str, object],
    *,
    plot: bool = False,
    details: bool = False,
) -> Report:
    """Return the report of a comparison, a row a cluster; people see layouts with `details`."""
    quotes = [one.quote for one in answer.compared]
    best = answer.verdict.recommended
    winner = None if best is None else quotes[best]
    picked = Picked(winner=winner, word="lowest mean", deadline_s=answer.deadline_s)
    return Report(
        verb="compare",
        inputs=inputs,
        rows=tuple(one.row() for one in answer.compared),
        columns=_columns(answer),
        summary={
            **verdict_cells(answer.verdict, quotes, asked_of(answer)),
            **cells(answer, "draws seed footing baseline"),
            "assumed": [one.plain for one in answer.assumed],
            "layouts": [tally_row(name, tally) for name, tally in answer.looked.items()],
            "capacity": [one.row() for one in answer.capacity],
            **_sensitivity_cells(answer),
            **cells(answer, "complete not_looked_at=unseen"),
            "conventions": CONVENTIONS,
        },
        people=lambda report, style: _draw(report, answer, plot, details, style),
        notes=(answer.footing, settings_text(quotes), *_notes(answer)),
        charts=(
            *run_charts(quotes, cost_chart(quotes, picked), picked),
            *((tipping_chart(answer.sensitivity),) if answer.sensitivity else ()),
        ),
    )


def _sensitivity_cells(answer: CompareAnswer) -> dict[str, object]:
    told = answer.sensitivity
    return {} if told is None else {"sensitivity": [one.row() for one in told]}


def _columns(answer: CompareAnswer) -> tuple[Column, ...]:
    quotes = [one.quote for one in answer.compared]
    return (
        *columns("instance", "nodes"),
        *degree_columns(quotes),
        *columns("tokens_per_s", "mfu", "days", "cost_usd", "usd_per_million_tokens"),
        *columns("relative_time", "relative_cost", "bottleneck", "purchase", "region"),
        *columns("price_date", "usd_per_hour", "evidence"),
    )


def _draw(report: Report, answer: CompareAnswer, plot: bool, details: bool, style: Style) -> str:
    quotes = [one.quote for one in answer.compared]
    blocks = [_heading(answer, style)]
    if quotes:
        blocks.append(_verdict_table(report, answer, style))
    blocks += phase_blocks(quotes, style)
    if plot:
        from trnbench.show.charts.text import first_chart  # few ask for drawings

        blocks.append(first_chart(report, style))
    if answer.sensitivity is not None:
        blocks.append(tipping_block(answer.sensitivity, style, plot=plot))
    groups = {
        "Limits and warnings": warning_lines(quotes),
        "Layout": layout_lines(quotes),
        "Price": [*price_lines(quotes), *migration_lines(quotes)],
        "Availability": [*(one.text for one in answer.capacity), *availability_lines(quotes)],
        "Evidence": [*evidence_lines(quotes), *map(_other_stack_line, answer.other_stacks)],
    }
    if details:
        blocks += [_times(report, answer, style), _money(report, answer, style)] if quotes else []
        groups["Details"] = [*_details(answer), *_looked(answer)]
    blocks += [
        grouped(groups, style),
        assumed_block(answer.assumed if details else of_all_places(answer.assumed), style),
    ]
    blocks += [*([] if answer.complete else [interrupted(answer.unseen)])]
    blocks.append(style.strong(style.wrap(advice_text(answer.verdict))))
    return "\n\n".join(block for block in blocks if block)


def _heading(answer: CompareAnswer, style: Style) -> str:
    quotes = [one.quote for one in answer.compared]
    what = run_text(answer.model, quotes[0]) if quotes else answer.model
    lines = [f"{what}, {answer.footing}"]
    if quotes:
        lines.append(settings_text(quotes))
    told = [style.wrap(line) for line in lines]
    if quotes:
        told.insert(0, style.strong(style.wrap(compare_verdict_text(answer))))
    return "\n".join(told)


def _verdict_table(report: Report, answer: CompareAnswer, style: Style) -> str:
    """Return the table that every terminal has room for: time and cost, the cheapest marked."""
    quotes = [one.quote for one in answer.compared]
    best = answer.verdict.recommended
    marks = [
        "no" if not quote.feasible else "*" if place == best else ""
        for place, quote in enumerate(quotes)
    ]
    rows = tuple(
        {**row, "mark": mark, "marks": table_marks(quote), **_unpriced(quote)}
        for row, mark, quote in zip(report.rows, marks, quotes, strict=True)
    )
    several = len(quotes) > 1
    late = any((quote.on_time_probability or 1.0) < SURE for quote in quotes)
    shown = (
        *columns("mark", "instance", "nodes"),
        *columns("days", "cost_usd", interval=True),
        *(columns("cheapest_probability", spare=True) if several else ()),
        *(columns("on_time_probability", spare=True) if late else ()),
        *columns("mfu", spare=True),
        *(columns("marks", spare=True) if any(map(table_marks, quotes)) else ()),
        *(columns("mean_cost_usd", spare=True) if several else ()),
        *columns("purchase", spare=True),
        *(columns("relative_cost", interval=True, spare=True) if several else ()),
        *columns("tokens_per_s", spare=True),
    )
    legend = ["* lowest mean cost" if best is not None and marks[best] == "*" else ""]
    legend += ["no: cannot do it, see below" if "no" in marks else ""]
    legend += ["in brackets: 80 % intervals", "more: --details, --all-columns"]
    table = replace(report, rows=rows, columns=shown)
    return draw_marked(table, "; ".join(filter(None, legend)), style)


def _unpriced(quote: Quote) -> Row:
    """Return the cells of a quote that has no price: they say so only of what could be bought."""
    if quote.bill is not None:
        return {}
    missing = "no price" if quote.elapsed_s is not None else "-"
    return {"cost_usd": missing, "purchase": "-"}


def _times(report: Report, answer: CompareAnswer, style: Style) -> str:
    """Return the table of layouts."""
    quotes = [one.quote for one in answer.compared]
    shown = (
        *columns("instance", "nodes"),
        *degree_columns(quotes),
        *columns("tokens_per_s", "mfu"),
        *columns("relative_time", interval=True, spare=True),
        *columns("bottleneck", "bottleneck_share", "goodput", "basis", spare=True),
    )
    return draw_rows(replace(report, columns=shown), style)


def _money(report: Report, answer: CompareAnswer, style: Style) -> str:
    """Return the table of bills and of the prices they come from."""
    quotes = [one.quote for one in answer.compared]
    tokens = any(quote.tokens is not None for quote in quotes)
    shown = (
        *columns("instance", "nodes"),
        *columns("relative_cost", interval=True),
        *columns("mean_cost_usd", "purchase", "usd_per_hour"),
        *columns("price_date", spare=True),
        *(columns("usd_per_million_tokens", interval=True, spare=True) if tokens else ()),
        *columns("break_even_mfu", "region", "billed_hours", spare=True),
    )
    table = replace(report, columns=shown)
    told = (
        f"x time, x cost: over {answer.baseline}; break-even MFU: where its bill would be that of "
        f"{answer.baseline}"
    )
    return f"{draw_rows(table, style)}\n{style.faint(style.wrap(told))}"


def _notes(answer: CompareAnswer) -> list[str]:
    """Return all that is to be said of the rows, a sentence each."""
    quotes = [one.quote for one in answer.compared]
    lines = [*warning_lines(quotes), *price_lines(quotes), *migration_lines(quotes)]
    lines += evidence_lines(quotes)
    lines += [*map(_other_stack_line, answer.other_stacks), *_details(answer), *_looked(answer)]
    return lines if answer.complete else [*lines, interrupted(answer.unseen)]


def _details(answer: CompareAnswer) -> list[str]:
    """Return the software of each row and the remarks on it, equal ones together."""
    quotes = [one.quote for one in answer.compared]
    return by_instance(
        (quote.instance, note)
        for quote in quotes
        for note in (f"stack {quote.step.software}", *quote.notes)
    )


def _looked(answer: CompareAnswer) -> list[str]:
    looked = ", ".join(
        f"{name} {tally.feasible:,} of {tally.legal:,}" for name, tally in answer.looked.items()
    )
    return [f"layouts that fit in memory, of valid ones: {looked}"] if looked else []


def _other_stack_line(one: OtherStack) -> str:
    quote = one.quote
    where = f"{quote.instance} with stack {one.stack} instead (measured on it)"
    if quote.elapsed_s is None:
        return f"{where}: {', '.join(quote.reasons)}"
    cost = f", {money_text(quote.cost_usd.value)}" if quote.cost_usd else ""
    days = FIGURES["days"]
    span = interval_text(quote.elapsed_s.scaled(1 / DAY_S), days)
    return f"{where}: {span} days{cost}"
