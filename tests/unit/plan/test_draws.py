"""Common random draws: what is shared, what it makes of bills, and shares by independent draws."""

from __future__ import annotations

import datetime
import math
from functools import cache
from typing import Any

import numpy as np
import pytest

from trnbench.facts.calibration.coverage import Spread
from trnbench.facts.calibration.training_stack import load_training_stack
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_reliability
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import Layout
from trnbench.money.billing import charges
from trnbench.money.draws import (
    Purchase,
    cheapest_probabilities,
    level_of,
    outcome,
    rates_usd_per_hour,
    ratio_ends,
)
from trnbench.money.failures import operations_of
from trnbench.money.goodput import goodput
from trnbench.money.market import Market
from trnbench.money.price_terms import PriceTerms
from trnbench.money.purchase import load_offers
from trnbench.predict.common_draws import (
    CommonDraws,
    drawn_efficiency,
    number_name,
    residual_of,
)
from trnbench.predict.prices import prices_of
from trnbench.predict.ranges import END, TAIL, TIED, correlation_matrix, ranges_of, replaced
from trnbench.predict.setup import train_setup
from trnbench.predict.step import drawn_times_s, predict
from trnbench.program.step import training_step

CATALOG = open_catalog(environment={})
TODAY = datetime.date(2026, 11, 21)
TOKENS = 2e12
BATCH, SEQUENCE = 1024, 8192
LAYOUTS: dict[str, tuple[int, Any]] = {
    "trn1.32xlarge": (256, {"tp": 8, "pp": 8, "recompute": "full"}),
    "trn2.48xlarge": (64, {"tp": 16, "pp": 4}),
    "p5.48xlarge": (64, {"tp": 4, "pp": 4}),
    "p5e.48xlarge": (64, {"tp": 4, "pp": 4}),
}


@cache
def row(name):
    """Return (set-up, program, market, capacity-block tariff) of a run in a fixed layout."""
    nodes, degrees = LAYOUTS[name]
    setup = train_setup(CATALOG, "llama3.1-70b", name, nodes)
    dp = setup.ranks // degrees["tp"] // degrees["pp"]
    layout = Layout(
        **degrees, dp=dp, global_batch=BATCH, sequence=SEQUENCE, zero=1, precision="bf16-master"
    )
    market = Market(
        instance=setup.platform.instance,
        nodes=np.array([nodes]),
        speeds=(),
        checkpoint_bytes=1e12,
        offers=load_offers(
            CATALOG, setup.platform.instance, PriceTerms(on=TODAY, options=("capacity-block",))
        ),
        reliability=load_reliability(CATALOG, setup.platform.chip.name),
    )
    return setup, training_step(setup.model, layout), market, market.offers.tariffs[0]


def measured_stack(stack):
    while stack.inherits_from and stack.fit is None:
        stack = load_training_stack(CATALOG, stack.inherits_from)
    return stack


def work_of(name, draws):
    setup, program, *_ = row(name)
    times = prices_of(setup, program, drawn_efficiency(setup.efficiency, draws)).time().time_s
    residual = residual_of(setup.stack, measured_stack(setup.stack), setup.spread)
    return times[1:-1] * residual.factors(draws, name) * TOKENS / (BATCH * SEQUENCE)


def purchase(name, draws):
    _, _, market, tariff = row(name)
    nodes = int(market.nodes[0])
    work = work_of(name, draws)
    return Purchase(name=name, market=market, nodes=nodes, tariff=tariff, work_s=work)


def shares(draws):
    costs = [outcome(purchase(name, draws), draws).cost_usd for name in LAYOUTS]
    return cheapest_probabilities(costs, [True] * len(costs))


