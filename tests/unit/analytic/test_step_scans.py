"""Bytes and time of the scans of a layer, by hand, on a systolic array and on a GPU."""

from __future__ import annotations

import pytest

from tests.unit.analytic.test_step_compute import CATALOG, CHIPS, IDEAL
from trnbench.engines.analytic.step.compute import compute_time
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.library import load_model
from trnbench.program.ops import ScanOp
from trnbench.program.step import StepProgram, training_step

TOKENS = 8192
# Mamba-2 2.7B: 80 heads of 64, states of 128, one group, chunks of 256. FLOP of a token:
# states 2 H P N; output 2 G Q N + 2 H Q P + 2 H P N.
MAMBA = "mamba2-2.7b", "mamba"
MAMBA_FLOP = 2 * 80 * 64 * 128, 2 * 256 * 128 + 2 * 80 * 256 * 64 + 2 * 80 * 64 * 128
# Values in bf16, key (and query), steps and decays in fp32, a state for each chunk.
MAMBA_STATES = (TOKENS // 256) * 80 * 64 * 128 * 2
MAMBA_READ = 80 * 64 * 2 + 128 * 2 + 2 * 80 * 4
MAMBA_BYTES = (
    TOKENS * MAMBA_READ + MAMBA_STATES,
    TOKENS * (MAMBA_READ + 128 * 2) + MAMBA_STATES + TOKENS * 80 * 64 * 2,
)
# Gated delta net of Qwen3-Next: 32 heads of 128 x 128, 16 of keys, chunks of 64.
DELTA = "qwen3-next-80b-a3b", "linear"
# States: keys with keys, what the inverse makes of keys and values, keys with states, states, and
# a third of a cube for the inverse; output: scores, values, query with states.
DELTA_FLOP = (
    2 * 32 * (3 * 64 * 128 + 2 * 128**2 + 64**2 / 3),
    2 * 32 * (2 * 64 * 128 + 128**2),
)
DELTA_STATES = (TOKENS // 64) * 32 * 128 * 128 * 2
DELTA_READ = 32 * 128 * 2 + 16 * 128 * 2 + 2 * 32 * 4
DELTA_BYTES = (
    TOKENS * DELTA_READ + DELTA_STATES,
    TOKENS * (DELTA_READ + 16 * 128 * 2) + DELTA_STATES + TOKENS * 32 * 128 * 2,
)


def program_of(name: str) -> StepProgram:
    layout = Layout(global_batch=8, sequence=TOKENS, precision="bf16-master")
    return training_step(load_model(CATALOG, name), layout)


@pytest.mark.parametrize(
    ("scan", "flop", "sizes"), [(MAMBA, MAMBA_FLOP, MAMBA_BYTES), (DELTA, DELTA_FLOP, DELTA_BYTES)]
)
def test_flop_and_bytes_of_both_parts(scan, flop, sizes):
    name, kind = scan
    ops = [op for op in program_of(name).blocks[kind].phase("F") if isinstance(op, ScanOp)]
    assert [op.part for op in ops] == ["states", "output"]
    assert [float(op.flop) / TOKENS for op in ops] == pytest.approx(flop, rel=1e-12)
    assert [float(op.bytes) for op in ops] == list(sizes)


@pytest.mark.parametrize("chip", ["trainium2", "trainium1", "h100", "a100-80gb"])
@pytest.mark.parametrize(
    ("scan", "flop", "sizes"), [(MAMBA, MAMBA_FLOP, MAMBA_BYTES), (DELTA, DELTA_FLOP, DELTA_BYTES)]
)
def test_a_scan_takes_its_products_or_its_bytes(chip, scan, flop, sizes):
    name, kind = scan
    sheet = CHIPS[chip]
    ranks = sheet.ranks()
    # A side of 64 (a head of Mamba-2, a chunk of the delta net) fills half of 128 rows.
    idle = 2 if chip.startswith("trainium") else 1
    flop_per_s = sheet.peak_flop_per_s("bf16") / ranks
    bytes_per_s = sheet.memory.bandwidth_per_chip_bytes_per_s / ranks
    expected = [
        max(idle * TOKENS * work / flop_per_s, size / bytes_per_s)
        for work, size in zip(flop, sizes, strict=True)
    ]
    found = compute_time(program_of(name), sheet, IDEAL).blocks[kind]
    assert float(found.parts["F", "attention"]) == pytest.approx(sum(expected), rel=1e-9)


def test_bytes_bound_a_scan_on_a_gpu_and_products_its_output_on_an_array():
    for chip, bound in (("h100", False), ("trainium2", True)):
        sheet = CHIPS[chip]
        idle = 2 if chip == "trainium2" else 1
        computed = idle * TOKENS * MAMBA_FLOP[1] / sheet.peak_flop_per_s("bf16")
        moved = MAMBA_BYTES[1] / sheet.memory.bandwidth_per_chip_bytes_per_s
        assert (computed > moved) == bound
