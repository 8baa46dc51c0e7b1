"""Groups placed together are what each group is by itself, read message by message."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.collectives import build_plan, place_collective, select
from trnbench.errors import InputError
from trnbench.facts.calibration.collective_stack import stack_of
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_platform
from trnbench.machine.fabric import LinkFault
from trnbench.machine.message_plan.algorithm import Refusal
from trnbench.machine.message_plan.members import even_members, members_of
from trnbench.machine.message_plan.placed import Placed, place_members
from trnbench.machine.message_plan.plan import rank_messages
from trnbench.machine.message_plan.select import algorithm_named
from trnbench.machine.placement import Placement, place
from trnbench.machine.rank_groups import RankGroups

CATALOG = open_catalog()
NODES = {
    name: place(load_platform(CATALOG, name))
    for name in ("trn1.32xlarge", "trn2.48xlarge", "p5.48xlarge")
}
ALGORITHMS = (
    "ring",
    "kangaring",
    "halving",
    "mesh",
    "direct",
    "hierarchical:ring:ring",
    "hierarchical:kangaring:halving",
    "hierarchical:halving:direct",
)
Message = tuple[int, int, float, tuple[int, ...]]


def rows(source, target, share, links, fabric, none) -> list[Message]:
    """Return messages as they are told apart: ends, share, and links within their nodes."""
    return [
        (int(a), int(b), round(float(c), 12), tuple(int(n) % fabric.links_per_node for n in row))
        for a, b, c, row in zip(
            source, target, share, [row[row != none] for row in links], strict=True
        )
    ]


def one_by_one(where: Placement, op, groups, algorithm) -> list[Counter[Message]] | None:
    """Return the messages of each round, every group planned by itself; None: it cannot be."""
    rounds: list[Counter[Message]] = []
    none = where.fabric.nodes * where.fabric.links_per_node
    for group in groups:
        plan = build_plan(where, op, group, algorithm)
        if isinstance(plan, Refusal):
            return None
        kinds = [
            (phase, round_)
            for phase in plan.phases
            for round_, times in phase.pattern.distinct_rounds
            if times
        ]
        rounds += [Counter() for _ in kinds[len(rounds) :]]
        for found, (phase, round_) in zip(rounds, kinds, strict=True):
            share = plan.share_per_block[phase.level]
            for batch in rank_messages(phase.pattern, round_, phase.lines, share):
                source, target = group[batch.source], group[batch.target]
                links = where.routes.between_ranks(source, target)[0]
                found.update(rows(source, target, batch.share, links, where.fabric, none))
    return rounds


def together(placed: Placed) -> list[Counter[Message]]:
    fabric, none = placed.placement.fabric, placed.link_count
    return [
        Counter(rows(found.source, found.target, found.share, found.links, fabric, none))
        for found in placed.rounds
    ]


def side_by_side(world: int, ranks: int, stride: int) -> np.ndarray:
    groups = RankGroups(
        ranks=np.asarray(ranks),
        stride=np.asarray(stride),
        width=np.asarray(stride),
        period=np.asarray(ranks * stride),
    )
    return groups.members(world)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_groups_together_send_what_each_sends_alone(data):
    node = NODES[data.draw(st.sampled_from(sorted(NODES)))]
    where = node.of(data.draw(st.sampled_from((1, 2, 3, 4))))
    ranks = data.draw(st.sampled_from([n for n in range(2, 33) if where.ranks % n == 0]))
    strides = [n for n in range(1, where.ranks) if where.ranks // ranks % n == 0]
    stride = data.draw(st.sampled_from(strides))
    groups = side_by_side(where.ranks, ranks, stride)
    algorithm = algorithm_named(data.draw(st.sampled_from(ALGORITHMS)))
    op = data.draw(st.sampled_from(("all-reduce", "all-gather", "reduce-scatter", "all-to-all")))
    shuffled = groups[np.random.default_rng(ranks * stride).permutation(len(groups))]
    placed = place_collective(where, op, shuffled, algorithm)
    if isinstance(placed, Refusal) and "in step" in placed.reason:
        return
    alone = one_by_one(where, op, groups, algorithm)
    if isinstance(placed, Refusal):
        assert alone is None
        return
    assert alone is not None
    for found, expected in zip(together(placed), alone, strict=True):
        shown = {
            message: times
            for message, times in expected.items()
            if not placed.of_one_node or message[0] < node.ranks
        }
        assert found == shown


def test_one_node_stands_for_groups_that_are_never_listed():
    node = NODES["trn2.48xlarge"]
    where = node.of(4)
    local = np.arange(4)[:, None] + np.arange(0, node.ranks, 4)
    even = even_members(where, local, 4)
    listed = members_of(where, side_by_side(where.ranks, 64, 4), symmetric=True)
    assert listed.one_node
    assert even.one_node
    assert (even.groups == listed.groups).all()
    assert (even.first == listed.first).all()
    algorithm = algorithm_named("hierarchical:ring:ring")
    a, b = (place_members(found, "all-gather", algorithm) for found in (even, listed))
    assert isinstance(a, Placed)
    assert isinstance(b, Placed)
    assert together(a) == together(b)
    full = place_members(even.in_full(), "all-gather", algorithm)
    assert isinstance(full, Placed)
    assert not full.of_one_node
    assert full.messages == 4 * a.messages


def test_more_instances_of_a_faulty_one_are_refused():
    platform = load_platform(CATALOG, "trn1.32xlarge")
    faulty = place(platform, faults=[LinkFault(source=0, target=1)])
    with pytest.raises(InputError, match="faulty"):
        faulty.of(2)


def test_a_refusal_gives_each_reason_once():
    # Two ranks on one node and one on the next; the table has the same algorithm in two rules.
    where = NODES["trn2.48xlarge"].of(2)
    groups = [[0, 1, 64], [2, 3, 66]]
    stack = stack_of(CATALOG, "trn2.48xlarge")
    refused = select(stack, where, "all-reduce", groups)
    assert isinstance(refused, Refusal)
    reasons = refused.reason.split("(", 1)[1].rstrip(")").split("; ")
    assert len(reasons) == len(set(reasons))
