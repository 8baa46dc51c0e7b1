"""A plan in detail: its bill, what it assumes, what would change it, what was looked at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trnbench.facts.units import counted, money_text, significant
from trnbench.money.objective import Candidate
from trnbench.money.sensitivity import Change
from trnbench.predict.assumption import assumed_lines
from trnbench.show.text_table import Style
from trnbench.verbs.plan.answer import PlanAnswer
from trnbench.verbs.quotes.answer import Quote
from trnbench.verbs.quotes.text import chain_text, cluster_text, purchase_text, time_text

_MOVED = {"price": "price", "speed": "speed", "failures": "failure rate"}


def detail_blocks(answer: PlanAnswer, style: Style) -> list[str]:
    """Return the blocks that `--details` adds."""
    told = answer.best or answer.nearest
    blocks = []
    if told is not None:
        blocks.append(_section("Time and bill", chain_text(told), style))
        blocks.append(_section("Remarks", told.notes, style))
    blocks += [change_block(answer, style), break_even_block(answer, style)]
    blocks += [quota_block(answer, style)] if answer.best is not None else []
    return [*blocks, _section("Searched", _searched(answer), style)]


def need_blocks(answer: PlanAnswer, style: Style) -> list[str]:
    """Quotas to request, what is assumed, and what had no part in the choice."""
    left_out = [f"{name}: {reason}" for name, reason in answer.left_out.items()]
    sections: dict[str, Sequence[str]] = {"Limiting": answer.binding}
    sections |= {"Assumed": assumed_lines(answer.assumed)}
    sections["Left out"] = left_out
    blocks = [_section(title, lines, style) for title, lines in sections.items()]
    return [quota_block(answer, style), *blocks, _section("Searched", _searched(answer), style)]


def purchase_block(quote: Quote | None, style: Style) -> str:
    """Purchase of a plan, uses of its time and its money, and notes."""
    if quote is None:
        return "nothing is bought"
    bill = quote.bill
    lines = [f"{cluster_text(quote)}{f' {purchase_text(bill)}' if bill else ''}"]
    if bill is not None:
        due = {"due up front": bill.charged.upfront_usd, "committed to": bill.charged.committed_usd}
        lines += [f"  {name}: {money_text(usd)}" for name, usd in due.items() if usd]
    lines += [f"  {line}" for line in chain_text(quote)]
    lines += [f"warning: {one}" for one in quote.every_warning]
    return style.lines([*lines, *(f"note: {one}" for one in quote.notes)])


def moved_text(change: Change) -> str:
    return f"{_MOVED[change.moved]} x {significant(change.factor, 3)}"


def changed_text(change: Change) -> str:
    """A moved assumption in words, such as "the price rises 25 %"."""
    by = change.factor - 1
    moves = "rises" if by > 0 else "falls"
    return f"the {_MOVED[change.moved]} {moves} {significant(100 * abs(by), 2)} %"


def _section(title: str, lines: Iterable[str], style: Style) -> str:
    return style.titled(title, style.lines(dict.fromkeys(lines)))


def change_block(answer: PlanAnswer, style: Style) -> str:
    """The plan, and the best plan, when one assumption is moved at a time."""
    plan = answer.best
    base_s = plan.elapsed_s.value if plan and plan.elapsed_s else None
    base_usd = plan.cost_usd.value if plan and plan.cost_usd else None
    rows = []
    for change in answer.changes:
        same, best = change.same, change.best
        stays = best is not None and plan is not None and plan.is_of(best)
        rows.append(
            (
                moved_text(change),
                time_text(same.elapsed_s) if same else "-",
                _against(same.elapsed_s if same else None, base_s),
                money_text(same.cost_usd) if same and same.cost_usd is not None else "-",
                _against(same.cost_usd if same else None, base_usd),
                "yes" if change.kept else "no",
                "unchanged" if stays else _candidate_text(best),
            )
        )
    headings = ("if", ">time", ">", ">cost", ">", "in limits", "best plan then")
    return style.titled("What would change it", style.table(headings, rows) if rows else "")


def _against(value: float | None, base: float | None) -> str:
    change = 0.0 if value is None or not base else 100 * (value / base - 1)
    return f"{change:+.0f} %" if abs(change) >= 0.5 else ""


def _candidate_text(candidate: Candidate | None) -> str:
    if candidate is None:
        return "none"
    cost = "no price" if candidate.cost_usd is None else money_text(candidate.cost_usd)
    time = time_text(candidate.elapsed_s)
    return f"{candidate.nodes:,} x {candidate.instance}, {candidate.option}: {time}, {cost}"


def break_even_block(answer: PlanAnswer, style: Style) -> str:
    """The MFU from which plans cost less than another."""
    cells = [
        (
            f"{one.nodes:,} x {one.instance}",
            f"{100 * one.mfu:.1f} %",
            "out of reach" if one.break_even_mfu is None else f"{100 * one.break_even_mfu:.1f} %",
            "" if one.break_even_mfu is None else f"{one.break_even_mfu / one.mfu:.2f}x",
            f"{one.against} ({money_text(one.against_usd)})",
        )
        for one in answer.break_even
    ]
    headings = ("plan", ">MFU", ">break-even MFU", ">speed", "against")
    title = "Break-even: the MFU from which a plan beats another at these prices"
    return style.titled(title, style.table(headings, cells) if cells else "")


def quota_block(answer: PlanAnswer, style: Style) -> str:
    """The quotas to request, by purchase option."""
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
