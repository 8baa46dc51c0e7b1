"""Plans as people and machines read them: the answer first, then what it was chosen from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trnbench.facts.records import asdict, replace
from trnbench.facts.units import DAY_S, money_text, significant
from trnbench.facts.workload.layout import RANK_DEGREES
from trnbench.money.objective import Candidate, Limits
from trnbench.money.sensitivity import Change
from trnbench.predict.search.result import Tally
from trnbench.show.report import Column, Report, columns, draw_marked
from trnbench.show.row import Cell, Row, cells
from trnbench.show.text_table import Style
from trnbench.verbs.compare.answer import tally_row
from trnbench.verbs.plan.answer import BreakEven, Confirmed, PlanAnswer
from trnbench.verbs.plan.details import changed_text, detail_blocks
from trnbench.verbs.quotes.answer import Quote
from trnbench.verbs.quotes.charts import Picked, front_chart, run_charts
from trnbench.verbs.quotes.notes import (
    assumed_block,
    availability_lines,
    evidence_lines,
    grouped,
    interrupted,
    layout_lines,
    migration_lines,
    price_lines,
)
from trnbench.verbs.quotes.text import (
    bill_lines,
    cluster_text,
    degree_columns,
    layout_text,
    run_text,
    sentence,
    settings_text,
    time_text,
)
from trnbench.verbs.quotes.tipping import tipping_block, tipping_chart
from trnbench.verbs.quotes.verdict import (
    Wanted,
    advice_text,
    table_marks,
    verdict_cells,
    verdict_text,
)
from trnbench.verbs.train.beside import why_cells, why_lines
from trnbench.verbs.train.tables import phase_blocks

SURE = 0.995
"""Probability of keeping the limits from which on no column says it."""
CONVENTIONS = {
    "rows": "the purchases that no other beats in both days and cost, fastest first, and the best "
    "of each instance type. If none keeps the limits: the nearest",
    "days": "from start to end: training, checkpoints, failures, restarts, gaps between purchases",
    "cost_usd": "what is billed by the purchase option, blocks and terms whole; with storage_usd",
    "low_, high_": "ends of an 80 % interval",
    "configurations": "layouts on every cluster; ways: those clusters by purchase option, each in "
    "its fastest layout, which is the cheapest too",
    "break_even": "the MFU at which the instance's best plan costs as much as the other",
    "mfu": "model FLOP (causal attention, nothing computed twice) over the tensor units' peak",
}


def asked_of(answer: PlanAnswer) -> Wanted:
    """Limits of a plan, and the criterion by which it was chosen."""
    asked = answer.asked
    limits = Limits(deadline_s=asked.deadline_s, budget_usd=asked.budget_usd)
    return Wanted(limits=limits, confidence=asked.confidence)


def _rows(answer: PlanAnswer) -> tuple[Quote, ...]:
    return answer.front or tuple(one for one in (answer.nearest,) if one is not None)


def plan_verdict_text(answer: PlanAnswer) -> str:
    """The verdict of a plan in words."""
    return verdict_text(answer.verdict, _rows(answer), asked_of(answer))


def plan_report(
    answer: PlanAnswer, inputs: Mapping[str, object], *, plot: bool = False, details: bool = False
) -> Report:
    """Return the report of a plan: a row for each purchase worth a thought."""
    quotes = _rows(answer)
    picked = Picked(winner=answer.best, word="the plan", deadline_s=answer.asked.deadline_s)
    rows: list[Row] = [{**quote.row(), "chosen_plan": quote is answer.best} for quote in quotes]
    return Report(
        verb="plan",
        inputs=inputs,
        rows=tuple(rows),
        columns=_columns(quotes),
        summary=_summary(answer),
        notes=(settings_text(quotes),),
        people=lambda report, style: _draw(report, answer, plot, details, style),
        charts=(
            *run_charts(quotes, front_chart(quotes, picked), picked),
            *((tipping_chart(answer.sensitivity),) if answer.sensitivity else ()),
        ),
    )


def _columns(quotes: Sequence[Quote]) -> tuple[Column, ...]:
    return (
        *columns("instance", "nodes"),
        *degree_columns(quotes),
        *columns("tokens_per_s", "mfu", "days", "cost_usd", "usd_per_million_tokens"),
        *columns("purchase", "region", "price_date", "chosen_plan"),
    )


def _summary(answer: PlanAnswer) -> dict[str, object]:
    told = answer.best or answer.nearest
    searched = Tally.sum(tuple(answer.looked.values()))
    return {
        **verdict_cells(answer.verdict, _rows(answer), asked_of(answer)),
        "draws": answer.draws,
        "seed": answer.seed,
        "answer": sentence(told) if told else None,
        "feasible": answer.best is not None,
        "binding": answer.binding,
        **cells(answer.asked, "objective deadline_s budget_usd"),
        "configurations": {
            **cells(searched, "considered", "legal", "feasible"),
            "by_instance": [tally_row(name, tally) for name, tally in answer.looked.items()],
        },
        "ways": {
            **cells(answer.ways, "looked_at=looked kept"),
            "rejected_by_limit": answer.ways.rejected,
        },
        "capacity": [one.row() for one in answer.capacity],
        "layouts_beside": why_cells(told.step) if told else {},
        "left_out": answer.left_out,
        "sensitivity": [_change_cells(change) for change in answer.changes]
        if answer.sensitivity is None
        else [one.row() for one in answer.sensitivity],
        "break_even": [asdict(one) for one in answer.break_even],
        "quotas": [
            {"purchase": option, **asdict(quota)}
            for option, quota in answer.quotas.items()
            if quota is not None
        ],
        "confirmed": [_confirmed_cells(one) for one in answer.confirmed],
        "spot": asdict(answer.spot) if answer.spot else None,
        "confirmation": confirmation(answer.confirmed) if answer.confirmed else None,
        "assumed": [one.plain for one in answer.assumed],
        "command": answer.command,
        "complete": answer.complete,
        "not_looked_at": answer.unseen,
        "conventions": CONVENTIONS,
    }


def _change_cells(change: Change) -> dict[str, object]:
    return {
        **cells(change, "moved factor"),
        "same_plan": _candidate_cells(change.same),
        "same_plan_keeps_limits": change.kept,
        "best_plan": _candidate_cells(change.best),
    }


def _candidate_cells(candidate: Candidate | None) -> dict[str, object] | None:
    if candidate is None:
        return None
    return {
        **cells(candidate, "instance nodes purchase=option"),
        "days": candidate.elapsed_s / DAY_S,
        "cost_usd": candidate.cost_usd,
    }


def _confirmed_cells(one: Confirmed) -> dict[str, Cell]:
    closed, played = one.closed.row(), one.played.row()
    shared = ("instance", "nodes", *RANK_DEGREES, "micro_batch", "schedule")
    figures = ("step_time_s", "days", "cost_usd")
    return {
        **{name: closed[name] for name in shared},
        **{name: closed[name] for name in figures},
        **{f"played_{name}": played[name] for name in figures},
        "played_rank": one.rank,
    }


def _draw(report: Report, answer: PlanAnswer, plot: bool, details: bool, style: Style) -> str:
    told = answer.best or answer.nearest
    blocks = [_headline(answer, style)]
    if report.rows:
        blocks.append(_table(report, answer, style))
    blocks += phase_blocks([told] if told is not None else [], style)
    if plot and answer.front:
        from trnbench.show.charts.text import first_chart  # few ask for drawings

        blocks.append(first_chart(report, style))
    if answer.sensitivity is not None:
        blocks.append(tipping_block(answer.sensitivity, style, plot=plot))
    if answer.confirmed:
        blocks.append(_played(answer.confirmed, style))
    if told is not None:
        blocks.append(grouped(_groups(answer, told), style))
    blocks.append(assumed_block(answer.assumed, style))
    if details:
        blocks += detail_blocks(answer, style)
    if not answer.complete:
        blocks.append(interrupted(answer.unseen))
    blocks.append(style.titled("To repeat this", answer.command))
    blocks.append(style.strong(style.wrap(advice_text(answer.verdict))))
    return "\n\n".join(block for block in blocks if block)


def _groups(answer: PlanAnswer, told: Quote) -> dict[str, list[str]]:
    """Return notes on a plan, or on the nearest ones, by group."""
    warnings = [f"warning: {warning}" for warning in told.every_warning]
    price = [*price_lines((told,)), *(bill_lines(told.bill)[:1] if told.bill else ())]
    price += migration_lines(answer.front)
    price += [_break_even_line(one) for one in answer.break_even[:1] if answer.best]
    availability = [*(one.text for one in answer.capacity), *availability_lines((told,))]
    if answer.spot is not None:
        from trnbench.verbs.fleet.text import spot_text  # few plans are on spot machines

        availability += [spot_text(answer.spot), "capacity is not promised: there may be none"]
    availability += [
        f"quota to request: {quota.vcpus:,} vCPU of {quota.name!r} ({option})"
        for option, quota in answer.quotas.items()
        if quota is not None
    ]
    return {
        "Limits and warnings": warnings,
        "Layout": [*why_lines(told.step), *layout_lines((told,))],
        "Price": price,
        "Availability": availability,
        "Evidence": [*evidence_lines((told,)), *_changes(answer)],
        "Left out": [f"{name}: {why}" for name, why in answer.left_out.items() if answer.best],
    }


def _break_even_line(one: BreakEven) -> str:
    even = "out of reach" if one.break_even_mfu is None else f"{100 * one.break_even_mfu:.1f} %"
    return f"break-even MFU against {one.against}: {even} (predicted {100 * one.mfu:.1f} %)"


def _changes(answer: PlanAnswer) -> list[str]:
    """Return in a line what would make another plan the best."""
    if not answer.changes or answer.best is None:
        return []
    moved = [
        changed_text(change)
        for change in answer.changes
        if change.best is None or not answer.best.is_of(change.best)
    ]
    if not moved:
        return ["the best plan at any price, speed and failure rate looked at (--details)"]
    return [f"the recommendation changes if {' or '.join(moved)} (--details)"]


def _headline(answer: PlanAnswer, style: Style) -> str:
    best, asked = answer.best, answer.asked
    if best is not None:
        lines = [style.strong(style.wrap(plan_verdict_text(answer)))]
        told = [f"plan: {sentence(best)}"]
        if asked.objective == "pareto" and len(answer.front) > 1:
            told = [f"cheapest: {sentence(best)}", f"fastest: {sentence(answer.front[0])}"]
        lines += [style.wrap(one) for one in told]
    elif answer.nearest is not None:
        lines = [style.strong(style.wrap(plan_verdict_text(answer)))]
        lines += [style.wrap(f"limit: {reason}") for reason in _beside_verdict(answer)]
        lines.append(style.wrap(f"nearest: {sentence(answer.nearest)}"))
    else:
        lines = [style.strong("no plan: nothing was looked at to the end")]
    quote = best or answer.nearest
    if quote is not None:
        wanted = "cost or time" if asked.objective == "pareto" else asked.objective
        limits = [run_text(answer.model, quote), f"least {wanted}"]
        if asked.deadline_s:
            usual = " (default; set --deadline)" if asked.assumed_deadline else ""
            limits.append(f"within {time_text(asked.deadline_s)}{usual}")
        if asked.budget_usd:
            limits.append(f"for at most {money_text(asked.budget_usd)}")
        if asked.confidence is not None and len(limits) > 2:
            limits.append(f"with {100 * asked.confidence:g}% confidence")
        lines += [style.wrap(", ".join(limits)), style.wrap(settings_text((quote,)))]
    return "\n".join(lines)


def _beside_verdict(answer: PlanAnswer) -> list[str]:
    """Reasons against every plan, as far as the verdict does not give them."""
    name, told = (
        answer.nearest.instance if answer.nearest else "",
        plan_verdict_text(answer).lower(),
    )
    own = [
        reason.removeprefix(f"{name}: ")
        for reason in answer.binding
        if not reason.startswith(("deadline of", "budget of"))
    ]
    parts = [(one, *one.partition(": ")) for one in own]
    left = [rest if begun.lower() in told else one for one, begun, _, rest in parts]
    return [one for one in left if one and one.lower() not in told]


def _table(report: Report, answer: PlanAnswer, style: Style) -> str:
    """Return the plans that no other beats in both time and cost, or what comes nearest."""
    quotes = _rows(answer)
    marks = ["no" if not one.feasible else "*" if one is answer.best else "" for one in quotes]
    rows = tuple(
        {**row, "mark": mark, "marks": table_marks(quote)}
        for row, mark, quote in zip(report.rows, marks, quotes, strict=True)
    )
    several = len({quote.instance for quote in quotes}) > 1
    blocks = any(quote.bill and quote.bill.blocks_days for quote in quotes)
    shown = (
        *columns("mark", "instance", "nodes"),
        *columns("days", "cost_usd", interval=True),
        *(columns("cheapest_probability", spare=True) if several else ()),
        *(columns("on_time_probability", spare=True) if _limited(answer) else ()),
        *columns("purchase", "mfu", spare=True),
        *(columns("marks", spare=True) if any(map(table_marks, quotes)) else ()),
        *(columns("mean_cost_usd", spare=True) if several else ()),
        *(columns("blocks_days", spare=True) if blocks else ()),
        *columns("region", spare=True),
        *degree_columns(quotes),
        *columns("goodput", spare=True),
    )
    legend = "* the plan; rows: the cheapest for each time, and the best of each instance type"
    legend += "; cheapest: of a type, at its best row" if several else ""
    if not answer.front:
        legend = "no: outside the limits; the nearest"
    elif len(quotes) == 1:
        legend = "* the plan; no other beats it in cost or time"
    table = replace(report, rows=rows, columns=shown)
    return draw_marked(table, f"{legend}; in brackets: 80 % intervals", style)


def _limited(answer: PlanAnswer) -> bool:
    """True where some row may break a limit."""
    return any((quote.on_time_probability or 1.0) < SURE for quote in answer.front)


def _played(confirmed: Sequence[Confirmed], style: Style) -> str:
    rows = []
    for one in confirmed:
        closed, played = one.closed.step.step, one.played.step.step
        if closed is None or played is None:
            continue
        rows.append(
            (
                str(one.rank),
                cluster_text(one.closed),
                layout_text(one.closed.step.layout),
                _mode(one.closed),
                significant(closed.step_time_s),
                significant(played.step_time_s),
                f"{100 * one.apart:+.2f} %",
                time_text(one.played.elapsed_s.value) if one.played.elapsed_s else "-",
                money_text(one.played.cost_usd.value) if one.played.cost_usd else "-",
            )
        )
    headings = (
        *(">rank", "on", "layout", "mode", ">analytic (s)", ">simulated (s)", ">difference"),
        *(">days", ">cost"),
    )
    title = f"Simulated in the emulator: {confirmation(confirmed)}"
    return style.titled(title, style.table(headings, rows))


def confirmation(confirmed: Sequence[Confirmed]) -> str:
    """Return whether the best plan stays the best when played, and how far apart engines are."""
    apart = max(abs(one.apart) for one in confirmed)
    within = f"within {significant(100 * apart, 2)} %"
    best = min(confirmed, key=lambda one: one.rank)
    if best is not confirmed[0]:
        return f"{cluster_text(best.closed)} {layout_text(best.closed.step.layout)} overtakes"
    if [one.rank for one in confirmed] != sorted(one.rank for one in confirmed):
        return f"the best is confirmed {within}; others change places"
    return f"confirmed {within}"


def _mode(quote: Quote) -> str:
    layout = quote.step.layout
    return (
        f"{layout['schedule']}, micro {layout['micro_batch']}, ZeRO {layout['zero']}, "
        f"{layout['recompute']}"
    )
