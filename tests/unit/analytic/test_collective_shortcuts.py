"""What is looked at once, or in part, comes to the same as what is looked at in full."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.collectives import place_collective
from trnbench.engines.analytic.collective.profile import profile
from trnbench.engines.analytic.collective.time import closed_form
from trnbench.engines.analytic.step.collectives import CollectivePrices
from trnbench.facts.calibration.collective_stack import stack_of
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import Layout
from trnbench.machine.message_plan.pieces import PieceFlow, flow_of, last_arrival, last_arrivals
from trnbench.machine.message_plan.placed import Placed
from trnbench.machine.message_plan.select import algorithm_named
from trnbench.machine.placement import place
from trnbench.machine.rank_groups import MEGATRON, groups_along
from trnbench.program.grid import grid_of
from trnbench.program.ops import Send
from trnbench.program.tensor import Dim, Tensor

CATALOG = open_catalog()
SIZES = np.array([4.0, 1e4, 3e5, 1e7, 1e9])


def tree(instance: str, nodes: int, ranks_in_node: int, inner: str) -> Placed:
    where = place(load_platform(CATALOG, instance), nodes=nodes)
    per_node = where.ranks // nodes
    apart = per_node // ranks_in_node
    rank = np.arange(where.ranks).reshape(nodes, ranks_in_node, apart)
    groups = rank.transpose(2, 0, 1).reshape(apart, -1)
    found = place_collective(
        where, "all-reduce", groups, algorithm_named(f"hierarchical:{inner}:tree")
    )
    assert isinstance(found, Placed)
    return found


@pytest.mark.parametrize(
    ("instance", "nodes", "ranks_in_node"),
    [("p5.48xlarge", 4, 8), ("p5.48xlarge", 5, 2), ("p4d.24xlarge", 3, 4), ("trn1.32xlarge", 2, 8)],
)
def test_one_line_of_a_tree_between_nodes_shows_them_all(instance, nodes, ranks_in_node):
    placed = tree(instance, nodes, ranks_in_node, "ring")
    assert placed.on_a_node is not None
    tuning = next(iter(stack_of(CATALOG, placed.placement.platform.instance.name).tunings.values()))
    short = closed_form(profile(placed), tuning).time_s(SIZES)
    full = closed_form(profile(replace(placed, on_a_node=None)), tuning).time_s(SIZES)
    assert short == pytest.approx(full, rel=1e-12)


def test_a_remembered_phase_is_scaled_with_its_critical_ways():
    memo: dict[Any, Any] = {}
    wide, narrow = tree("p5.48xlarge", 4, 8, "ring"), tree("p5.48xlarge", 4, 2, "ring")
    tuning = next(iter(stack_of(CATALOG, "p5.48xlarge").tunings.values()))
    for placed in (wide, narrow):
        found = closed_form(profile(placed, memo), tuning).time_s(SIZES)
        assert found == pytest.approx(closed_form(profile(placed), tuning).time_s(SIZES), rel=1e-12)


def test_several_cases_arrive_like_each_by_itself():
    placed = tree("p5.48xlarge", 3, 8, "ring")
    (index,) = (i for i, step in enumerate(placed.steps) if step.pattern.pipelined)
    flow = flow_of(placed.rounds_of(index))
    draw = np.random.default_rng(1)
    start_s, through_s = draw.random(flow.cuts[-1]), draw.random((4, flow.cuts[-1]))
    for found, one in zip(last_arrivals(flow, start_s, through_s), through_s, strict=True):
        alone = last_arrival(flow, start_s, one)
        assert found.time_s == alone.time_s
        assert found.messages.tolist() == alone.messages.tolist()


def test_pieces_arrive_as_message_by_message():
    draw = np.random.default_rng(2)
    for _ in range(40):
        sizes = draw.integers(1, 7, size=6)
        count = int(sizes.sum())
        flow = PieceFlow(
            piece_at_source=draw.integers(0, 9, count),
            piece_at_target=draw.integers(0, 9, count),
            sender=np.concatenate([draw.permutation(8)[:size] for size in sizes]),
            cuts=np.cumsum([0, *sizes]),
        )
        # Whole seconds, so that parts of a piece often come together.
        start_s, through_s = (draw.integers(0, 3, count).tolist() for _ in range(2))
        whole: dict[int, tuple[int, list[int]]] = {}
        free: dict[int, tuple[int, list[int]]] = {}
        ends: list[tuple[int, list[int]]] = []
        for first, stop in pairwise(flow.cuts.tolist()):
            came, sent = {**whole}, {**free}
            for n in range(first, stop):
                to, sender = int(flow.piece_at_target[n]), int(flow.sender[n])
                there = whole.get(int(flow.piece_at_source[n]), (0, []))
                ready = free.get(sender, (0, []))
                before_s, way = there if there[0] >= ready[0] else ready
                sent[sender] = before_s + through_s[n], [*way, n]
                ends.append((before_s + through_s[n] + start_s[n], [*way, n]))
                known_s = whole.get(to, (0, []))[0], came.get(to, (0, []))[0]
                if ends[n][0] > known_s[0] and ends[n][0] >= known_s[1]:
                    came[to] = ends[n]
            whole, free = came, sent
        found = last_arrival(flow, np.array(start_s, float), np.array(through_s, float))
        last_s, way = max(ends, key=lambda end: end[0])
        assert (found.time_s, found.messages.tolist()) == (last_s, way)


@pytest.mark.parametrize(
    ("nodes", "tp", "pp"), [(3, 8, 2), (3, 8, 6), (5, 8, 4), (5, 16, 10), (6, 8, 12), (9, 8, 2)]
)
def test_messages_between_few_stages_take_as_long_as_between_all(nodes, tp, pp):
    platform = load_platform(CATALOG, "trn1.32xlarge")
    ranks = 32 * nodes
    layout = Layout(
        global_batch=ranks,
        sequence=4096,
        precision="bf16-master",
        tp=tp,
        pp=pp,
        dp=ranks // (tp * pp),
    )
    of = CollectivePrices(
        platform=platform,
        stack=stack_of(CATALOG, platform.instance.name),
        grid=grid_of(layout),
        order=MEGATRON,
    )
    groups = groups_along("pp", of.grid, of.order)
    full = of.price("send-receive", groups, SIZES, runs=np.array(True)).time_s
    assert full.max() > 0
    tensor = Tensor(
        name="sent", dims=(Dim(name="bytes", size=SIZES, factors=(SIZES,)),), format="fp8_e4m3"
    )
    sent = Send(
        name="sent",
        phase="F",
        tensor=tensor,
        peer="next",
        direction="send",
        count=np.ones(()),
    )
    assert of.message(sent).time_s == pytest.approx(full, rel=1e-12)
