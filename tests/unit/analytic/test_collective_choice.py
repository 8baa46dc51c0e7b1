"""Choice of algorithms by size: sound tables, and the fastest where a stack has no table."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import pytest

from tests.collectives import select
from trnbench.engines.analytic.collective.choice import (
    MessageClock,
    chosen_for,
    fastest_of,
    never_falling,
)
from trnbench.engines.analytic.collective.sweep import swept_times_s
from trnbench.facts.arrays import FloatArray
from trnbench.facts.calibration.collective_stack import CollectiveStack, stack_of
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.fabric import times
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.records import replace
from trnbench.facts.workload.choices import Op
from trnbench.machine.legality import cluster_verdict
from trnbench.machine.message_plan.algorithm import Refusal
from trnbench.machine.message_plan.members import members_of
from trnbench.machine.message_plan.ring_orders import neighbour_pairs
from trnbench.machine.message_plan.select import Selected, algorithm_named
from trnbench.machine.placement import place

SIZES: FloatArray = np.exp2(np.arange(8, 35, dtype=np.float64))
OPS: tuple[Op, ...] = (
    *("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "permute"),
)
ROUNDING = 1e-9
FASTER = 1e-3  # Ways of pipelined pieces are found at a few sizes, and are so near to each other


def table() -> list[Selected]:
    """Two algorithms in place, the second from 100 KB on."""
    where = place(load_platform(open_catalog(), "p5.48xlarge"), nodes=1)
    found = select(stack_of(open_catalog(), "p5.48xlarge"), where, "all-reduce", [range(8)])
    assert isinstance(found, tuple)
    first, second = found
    return [replace(first, below_bytes=1e5), replace(second, from_bytes=1e5)]


def clock(*lines: tuple[float, float]) -> MessageClock:
    """Seconds by a start and a slope for each algorithm of `table`."""
    names = dict(zip([one.tuning_name for one in table()], lines, strict=True))

    def seconds(one: Selected, size_bytes: FloatArray) -> FloatArray:
        start_s, s_per_byte = names[one.tuning_name]
        return start_s + s_per_byte * size_bytes

    return seconds


def starts(found: Sequence[Selected]) -> list[tuple[str, float]]:
    return [(one.tuning_name, one.from_bytes) for one in found]


def test_a_table_that_changes_too_late_changes_where_both_take_equally_long() -> None:
    # 10 us + 1 ns a byte against 20 us + 0.5 ns: equal at 20 KB, where the table waits for 100 KB.
    found = never_falling(table(), clock((10e-6, 1e-9), (20e-6, 0.5e-9)))
    first, second = (one.tuning_name for one in table())
    assert starts(found) == [(first, 0.0), (second, pytest.approx(20e3))]
    assert found[0].below_bytes == found[1].from_bytes


def test_a_table_that_changes_early_is_left_as_it_is() -> None:
    found = never_falling(table(), clock((10e-6, 1e-9), (200e-6, 0.5e-9)))
    assert starts(found) == starts(table())


def test_an_algorithm_slower_at_all_sizes_is_left_out() -> None:
    found = never_falling(table(), clock((30e-6, 1e-9), (20e-6, 0.5e-9)))
    assert starts(found) == [(table()[1].tuning_name, 0.0)]


def test_the_fastest_changes_where_both_take_equally_long() -> None:
    found = fastest_of(table()[::-1], clock((10e-6, 1e-9), (20e-6, 0.5e-9)))
    first, second = (one.tuning_name for one in table())
    assert starts(found) == [(first, 0.0), (second, pytest.approx(20e3))]
    assert found[-1].below_bytes == math.inf


Wide = Literal["node", "part", "nodes"]


def seconds(
    platform: Platform, stack: CollectiveStack, op: Op, nodes: int, wide: Wide
) -> FloatArray | None:
    """Seconds by size of like groups: of whole nodes, or side by side of a rank of each node."""
    where = place(platform, nodes=nodes)
    ranks, inside = where.ranks, where.ranks // nodes
    groups = np.arange(ranks)[None, :]
    if wide == "part":
        groups = groups.reshape(-1, max(inside // 2, 1))
    if wide == "nodes":
        groups = groups.reshape(nodes, inside).T
    if groups.shape[1] < 2:
        return None
    pairs = neighbour_pairs(where.fabric, groups[0]) if op == "permute" else None
    found = chosen_for(stack, members_of(where, groups, symmetric=True), op, pairs)
    return None if isinstance(found, Refusal) else swept_times_s(found, SIZES)


def faster(platform: Platform) -> Platform:
    """The platform with links of twice the bandwidth."""
    levels = tuple(times(level, bandwidth=2.0) for level in platform.instance.fabric)
    return replace(platform, instance=replace(platform.instance, fabric=levels))


def check(instance: str, op: Op, nodes: int, wide: Wide) -> None:
    catalog = open_catalog()
    platform, stack = load_platform(catalog, instance), stack_of(catalog, instance)
    if not cluster_verdict(platform, nodes).legal:
        return
    found = seconds(platform, stack, op, nodes, wide)
    if found is None:
        return
    fell = SIZES[1:][found[1:] < found[:-1] * (1 - ROUNDING)]
    assert not len(fell), f"a larger message takes less time at {fell.tolist()} bytes"
    quick = seconds(faster(platform), stack, op, nodes, wide)
    assert quick is not None
    rose = SIZES[quick > found * (1 + FASTER)]
    assert not len(rose), f"faster links take more time at {rose.tolist()} bytes"


INSTANCES = tuple(entry.name for entry in open_catalog().entries("instances"))
EVERY: tuple[tuple[str, Op, int, Wide], ...] = tuple(
    (instance, op, nodes, wide)
    for instance in INSTANCES
    for op in OPS
    for nodes in (1, 2, 6)
    for wide in get_args(Wide)
    if nodes == 1 or wide != "part"
)


# The largest nodes take seconds each: they have their turn among the slow tests.
SMALL = [case for case in EVERY if "ultraserver" not in case[0]]


@pytest.mark.parametrize(("instance", "op", "nodes", "wide"), random.Random(11).sample(SMALL, 12))
def test_no_time_falls_with_size_or_rises_with_speed(
    instance: str, op: Op, nodes: int, wide: Wide
) -> None:
    check(instance, op, nodes, wide)


@pytest.mark.soak
@pytest.mark.parametrize("instance", INSTANCES)
def test_no_time_falls_on_any_instance(instance: str) -> None:
    for name, op, nodes, wide in EVERY:
        if name == instance:
            check(name, op, nodes, wide)


def test_trainium3_takes_the_fastest_and_says_so() -> None:
    catalog = open_catalog()
    instance = "trn3-ultraserver-gen1"
    stack = stack_of(catalog, instance)
    where = place(load_platform(catalog, instance), nodes=1)
    members = members_of(where, [range(where.ranks)], symmetric=True)
    found = chosen_for(stack, members, "all-reduce")
    assert isinstance(found, tuple)
    best = swept_times_s(found, SIZES)
    # No algorithm asked for is faster at any size.
    for name in ("ring", "halving", "folded-halving", "kangaring"):
        asked = algorithm_named(name)
        alone = select(stack, where, "all-reduce", [range(where.ranks)], algorithm=asked)
        assert isinstance(alone, tuple)
        assert (best <= swept_times_s(alone, SIZES) * (1 + ROUNDING)).all()
    assert stack.remark is not None
    assert "upper bound" in stack.remark
    assert stack_of(catalog, "p5.48xlarge").remark is None
