"""How likely a layout fits: between sure and impossible, by the ranges of reserve and losses."""

from __future__ import annotations

import numpy as np
import pytest

from trnbench.engines.analytic.step.memory import memory
from trnbench.facts.calibration.hosts import MemoryOverheads
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import Layout
from trnbench.predict.fit import LayoutMemory, fragmentation_range, reserve_range
from trnbench.predict.setup import train_setup
from trnbench.program.step import training_step

CATALOG = open_catalog(environment={})


def counted(stack):
    """The stack with software that holds nothing beside its tensors."""
    told = stack.provenance
    known = {key: one for key, one in told.evidence.items() if not key.startswith("memory.")}
    return replace(stack, memory=MemoryOverheads(), provenance=replace(told, evidence=known))


SETUP = train_setup(CATALOG, "llama2-7b", "p5.48xlarge", 1)
STACK = counted(SETUP.stack)
PROGRAM = training_step(
    SETUP.model,
    Layout(tp=8, global_batch=64, sequence=4096, micro_batch=4, precision="bf16-master"),
)


def chance(capacity_bytes):
    memory_of_chip = replace(
        SETUP.platform.chip.memory, capacity_per_chip_bytes=float(capacity_bytes)
    )
    chip = replace(SETUP.platform.chip, memory=memory_of_chip)
    return of(STACK, replace(SETUP.platform, chip=chip)).fit_probability


def of(stack, platform=SETUP.platform, program=PROGRAM):
    return LayoutMemory(program=program, platform=platform, stack=stack)


def needed(ratio):
    return float(memory(PROGRAM, SETUP.platform, fragmentation_ratio=ratio).total_bytes)


def test_it_is_below_half_where_what_is_expected_just_fits():
    reserve, lost = reserve_range(SETUP.platform), fragmentation_range(STACK)
    assert reserve.low < reserve.value < reserve.high
    # Both ranges reach further up than down.
    assert 0.25 < chance(needed(lost.value) + reserve.value) < 0.5
    assert chance(needed(0.0)) == 0.0
    assert chance(needed(1.0) + 10 * reserve.high) == 1.0


def test_the_upper_ends_leave_little_doubt():
    reserve, lost = reserve_range(SETUP.platform), fragmentation_range(STACK)
    # Each end is passed in a tenth of the cases; both at once make it less.
    assert 0.9 < chance(needed(lost.high) + reserve.high) < 1.0


def test_more_room_is_never_less_likely_to_do():
    sizes = [needed(0.0) + step * 2**28 for step in range(24)]
    chances = [chance(size) for size in sizes]
    assert chances == sorted(chances)


def with_memory(low=None, high=None, **numbers):
    """Return the stack with other overheads; `low` and `high` are those of the first of them."""
    evidence = dict(STACK.provenance.evidence)
    if low is not None:
        kind = evidence["fragmentation"]
        path = f"memory.{next(iter(numbers)).removesuffix('_bytes')}"
        evidence[path] = replace(kind, low=low, high=high)
    return replace(
        STACK,
        memory=MemoryOverheads(**numbers),
        provenance=replace(STACK.provenance, evidence=evidence),
    )


def test_the_interval_holds_the_value_and_grows_with_what_is_not_known():
    plain, unsure = of(STACK).held(), of(with_memory(0.8, 1.4, whole=1.0)).held()
    assert plain.value == unsure.value == needed(STACK.fragmentation)
    assert unsure.low < plain.low < plain.value < plain.high
    # The share itself is wider than what the allocator loses: its own ends are nearly reached.
    assert unsure.low == pytest.approx(0.8 * plain.value, rel=0.03)
    assert unsure.high == pytest.approx(1.4 * plain.value, rel=0.03)


def test_what_the_software_holds_lowers_the_chance_to_fit():
    room = needed(0.0) + 4 * 2**30
    memory_of_chip = replace(SETUP.platform.chip.memory, capacity_per_chip_bytes=room)
    platform = replace(SETUP.platform, chip=replace(SETUP.platform.chip, memory=memory_of_chip))
    chances = [
        of(with_memory(**numbers), platform).fit_probability
        for numbers in ({}, {"runtime_bytes": 1e9}, {"runtime_bytes": 1e9, "states": 1.2})
    ]
    assert 1 > chances[0] > chances[1] > chances[2]


def test_a_chip_holds_its_ranks_whatever_stage_they_are_on():
    platform = train_setup(CATALOG, "llama2-7b", "trn2.48xlarge", 1).platform
    assert platform.chip.ranks() == 4
    layout = Layout(tp=2, pp=4, global_batch=64, sequence=4096, precision="bf16-master")
    piped = of(STACK, platform, training_step(SETUP.model, layout))
    held = memory(piped.program, platform, fragmentation_ratio=STACK.fragmentation)
    first, light = (float(stage.total_bytes) for stage in held.stages[:2])
    assert piped.held("first").value == first
    assert piped.held("worst").value == float(held.total_bytes)
    # Groups of all ranks, of tensor-parallel ones, of stages: no log of a framework sees them.
    buffers = of(with_memory(communicator_bytes=1000.0), platform, piped.program)
    assert buffers.held("first").value == first
    assert buffers.held("worst").value == float(held.total_bytes) + 3000
    assert piped.held("chip").value == 2 * first + 2 * light
    alone = Layout(tp=2, global_batch=64, sequence=4096, precision="bf16-master")
    half = of(STACK, platform, training_step(SETUP.model, alone))
    assert half.held("chip").value == 2 * half.held().value


def test_numbers_may_be_rows_of_samples():
    found = of(STACK)
    rows = found.bytes_by({"memory.states": np.array([1.0, 1.1]), "fragmentation": 0.0})
    each = [found.bytes_by({"memory.states": one, "fragmentation": 0.0}) for one in (1.0, 1.1)]
    assert rows.tolist() == [float(one) for one in each]
    assert each[0] == needed(0.0) < each[1]
