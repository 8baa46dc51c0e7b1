"""Plans as people and machines read them: the answer first, then what it was chosen from."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from trnbench.answers.compare import tally_row
from trnbench.answers.lead import verdict_is
from trnbench.answers.plan import BreakEven, Confirmed, PlanAnswer
from trnbench.answers.quote import Quote
from trnbench.answers.row import Cell, Row
from trnbench.plan.objective import Candidate
from trnbench.plan.sensitivity import Change
from trnbench.report.quote_text import (
    chain_text,
    cluster_text,
    degree_columns,
    layout_text,
    money_text,
    sentence,
    time_text,
    tokens_text,
)
from trnbench.report.report import Column, Report, columns, draw_rows
from trnbench.report.scaling import cost_plot
from trnbench.report.text_table import Style, TextTable, draw, wrap
from trnbench.report.verdict import plan_verdict_text
from trnbench.search.result import Tally
from trnbench.units import DAY_S, significant
from trnbench.workload.layout import RANK_DEGREES

CONVENTIONS = {
    "rows": "the purchases that no other beats in both days and cost, fastest first; where nothing "
    "keeps what was asked, what comes nearest",
    "days": "from start to end: training, checkpoints, failures, restarts, gaps between purchases",
    "cost_usd": "what is billed by the purchase option, blocks and terms whole; with storage_usd",
    "low_, high_": "ends of an 80 % interval",
    "configurations": "layouts on every cluster; ways: those clusters by purchase option, each in "
    "its fastest layout, which is the cheapest too",
    "break_even": "the MFU at which the instance's best plan costs as much as the other",
    "mfu": "model FLOP (causal attention, nothing computed twice) over the tensor units' peak",
}
_MOVED = {"price": "price", "speed": "speed", "failures": "failure rate"}


def plan_report(answer: PlanAnswer, inputs: Mapping[str, object], *, plot: bool = False) -> Report:
    """Return the report of a plan: a row for each purchase worth a thought."""
    quotes = answer.front or tuple(q for q in (answer.nearest,) if q is not None)
    rows: list[Row] = [{**quote.row(), "chosen_plan": quote is answer.best} for quote in quotes]
    report = Report(
        verb="plan",
        inputs=inputs,
        rows=tuple(rows),
        columns=_columns(quotes),
        summary=_summary(answer),
    )
    return replace(report, people=functools.partial(_draw, report, answer, plot))


def _columns(quotes: Sequence[Quote]) -> tuple[Column, ...]:
    return (
        *columns("instance", "nodes"),
        *degree_columns(quotes),
        *columns("tokens_per_s", "mfu", "days", "cost_usd", "usd_per_million_tokens"),
        *columns("purchase", "region", "price_date", "chosen_plan"),
    )


def _summary(answer: PlanAnswer) -> dict[str, object]:
    asked = answer.asked
    told = answer.best or answer.nearest
    searched = Tally.sum(tuple(answer.looked.values()))
    return {
        "verdict": plan_verdict_text(answer),
        "verdict_is": verdict_is(answer.lead),
        "draws": answer.draws,
        "seed": answer.seed,
        "answer": sentence(told) if told else None,
        "feasible": answer.best is not None,
        "binding": answer.binding,
        "objective": asked.objective,
        "deadline_s": asked.deadline_s,
        "budget_usd": asked.budget_usd,
        "configurations": {
            "considered": searched.considered,
            "legal": searched.legal,
            "feasible": searched.feasible,
            "by_instance": [tally_row(name, tally) for name, tally in answer.looked.items()],
        },
        "ways": {
            "looked_at": answer.ways.looked,
            "kept": answer.ways.kept,
            "rejected_by_limit": answer.ways.rejected,
        },
        "left_out": answer.left_out,
        "sensitivity": [_change_cells(change) for change in answer.changes],
        "break_even": [
            {
                "instance": one.instance,
                "nodes": one.nodes,
                "mfu": one.mfu,
                "break_even_mfu": one.break_even_mfu,
                "against": one.against,
                "against_usd": one.against_usd,
            }
            for one in answer.break_even
        ],
        "quotas": [
            {"purchase": option, "name": q.name, "code": q.code, "vcpus": q.vcpus}
            for option, q in answer.quotas.items()
            if q is not None
        ],
        "confirmed": [_confirmed_cells(one) for one in answer.confirmed],
        "assumed": answer.assumed,
        "command": answer.command,
        "complete": answer.complete,
        "not_looked_at": answer.unseen,
        "conventions": CONVENTIONS,
    }


def _change_cells(change: Change) -> dict[str, object]:
    return {
        "moved": change.moved,
        "factor": change.factor,
        "same_plan": _candidate_cells(change.same),
        "same_plan_keeps_limits": change.kept,
        "best_plan": _candidate_cells(change.best),
    }


def _candidate_cells(candidate: Candidate | None) -> dict[str, object] | None:
    if candidate is None:
        return None
    return {
        "instance": candidate.instance,
        "nodes": candidate.nodes,
        "purchase": candidate.option,
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
    }


def _draw(report: Report, answer: PlanAnswer, plot: bool, style: Style) -> str:
    blocks = [_headline(answer, style)]
    if len(answer.front) > 1:
        blocks.append(_front(report, answer.front, style))
    if plot and answer.front:
        blocks.append(cost_plot(answer.front, style))
    if answer.confirmed:
        blocks.append(_played(answer.confirmed, style))
    told = answer.best or answer.nearest
    if told is not None:
        blocks.append(_section("time and bill", chain_text(told), style))
    blocks.append(_section("assumed", answer.assumed, style))
    if told is not None:
        blocks.append(_section("notes", (*told.notes, *_warnings(told)), style))
    if answer.changes:
        blocks.append(_sensitivity(answer, style))
    if answer.break_even:
        blocks.append(_break_even(answer.break_even, style))
    left_out = [f"{name}: {reason}" for name, reason in answer.left_out.items()]
    if answer.best is not None:
        blocks += [_section("left out", left_out, style), _quotas(answer, style)]
    blocks.append(_section("looked at", _looked(answer), style))
    blocks.append(f"{style.strong('again')}\n{answer.command}")
    return "\n\n".join(block for block in blocks if block)


def _headline(answer: PlanAnswer, style: Style) -> str:
    best, asked = answer.best, answer.asked
    if best is not None:
        first, last = answer.front[0], answer.front[-1]
        lines = [style.strong(wrap(plan_verdict_text(answer), style.width, ""))]
        if asked.objective == "pareto" and first is not last:
            lines = [
                style.strong(wrap(f"cheapest: {sentence(last)}", style.width, "")),
                style.strong(wrap(f"fastest: {sentence(first)}", style.width, "")),
            ]
        elapsed, cost = best.elapsed_s, best.cost_usd
        upper = " at the upper end of the interval"
        if elapsed and asked.deadline_s and elapsed.high > asked.deadline_s:
            end = "" if elapsed.value > asked.deadline_s else upper
            late = f"past the deadline of {time_text(asked.deadline_s)}{end}"
            lines.append(wrap(late, style.width, ""))
        if cost and asked.budget_usd and cost.high > asked.budget_usd:
            dear = f"above the budget of {money_text(asked.budget_usd)}{upper}"
            lines.append(wrap(dear, style.width, ""))
    elif answer.nearest is not None:
        lines = [style.strong("no plan keeps what was asked")]
        lines += [wrap(f"binds: {reason}", style.width, "") for reason in answer.binding]
        lines.append(wrap(f"nearest: {sentence(answer.nearest)}", style.width, ""))
    else:
        lines = [style.strong("no plan: nothing was looked at to the end")]
    quote = best or answer.nearest
    if quote is not None:
        limits = [f"{answer.model}, {tokens_text(quote)}", f"least {_wanted(answer)}"]
        if asked.deadline_s:
            limits.append(f"within {time_text(asked.deadline_s)}")
        if asked.budget_usd:
            limits.append(f"for at most {money_text(asked.budget_usd)}")
        if asked.confidence is not None and len(limits) > 2:
            limits.append(f"with {100 * asked.confidence:g}% confidence")
        lines.append(wrap(", ".join(limits), style.width, ""))
    return "\n".join(lines)


def _wanted(answer: PlanAnswer) -> str:
    return {"cost": "cost", "time": "time", "pareto": "cost or time"}[answer.asked.objective]


def _front(report: Report, quotes: Sequence[Quote], style: Style) -> str:
    blocks = any(quote.bill and quote.bill.blocks_days for quote in quotes)
    shown = (
        *columns("chosen_plan"),
        *columns("days", "cost_usd", interval=True),
        *columns("nodes", "instance", "purchase"),
        *(columns("blocks_days", spare=True) if blocks else ()),
        *columns("region", spare=True),
        *degree_columns(quotes),
        *columns("mfu", "goodput", spare=True),
    )
    heading = style.strong("time against money: what nothing else beats in both")
    return f"{heading}\n{draw_rows(replace(report, columns=shown), style)}"


def _played(confirmed: Sequence[Confirmed], style: Style) -> str:
    rows = []
    for one in confirmed:
        closed, played = one.closed.step.step, one.played.step.step
        if closed is None or played is None:
            continue
        difference = played.step_time_s / closed.step_time_s - 1
        rows.append(
            (
                cluster_text(one.closed),
                layout_text(one.closed.step.layout),
                _mode(one.closed),
                significant(closed.step_time_s),
                significant(played.step_time_s),
                f"{100 * difference:+.2f} %",
                time_text(one.played.elapsed_s.value) if one.played.elapsed_s else "-",
                money_text(one.played.cost_usd.value) if one.played.cost_usd else "-",
            )
        )
    best = min(confirmed, key=lambda one: one.played.cost_usd.value if one.played.cost_usd else 0.0)
    same = "the order stays" if best is confirmed[0] else "played, another is cheapest"
    table = TextTable(
        headings=(
            *("on", "layout", "mode", "closed form (s)", "played (s)", "difference"),
            *("days, played", "cost, played"),
        ),
        rows=tuple(rows),
        right=(False, False, False, True, True, True, True, True),
    )
    heading = style.strong(f"the best, played in the emulator: {same}")
    return f"{heading}\n{draw(table, style)}"


def _mode(quote: Quote) -> str:
    layout = quote.step.layout
    return (
        f"{layout['schedule']}, micro {layout['micro_batch']}, ZeRO {layout['zero']}, "
        f"{layout['recompute']}"
    )


def _section(title: str, lines: Iterable[str], style: Style) -> str:
    told = [wrap(line, style.width, "") for line in dict.fromkeys(lines)]
    return "\n".join([style.strong(title), *told]) if told else ""


def _warnings(quote: Quote) -> list[str]:
    return [f"warning: {warning}" for warning in quote.every_warning]


def _sensitivity(answer: PlanAnswer, style: Style) -> str:
    plan = answer.best
    rows = []
    for change in answer.changes:
        same, best = change.same, change.best
        stays = best is not None and plan is not None and plan.is_of(best)
        rows.append(
            (
                f"{_MOVED[change.moved]} x {significant(change.factor, 3)}",
                time_text(same.elapsed_s) if same else "-",
                money_text(same.cost_usd) if same and same.cost_usd is not None else "-",
                "yes" if change.kept else "no",
                "stays" if stays else _candidate_text(best),
            )
        )
    table = TextTable(
        headings=("if", "time", "cost", "keeps limits", "best plan then"),
        rows=tuple(rows),
        right=(False, True, True, False, False),
    )
    return f"{style.strong('what would change it')}\n{draw(table, style)}"


def _candidate_text(candidate: Candidate | None) -> str:
    if candidate is None:
        return "none"
    cost = "no price" if candidate.cost_usd is None else money_text(candidate.cost_usd)
    time = time_text(candidate.elapsed_s)
    return f"{candidate.nodes:,} x {candidate.instance}, {candidate.option}: {time}, {cost}"


def _break_even(rows: Sequence[BreakEven], style: Style) -> str:
    cells = tuple(
        (
            f"{one.nodes:,} x {one.instance}",
            f"{100 * one.mfu:.1f} %",
            "out of reach" if one.break_even_mfu is None else f"{100 * one.break_even_mfu:.1f} %",
            f"{one.against} ({money_text(one.against_usd)})",
        )
        for one in rows
    )
    table = TextTable(
        headings=("plan", "MFU", "even at", "with"), rows=cells, right=(False, True, True, False)
    )
    heading = style.strong("break-even: the MFU from which a plan beats another at these prices")
    return f"{heading}\n{draw(table, style)}"


def _quotas(answer: PlanAnswer, style: Style) -> str:
    lines = []
    for option, quota in answer.quotas.items():
        if quota is None:
            lines.append(f"{option}: has limits of its own on machines, and no vCPU quota is known")
        else:
            lines.append(f"{option}: {quota.vcpus:,} vCPU of {quota.name!r} ({quota.code})")
    return _section("quotas to request", lines, style)


def _looked(answer: PlanAnswer) -> list[str]:
    lines = []
    for name, one in answer.looked.items():
        rejected = ", ".join(f"{rule} {count:,}" for rule, count in one.rejected_by_reason.items())
        lines.append(
            f"{name}: {one.considered:,} layouts, {one.legal:,} legal, {one.feasible:,} "
            f"fit" + (f"; rejected: {rejected}" if rejected else "")
        )
    ways = answer.ways
    broken = ", ".join(f"{limit} {count:,}" for limit, count in ways.rejected.items())
    lines.append(
        f"{ways.looked:,} way{'s' * (ways.looked != 1)} to buy, {ways.kept:,} of them as asked"
        + (f"; rejected: {broken}" if broken else "")
    )
    if not answer.complete:
        unseen = f"; not looked at: {', '.join(answer.unseen)}" if answer.unseen else ""
        lines.append(f"interrupted: the best of what was looked at{unseen}")
    return lines
