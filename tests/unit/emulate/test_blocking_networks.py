"""Oversubscribed and rail-optimised networks: hand-computed times, and both engines agree."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tests.collectives import place_collective, select
from trnbench.engines.analytic.collective.profile import profile
from trnbench.engines.analytic.collective.sweep import sweep
from trnbench.engines.analytic.collective.time import collective_time
from trnbench.engines.emulate.collective.play import play
from trnbench.engines.emulate.collective.streams import play_selected
from trnbench.facts.calibration.collective_stack import Tuning, stack_of
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.fabric import Network
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.records import replace
from trnbench.machine.fabric_bounds import lower_bound
from trnbench.machine.message_plan.algorithm import Refusal
from trnbench.machine.message_plan.placed import Placed
from trnbench.machine.message_plan.select import algorithm_named
from trnbench.machine.placement import Placement, place
from trnbench.program.collective import op_named

ADAPTER = 50e9
FREE = Tuning(
    launch_s=0.0,
    step_s=0.0,
    network_step_s=0.0,
    message_s=0.0,
    on_chip=1.0,
    link=1.0,
    network=1.0,
    chunk_bytes=2.0**24,
    chunks=1,
    reduce_touches=0.0,
    slices=2,
    pieces=8,
)


@cache
def cluster(
    nodes: int, ratio: float = 1.0, *, rails: bool = False, name: str = "dgx-h100"
) -> Placement:
    platform = load_platform(open_catalog(), name)
    levels = tuple(
        replace(level, oversubscription=ratio, rails=rails, step_latency_s=0.0)
        if isinstance(level, Network)
        else level
        for level in platform.instance.fabric
    )
    instance = replace(platform.instance, fabric=levels)
    return place(replace(platform, instance=instance), nodes=nodes)


def times_s(where: Placement, op: str, groups, algorithm: str, size: float) -> list[float]:
    """Return the time in closed form, then as played, then with every node's rounds played."""
    found = placed(where, op, groups, algorithm)
    whole = placed(where, op, groups, algorithm, symmetric=False)
    return [
        float(collective_time(profile(found), FREE, np.array([size])).time_s[0]),
        play(found, FREE, size).time_s,
        play(whole, FREE, size).time_s,
    ]


def placed(where: Placement, op: str, groups, algorithm: str, **options) -> Placed:
    found = place_collective(where, op_named(op), groups, algorithm_named(algorithm), **options)
    assert isinstance(found, Placed), found
    return found


def test_one_message_still_has_its_adapter_and_all_share_the_spine():
    # One message of 1 GB goes at 50 GB/s, 8 at once share the 200 GB/s that 2:1 leaves of 400.
    alone = times_s(cluster(2, 2.0), "send-receive", [(0, 8)], "direct", 1e9)
    assert alone == pytest.approx([1e9 / ADAPTER] * 3)
    pairs = [(i, i + 8) for i in range(8)]
    together = times_s(cluster(2, 2.0), "send-receive", pairs, "direct", 1e9)
    assert together == pytest.approx([8 * 1e9 / 200e9] * 3)


def test_what_stays_on_its_rail_does_not_cross_the_spine():
    pairs = [(i, i + 8) for i in range(8)]
    same = times_s(cluster(2, 4.0, rails=True), "send-receive", pairs, "direct", 1e9)
    assert same == pytest.approx([1e9 / ADAPTER] * 3)
    # To the next rail it goes by a quarter of the adapter's speed.
    crossed = [(i, 8 + (i + 1) % 8) for i in range(8)]
    other = times_s(cluster(2, 4.0, rails=True), "send-receive", crossed, "direct", 1e9)
    assert other == pytest.approx([4 * 1e9 / ADAPTER] * 3)


