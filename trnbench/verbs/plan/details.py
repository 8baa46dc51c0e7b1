"""A plan in detail: its bill, what it assumes, what would change it, what was looked at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trnbench.facts.units import counted, money_text, significant
from trnbench.money.objective import Candidate
from trnbench.money.sensitivity import Change
from trnbench.report.quote_text import chain_text, time_text
from trnbench.show.text_table import Style
from trnbench.verbs.plan.answer import BreakEven, PlanAnswer

_MOVED = {"price": "price", "speed": "speed", "failures": "failure rate"}


def detail_blocks(answer: PlanAnswer, style: Style) -> list[str]:
    """Return the blocks that `--details` adds."""
    told = answer.best or answer.nearest
    blocks = []
    if told is not None:
        blocks.append(_section("Time and bill", chain_text(told), style))
    blocks.append(_section("Assumed", answer.assumed, style))
    if told is not None:
        blocks.append(_section("Remarks", told.notes, style))
    if answer.changes:
        blocks.append(_sensitivity(answer, style))
    if answer.break_even:
        blocks.append(_break_even(answer.break_even, style))
    if answer.best is not None:
        blocks.append(_quotas(answer, style))
    return [*blocks, _section("Searched", _searched(answer), style)]


def moved_text(change: Change) -> str:
    """Return what is taken to be otherwise: price x 0.8."""
    return f"{_MOVED[change.moved]} x {significant(change.factor, 3)}"


def _section(title: str, lines: Iterable[str], style: Style) -> str:
    return style.titled(title, style.lines(dict.fromkeys(lines)))


def _sensitivity(answer: PlanAnswer, style: Style) -> str:
    plan = answer.best
    rows = []
    for change in answer.changes:
        same, best = change.same, change.best
        stays = best is not None and plan is not None and plan.is_of(best)
        rows.append(
            (
                moved_text(change),
                time_text(same.elapsed_s) if same else "-",
                money_text(same.cost_usd) if same and same.cost_usd is not None else "-",
                "yes" if change.kept else "no",
                "unchanged" if stays else _candidate_text(best),
            )
        )
    headings = ("if", ">time", ">cost", "within limits", "best plan then")
    return style.titled("What would change it", style.table(headings, rows))


def _candidate_text(candidate: Candidate | None) -> str:
    if candidate is None:
        return "none"
    cost = "no price" if candidate.cost_usd is None else money_text(candidate.cost_usd)
    time = time_text(candidate.elapsed_s)
    return f"{candidate.nodes:,} x {candidate.instance}, {candidate.option}: {time}, {cost}"


def _break_even(rows: Sequence[BreakEven], style: Style) -> str:
    cells = (
        (
            f"{one.nodes:,} x {one.instance}",
            f"{100 * one.mfu:.1f} %",
            "out of reach" if one.break_even_mfu is None else f"{100 * one.break_even_mfu:.1f} %",
            f"{one.against} ({money_text(one.against_usd)})",
        )
        for one in rows
    )
    title = "Break-even: the MFU from which a plan beats another at these prices"
    return style.titled(title, style.table(("plan", ">MFU", ">break-even MFU", "against"), cells))


def _quotas(answer: PlanAnswer, style: Style) -> str:
    lines = []
    for option, quota in answer.quotas.items():
        if quota is None:
            lines.append(f"{option}: has limits of its own on machines, and no vCPU quota is known")
        else:
            lines.append(f"{option}: {quota.vcpus:,} vCPU of {quota.name!r} ({quota.code})")
    return _section("Quotas to request", lines, style)


def _searched(answer: PlanAnswer) -> list[str]:
    lines = []
    for name, one in answer.looked.items():
        ruled_out = ", ".join(f"{rule} {count:,}" for rule, count in one.rejected_by_reason.items())
        lines.append(
            f"{name}: {one.considered:,} layouts, {one.legal:,} valid, {one.feasible:,} "
            f"fit in memory" + (f"; ruled out by {ruled_out}" if ruled_out else "")
        )
    ways = answer.ways
    broken = ", ".join(f"{limit} {count:,}" for limit, count in ways.rejected.items())
    lines.append(
        f"{counted(ways.looked, 'purchase option')}, {ways.kept:,} within limits"
        + (f" (some fail several: {broken})" if broken else "")
    )
    return lines
