"""Context exchange: what ring, all-to-all and both together send, and where they cannot be."""

from __future__ import annotations

import numpy as np
import pytest

from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.workload.choices import exchange_named
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.library import load_model
from trnbench.machine.rank_groups import MEGATRON, groups_along
from trnbench.program.step import training_step

CATALOG = open_catalog()
LLAMA = load_model(CATALOG, "llama3.1-8b")
MIB = 2**20


def step(how, model=LLAMA, **knobs):
    base = {"cp": 8, "global_batch": 8, "sequence": 32768, "precision": "bf16-master"}
    return training_step(model, Layout(**{**base, "context_parallel": how, **knobs}))


def sent(program):
    """Return (axis, operation) -> MiB that a rank sends in a layer's forward pass."""
    found: dict[tuple[str, str], float] = {}
    for op in program.blocks["dense"].phase("F"):
        if op in program.blocks["dense"].collectives and "cp" in op.axis:
            size = float(op.read.bytes) * float(op.count)
            if op.op == "all-to-all":
                size *= 1 - 1 / float(op.ranks)
            found[op.axis, op.op] = found.get((op.axis, op.op), 0) + size / MIB
    return found


def test_what_each_exchange_sends_by_hand():
    # 4,096 tokens a rank: queries and outputs of 32 MiB, keys and values of 8 MiB each.
    assert sent(step("ring")) == {("cp", "permute"): 7 * 16}
    assert sent(step("all-to-all")) == {("cp", "all-to-all"): 80 * 7 / 8}
    # Four neighbours hold 16,384 tokens of a quarter of the heads: keys and values are as large.
    assert sent(step("hybrid:4")) == {
        ("cp_inside", "all-to-all"): 80 * 3 / 4,
        ("cp_outside", "permute"): 1 * 16,
    }


def test_attention_is_as_much_work_however_it_is_shared():
    flop = {how: float(step(how).hardware_flop) for how in ("ring", "all-to-all", "hybrid:2")}
    assert len(set(flop.values())) == 1


def test_neighbours_stand_side_by_side_and_rings_lead_from_group_to_group():
    grid = step("hybrid:4", tp=2).grid
    inside, outside = (groups_along(axis, grid, MEGATRON) for axis in ("cp_inside", "cp_outside"))
    assert (int(inside.ranks), int(inside.stride)) == (4, 2)
    assert (int(outside.ranks), int(outside.stride)) == (2, 8)
    together = {tuple(row) for row in inside.members(16).tolist()}
    assert (0, 2, 4, 6) in together
    assert (0, 8) in {tuple(row) for row in outside.members(16).tolist()}


@pytest.mark.parametrize(
    ("how", "knobs", "words"),
    [
        ("hybrid:8", {}, "no larger multiple"),
        ("hybrid:3", {}, "no larger multiple"),
        ("hybrid:4", {"tp": 4}, "tp x 4 = 16 ranks whole key-value heads, and there are 8"),
        ("hybrid:4", {"attention": "naive"}, "needs fused"),
    ],
)
def test_what_cannot_be_is_refused(how, knobs, words):
    assert any(words in said for said in step(how, **knobs).refusals())


def test_alone_a_rank_exchanges_nothing_whatever_is_asked():
    program = step("hybrid:4", cp=1)
    assert program.legal
    assert sent(program) == {}


def test_a_grid_has_the_groups_of_each_layout():
    grid = step("hybrid:2", cp=np.array([1, 4, 8]))
    assert grid.grid.ranks("cp_inside").tolist() == [1, 2, 2]
    assert grid.grid.ranks("cp_outside").tolist() == [1, 2, 4]


@pytest.mark.parametrize("text", ["hybrid", "hybrid:1", "hybrid:x", "ulysses", ""])
def test_texts_that_mean_nothing_are_refused(text):
    with pytest.raises(ValueError, match=r"not one of ring|2 ranks or more"):
        exchange_named(text)
