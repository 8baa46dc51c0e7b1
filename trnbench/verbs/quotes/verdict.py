"""The verdict in plain words: who leads, how surely, what could go wrong, what to measure first.

At most three sentences of at most twenty words. Whoever shows a verdict takes its words from here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from trnbench.facts.records import Record, replace
from trnbench.facts.units import HOUR_S, Dimension, money_text, scale_for, significant
from trnbench.money.objective import Limits
from trnbench.verbs.quotes.answer import Quote
from trnbench.verbs.quotes.lead import Chance, Pilot, Verdict
from trnbench.verbs.quotes.text import cluster_text, span_text, time_text

if TYPE_CHECKING:
    from trnbench.verbs.quotes.rivals import Judged

MOST_WORDS = 20
"""Words of a sentence."""
SURE = 0.9
"""Probability of keeping the limits from which on lateness is not spoken of."""
LEAST, SPOKEN = 0.005, 0.05
"""Less probability than this is not spoken of, beside a clear lead and in a tie."""
DWARFED = 0.5
"""Machines of which less than this part is used are paid for their minimum, not for the work."""
MARKED = {
    "zone": "needs several Capacity Blocks in one zone",
    "blocks": "needs consecutive Capacity Blocks",
    "offer": "needs a private offer",
    "support": "runs software out of support",
}
"""Marks of a row that a verdict speaks of, the worst one first."""


class Wanted(Record):
    """Limits of quotes, and the probability with which they hold; None by the estimate."""

    limits: Limits
    confidence: float | None = None


def verdict_text(verdict: Verdict, quotes: Sequence[Quote], asked: Wanted) -> str:
    """The verdict in at most three sentences."""
    if verdict.recommended is None:
        return refusal_text(quotes, asked)
    names = short_names(quotes)
    winner = quotes[verdict.recommended]
    if verdict.fastest is not None:
        return " ".join(filter(None, (_by_time(verdict, quotes), _risks([winner], names, asked))))
    if verdict.verdict_is == "clear":
        first = _clear(verdict, quotes, names, asked)
    else:
        first = _tie(verdict, names)
    sure = "" if len(verdict.chances) < 2 else _sure(verdict, names)
    told = [quotes[one.place] for one in verdict.named]
    return " ".join(filter(None, (first, sure, _risks(told or [winner], names, asked))))


def was_text(now: Judged, before: Judged) -> str:
    """The choice before numbers were moved, where it was another instance type; else empty."""
    new, old = now.best, before.best
    if old is None or (new is not None and new.instance == old.instance):
        return ""
    return f"As it is, {_row_text(old)}."


def verdict_cells(verdict: Verdict, quotes: Sequence[Quote], asked: Wanted) -> dict[str, object]:
    """The verdict as machines read it."""
    place = verdict.recommended
    row = None if place is None else quotes[place]
    return {
        "verdict": verdict_text(verdict, quotes, asked),
        "verdict_is": verdict.verdict_is,
        "recommended": row and row.instance,
        "recommended_nodes": row and row.nodes,
        "regret_usd": verdict.regret_usd,
        "pilots": [one.row() for one in verdict.pilots],
        "advice": advice_text(verdict),
    }


def table_marks(quote: Quote) -> tuple[str, ...]:
    """Marks of a row that stand in its table: reasons why it cannot simply be bought."""
    return tuple(mark for mark in quote.marks if mark in MARKED)


def _clear(verdict: Verdict, quotes: Sequence[Quote], names: dict[str, str], asked: Wanted) -> str:
    leading = verdict.leading
    assert verdict.recommended is not None
    winner = quotes[verdict.recommended]
    if leading is None or len(verdict.chances) < 2:
        return f"{_row_text(winner)}{_only(winner, quotes, asked)}."
    other = min((c for c in verdict.chances if c is not leading), key=_cheap)
    less = round(100 * (1 - leading.mean_usd / other.mean_usd))
    against = f"{less} % below" if less > 0 else "hardly below"
    return (
        f"Clear winner: {cluster_text(winner)} at {dollars(leading.mean_usd)} on average, "
        f"{against} {names[other.instance]} ({dollars(other.mean_usd)})."
    )


def _by_time(verdict: Verdict, quotes: Sequence[Quote]) -> str:
    """The fastest quote, how surely it is that, and the cheapest one beside it."""
    assert verdict.recommended is not None
    winner = quotes[verdict.recommended]
    sure = f" with {percent(verdict.fastest or 0.0)} probability" if len(quotes) > 1 else ""
    told = f"Fastest{sure}: {_row_text(replace(winner, mean_cost_usd=None))}."
    place = min(verdict.chances, key=_cheap).place if verdict.chances else verdict.recommended
    least = quotes[place]
    if least is winner or least.elapsed_s is None or least.cost_usd is None:
        return told
    return (
        f"{told} The cheapest, {cluster_text(least)}, takes {span_text(least.elapsed_s)} and costs "
        f"{dollars(least.cost_usd.value)}."
    )


def _only(winner: Quote, quotes: Sequence[Quote], asked: Wanted) -> str:
    """Clause on the only instance type that can be bought; empty if no other was looked at."""
    others = [quote for quote in quotes if quote.instance != winner.instance]
    unable = [quote for quote in others if not quote.feasible]
    if not unable:
        return "; no other type has a price" if others else ""
    who = "no other type" if len(unable) == len(others) else "no other type with a price"
    in_time = asked.limits.deadline_s is not None
    return f"; {who} {'finishes in time' if in_time else 'can run it'}"


def _cheap(chance: Chance) -> tuple[float, str]:
    return chance.mean_usd, chance.instance


def _row_text(quote: Quote) -> str:
    """A row as days and money: 64 x p5.48xlarge takes 42 days and costs $3.1M."""
    time = f" takes {span_text(quote.elapsed_s)}" if quote.elapsed_s else ""
    cost = f" and costs {dollars(quote.cost_usd.value)}" if quote.cost_usd else ""
    if quote.mean_cost_usd is not None:
        cost = f" and costs {dollars(quote.mean_cost_usd)} on average"
    return f"{cluster_text(quote)}{time}{cost}"


def _tie(verdict: Verdict, names: dict[str, str]) -> str:
    named = sorted(verdict.named, key=_cheap)
    if len(named) < 2:
        named = sorted(verdict.chances[:2], key=_cheap)
    low, high = dollars(named[0].mean_usd), dollars(named[-1].mean_usd)
    if len(named) == 2 and low != high:
        less, more = (names[one.instance] for one in named)
        return f"No clear winner: {less} costs {low} on average, {more} {high}."
    told = listed([names[one.instance] for one in named])
    span = dollar_span(named[0].mean_usd, named[-1].mean_usd)
    return f"No clear winner: {told} cost {span} on average."


def _sure(verdict: Verdict, names: dict[str, str]) -> str:
    if verdict.verdict_is == "clear":
        shares = [
            f"{names[one.instance]} {percent(one.cheapest)}"
            for one in verdict.chances
            if one.cheapest >= LEAST
        ]
        return f"Probability of being cheapest: {', '.join(shares[:4])}."
    shares = [
        f"{names[one.instance]} ({percent(one.cheapest)})"
        for one in verdict.chances
        if one.cheapest >= SPOKEN
    ]
    return f"Cheapest most often: {', '.join(shares[:4])}."


def _risks(told: Sequence[Quote], names: dict[str, str], asked: Wanted) -> str:
    """Risks of rows in one sentence, the worst first."""
    late = [one for one in told if (one.on_time_probability or 0.0) < SURE]
    clauses = []
    if late and any(one.on_time_probability is not None for one in late):
        limit = "deadline" if asked.limits.deadline_s is not None else "budget"
        if asked.limits.deadline_s is not None and asked.limits.budget_usd is not None:
            limit = "deadline or budget"
        who = listed([names[one.instance] for one in late])
        chances = listed([percent(1 - (one.on_time_probability or 0.0)) for one in late])
        miss = "miss the" if "deadline" in limit else "exceed the"
        clauses.append(f"{who} may {miss} {limit} ({chances})")
    short = bool(clauses) and words_of(clauses[0]) <= MOST_WORDS
    before = tuple(names[one.instance] for one in late) if short else ()
    troubles: dict[tuple[str, ...], list[str]] = {}
    for mark, words in MARKED.items():
        held = [one for one in told if mark in one.marks]
        if mark == "blocks":
            held = [one for one in held if "zone" not in one.marks]
        if held:
            troubles.setdefault(tuple(names[one.instance] for one in held), []).append(words)
    for subjects, told_of in troubles.items():
        verbs = [_plural(one) for one in told_of] if len(subjects) > 1 else told_of
        who = listed(subjects)
        if subjects == before:
            who = "they" if len(subjects) > 1 else "it"
        before = ()  # further clauses would leave "it" in doubt
        clauses += [f"{who} {listed(verbs[:most])}" for most in range(len(verbs), 0, -1)]
    minimums = [one for one in map(minimum_text, told) if one]
    kept: list[str] = []
    for clause in (*clauses, *minimums):
        # Of troubles that do not fit together the worst is kept alone.
        told_already = any(one.startswith(clause) for one in kept)
        if not told_already and words_of("; ".join([*kept, clause])) <= MOST_WORDS:
            kept.append(clause)
    return f"{'; '.join(kept)}." if kept else ""


def _plural(words: str) -> str:
    verb, _, rest = words.partition(" ")
    return f"{verb.removesuffix('s')} {rest}"


def refusal_text(quotes: Sequence[Quote], asked: Wanted) -> str:
    """Reason why no row will do, and the row that comes nearest."""
    running = [one for one in quotes if one.elapsed_s is not None]
    if not quotes:
        return "No answer: the search was stopped before its first result."
    if not running:
        why = next((reason for one in quotes for reason in one.reasons), "no layout is valid")
        return f"No: {listed([one.instance for one in quotes[:3]])} cannot run it. {_first(why)}."
    fastest = min(running, key=lambda one: one.elapsed_s.value if one.elapsed_s else 0.0)
    assert fastest.elapsed_s is not None
    able = [one for one in running if one.feasible]
    if able:
        who = able[0]
        return (
            f"No price is published for {listed([one.instance for one in able])}. "
            f"{_row_text(fastest)}. Give --price {who.instance}=USD."
        )
    deadline_s, budget = asked.limits.deadline_s, asked.limits.budget_usd
    sure = "" if asked.confidence is None else f" with {100 * asked.confidence:g} % confidence"
    if deadline_s is not None and budget is not None:
        near = min(
            running,
            key=lambda one: (
                one.elapsed_s is None or one.elapsed_s.value > deadline_s,
                one.cost_usd.value if one.cost_usd else math.inf,
            ),
        )
        assert near.elapsed_s is not None
        cost = f" and costs {dollars(near.cost_usd.value)}" if near.cost_usd else ""
        return (
            f"No: nothing keeps both {time_text(deadline_s)} and {dollars(budget)}{sure}. "
            f"The nearest, {cluster_text(near)}, takes {span_text(near.elapsed_s)}{cost}."
        )
    if deadline_s is not None and fastest.elapsed_s.value > deadline_s:
        return (
            f"No: the deadline of {time_text(deadline_s)} cannot be met{sure}. "
            f"The fastest, {cluster_text(fastest)}, takes {span_text(fastest.elapsed_s)}."
        )
    if deadline_s is not None and asked.confidence is not None:
        best = max(running, key=lambda one: one.on_time_probability or 0.0)
        return (
            f"No: the deadline of {time_text(deadline_s)} cannot be met{sure}. The best chance is "
            f"{percent(best.on_time_probability or 0.0)}, on {cluster_text(best)}."
        )
    priced = [one for one in running if one.cost_usd is not None]
    if budget is not None and priced:
        least = min(priced, key=lambda one: one.cost_usd.value if one.cost_usd else 0.0)
        assert least.cost_usd is not None
        time = f"takes {span_text(least.elapsed_s)} and " if least.elapsed_s else ""
        return (
            f"No: the budget of {dollars(budget)} is not enough{sure}. "
            f"The nearest, {cluster_text(least)}, {time}costs {dollars(least.cost_usd.value)}."
        )
    return f"No: {running[0].instance} cannot do it. {_first(running[0].reasons[0])}."


def _first(reason: str) -> str:
    """A reason as a sentence without its full stop, and without details where these are long."""
    told = reason if words_of(reason) <= MOST_WORDS else reason.partition(": ")[0]
    return told[:1].upper() + told[1:].rstrip(".")


def advice_text(verdict: Verdict) -> str:
    """Regret of deciding now, and the measurement that would cut it; empty if neither."""
    risked = verdict.regret_usd
    if risked is None or verdict.recommended is None or len(verdict.chances) < 2:
        return ""
    if verdict.verdict_is == "clear" and not verdict.pilots:
        return ""
    if not verdict.pilots:
        return f"Deciding now risks about {dollars(risked)}; no pilot would pay for itself."
    return f"Deciding now risks about {dollars(risked)}. {pilot_text(verdict.pilots[0])}."


def pilot_text(pilot: Pilot, *, of: str = "") -> str:
    """The sentence on a measurement, what it costs and leaves at risk; `of` names its job."""
    block = " as a Capacity Block" if pilot.option == "capacity-block" else ""
    price = f"about {_about(pilot.hours)}, {dollars(pilot.cost_usd)}{block}"
    return (
        f"Twenty steps{f' of {of}' if of else ''} on {pilot.nodes:,} x {pilot.instance} ({price}) "
        f"would cut that to {dollars(pilot.regret_after_usd)}"
    )


def _about(hours: float) -> str:
    return f"{10 * max(round(6 * hours), 1)} minutes" if hours < 2 else f"{hours:.0f} hours"


def percent(share: float) -> str:
    """A probability as text; nothing uncertain reads as 0 or 100 %."""
    told = f"{100 * share:.0f}"
    if share < 1 and told == "100":
        told = ">99"
    if share > 0 and told == "0":
        told = "<1"
    return f"{told} %"


def dollars(usd: float) -> str:
    """A sum to two digits: $3.1M, $210K, $97."""
    number, unit = _dollars(usd)
    return f"${number}{unit}"


def dollar_span(low: float, high: float) -> str:
    """Range of several sums: $2.9-3.1M, or about $3M if they are as good as one."""
    (first, small), (last, large) = _dollars(low), _dollars(high)
    if (first, small) == (last, large):
        return f"about ${first}{small}"
    return f"${first}{small if small != large else ''}-{last}{large}"


def _dollars(usd: float) -> tuple[str, str]:
    # To two digits first: what rounds up to the next unit is written in it.
    rounded = float(f"{usd:.2g}")
    scale = scale_for(rounded, Dimension.USD)
    return significant(rounded / scale.factor, 2), scale.unit.removesuffix("USD").strip()


def listed(words: Sequence[str]) -> str:
    """Words as a list in a sentence: A, B and C."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def words_of(sentence: str) -> int:
    """Number of words of a sentence; signs between numbers are none."""
    return sum(any(sign.isalnum() for sign in word) for word in sentence.split())


def short_names(quotes: Iterable[Quote]) -> dict[str, str]:
    """Names of instance types in a sentence: P5 for the only p5.48xlarge."""
    full = dict.fromkeys(quote.instance for quote in quotes)
    family = {name: name.partition(".")[0] for name in full}
    counts = [*family.values()]
    return {
        name: short.capitalize() if "." in name and counts.count(short) == 1 else name
        for name, short in family.items()
    }


def minimum_text(quote: Quote) -> str:
    """Clause on a purchase that pays for far more time than it uses; else empty."""
    bill = quote.bill
    if bill is None or bill.tariff.option != "capacity-block":
        return ""
    if bill.wall_s >= DWARFED * bill.charged.billed_hours * HOUR_S:
        return ""
    return (
        f"{quote.instance} is sold by the day here: {money_text(bill.charged.cost_usd)} for "
        f"{bill.charged.billed_hours:g} h, {time_text(bill.wall_s)} used"
    )
