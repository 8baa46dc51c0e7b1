"""Which purchase is the cheapest, in a sentence, and what that rests on."""

from __future__ import annotations

from collections.abc import Sequence

from trnbench.facts.units import HOUR_S, money_text
from trnbench.show.row import Interval
from trnbench.verbs.compare.answer import CompareAnswer
from trnbench.verbs.quotes.answer import Quote
from trnbench.verbs.quotes.lead import Lead
from trnbench.verbs.quotes.text import cluster_text, purchase_text, span_text, time_text

DWARFED = 0.5
"""Machines of which less than this part is used are paid for their minimum, not for the work."""


def verdict_text(answer: CompareAnswer) -> str:
    """Return which row is the cheapest, by how much, and how sure that is; or why there is none."""
    quotes = [one.quote for one in answer.compared]
    lead = answer.lead
    if lead is None or not quotes[lead.winner].feasible:
        return _no(answer, quotes)
    winner = quotes[lead.winner]
    assert winner.cost_usd is not None
    text = f"cheapest: {cluster_text(winner)}, {money_text(winner.cost_usd.value)}"
    share = share_text(winner.cheapest_probability)
    if lead.rival is not None and lead.cost is not None:
        rival = name_among(quotes[lead.rival], quotes)
        text += f": {_apart(lead.cost.value)} {rival}, {_error(lead.cost)}; cheapest in {share})"
    elif len(quotes) > 1:
        text += f" ({_only(quotes)})"
    text += tie_text(lead, quotes)
    minimums = [one for one in map(_minimum, quotes) if one]
    return text + (f" ({'; '.join(minimums)})" if minimums else "")


def verdict_lines(answer: CompareAnswer) -> list[str]:
    """Return the verdict, and which row is the fastest where that is another one."""
    quotes = [one.quote for one in answer.compared]
    running = [one for one in quotes if one.feasible and one.elapsed_s is not None]
    fastest = min(
        running, key=lambda one: one.elapsed_s.value if one.elapsed_s else 0.0, default=None
    )
    cheapest = quotes[answer.lead.winner] if answer.lead else None
    lines = [verdict_text(answer)]
    if cheapest in running and fastest is not cheapest and fastest and fastest.elapsed_s:
        lines.append(f"fastest: {cluster_text(fastest)}, {span_text(fastest.elapsed_s)}")
    return lines


def _only(quotes: Sequence[Quote]) -> str:
    """Return what makes the one quote that can be bought the only one."""
    words = "the only one"
    if any(quote.feasible and quote.cost_usd is None for quote in quotes):
        words += " with a price"
    if not all(quote.feasible for quote in quotes):
        words += " that does what is asked"
    return words


def tie_text(lead: Lead, quotes: Sequence[Quote]) -> str:
    """Return with which others the winner is tied, and how often each is the cheapest."""
    if not lead.tied:
        return ""
    shares = (
        f"{name_among(quotes[place], quotes)} ({100 * lead.shares[place]:.0f} %)"
        for place in lead.tied
    )
    return f"; a tie with {', '.join(shares)}"


def share_text(share: float) -> str:
    """Return a share of the draws; what is not all of them is not called so."""
    percent = f"{100 * share:.0f}"
    if share < 1 and percent == "100":
        percent = ">99"
    return f"{percent} % of draws"


def _no(answer: CompareAnswer, quotes: Sequence[Quote]) -> str:
    running = [quote for quote in quotes if quote.elapsed_s is not None]
    if not running:
        told = "; ".join(f"{one.instance}: {', '.join(one.reasons)}" for one in quotes[:1])
        return f"no: none runs it; {told}" if told else "no: nothing was looked at"
    fastest = min(running, key=lambda one: one.elapsed_s.value if one.elapsed_s else 0.0)
    assert fastest.elapsed_s is not None
    told = f"fastest {fastest.instance}, {span_text(fastest.elapsed_s)} on {fastest.nodes:,}"
    unpriced = any(quote.feasible for quote in quotes)
    if unpriced and answer.lead is None:
        return f"no: none has a price; {told}"
    none = "none with a price" if unpriced else "none"
    if unpriced and fastest.cost_usd is None:
        told += ", has no price"
    if answer.deadline_s is not None:
        sure = "" if answer.confidence is None else f" with {100 * answer.confidence:g}% confidence"
        return f"no: {none} finishes in {time_text(answer.deadline_s)}{sure}; {told}"
    if unpriced:
        return f"no: {none} does what is asked; {told}"
    return f"no: {running[0].instance}: {running[0].reasons[0]}"


def name_among(quote: Quote, among: Sequence[Quote]) -> str:
    """Return a quote's instance type, with what tells it from others of the same type."""
    if sum(one.instance == quote.instance for one in among) == 1:
        return quote.instance
    name = cluster_text(quote)
    if quote.bill is None or sum(cluster_text(one) == name for one in among) == 1:
        return name
    return f"{name} {purchase_text(quote.bill)}"


def _apart(ratio: float) -> str:
    percent = round(100 * abs(ratio - 1))
    if percent == 0:
        return "as much as"
    if percent == 100 and 0 < ratio < 1:
        return ">99 % below"
    return f"{percent} % {'below' if ratio < 1 else 'above'}"


def _error(ratio: Interval) -> str:
    within = "within" if ratio.low < 1 < ratio.high else "beyond"
    low, high = (_end(number) for number in (ratio.low, ratio.high))
    return f"{within} the error ({low} to {high}"


def _end(ratio: float) -> str:
    words = _apart(ratio)
    return "equal" if words == "as much as" else words


def _minimum(quote: Quote) -> str:
    """Return that a purchase pays far more time than it uses, where it does."""
    bill = quote.bill
    if bill is None or bill.tariff.option != "capacity-block":
        return ""
    if bill.wall_s >= DWARFED * bill.charged.billed_hours * HOUR_S:
        return ""
    return (
        f"{quote.instance} is sold by the day here: {money_text(bill.charged.cost_usd)} for "
        f"{bill.charged.billed_hours:g} h, {time_text(bill.wall_s)} used"
    )
