"""The pictures of a plan: frontier, use of time and money, sensitivity to assumptions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from trnbench.facts.records import replace
from trnbench.facts.units import Dimension, money_text, significant
from trnbench.report.quote_text import (
    TimeUnit,
    chain_text,
    cluster_text,
    purchase_text,
    time_text,
)
from trnbench.show.text_table import PLAIN, TextTable, draw, wrap
from trnbench.tui.chart_data import ChartAxis, ChartData, ChartSeries, log_axis, number
from trnbench.tui.compare_pictures import cluster_label, table_unit

if TYPE_CHECKING:
    from trnbench.answers.quote import Quote
    from trnbench.money.objective import Candidate
    from trnbench.verbs.plan.answer import PlanAnswer

MOVED = {"price": "price", "speed": "speed", "failures": "failure rate"}


def front_chart(quotes: Sequence[Quote], here: Quote | None, best: Quote | None) -> ChartData:
    """Purchases that no other beats in both time and money, joined, with intervals."""
    priced = [one for one in quotes if one.elapsed_s is not None and one.cost_usd is not None]
    unit = table_unit(quotes)
    line = sorted(_place(one, unit) for one in priced)
    series = [ChartSeries(label="", points=tuple(line), joined=True, marked=False, hue=7)]
    clusters = [cluster_label(one) for one in priced]
    for hue, one in enumerate(priced):
        assert one.cost_usd is not None
        # How it is bought tells only those of one cluster apart.
        bought = one.bill.tariff.option if one.bill and clusters.count(clusters[hue]) > 1 else ""
        series.append(
            ChartSeries(
                label=f"{clusters[hue]} {bought}".strip(),
                points=(_place(one, unit),),
                whiskers=((one.cost_usd.low, one.cost_usd.high),),
                strong=one is here,
                hue=hue,
                tag=f"the plan: {cluster_label(one)}" if one is best else "",
            )
        )
    return ChartData(
        title="cost/time trade-off: plans that no other beats in both, with 80 % intervals",
        series=tuple(series) if priced else (),
        x=ChartAxis(title=unit.word, text=number, log=True),
        y=log_axis("cost", Dimension.USD, [y for _, y in line]),
        missing="" if priced else "no plan has a price",
    )


def _place(quote: Quote, unit: TimeUnit) -> tuple[float, float]:
    assert quote.elapsed_s is not None
    assert quote.cost_usd is not None
    return quote.elapsed_s.value / unit.seconds, quote.cost_usd.value


def purchase_lines(quote: Quote | None) -> str:
    """Purchases of a plan, and its time and money by use."""
    if quote is None:
        return "nothing is bought"
    lines = [f"{cluster_text(quote)}{f' {purchase_text(quote.bill)}' if quote.bill else ''}"]
    bill = quote.bill
    if bill is not None:
        due = {"due up front": bill.charged.upfront_usd, "committed to": bill.charged.committed_usd}
        lines += [f"  {name}: {money_text(usd)}" for name, usd in due.items() if usd]
    lines += [f"  {line}" for line in chain_text(quote)]
    lines += [f"warning: {one}" for one in quote.every_warning]
    lines += [f"note: {one}" for one in quote.notes]
    return "\n".join(lines)


def change_lines(plan: PlanAnswer, width: int) -> str:
    """Effect of each assumption on the plan, in lines of this many columns."""
    best = plan.best
    if best is None or not plan.changes:
        return "there is no plan to change"
    base_s = best.elapsed_s.value if best.elapsed_s else None
    base_usd = best.cost_usd.value if best.cost_usd else None
    rows = []
    for change in plan.changes:
        same = change.same
        unchanged = change.best is not None and best.is_of(change.best)
        rows.append(
            (
                f"{MOVED[change.moved]} x {significant(change.factor, 3)}",
                time_text(same.elapsed_s) if same else "-",
                _against(same.elapsed_s if same else None, base_s),
                money_text(same.cost_usd) if same and same.cost_usd is not None else "-",
                _against(same.cost_usd if same else None, base_usd),
                "yes" if change.kept else "no",
                "unchanged" if unchanged else _candidate(change.best),
            )
        )
    headings = ("if", "time", "", "cost", "", "within limits", "best plan then")
    right = (False, True, True, True, True, False, False)
    table = TextTable(headings=headings, rows=tuple(rows), right=right)
    return f"{cluster_text(best)}, one assumption moved at a time\n\n{_fitted(table, width)}"


def _fitted(table: TextTable, width: int) -> str:
    """The table; where too wide, with the last cell of a row below the row."""
    whole = draw(table, PLAIN)
    if max(map(len, whole.splitlines())) <= width:
        return whole
    shorter = replace(
        table,
        headings=table.headings[:-1],
        rows=tuple(row[:-1] for row in table.rows),
        right=table.right[:-1],
    )
    heading, rule, *rows = draw(shorter, PLAIN).splitlines()
    lines = [heading, f"  {table.headings[-1]}", rule]
    for line, cells in zip(rows, table.rows, strict=True):
        lines += [line, *([wrap(cells[-1], width, "  ")] if cells[-1] else [])]
    return "\n".join(lines)


def _against(value: float | None, base: float | None) -> str:
    return "" if value is None or not base else f"{100 * (value / base - 1):+.0f} %"


def _candidate(one: Candidate | None) -> str:
    if one is None:
        return "none"
    cost = "no price" if one.cost_usd is None else money_text(one.cost_usd)
    return f"{one.nodes:,} x {one.instance}, {one.option}: {time_text(one.elapsed_s)}, {cost}"


def break_even_lines(plan: PlanAnswer, width: int) -> str:
    """MFU at which plans cost as much as another, in lines of this many columns."""
    if not plan.break_even:
        return "no two plans have a price to be compared"
    rows = tuple(
        (
            f"{one.nodes:,} x {one.instance}",
            f"{100 * one.mfu:.1f} %",
            "out of reach" if one.break_even_mfu is None else f"{100 * one.break_even_mfu:.1f} %",
            "" if one.break_even_mfu is None else f"{one.break_even_mfu / one.mfu:.2f}x",
            f"{one.against} ({money_text(one.against_usd)})",
        )
        for one in plan.break_even
    )
    table = TextTable(
        headings=("plan", "MFU", "break-even MFU", "speed needed", "costs then as much as"),
        rows=rows,
        right=(False, True, True, True, False),
    )
    return f"the MFU at which a plan would cost as much as another\n\n{_fitted(table, width)}"


def needs_lines(plan: PlanAnswer) -> str:
    """Quotas to request, assumptions, and offers left out of the choice."""
    quotas = [
        f"{option}: {quota.vcpus:,} vCPU of {quota.name!r} ({quota.code})"
        if quota is not None
        else f"{option}: limits on machines of its own; no vCPU quota is known"
        for option, quota in plan.quotas.items()
    ]
    ways = plan.ways
    broken = ", ".join(f"{limit} {count:,}" for limit, count in ways.rejected.items())
    looked = f"{ways.looked:,} purchase options, {ways.kept:,} within limits"
    looked += f" (some fail several: {broken})" if broken else ""
    blocks = (
        ("quotas to request", quotas),
        ("limiting", plan.binding),
        ("assumed", plan.assumed),
        ("left out", [f"{name}: {reason}" for name, reason in plan.left_out.items()]),
        ("looked at", [looked]),
    )
    return "\n\n".join(_block(title, lines) for title, lines in blocks if lines)


def _block(title: str, lines: Iterable[str]) -> str:
    return "\n".join([title, *(f"  {line}" for line in lines)])
