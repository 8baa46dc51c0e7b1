"""Groups of ranks that Trn2 can route: blocks of the 4 x 4 torus, worked by hand."""

from __future__ import annotations

import pytest

from tests.sampling import sampled
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import Layout
from trnbench.machine.layout_rules import OF_EXPERTS, OUTER, group_reasons, is_block, routable
from trnbench.predict.setup import train_setup
from trnbench.predict.step import predict
from trnbench.program.grid import grid_of
from trnbench.verbs.search_layouts.run import search_layouts

CATALOG = open_catalog()
TRN2 = load_platform(CATALOG, "trn2.48xlarge")
STEP = Layout(global_batch=64, sequence=8192, precision="bf16-master")


@pytest.mark.parametrize(
    ("chips", "block"),
    [
        ((5,), True),
        ((0, 1), True),
        ((0, 3), True),  # round the wrap
        ((0, 12), True),
        ((0, 5), False),
        ((0, 2), False),
        ((4, 5, 6, 7), True),
        ((1, 5, 9, 13), True),
        ((0, 1, 4, 5), True),
        ((3, 0, 15, 12), True),  # a square round both wraps
        ((0, 1, 2, 4), False),
        ((0, 1, 2, 3, 12, 13, 14, 15), True),  # rows 0 and 3
        ((0, 1, 2, 3, 8, 9, 10, 11), False),
        ((0, 2, 4, 6, 8, 10, 12, 14), False),
        (tuple(range(16)), True),
    ],
)
def test_blocks_of_a_torus(chips, block):
    assert is_block((4, 4), chips) is block


@pytest.mark.parametrize(
    ("ranks", "stride", "taken"),
    [
        (4, 1, True),  # four ranks are a chip
        (16, 1, True),  # a row
        (4, 16, True),  # a column, one core of each chip
        (4, 4, True),  # a row, one core of each chip
        (2, 8, False),  # chips 0 and 2
        (4, 8, False),
        (8, 8, True),  # listed: tp 8 beside cp 8
        (128, 1, True),  # two instances: not a matter of the torus
    ],
)
def test_groups_of_ranks_apart(ranks, stride, taken):
    assert routable(TRN2, None, ranks, stride) is taken
    assert routable(load_platform(CATALOG, "trn1.32xlarge"), None, ranks, stride)


def test_a_layout_with_such_a_group_says_which_and_what_is_near():
    setup = train_setup(CATALOG, "llama3.1-8b", "trn2.48xlarge", 1)
    layout = replace(STEP, tp=8, pp=2, dp=4, zero=3)
    (reason,) = predict(setup, layout).reasons
    assert "cannot route data groups of 4 ranks, 8 apart" in reason
    assert "try tp=16, tp=4" in reason


def test_expert_groups_are_asked_where_there_are_some():
    for ep, refused in ((1, []), (2, ["expert data"]), (4, [])):
        layout = replace(STEP, tp=4, pp=2, dp=8, ep=ep)
        found = group_reasons(TRN2, grid_of(layout), (*OUTER, *OF_EXPERTS))
        # Of dp 8 and ep 2, four ranks 8 apart hold an expert.
        broken = [reason.rule for reason in found]
        assert broken == [f"routable {what} groups" for what in refused], ep


@pytest.mark.slow
@pytest.mark.parametrize("model", sampled(("llama3.1-8b", "mixtral-8x7b"), ("llama3.1-8b",)))
def test_a_search_finds_only_what_a_prediction_takes(model):
    found = search_layouts(
        model=model,
        instance="trn2.48xlarge",
        nodes=1,
        global_batch=64,
        sequence=4096,
        precision="bf16-master",
        memory_headroom=0.0,
        top=200,
    )
    assert any(rule.startswith("routable") for rule in found.tally.rejected_by_reason)
    setup = train_setup(CATALOG, model, "trn2.48xlarge", 1)
    for one in found.ranked:
        assert not predict(setup, one.layout).reasons
