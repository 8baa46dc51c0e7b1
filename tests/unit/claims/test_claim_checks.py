"""Checks that turn on the model or on prices, with speeds given by hand."""

from __future__ import annotations

import datetime
import math

import pytest

from trnbench.evidence.claims.claim import ClaimedRun, CostCheck, PriceCheck, SpeedCheck
from trnbench.evidence.claims.gains import (
    Machines,
    Pace,
    PriceBook,
    advantage,
    cost_finding,
    gain_of,
    gain_text,
    price_finding,
    speed_finding,
)
from trnbench.facts.catalog.search import open_catalog

CATALOG = open_catalog(environment={})
RUN = ClaimedRun(
    name="r",
    model="llama2-7b",
    tokens="300B",
    sequence=4096,
    global_batch=1024,
    nodes=4,
    precision="bf16-master",
)
BEFORE = datetime.date(2025, 4, 28)


def pace(tokens_per_s, error=0.0, reasons=()):
    return Pace(
        tokens_per_s=tokens_per_s,
        low_tokens_per_s=tokens_per_s * (1 - error),
        high_tokens_per_s=tokens_per_s * (1 + error),
        reasons=reasons,
    )


def not_asked(run, instance, precision):
    raise AssertionError(f"{run.name} on {instance} has no pace in this test")


def machines(**paces):
    """Return machines with the paces of RUN, by the first word of an instance's name."""
    names = {"p4d": "p4d.24xlarge", "p4de": "p4de.24xlarge", "trn1": "trn1.32xlarge"}
    known = {(RUN, names[name], RUN.precision): found for name, found in paces.items()}
    return Machines(catalog=CATALOG, timed=not_asked, paces=known)


def book(region=None, price_date=None, **paces):
    return PriceBook(machines=machines(**paces), region=region, price_date=price_date)


def speed(times, **paces):
    check = SpeedCheck(runs=("r",), of=("trn1.32xlarge",), to=("p4d.24xlarge",), times=times)
    return speed_finding(check, (RUN,), machines(**paces))


def cost(of="p4d.24xlarge", to="p4de.24xlarge", options=("on-demand",), **given):
    claim = {name: given.pop(name) for name in ("saving", "better", "also_in") if name in given}
    check = CostCheck(runs=("r",), of=(of,), to=(to,), options=options, **claim)
    return cost_finding(check, (RUN,), BEFORE, book(**given))


def test_a_speed_up_holds_where_its_whole_interval_does():
    # 4.5e5 over 1e5 is 4.5; with 5 % on both sides the interval is about 4.2 to 4.8.
    known = {"trn1": pace(4.5e5, 0.05), "p4d": pace(1e5, 0.05)}
    assert speed("4x", **known).verdict == "holds"
    assert speed("5x", **known).verdict == "does not"
    unsure = speed("4.4x", **known)
    assert unsure.verdict == "undecided"
    assert unsure.cases[0].value == pytest.approx(4.5)
    assert 4.1 < unsure.cases[0].low < 4.3
    assert 4.7 < unsure.cases[0].high < 4.9


def test_a_run_that_does_not_fit_tells_why():
    found = speed("1x", trn1=pace(1.0, reasons=("needs 2x of a rank's memory",)), p4d=pace(1.0))
    assert (found.verdict, found.reason) == ("undecided", "needs 2x of a rank's memory")


def test_precisions_on_one_machine_are_off_by_the_same_factor():
    known = {(RUN, "trn1.32xlarge", name): pace(speed, 0.5) for name, speed in SPEEDS.items()}
    check = SpeedCheck(
        runs=("r",),
        of=("trn1.32xlarge",),
        to=("trn1.32xlarge",),
        times="1x",
        precision="bf16-sr",
    )
    found = speed_finding(check, (RUN,), Machines(catalog=CATALOG, timed=not_asked, paces=known))
    assert found.verdict == "holds"
    assert found.cases[0].low == found.cases[0].high == pytest.approx(1.1)


SPEEDS = {"bf16-sr": 110.0, "bf16-master": 100.0}


def test_errors_of_both_sides_add_in_squares():
    # ln(0.5) and ln(2) on both sides: sqrt(2) x 0.693 = 0.98, a factor of 2.665
    found = advantage((50, 100, 200), (50, 100, 200))
    assert (found.value, found.low, found.high) == pytest.approx((1, 1 / 2.665, 2.665), rel=1e-3)
    assert gain_text("times", found) == "1x (0.375 to 2.67)"