def test_deviations_are_normal_and_go_by_their_name():
    draws = CommonDraws(count=1001)
    one = draws.deviations("a")
    assert np.array_equal(one, CommonDraws(count=1001).deviations("a"))
    assert sorted(one) == sorted(draws.deviations("b"))
    assert abs(float(np.corrcoef(one, draws.deviations("b"))[0, 1])) < 0.1
    assert abs(float(np.corrcoef(one, CommonDraws(count=1001, seed=1).deviations("a"))[0, 1])) < 0.1
    assert float(np.median(one)) == 0.0
    assert float(np.quantile(one, 0.9)) == pytest.approx(END, abs=0.01)


def test_what_one_stack_took_over_from_another_is_one_number():
    names = {
        name: {number_name(key, known) for key, known in ranges_of(row(name)[0].efficiency).items()}
        for name in LAYOUTS
    }
    # What Trainium2 took over from Trainium1 is one number; both P5s are one stack on one chip.
    assert any(name.startswith("chip.") for name in names["trn1.32xlarge"] & names["trn2.48xlarge"])
    assert names["p5.48xlarge"] == names["p5e.48xlarge"]
    # What rows have moved on two stacks is not one number.
    moved = names["trn1.32xlarge"] & names["p5.48xlarge"]
    assert not any(name.startswith(("factor ", "kernels.attention_forward")) for name in moved)


def test_a_residual_is_split_by_what_was_measured():
    stack = row("trn1.32xlarge")[0].stack
    wide = Spread(low=stack.spread.low * 0.8, high=stack.spread.high * 1.3)
    parts = residual_of(stack, stack, wide)
    assert parts.own == stack.spread
    for end in ("low", "high"):
        together = math.hypot(
            math.log(getattr(parts.own, end)), math.log(getattr(parts.common, end))
        )
        assert together == pytest.approx(abs(math.log(getattr(wide, end))))
    alone = residual_of(stack, stack, stack.spread)
    assert alone.common == Spread(low=1.0, high=1.0)


def test_a_second_hand_rate_is_drawn_between_itself_and_what_it_replaced():
    _, _, _, tariff = row("p5.48xlarge")
    rates = rates_usd_per_hour(tariff, CommonDraws())
    assert (rates.min(), rates.max()) == (tariff.low_usd_per_hour, tariff.usd_per_hour)
    assert np.mean(rates == tariff.usd_per_hour) == pytest.approx(0.5, abs=0.001)
    _, _, _, sure = row("trn2.48xlarge")
    assert set(rates_usd_per_hour(sure, CommonDraws())) == {35.7608}


@pytest.mark.parametrize("name", ["trn2.48xlarge", "p5.48xlarge"])
def test_draws_of_a_step_reach_as_far_as_its_interval(name):
    setup, program, *_ = row(name)
    layout = replace(program.layout, recompute="full")
    found = predict(setup, layout)
    told = found.step
    assert told is not None, found.reasons
    drawn_s = drawn_times_s(setup, layout, CommonDraws(), row=name)
    low_s, high_s = np.quantile(drawn_s, (TAIL, 1 - TAIL))
    assert low_s == pytest.approx(told.low_step_time_s, rel=0.04)
    assert high_s == pytest.approx(told.high_step_time_s, rel=0.04)


def test_the_share_of_draws_by_hand():
    one, other = np.array([1.0, 5.0, 2.0, 2.0]), np.array([2.0, 2.0, 2.0, 9.0])
    assert cheapest_probabilities([one, other], [True, True]) == (0.75, 0.25)
    assert cheapest_probabilities([one, None, other], [False, True, True]) == (0.0, 0.0, 1.0)
    # Where none keeps what was asked, all with a price take part.
    assert cheapest_probabilities([one, None, other], [False, False, False]) == (0.75, 0.0, 0.25)
    assert cheapest_probabilities([None, None], [True, True]) == (0.0, 0.0)
    never = np.full(4, np.nan)
    assert cheapest_probabilities([never, other], [True, True]) == (0.0, 1.0)


def test_ends_of_a_ratio_and_levels():
    figures = np.arange(1.0, 101.0)
    assert ratio_ends(2 * figures, figures) == (2.0, 2.0)
    assert level_of(figures, 0.8) == 81.0
    assert level_of(np.append(figures, np.inf), 0.99) == 100.0


