"""What lies beyond the measured steps of a stack: named, wider, and doubted by searches."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trnbench import search_layouts, train
from trnbench.facts.calibration.coverage import Covered, Spread, together, widest
from trnbench.facts.calibration.training_stack import STACK_PREFIX, load_training_stack
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.workload.layout import Layout
from trnbench.predict.setup import train_setup

CATALOG = open_catalog(environment={})
STACKS = [
    load_training_stack(CATALOG, name)
    for name in CATALOG.names("calibration")
    if name.startswith(STACK_PREFIX)
]
ROWS = Covered(
    jobs=("pretrain",), nodes=32, sequence=8192, micro_batch=1, least_tokens=4000, most_tokens=8000
)


def test_degrees_and_sizes_beyond_the_rows_are_named():
    assert ROWS.degrees_beyond({"cp": 4, "ep": 1, "vpp": 2, "tp": 16}, ranks_per_node=8) == (
        "cp 4",
        "vpp 2",
        "tp across 2 nodes",
    )
    inside = {"nodes": 64, "sequence": 8192, "micro_batch": 1, "tokens": 16_000}
    assert ROWS.sizes_beyond(**inside) == ()
    assert ROWS.sizes_beyond(**inside | {"nodes": 65}) == ("65 nodes",)
    assert ROWS.sizes_beyond(**inside | {"sequence": 8193}) == ("sequence 8,193",)
    assert ROWS.sizes_beyond(**inside | {"tokens": 1999}) == ("1,999 tokens per step",)
    assert ROWS.sizes_beyond(**inside | {"tokens": 2000}) == ()


@given(low=st.floats(0.2, 1.0), high=st.floats(1.0, 5.0), other=st.floats(1.0, 3.0))
def test_reasons_to_be_wrong_only_widen(low, high, other):
    one, two = Spread(low=low, high=high), Spread(low=1 / other, high=other)
    both = together(one, two)
    assert both.low <= min(one.low, two.low) * (1 + 1e-12)
    assert both.high >= max(one.high, two.high) * (1 - 1e-12)
    assert widest(one, two).high == max(high, other)


def test_two_equal_reasons_add_in_squares():
    both = together(*[Spread(low=0.8, high=1.25)] * 2)
    assert both.high == pytest.approx(math.exp(math.sqrt(2) * math.log(1.25)))


def test_a_layout_beyond_the_rows_is_wider_by_the_documented_amount():
    setup = train_setup(CATALOG, "llama3.1-70b", "trn1.32xlarge", 32)
    inside = Layout(tp=32, pp=8, dp=4, global_batch=1024, sequence=8192, precision="bf16-master")
    amounts = setup.efficiency.beyond_rows
    assert amounts is not None
    assert setup.spread_in(inside) == setup.spread
    degrees = Layout(
        tp=8, pp=8, dp=4, cp=4, global_batch=1024, sequence=8192, precision="bf16-master"
    )
    assert setup.beyond_rows(degrees)["degrees"] == ("cp 4",)
    assert setup.spread_in(degrees) == together(setup.spread, amounts.degrees)


def test_what_was_never_seen_scatters_no_less_than_what_was():
    for stack in STACKS:
        for family in ("decoder", "hybrid", "decoder with experts"):
            there = stack.spread_on(stack.instances[0], family)
            assert there.low <= stack.spread.low, (stack.name, family)
            assert there.high >= stack.spread.high, (stack.name, family)


def test_no_stack_answers_for_experts_without_what_they_cost():
    for stack in STACKS:
        support = stack.support_of("experts")
        if support is None or support.status == "refused":
            continue
        assert stack.experts is not None, stack.name
        assert stack.expert_spread is not None, stack.name


def test_experts_that_nobody_measured_are_said():
    (answer,) = train("mixtral-8x7b", on="trn1.32xlarge:4", tp=8, pp=4, dp=4, global_batch=64)
    assert any("no step with them is published" in note for note in answer.notes)
    assert answer.step is not None
    # Wider than the dense model on the same stack.
    assert answer.step.high_step_time_s > 1.5 * answer.step.step_time_s


def test_a_search_takes_a_layout_beyond_the_rows_only_if_its_slow_end_is_faster():
    asked = {"global_batch": 1024, "sequence": 8192, "precision": "bf16-master"}
    found = search_layouts(model="llama3.1-70b", instance="trn1.32xlarge", nodes=32, **asked)
    beyond = search_layouts(model="llama3.1-70b", instance="trn1.32xlarge", nodes=32, cp=4, **asked)
    assert found.best is not None
    assert beyond.best is not None
    assert found.best.layout.cp == 1
    # The model alone would take it: within the 18 % that such rows turned out to be slower.
    assert beyond.best.step_time_s < found.best.step_time_s < 1.18 * beyond.best.step_time_s


def test_the_best_layout_within_the_rows_is_kept_where_another_is_taken():
    asked = {"global_batch": 1024, "sequence": 4096, "precision": "bf16-master"}
    found = search_layouts(model="mixtral-8x7b", instance="trn1.32xlarge", nodes=32, **asked)
    (cluster,) = found.by_nodes.values()
    assert cluster.best is not None
    if cluster.best.layout.ep > 1:
        assert cluster.within_rows is not None
        assert cluster.within_rows.layout.ep == 1
        assert cluster.within_rows.step_time_s > cluster.best.step_time_s
    else:
        assert cluster.within_rows is None
