"""Notes below a table of purchases: price, availability and evidence, a line each.

Lines are made of what quotes and bills say in figures; their remarks in full are for `--details`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from trnbench.facts.units import DAY_S, counted, money_text, significant
from trnbench.money.billing import Bill, added
from trnbench.predict.assumption import Assumption, assumed_lines
from trnbench.show.text_table import GAP, Style
from trnbench.verbs.quotes.answer import Quote, price_day
from trnbench.verbs.quotes.text import purchase_text

BASES = {"measured": "measured", "transferred": "carried over", "assumed": "assumed"}
"""What a speed rests on -> as a buyer says it."""
SECOND_HAND = "second-hand"
THIRD_PARTY = "quoted by a third party"


def assumed_block(assumed: Sequence[Assumption], style: Style) -> str:
    return style.titled("Assumed", style.lines(assumed_lines(assumed), "  "))


def grouped(groups: Mapping[str, Sequence[str]], style: Style) -> str:
    """Return lines below their headings; a group without lines is left out."""
    blocks = []
    for title, lines in groups.items():
        # A line goes on behind the place where its words begin.
        items = [style.wrap(line, GAP * 2)[len(GAP) :] for line in dict.fromkeys(lines)]
        blocks.append(style.titled(title, "\n".join(items)))
    return "\n\n".join(filter(None, blocks))


def layout_lines(quotes: Sequence[Quote]) -> list[str]:
    """Return the remarks on the layouts of rows, equal ones together."""
    return _by_instance(
        quotes,
        lambda one: "; ".join(dict.fromkeys(note for step in one.steps for note in step.notes)),
    )


def price_lines(quotes: Sequence[Quote]) -> list[str]:
    """Return where each row's rate comes from, equal ones together."""
    told = [one for one in quotes if one.elapsed_s is not None]
    lines = _by_instance(told, _price_basis)
    off = {one.bill.tariff.discount for one in told if one.bill and one.bill.tariff.discount}
    return [*lines, *(f"less a discount of {100 * one:.3g} %" for one in off)]


def availability_lines(quotes: Sequence[Quote]) -> list[str]:
    return _by_instance([one for one in quotes if one.bill is not None], _availability)


def basis_text(quote: Quote) -> str:
    return f"{quote.instance}: {_speed_basis(quote)}; {_price_basis(quote)}"


def evidence_lines(quotes: Sequence[Quote]) -> list[str]:
    """Return the basis of each row's speed, equal ones together, and the weakest evidence."""
    lines = _by_instance(quotes, _speed_basis)
    weakest = _by_instance(quotes, lambda one: f"some inputs are {one.step.evidence.word}")
    if len(weakest) == 1:
        weakest = [weakest[0].partition(": ")[2]]
    return [*lines, *(f"{one} (trnbench help evidence)" for one in weakest)]


def warning_lines(quotes: Sequence[Quote]) -> list[str]:
    """Return why rows will not do, and what to be warned of, equal ones together."""
    reasons = ((quote.instance, why) for quote in quotes for why in quote.reasons)
    warnings = ((quote.instance, why) for quote in quotes for why in quote.every_warning)
    return [
        *(f"no: {line}" for line in by_instance(reasons)),
        *(f"warning: {line}" for line in by_instance(warnings)),
    ]


def by_instance(told: Iterable[tuple[str, str]]) -> list[str]:
    """Return notes on instances, a line for each text behind the instances that it is about."""
    found: dict[str, dict[str, None]] = {}
    for instance, words in told:
        if words:
            found.setdefault(words, {})[instance] = None
    return [f"{', '.join(names)}: {words}" for words, names in found.items()]


def _by_instance(quotes: Iterable[Quote], words: Callable[[Quote], str]) -> list[str]:
    return by_instance((quote.instance, words(quote)) for quote in quotes)


def interrupted(unseen: Sequence[str]) -> str:
    left = f"; not looked at: {', '.join(unseen)}" if unseen else ""
    return f"interrupted: the best so far{left}"


def _price_basis(quote: Quote) -> str:
    bill = quote.bill
    if quote.elapsed_s is None:
        return "not priced: it cannot run"
    if bill is None:
        why = quote.unsold[0] if quote.unsold else "no published rate"
        return f"{why}; set --price {quote.instance}=USD"
    if bill.tariff.origin == "own":
        return "own price"
    day = price_day(bill)
    if bill.tariff.origin == "assumed":
        return f"assumed, from a rate of {day}"
    second_hand = any(note.startswith(SECOND_HAND) for note in (*bill.tariff.notes, *bill.notes))
    return f"rate of {day}, {THIRD_PARTY}" if second_hand else f"rate read {day}"


def _availability(quote: Quote) -> str:
    bill = quote.bill
    if bill is None:
        return ""
    if bill.tariff.option == "capacity-block":
        return _of_blocks(bill)
    return {
        "spot": "spot machines, interruptible at short notice",
        "reserved": f"committed for {money_text(bill.charged.committed_usd)}",
        "savings-plan": f"committed for {money_text(bill.charged.committed_usd)}",
    }.get(bill.tariff.option, "")


def _of_blocks(bill: Bill) -> str:
    if len(bill.blocks_days) < 2:
        return f"{purchase_text(bill).removeprefix('as ')}, paid whole and up front"
    days = f"blocks of {added(bill.blocks_days)} days (availability unknown)"
    if bill.single_block_usd is None:
        return days
    one = f"a single {bill.single_block_days}-day block: {money_text(bill.single_block_usd)}"
    return f"{days}; {one}"


def _speed_basis(quote: Quote) -> str:
    step = quote.step
    basis = f"speed {BASES[step.basis]}, stack {step.stack}"
    if step.passed_over:
        basis += f" (with steps on its chips: {', '.join(step.passed_over)})"
    if step.beyond_rows:
        basis += f", beyond its rows: {', '.join(step.beyond_rows)}"
    if step.claimed_mfu and step.step and quote.elapsed_s:
        days = quote.elapsed_s.value * step.step.mfu / step.claimed_mfu / DAY_S
        claim = f"{100 * step.claimed_mfu:.2g} % MFU that its maker claims"
        basis += f"; at the {claim}: {significant(days)} days"
    return basis


def migration_lines(quotes: Sequence[Quote]) -> list[str]:
    """After how many runs a one-time cost of an instance type pays against the best other type."""
    once = {one.instance: one.bill.once_usd for one in quotes if one.bill is not None}
    each: dict[str, float] = {}
    for one in quotes:
        if one.feasible and one.bill is not None and one.mean_cost_usd is not None:
            bill_usd = one.mean_cost_usd - one.bill.once_usd
            each[one.instance] = min(bill_usd, each.get(one.instance, math.inf))
    lines = []
    for name in each:
        others = [other for other in each if other != name]
        if not once[name] or not others:
            continue
        best = min(others, key=lambda other: each[other])
        saved, more = each[best] - each[name], once[name] - once[best]
        cost = f"{name}: the one-time {money_text(once[name])}"
        if saved <= 0:
            lines.append(f"{cost} never pays: each run costs as much or more than on {best}")
        else:
            runs = counted(max(math.ceil(more / saved), 1), "such run")
            lines.append(f"{cost} pays after {runs} against {best}: each saves {money_text(saved)}")
    return lines
