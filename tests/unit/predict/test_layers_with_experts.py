"""What layers with experts take longer than their products, passes and bytes say."""

from __future__ import annotations

from typing import Any

import pytest

from trnbench.facts.calibration.chip_efficiency import ExpertEfficiency
from trnbench.facts.calibration.coverage import Spread
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import Layout
from trnbench.predict.prices import prices_of
from trnbench.predict.ranges import ranges_of
from trnbench.predict.setup import SetupMemo, TrainSetup, train_setup
from trnbench.program.step import training_step

CATALOG = open_catalog()
NEUTRAL = ExpertEfficiency(
    compute=1.0, imbalance=0.0, block_pass_s=0.0, overlap_between_nodes=0.0, recompute=None
)
LAYOUT = Layout(dp=16, ep=8, micro_batch=1, global_batch=64, sequence=4096, precision="bf16-master")
MICRO_BATCHES = 4
LAYERS = 32


def setup_with(experts: ExpertEfficiency | None, model: str = "mixtral-8x7b") -> TrainSetup:
    plain = train_setup(CATALOG, model, "p5.48xlarge", 2)
    overlaps = replace(plain.stack.overlaps, expert=0.0)
    stack = replace(plain.stack, experts=experts, overlaps=overlaps, efa=None)
    return replace(plain, efficiency=replace(plain.efficiency, stack=stack), memo=SetupMemo())


def seconds(
    experts: ExpertEfficiency | None, model: str = "mixtral-8x7b", **changes: Any
) -> dict[str, float]:
    setup = setup_with(experts, model)
    time = prices_of(setup, training_step(setup.model, replace(LAYOUT, **changes))).time()
    return {name: float(value) for name, value in time.by_category.items()}


def changed(**numbers: Any) -> ExpertEfficiency:
    return replace(NEUTRAL, **numbers)


def test_neutral_numbers_change_nothing_to_the_bit():
    assert seconds(NEUTRAL) == seconds(None)


def test_only_work_on_sorted_tokens_takes_longer():
    once, twice, thrice = (seconds(changed(compute=times)) for times in (1.0, 2.0, 3.0))
    for name in ("matrix", "element-wise"):
        assert thrice[name] - twice[name] == pytest.approx(twice[name] - once[name])
        assert once[name] < twice[name] < 2 * once[name]
    assert twice["attention"] == once["attention"]
    assert twice["expert"] == once["expert"]
    dense = changed(compute=2.0, imbalance=0.5, block_pass_s=1.0)
    assert seconds(dense, "llama3.1-8b", ep=1) == seconds(None, "llama3.1-8b", ep=1)


def test_an_uneven_load_holds_up_compute_and_exchanges_of_tokens():
    even, uneven = seconds(NEUTRAL), seconds(changed(imbalance=0.25))
    assert uneven["expert"] == pytest.approx(1.25 * even["expert"])
    assert uneven["matrix"] == pytest.approx(seconds(changed(compute=1.25))["matrix"])
    # Ranks that hold a part of every expert have the same load, and so have full ones.
    for same in ({"ep": 1, "tp": 8, "dp": 2, "global_batch": 8}, {"capacity_factor": 1.0}):
        assert seconds(changed(imbalance=0.25), **same) == seconds(NEUTRAL, **same)


def test_a_pass_through_a_layer_with_experts_costs_something():
    more = seconds(changed(block_pass_s=1e-3))["fixed"] - seconds(NEUTRAL)["fixed"]
    setup = setup_with(NEUTRAL)
    slowdown = float(prices_of(setup, training_step(setup.model, LAYOUT)).training.slowdown)
    factor = float(setup.efficiency.whole_factor)
    assert more == pytest.approx(slowdown * factor * MICRO_BATCHES * LAYERS * 2 * 1e-3)


def test_exchanges_between_nodes_have_an_overlap_of_their_own():
    hiding = changed(overlap_between_nodes=0.5)
    assert seconds(hiding) == seconds(NEUTRAL)
    across = {"ep": 16}
    inside = seconds(NEUTRAL, "deepseek-v3", **across)
    between = seconds(hiding, "deepseek-v3", **across)
    assert 0.5 * inside["expert"] <= between["expert"] < 0.9 * inside["expert"]


def test_the_spread_of_models_with_experts_is_theirs_until_one_was_measured():
    stack = setup_with(None).stack
    wide = Spread(low=0.7, high=1.6)
    known = replace(stack, expert_spread=wide, fitted_to=("decoder",))
    instance = stack.fitted_on[0]
    assert known.spread_on(instance, "decoder with experts") == wide
    assert known.spread_on(instance, "decoder") == stack.spread
    both = replace(known, fitted_to=("decoder", "decoder with experts"))
    assert both.spread_on(instance, "decoder with experts") == stack.spread


def test_shipped_stacks_on_gpus_say_how_unsure_they_are_of_experts():
    setup = train_setup(CATALOG, "mixtral-8x7b", "p5.48xlarge", 2)
    ranges = ranges_of(setup.efficiency)
    names = ("compute", "imbalance", "block_pass", "overlap_between_nodes")
    for name in names:
        one = ranges[f"experts.{name}"]
        assert one.low <= one.value <= one.high
        assert one.low < one.high
    assert ranges["experts.overlap_between_nodes"].linear
    assert setup.samples.stack.experts is not None


def test_no_overlap_is_more_than_all():
    with pytest.raises(ValueError, match="overlap_between_nodes"):
        changed(overlap_between_nodes=1.2)