@pytest.mark.parametrize("nodes", [2, 4])
def test_all_to_all_by_hand(nodes):
    # A rank sends (n - 1) / n of 16 GB to other nodes, an eighth of that on its own rail.
    everyone = [range(8 * nodes)]
    away = 16e9 * (nodes - 1) / nodes
    for where, expected in (
        (cluster(nodes), away / ADAPTER),
        (cluster(nodes, 2.0), 2 * away / ADAPTER),
        (cluster(nodes, 2.0, rails=True), 2 * away * 7 / 8 / ADAPTER),
    ):
        closed, played, whole = times_s(where, "all-to-all", everyone, "direct", 16e9)
        assert closed == pytest.approx(expected, rel=0.02)
        assert played == pytest.approx(expected, rel=0.02)
        assert whole == pytest.approx(played)


@pytest.mark.parametrize("nodes", [2, 4, 16])
def test_all_reduce_of_the_ranks_at_one_place_of_each_node_by_hand(nodes):
    # 8 rings side by side, each sends 2 (n - 1) / n of 8 GB: through the spine at half the speed.
    groups = [[node * 8 + i for node in range(nodes)] for i in range(8)]
    expected = 2 * (nodes - 1) / nodes * 8e9 / ADAPTER
    for ratio, rails, slower in ((1.0, False, 1.0), (2.0, False, 2.0), (2.0, True, 1.0)):
        where = cluster(nodes, ratio, rails=rails)
        found = times_s(where, "all-reduce", groups, "ring", 8e9)
        assert found == pytest.approx([slower * expected] * 3)


@pytest.mark.parametrize("rails", [False, True])
@pytest.mark.parametrize(
    ("name", "nodes"), [("dgx-h100", 2), ("dgx-h100", 4), ("trn2.48xlarge", 2)]
)
def test_engines_agree_as_the_stack_selects(name, nodes, rails):
    where = cluster(nodes, 3.0, rails=rails, name=name)
    stack = stack_of(open_catalog(), name)
    for op in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast"):
        selected = select(stack, where, op_named(op), [range(where.ranks)])
        assert not isinstance(selected, Refusal), selected
        sizes = [2.0**power for power in (16, 24, 30)]
        found = sweep(selected, np.array(sizes))
        for size, time, bound in zip(sizes, found.time_s, found.bound_s, strict=True):
            _, played = play_selected(selected, size)
            assert played.time_s == pytest.approx(time, rel=0.05), (op, size)
            assert bound <= min(played.time_s, time) * (1 + 1e-9)


def test_a_spine_that_does_not_block_changes_nothing():
    plain = place(load_platform(open_catalog(), "dgx-h100"), nodes=4)
    base = load_platform(open_catalog(), "dgx-h100")
    rails = tuple(
        replace(level, rails=True) if isinstance(level, Network) else level
        for level in base.instance.fabric
    )
    instance = replace(base.instance, fabric=rails)
    other = place(replace(base, instance=instance), nodes=4)
    assert plain.fabric.links == other.fabric.links
    for op in ("all-reduce", "all-to-all"):
        one, two = (
            sweep(
                select(stack_of(open_catalog(), "dgx-h100"), where, op_named(op), [range(32)]),  # type: ignore[arg-type]
                np.array([2.0**20, 2.0**30]),
            ).time_s.tolist()
            for where in (plain, other)
        )
        assert one == two


def test_the_bound_of_a_node_is_its_share_of_the_spine():
    everyone = [range(16)]
    tight = lower_bound(placed(cluster(2, 2.0), "all-to-all", everyone, "direct"))
    loose = lower_bound(placed(cluster(2), "all-to-all", everyone, "direct"))
    # A node sends half of what its 8 ranks have: 4 sizes, at 400 or 200 GB/s.
    assert loose.s_per_byte == pytest.approx(4 / 400e9)
    assert tight.s_per_byte == pytest.approx(4 / 200e9)


@pytest.mark.parametrize("ratio", [0.0, 0.5])
def test_a_spine_is_not_faster_than_its_adapters(ratio):
    network = cluster(2).platform.instance.network
    assert network is not None
    with pytest.raises(ValueError, match="must be at least 1"):
        replace(network, oversubscription=ratio)
