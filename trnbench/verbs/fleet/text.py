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
from trnbench.verbs.quotes.verdict import MOST_WORDS, dollars, listed, percent, pilot_text, words_of

RUNS = "runs"
NAMED = 2
"""Jobs or limits that a refusal names."""
CONVENTIONS = {
    "days": "from start to end: training, checkpoints, failures, restarts, gaps between purchases",
    "ends_on": "the last day on which it runs",
    "cost_usd": "of a job: what is bought for it alone, and its part of what jobs share, by the "
    "node-days that it uses",
    "on_time_probability": "the share of draws in which it ends in time, started on its day",
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
            *columns(*FLEET_KEYS[:-3]),
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
        return "Nothing to buy: the fleet has no jobs."
    placed = [row for row in answer.rows if row.days is not None]
    if not answer.feasible:
        usd = answer.cost_usd
        cost = f" for {dollars(usd.value)}" if placed and usd is not None else ""
        able = f"{len(placed)} of {counted(len(answer.rows), 'job')} can be done{cost}"
        return f"{_refused(answer)}. {able}."
    assert answer.cost_usd is not None
    end = max(row.ends_on for row in placed if row.ends_on is not None)
    costs = "costs" if len(placed) == 1 else "cost"
    jobs = f"{counted(len(placed), 'job')} {costs} {dollars(answer.cost_usd.value)}"
    told = [f"{jobs}; the last one ends on {end}"]
    kept = []
    if answer.together is not None:
        kept.append(f"Every deadline holds with {percent(answer.together)} probability")
    if answer.within_budget is not None:
        kept.append(f"The budget holds with {percent(answer.within_budget)} probability")
    told += ["; ".join([*kept[:1], *(one[:1].lower() + one[1:] for one in kept[1:])])]
    row, regret = answer.least_sure, answer.regret_usd
    if row is not None and row.cheapest_probability is not None and regret:
        sure = f"is cheapest with {percent(row.cheapest_probability)} probability"
        choice = f"The least certain choice, {row.instance} for {row.name}, {sure}"
        told.append(f"{choice}; deciding now risks about {dollars(regret)}")
        if answer.pilot is not None:
            name, pilot = answer.pilot
            told.append(pilot_text(pilot, of=name))
    return " ".join(f"{one}." for one in told if one)


def _refused(answer: FleetAnswer) -> str:
    """The sentence on what keeps a fleet from being planned whole."""
    unable = [row for row in answer.rows if row.reasons]
    if unable:
        more = len(unable) - NAMED
        names = [*(row.name for row in unable[:NAMED]), *([f"{more} more"] if more > 0 else [])]
        said = f"No: {listed(names)} cannot run"
        why = f"{said}: {unable[0].reasons[0].partition(';')[0]}"
        return why if len(unable) == 1 and words_of(why) <= MOST_WORDS else f"{said} as asked"
    if answer.binding:
        limits = [f"the {one}" for one in answer.binding[:NAMED]]
        return f"No plan keeps all limits; without {' or '.join(limits)} one would"
    stopped = "was found in time; raise --time-limit"
    return f"No plan {stopped if answer.stopped else 'keeps all limits'}"


def _proved(answer: FleetAnswer) -> str:
    """The sentence on the plan's gap to the least cost."""
    if answer.found_by == "greedy":
        how = "planned job by job; the search found no better plan"
    elif answer.objective == "time":
        return "no plan ends earlier, and none that ends then costs less"
    else:
        how = "no plan costs less" if not answer.stopped else "the best plan found in the time"
    if answer.gap is None:
        return how
    within = 100 * answer.gap
    return f"{how}, to within {significant(within, 2) if within >= 0.01 else '0.01'} %"


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
        "What each limit costs": [
            f"{one.what}: {money_text(one.usd)}" + ("" if one.sure else ", within the gap")
            for one in answer.limit_costs
        ],
        "Earlier for more": [
            f"{one.finish_days:.1f} days: {money_text(one.cost_usd)}" for one in answer.front
        ],
        "How sure": _risk(answer),
        "Not possible": [
            f"{one.name}: {'; '.join(one.reasons)}" for one in answer.rows if one.reasons
        ],
        "Notes": [*answer.notes, *answer.warnings],
    }
    blocks += [style.titled(title, style.lines(lines, "  ")) for title, lines in told.items()]
    blocks.append(assumed_block(of_all_places(answer.assumed), style))
    return "\n\n".join(block for block in blocks if block)


def _risk(answer: FleetAnswer) -> list[str]:
    lines = [
        f"{row.name}: in time with {percent(row.on_time_probability)} probability"
        for row in answer.rows
        if row.on_time_probability is not None
    ]
    if answer.cost_usd is not None and answer.cost_usd.low != answer.cost_usd.high:
        low, high = money_text(answer.cost_usd.low), money_text(answer.cost_usd.high)
        lines.append(f"the whole costs {low} to {high} with 80 % probability")
    if answer.within_budget is not None:
        lines.append(f"the budget holds with {percent(answer.within_budget)} probability")
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
    return style.titled("What to buy when", table)


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
    return style.titled("Bill", style.table(headings, rows))


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