def test_a_saving_moves_with_prices():
    # At the same speed the saving is that of the prices: 21.957642 of 27.44705 is 20 % less,
    # and it was 20 % before the cut: 32.7726 of 40.96575.
    found = cost(saving="10%", p4d=pace(1e5), p4de=pace(1e5))
    assert [str(move.price_date) for move in found.moves] == ["2025-04-28", "2025-06-23"]
    assert [move.best.value for move in found.moves] == pytest.approx([0.2, 0.2], abs=1e-3)
    # The dearer machine at a third of the time: before and after the cut 1 - 1.25 / 3 = 58 %
    dearer = cost(
        of="p4de.24xlarge", to="p4d.24xlarge", saving="50%", p4d=pace(1e5), p4de=pace(3e5)
    )
    assert dearer.moves[0].best.value == pytest.approx(0.583, abs=2e-3)
    assert dearer.verdict == "holds"


def test_a_verdict_that_depends_on_the_day_names_the_day():
    # On-demand, 21.50 of 32.7726 is 34 % less before June 2025, and 2 % less after it.
    found = cost(of="trn1.32xlarge", to="p4d.24xlarge", saving="30%", trn1=pace(1e5), p4d=pace(1e5))
    assert [move.verdict for move in found.moves] == ["holds", "does not"]
    assert found.verdict == "holds only if"
    assert found.reason == "only r against p4d.24xlarge, on-demand, at the prices of 2025-04-28"


def test_better_for_the_money():
    # 32.7726 / 21.50 = 1.524 as much for the money, then 21.957642 / 21.50 = 1.021
    found = cost(of="trn1.32xlarge", to="p4d.24xlarge", better="40%", trn1=pace(1e5), p4d=pace(1e5))
    assert [move.best.value for move in found.moves] == pytest.approx([0.524, 0.021], abs=0.01)
    assert found.verdict == "holds only if"


def test_one_day_and_one_region_are_looked_at_alone():
    day = datetime.date(2026, 7, 22)
    found = cost(saving="10%", price_date=day, region="us-east-1", p4d=pace(1e5), p4de=pace(1e5))
    (move,) = found.moves
    assert (move.price_date, move.region) == (day, "us-east-1")


def test_prices_of_another_region_are_tried_where_there_are_any():
    # P5en in Capacity Blocks: 63.16 USD/h where buyers look, 63.158 in a region not stated.
    named = {(RUN, name, RUN.precision): pace(1e5) for name in ("trn2.48xlarge", "p5en.48xlarge")}
    check = CostCheck(
        runs=("r",),
        of=("trn2.48xlarge",),
        to=("p5en.48xlarge",),
        options=("capacity-block",),
        better="30%",
        also_in=("us (region not stated)",),
    )
    for price_date, regions in (
        (datetime.date(2026, 7, 22), [None]),
        (datetime.date(2026, 10, 8), [None, "us (region not stated)"]),
    ):
        book = PriceBook(
            machines=Machines(catalog=CATALOG, timed=not_asked, paces=named),
            region=None,
            price_date=price_date,
        )
        moves = cost_finding(check, (RUN,), BEFORE, book).moves
        assert [move.region for move in moves] == regions
    # 63.16 / 35.7608 = 1.766, and of 63.158 the same
    gains = [move.best.value for move in moves if move.best is not None]
    assert gains == pytest.approx([0.766, 0.766], abs=0.001)


def test_a_cost_without_an_end_leaves_no_saving():
    assert gain_of("saving", 0.0) == -math.inf


def test_without_a_price_nothing_can_be_told():
    day = datetime.date(2020, 1, 1)
    found = cost(saving="10%", price_date=day, p4d=pace(1e5), p4de=pace(1e5))
    assert found.verdict == "undecided"
    assert found.reason.startswith("no price of p4d.24xlarge as on-demand: the earliest price")
    assert found.moves[0].best is None


def test_prices_of_two_days():
    check = PriceCheck(
        instances=("p4d.24xlarge", "p5.48xlarge"),
        option="on-demand",
        on=datetime.date(2025, 6, 23),
        than_on=BEFORE,
        saving="40%",
    )
    found = price_finding(check, 0.025, book())
    # 55.04 of 98.32 is 44.0 % less, 21.957642 of 32.7726 is 33.0 %.
    assert [case.value for case in found.cases] == pytest.approx([0.330, 0.440], abs=5e-4)
    assert (found.verdict, found.reason) == ("holds only if", "only p5.48xlarge")


def test_a_discount_without_a_price():
    check = PriceCheck(
        instances=("p5.48xlarge",),
        option="savings-plan",
        than_option="on-demand",
        on=datetime.date(2026, 11, 21),
        saving="66%",
    )
    found = price_finding(check, 0.025, book())
    assert (found.verdict, found.reason) == (
        "undecided",
        "no price of p5.48xlarge as savings-plan",
    )
