"""A fleet's plan as people and machines read it: the verdict, the jobs, when they run, the bill."""

from __future__ import annotations

from collections.abc import Mapping

from trnbench.facts.units import counted, money_text, significant
from trnbench.predict.assumption import of_all_places
from trnbench.show.charts.record import ChartAxis, GanttChart, GanttLane, Span, SpanKind
from trnbench.show.charts.text import first_chart
from trnbench.show.report import Report, columns, draw_rows
from trnbench.show.text_table import Style
from trnbench.verbs.fleet.answer import FLEET_KEYS, FleetAnswer, SpotRisk
from trnbench.verbs.quotes.notes import assumed_block
from trnbench.verbs.quotes.verdict import dollars, percent, share_text

RUNS = "runs"
CONVENTIONS = {
    "days": "from start to end: training, checkpoints, failures, restarts, gaps between purchases",
    "ends_on": "the last day on which it runs",
    "cost_usd": "of a job: what is bought for it alone, and its part of what jobs share, by the "
    "node-days that it uses",
    "deadline_probability": "the share of draws in which it ends in time, started on its day",
    "bound_usd": "no plan costs less, by the programme; gap is how far the plan is above",
    "limit_costs": "what the plan would save if a limit were not there, solved again without it",
    "bill": "metered machines and terms by the day, blocks on the day they start",
}


def fleet_report(answer: FleetAnswer, inputs: Mapping[str, object]) -> Report:
    """Return the report of a fleet: a row a job."""
    return Report(
        verb="fleet",
        inputs=inputs,
        rows=tuple(row.row() for row in answer.rows),
        columns=(
            *columns(*FLEET_KEYS[:-2]),
            *(columns(*FLEET_KEYS[-2:], spare=True) if answer.least_sure else ()),
        ),
        summary={
            "verdict": fleet_verdict(answer),
            "proved": _proved(answer) if answer.feasible and answer.rows else None,
            **answer.summary(),
            "assumed": [one.plain for one in answer.assumed],
            "conventions": CONVENTIONS,
        },
        notes=(*_risk(answer), *answer.notes, *answer.warnings),
        people=lambda report, style: _draw(report, answer, style),
        charts=(when,) if not (when := fleet_figure(answer)).empty else (),
    )


def fleet_verdict(answer: FleetAnswer) -> str:
    """The verdict on a fleet: what it comes to, how surely it keeps its limits, what it risks."""
    if not answer.rows:
        return "nothing to buy: the fleet has no jobs"
    placed = [row for row in answer.rows if row.days is not None]
    if not answer.feasible:
        why = "; ".join(answer.binding) or (
            "no plan was found in time" if answer.stopped else "no plan keeps all limits"
        )
        done = f"; {len(placed)} of {counted(len(answer.rows), 'job')} can be done" + (
            f" for {money_text(answer.cost_usd.value)}" if placed and answer.cost_usd else ""
        )
        return f"no: {why}{done}"
    assert answer.cost_usd is not None
    end = max(row.ends_on for row in placed if row.ends_on is not None)
    jobs = f"{counted(len(placed), 'job')} for {dollars(answer.cost_usd.value)}"
    told = [f"{jobs}, the last one done on {end}"]
    kept = []
    if answer.together is not None:
        kept.append(f"every deadline holds with {percent(answer.together)} probability")
    if answer.within_budget is not None:
        kept.append(f"the budget with {percent(answer.within_budget)}")
    told += ["; ".join(kept)] if kept else []
    if (row := answer.least_sure) is not None and row.cheapest_probability is not None:
        sure = f"{row.instance} is the cheapest for {row.name} with "
        risked = f"deciding now risks about {dollars(answer.regret_usd or 0.0)}"
        told.append(f"{sure}{percent(row.cheapest_probability)} probability; {risked}")
    return " ".join(f"{one[:1].upper()}{one[1:]}." for one in told)


def _proved(answer: FleetAnswer) -> str:
    """Return the sentence on the plan's gap to the least cost."""
    if answer.found_by == "greedy":
        how = "made job by job, as the programme found none better"
    elif answer.objective == "time":
        return "the earliest end, and the least cost for it"
    else:
        how = "the least cost" if not answer.stopped else "the best found before the end of time"
    if answer.gap is None:
        return how
    within = 100 * answer.gap
    return f"{how}, within {significant(within, 2) if within >= 0.01 else '0.01'} %"


