"""Verdicts: who leads, how surely, what could go wrong, in few short sentences."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

from tests.unit.show.test_quote_text import bill
from trnbench.facts.records import replace
from trnbench.facts.units import DAY_S
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.money.draws import DrawnPurchase
from trnbench.money.objective import Candidate, Limits
from trnbench.show.row import Interval
from trnbench.verbs.quotes.answer import Quote
from trnbench.verbs.quotes.lead import Pilot, Verdict
from trnbench.verbs.quotes.rivals import Rival, judged
from trnbench.verbs.quotes.verdict import (
    MOST_WORDS,
    Wanted,
    advice_text,
    dollar_span,
    dollars,
    minimum_text,
    percent,
    short_names,
    verdict_text,
    was_text,
    words_of,
)

DEADLINE = Limits(deadline_s=60 * DAY_S)


def quote(instance="p5.48xlarge", usd: float | None = 3e6, days=40.0, **about: Any):
    made = Quote(
        instance=instance,
        nodes=64,
        steps=(),
        main=0,
        tokens=None,
        samples=1.0,
        elapsed_s=Interval(value=days * DAY_S, low=days * DAY_S, high=days * DAY_S),
        cost_usd=None if usd is None else Interval(value=usd, low=usd, high=usd),
        bill=None if usd is None else bill("on-demand"),
    )
    return replace(made, **about)


def drawn(usd, days=(40.0,)):
    usd = np.array(usd) * 1e6
    return DrawnPurchase(elapsed_s=np.resize(days, usd.shape) * DAY_S, cost_usd=usd)


def rival(row: Quote, one: DrawnPurchase):
    way = Candidate(
        instance=row.instance,
        nodes=row.nodes,
        option="on-demand",
        elapsed_s=row.elapsed_s.value if row.elapsed_s else 0.0,
        cost_usd=row.cost_usd.value if row.cost_usd else None,
    )
    return Rival(way=way, drawn=one)


def judgement(pairs, limits=DEADLINE, fastest: int | None = None):
    rivals: dict[str, list[Rival]] = {}
    for row, one in pairs:
        if row.feasible:
            rivals.setdefault(row.instance, []).append(rival(row, one))
    rows, draws = zip(*pairs, strict=True)
    by_time = fastest is not None
    return judged(rows, draws, rivals, limits, chosen=fastest, by_time=by_time)


P5, TRN2, TRN1 = quote(), quote("trn2.48xlarge"), quote("trn1.32xlarge")


def test_the_star_goes_to_the_lowest_mean_bill_and_not_to_the_likeliest():
    # Trn2 is cheapest in three draws of four, and dear in the last.
    found = judgement([(P5, drawn([3, 3, 3, 3])), (TRN2, drawn([2.9, 2.9, 2.9, 5]))])
    assert found.verdict.recommended == 0
    assert [one.cheapest_probability for one in found.quotes] == [0.25, 0.75]
    assert [one.mean_cost_usd for one in found.quotes] == [3e6, pytest.approx(3.425e6)]
    # 0.1M too much in three draws; 2M too much in one.
    assert [one.regret_usd for one in found.quotes] == pytest.approx([0.075e6, 0.5e6])
    assert found.verdict.regret_usd == pytest.approx(0.075e6)
    assert found.verdict.verdict_is == "tie"


def test_sizes_of_one_type_are_no_rivals():
    larger = replace(P5, nodes=128)
    found = judgement(
        [(P5, drawn([3, 3.2])), (larger, drawn([3.1, 3.0])), (TRN2, drawn([3.3, 3.1]))]
    )
    # P5 costs 3.0 and 3.0 in its better size: Trn2 is never the cheapest. P5's chance stands at its
    # size with the lower mean.
    assert [one.cheapest_probability for one in found.quotes] == [None, 1, 0]
    assert found.verdict.verdict_is == "clear"
    assert found.verdict.recommended == 1


def test_what_breaks_the_limits_does_not_compete():
    late = quote("trn2.48xlarge", reasons=("misses the deadline",))
    found = judgement([(P5, drawn([3, 3])), (late, drawn([1, 1], [70.0]))])
    assert [one.cheapest_probability for one in found.quotes] == [1, 0]
    assert [one.on_time_probability for one in found.quotes] == [1, 0]
    assert found.quotes[1].regret_usd is None
    none = judgement([(late, drawn([1, 2], [50.0, 70.0]))])
    assert none.verdict.verdict_is == "none"
    assert none.verdict.recommended is None
    assert none.quotes[0].on_time_probability == 0.5


def test_a_budget_is_kept_with_a_probability_too():
    limits = Limits(deadline_s=60 * DAY_S, budget_usd=3e6)
    found = judgement([(P5, drawn([2, 4, 2, 2], [50.0, 50.0, 70.0, 50.0]))], limits)
    assert found.quotes[0].on_time_probability == 0.5


def test_a_tie_is_said_by_name():
    found = judgement(
        [
            (P5, drawn([3, 3, 3, 3.4, 3])),
            (TRN2, drawn([2.9, 3.2, 3.3, 3.3, 2.9], [50.0, 70.0, 70.0, 50.0, 50.0])),
            (quote("trn1.32xlarge", nodes=256), drawn([9, 9, 9, 9, 9])),
        ]
    )
    assert verdict_text(found.verdict, found.quotes, Wanted(limits=DEADLINE)) == (
        "No clear winner: P5 and Trn2 cost about $3.1M on average. "
        "Cheapest most often: Trn2 (60 %), P5 (40 %). Trn2 may miss the deadline (40 %)."
    )


def test_a_clear_lead_is_said_as_clear():
    found = judgement([(P5, drawn([3, 3, 3])), (TRN2, drawn([4, 4, 4]))])
    assert verdict_text(found.verdict, found.quotes, Wanted(limits=DEADLINE)) == (
        "Clear winner: 64 x p5.48xlarge at $3M on average, 25 % below Trn2 ($4M). "
        "Probability of being cheapest: P5 100 %."
    )
    alone = judgement([(P5, drawn([3, 3, 3]))])
    assert verdict_text(alone.verdict, alone.quotes, Wanted(limits=DEADLINE)) == (
        "64 x p5.48xlarge takes 40 days and costs $3M on average."
    )


def test_what_cannot_simply_be_bought_is_said():
    zone = replace(TRN2, bill=bill("capacity-block", blocks_days=(49,), block_sizes=(64, 64)))
    ended = replace(P5, unsupported="NxD Training: support ended")
    found = judgement([(ended, drawn([3, 3.1])), (zone, drawn([3.1, 3]))])
    assert zone.marks == ("zone",)
    assert ended.marks == ("support",)
    assert quote(usd=None).marks == ("offer",)
    several = bill("capacity-block", blocks_days=(49, 6), block_sizes=(64,))
    assert quote(bill=several).marks == ("blocks",)
    text = verdict_text(found.verdict, found.quotes, Wanted(limits=DEADLINE))
    assert text.endswith(
        "Trn2 needs several Capacity Blocks in one zone; P5 runs software out of support."
    )


def test_the_troubles_of_one_type_stand_together():
    block = bill("capacity-block", blocks_days=(49, 6), block_sizes=(64,))
    found = judgement([(quote(bill=block, unsupported="ended"), drawn([3.0]))])
    text = verdict_text(found.verdict, found.quotes, Wanted(limits=DEADLINE))
    assert text.endswith("P5 needs consecutive Capacity Blocks and runs software out of support.")


def test_of_troubles_that_do_not_fit_the_worst_is_kept():
    zone = bill("capacity-block", blocks_days=(49,), block_sizes=(64, 64))
    rows = [
        quote("trn1.32xlarge", bill=zone, unsupported="ended"),
        quote("trn2.48xlarge", unsupported="ended"),
    ]
    found = judgement([(rows[0], drawn([3, 3.2], [50, 70])), (rows[1], drawn([3.2, 3], [50, 70]))])
    text = verdict_text(found.verdict, found.quotes, Wanted(limits=DEADLINE))
    assert text.endswith(
        "may miss the deadline (50 % and 50 %); Trn1 needs several Capacity Blocks in one zone."
    )


def test_a_no_says_what_comes_nearest():
    late = quote(days=70.0, reasons=("misses the deadline",))
    assert verdict_text(Verdict(), (late,), Wanted(limits=DEADLINE)) == (
        "No: the deadline of 60 days cannot be met. The fastest, 64 x p5.48xlarge, takes 70 days."
    )
    dear = quote(reasons=("too dear",))
    assert verdict_text(Verdict(), (dear,), Wanted(limits=Limits(budget_usd=1e6))) == (
        "No: the budget of $1M is not enough. "
        "The nearest, 64 x p5.48xlarge, takes 40 days and costs $3M."
    )
    unsure = quote(reasons=("misses the deadline",), on_time_probability=0.58)
    assert verdict_text(Verdict(), (unsure,), Wanted(limits=DEADLINE, confidence=0.99)) == (
        "No: the deadline of 60 days cannot be met with 99 % confidence. "
        "The best chance is 58 %, on 64 x p5.48xlarge."
    )
    unsold = quote("trn2-ultraserver", usd=None)
    assert "Give --price trn2-ultraserver=USD." in verdict_text(
        Verdict(), (unsold,), Wanted(limits=DEADLINE)
    )


NAMES = ("trn1.32xlarge", "trn2.48xlarge", "trn2-ultraserver", "u-p6e-gb200x72", "p5.48xlarge")
HOUSE = re.compile(
    r"\b(draws?|quotes?|rows?|figures?|parts?|played|told|stands?|lies?|anew|beside|resident|"
    r"within the error|looked at|what is asked|a rank|a step)\b"
)


def seeded(seed: int) -> tuple[Verdict, tuple[Quote, ...], Wanted]:
    """A verdict on made-up purchases with all that can be wrong with them."""
    random = np.random.default_rng(seed)
    limits = Limits(
        deadline_s=60 * DAY_S if random.random() < 0.7 else None,
        budget_usd=3e6 if random.random() < 0.4 else None,
    )
    pairs = []
    for name in NAMES[: random.integers(1, 6)]:
        blocks = bill(
            random.choice(["capacity-block", "on-demand"]),
            blocks_days=(49, 6)[: random.integers(1, 3)],
            block_sizes=(64,) * int(random.integers(1, 5)),
        )
        row = quote(
            name,
            usd=None if random.random() < 0.1 else 3e6,
            unsupported="ended" if random.random() < 0.3 else None,
            reasons=("needs 1.3x of the memory",) if random.random() < 0.25 else (),
        )
        row = row if row.cost_usd is None else replace(row, bill=blocks)
        row = replace(row, elapsed_s=None, cost_usd=None, bill=None) if row.reasons else row
        wide = 3 * np.exp(random.choice([0.0, 0.1, 0.5]) * random.normal(size=200))
        days = random.choice([40.0, 59.0]) + 5 * random.normal(size=200)
        pairs.append((row, drawn(wide if row.cost_usd else np.full(200, np.nan), days)))
    able = [place for place, (row, _) in enumerate(pairs) if row.feasible]
    fastest = able[0] if able and random.random() < 0.25 else None
    found = judgement(pairs, limits, fastest)
    sure = None if random.random() < 0.6 else 0.9
    return found.verdict, found.quotes, Wanted(limits=limits, confidence=sure)


@pytest.mark.parametrize("seed", range(80))
def test_a_verdict_has_at_most_three_sentences_of_twenty_plain_words(seed):
    text = verdict_text(*seeded(seed))
    sentences = re.split(r"\. (?=\S)", text)
    assert 1 <= len(sentences) <= 3
    for one in sentences:
        assert words_of(one) <= MOST_WORDS, one
        assert one.startswith(NAMES) or not one[0].islower(), one
    assert text.endswith(".")
    assert not HOUSE.search(text), text


def test_the_advice_names_the_pilot_its_bill_and_what_it_cuts():
    found = judgement([(P5, drawn([3, 3.1])), (TRN2, drawn([3.2, 2.6]))])
    pilot = Pilot(
        instance="trn2.48xlarge",
        nodes=4,
        steps=20,
        hours=0.8,
        cost_usd=180.0,
        regret_after_usd=6e4,
        layout=PartialLayout(tp=8),
        option="on-demand",
    )
    told = replace(found.verdict, pilots=(pilot,))
    assert advice_text(told) == (
        "Deciding now risks about $100K. Twenty steps on 4 x trn2.48xlarge (about 50 minutes, "
        "$180) would cut that to $60K."
    )
    by_block = replace(pilot, option="capacity-block", cost_usd=860.0)
    told = advice_text(replace(found.verdict, pilots=(by_block,)))
    assert "(about 50 minutes, $860 as a Capacity Block)" in told
    assert all(words_of(one) <= MOST_WORDS for one in told.split(". "))
    assert advice_text(found.verdict).endswith("no pilot would pay for itself.")
    assert advice_text(Verdict()) == ""


def test_sums_have_two_digits():
    assert [dollars(usd) for usd in (97.0, 180.4, 213e3, 3.14e6, 999_999.0)] == [
        *("$97", "$180", "$210K", "$3.1M", "$1M")
    ]
    assert dollar_span(2.9e6, 3.1e6) == "$2.9-3.1M"
    assert dollar_span(0.9e6, 1.1e6) == "$900K-1.1M"
    assert dollar_span(3.01e6, 3.04e6) == "about $3M"


def test_names_are_short_where_one_can_tell_them_apart():
    rows = [quote(name) for name in ("p5.48xlarge", "trn2.48xlarge", "trn2.3xlarge", "dgx-h100")]
    assert short_names(rows) == {
        "p5.48xlarge": "P5",
        "trn2.48xlarge": "trn2.48xlarge",
        "trn2.3xlarge": "trn2.3xlarge",
        "dgx-h100": "dgx-h100",
    }


def test_what_is_not_certain_is_not_called_so():
    assert [percent(share) for share in (0.998, 1.0, 0.567, 0.001, 0.0)] == [
        *(">99 %", "100 %", "57 %", "<1 %", "0 %")
    ]


@pytest.mark.parametrize(("used_h", "told"), [(12.0, False), (11.9, True), (6.0, True)])
def test_blocks_of_which_less_than_half_is_used_are_said_to_be_sold_by_the_day(used_h, told):
    # One block of a day: 24 h are paid.
    paid = bill("capacity-block", billed_hours=24.0, wall_s=3600 * used_h)
    assert ("sold by the day here" in minimum_text(quote(bill=paid))) is told
    by_use = bill("on-demand", billed_hours=24.0, wall_s=3600 * used_h)
    assert minimum_text(quote(bill=by_use)) == ""


def test_a_choice_that_moved_numbers_turn_is_said_beside_what_it_was():
    before = judgement([(P5, drawn([3, 3])), (TRN2, drawn([4, 4]))])
    turned = judgement([(P5, drawn([5, 5])), (TRN2, drawn([4, 4]))])
    assert was_text(before, before) == ""
    assert was_text(turned, before) == (
        "As it is, 64 x p5.48xlarge takes 40 days and costs $3M on average."
    )


def test_where_time_decides_the_fastest_is_told_with_its_chance_and_no_money_is_at_risk():
    # P5 ends first in three draws of four; Trn2 is cheaper in all.
    found = judgement(
        [(P5, drawn([3, 3, 3, 3], [40, 40, 40, 60])), (TRN2, drawn([2, 2, 2, 2], [50] * 4))],
        fastest=0,
    )
    assert found.verdict.fastest == 0.75
    assert (found.verdict.verdict_is, found.verdict.regret_usd) == ("tie", None)
    assert advice_text(found.verdict) == ""
    text = verdict_text(found.verdict, found.quotes, Wanted(limits=Limits()))
    assert text == (
        "Fastest with 75 % probability: 64 x p5.48xlarge takes 40 days and costs $3M. "
        "The cheapest, 64 x trn2.48xlarge, takes 40 days and costs $3M."
    )


def test_long_reasons_are_told_without_details():
    parts = ", ".join(f"part{number} {number} GiB" for number in range(12))
    refused = quote(days=1.0, reasons=(f"needs 14x of memory: {parts}",))
    text = verdict_text(Verdict(), (replace(refused, elapsed_s=None),), Wanted(limits=DEADLINE))
    assert text == "No: p5.48xlarge cannot run it. Needs 14x of memory."


def test_every_order_of_rows_gives_the_same_verdict():
    pairs = [(P5, drawn([3, 3.2])), (TRN2, drawn([3.1, 3.0])), (TRN1, drawn([3.3, 2.9]))]
    texts = set()
    for order in itertools.permutations(pairs):
        found = judgement(list(order))
        texts.add(verdict_text(found.verdict, found.quotes, Wanted(limits=DEADLINE)))
    assert len(texts) == 1