def test_what_is_common_leaves_no_doubt_between_likes():
    # Both have the same chip, stack and failures: only their own luck and residuals differ.
    draws = CommonDraws()
    one, other = (outcome(purchase(name, draws), draws) for name in ("p5.48xlarge", "p5e.48xlarge"))
    low, high = ratio_ends(one.elapsed_s, other.elapsed_s)
    alone = np.quantile(one.elapsed_s, 0.9) / np.quantile(one.elapsed_s, 0.1)
    assert high / low < alone


@cache
def independent_shares(count):
    """Return the shares by a sampler of its own: numpy's generator, draw after draw in chunks."""
    random = np.random.default_rng(7)
    wins = np.zeros(len(LAYOUTS))
    for _ in range(count // 10_000):
        common: dict[str, Any] = {}

        def normal(name, common=common):
            return common.setdefault(name, random.standard_normal(10_000))

        def between(value, low, high, z, linear=False):
            if linear:
                return np.maximum(value + z / END * np.where(z < 0, value - low, high - value), 0)
            up, down = math.log(high / value), math.log(value / low)
            return value * np.exp(z / END * np.where(z < 0, down, up))

        costs = []
        for name in LAYOUTS:
            setup, program, market, tariff = row(name)
            ranges = ranges_of(setup.efficiency)
            free = [key for key in ranges if key not in TIED]
            root = np.linalg.cholesky(correlation_matrix(free, setup.stack.correlated))
            z = root @ np.array([normal(f"{key}={ranges[key].value}") for key in free])
            at = dict(zip(free, z, strict=True))
            rows = {
                key: np.minimum(
                    between(one.value, one.low, one.high, at[TIED.get(key, key)], one.linear),
                    one.most,
                )
                for key, one in ranges.items()
            }
            times = prices_of(setup, program, replaced(setup.efficiency, rows)).time().time_s
            own, whole = measured_stack(setup.stack).spread, setup.spread
            for part, z in (
                ("own", random.standard_normal(10_000)),
                ("common", normal(f"residual {setup.stack.name}")),
            ):
                ends = []
                for end in ("low", "high"):
                    total, alone = (math.log(getattr(one, end)) for one in (whole, own))
                    alone = min(abs(alone), abs(total))
                    ends.append(alone if part == "own" else math.sqrt(total**2 - alone**2))
                times = times * np.exp(z / END * np.where(z < 0, ends[0], ends[1]))
            known = operations_of(market.reliability, market.instance).estimates
            drawn = {
                what: between(e.value, e.low, e.high, normal(what), e.low <= 0)
                for what, e in known.items()
                if e.low != e.high
            }
            taken = goodput(
                operations_of(market.reliability, market.instance),
                work_s=times * TOKENS / (BATCH * SEQUENCE),
                nodes=market.nodes[0],
                checkpoint_bytes=market.checkpoint_bytes,
                ranges=False,
                drawn=drawn,
            )
            wall = taken.wall_s + taken.deviation_s * random.standard_normal(10_000)
            paid = charges(
                market.offers, tariff, wall_s=wall, nodes=market.nodes[0], seam_s=taken.seam_s
            )
            low, high = tariff.low_usd_per_hour, tariff.high_usd_per_hour
            rate = np.clip(between(tariff.usd_per_hour, low, high, normal("rate")), low, high)
            costs.append(paid.cost_usd / tariff.usd_per_hour * rate)
        wins += np.bincount(np.argmin(costs, axis=0), minlength=len(LAYOUTS))
    return wins / wins.sum()


def test_shares_are_near_those_of_independent_draws():
    assert shares(CommonDraws()) == pytest.approx(independent_shares(20_000), abs=0.025)


@pytest.mark.slow
def test_shares_are_within_two_points_of_200_000_independent_draws():
    assert shares(CommonDraws()) == pytest.approx(independent_shares(200_000), abs=0.02)
