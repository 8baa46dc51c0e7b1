"""How likely a layout fits: between sure and impossible, by the ranges of reserve and losses."""

from __future__ import annotations

import attrs

from trnbench.analytic.step.memory import memory
from trnbench.catalog.search import open_catalog
from trnbench.predict.fit import fit_probability, fragmentation_range, reserve_range
from trnbench.predict.setup import train_setup
from trnbench.program.step import training_step
from trnbench.workload.layout import Layout

CATALOG = open_catalog(environment={})
SETUP = train_setup(CATALOG, "llama2-7b", "p5.48xlarge", 1)
PROGRAM = training_step(
    SETUP.model,
    Layout(tp=8, global_batch=64, sequence=4096, micro_batch=4, precision="bf16-master"),
)


def chance(capacity_bytes):
    memory_of_chip = attrs.evolve(
        SETUP.platform.chip.memory, capacity_per_chip_bytes=float(capacity_bytes)
    )
    chip = attrs.evolve(SETUP.platform.chip, memory=memory_of_chip)
    return fit_probability(PROGRAM, attrs.evolve(SETUP.platform, chip=chip), SETUP.stack)


def needed(ratio):
    return float(memory(PROGRAM, SETUP.platform, fragmentation_ratio=ratio).total_bytes)


def test_it_is_below_half_where_what_is_expected_just_fits():
    reserve, lost = reserve_range(SETUP.platform), fragmentation_range(SETUP.stack)
    assert reserve.low < reserve.value < reserve.high
    # Both ranges reach further up than down.
    assert 0.25 < chance(needed(lost.value) + reserve.value) < 0.5
    assert chance(needed(0.0)) == 0.0
    assert chance(needed(1.0) + 10 * reserve.high) == 1.0


def test_the_upper_ends_leave_little_doubt():
    reserve, lost = reserve_range(SETUP.platform), fragmentation_range(SETUP.stack)
    # Each end is passed in a tenth of the cases; both at once make it less.
    assert 0.9 < chance(needed(lost.high) + reserve.high) < 1.0


def test_more_room_is_never_less_likely_to_do():
    sizes = [needed(0.0) + step * 2**28 for step in range(24)]
    chances = [chance(size) for size in sizes]
    assert chances == sorted(chances)