def _draw(report: Report, answer: FleetAnswer, style: Style) -> str:
    blocks = [style.strong(style.wrap(fleet_verdict(answer)))]
    if answer.feasible and answer.rows:
        blocks[0] += f"\n{style.wrap(_proved(answer))}"
    if not answer.rows:
        return blocks[0]
    blocks.append(draw_rows(report, style))
    if report.charts:
        blocks.append(first_chart(report, style))
    blocks += [_purchases(answer, style), _bill(answer, style)]
    told = {
        "what each limit costs": [
            f"{one.what}: {money_text(one.usd)}" + ("" if one.sure else ", within the gap")
            for one in answer.limit_costs
        ],
        "earlier for more": [
            f"{one.finish_days:.1f} days: {money_text(one.cost_usd)}" for one in answer.front
        ],
        "how sure": _risk(answer),
        "not possible": [
            f"{one.name}: {'; '.join(one.reasons)}" for one in answer.rows if one.reasons
        ],
        "notes": [*answer.notes, *answer.warnings],
    }
    blocks += [style.titled(title, style.lines(lines, "  ")) for title, lines in told.items()]
    blocks.append(assumed_block(of_all_places(answer.assumed), style))
    return "\n\n".join(block for block in blocks if block)


def _risk(answer: FleetAnswer) -> list[str]:
    lines = [
        f"{row.name}: in time in {share_text(row.deadline_probability)}"
        for row in answer.rows
        if row.deadline_probability is not None
    ]
    if answer.cost_usd is not None and answer.cost_usd.low != answer.cost_usd.high:
        low, high = money_text(answer.cost_usd.low), money_text(answer.cost_usd.high)
        lines.append(f"the whole costs {low} to {high} in 80 % of draws")
    if answer.within_budget is not None:
        lines.append(f"the budget holds in {share_text(answer.within_budget)}")
    lines += [f"{one.name}, {spot_text(one)}" for one in answer.spot]
    return lines


def spot_text(one: SpotRisk) -> str:
    """Return in words what came of a run on spot machines, played many times."""
    return (
        f"{100 * one.spot_share:.0f} % spot, played: {one.days.value:.1f} days "
        f"({one.days.low:.1f}-{one.days.high:.1f}), {money_text(one.cost_usd.value)} "
        f"({money_text(one.cost_usd.low)}-{money_text(one.cost_usd.high)}); machines taken back "
        f"{one.reclaims:.1f} times, {one.zones:.1f} of them a whole zone"
    )


def _purchases(answer: FleetAnswer, style: Style) -> str:
    if not answer.purchases:
        return ""
    rows = (
        (str(a.on), str(a.until), a.what, a.purchase, money_text(a.usd), ", ".join(a.jobs))
        for a in answer.purchases
    )
    table = style.table(("buy on", "until", "what", "purchase", ">cost", "for"), rows)
    return style.titled("what to buy when", table)


def _bill(answer: FleetAnswer, style: Style) -> str:
    if not answer.bill:
        return ""
    options = sorted({one.purchase for one in answer.bill})
    months = sorted({one.month for one in answer.bill})
    usd = {(one.month, one.purchase): one.usd for one in answer.bill}
    rows = [
        (
            month,
            *(money_text(usd[month, o]) if (month, o) in usd else "-" for o in options),
            money_text(sum(usd.get((month, option), 0.0) for option in options)),
        )
        for month in months
    ]
    totals = [sum(usd.get((month, option), 0.0) for month in months) for option in options]
    rows.append(("all", *map(money_text, totals), money_text(sum(totals))))
    headings = ("month", *(f">{option}" for option in options), ">all")
    return style.titled("bill", style.table(headings, rows))


def fleet_figure(answer: FleetAnswer) -> GanttChart:
    """Timeline of the jobs, a lane each, deadlines marked."""
    first = float(answer.starts_on.toordinal())
    placed = [row for row in answer.rows if row.days is not None]
    ends = [row.start_day + (row.days or 0.0) for row in placed]
    ends += [row.deadline_day for row in placed if row.deadline_day is not None]
    days = min(max([1.0, *ends]), float(answer.horizon_days))
    return GanttChart(
        title="when jobs run",
        caption="a lane a job; strokes are deadlines",
        axis=ChartAxis(title="day", kind="date"),
        start=first,
        end=first + days,
        lanes=tuple(
            GanttLane(
                name=f"{row.name}: {row.nodes:,} x {row.instance}",
                spans=(
                    Span(first + row.start_day, first + row.start_day + (row.days or 0.0), RUNS),
                ),
                mark=None if row.deadline_day is None else first + row.deadline_day,
            )
            for row in placed
        ),
        kinds={RUNS: SpanKind(letter="#", fill="#", colour="cyan", legend="runs", solid=False)},
        legend=("| deadline",),
    )
