"""Kernels of GPUs timed alone: what rows say, shares worked by hand, and scores of the set."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.fakes import hand_chip
from trnbench.engines.analytic.step.compute import attention_time_s, product_time_s
from trnbench.evidence.attention_kernels import TimedAttention
from trnbench.evidence.gpu_kernels import compare_gpu_kernels, gpu_kernel
from trnbench.evidence.rows import EvidenceRow, RowFault
from trnbench.facts.calibration.chip_efficiency import ChipEfficiency, alone
from trnbench.facts.calibration.training_stack import load_chip_efficiency
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_chip
from trnbench.facts.records import replace
from trnbench.machine.costs.shares import reached_share
from trnbench.program.matrix import matrix_product
from trnbench.verbs.validate.run import shipped_evidence

CATALOG = open_catalog()
KNOWN = ChipEfficiency(
    name="chip-hand",
    title="hand",
    chips=("hand",),
    tensor_share=0.5,
    half_share_depth=100.0,
    narrow_share=0.8,
    narrow_extra_depth=200.0,
    unaligned_share=0.25,
    memory_share=1.0,
    power_gain=1.2,
    attention_keys=16.0,
    attention_backward_keys=32.0,
    attention_tail_queries=4.0,
    attention_forward_softmax=64.0,
    attention_wide_share=0.5,
)


def row(**cells: str) -> EvidenceRow:
    base = {"kind": "product", "shape": "64x128x256", "dtype": "bf16", "device": "NVIDIA H200"}
    return EvidenceRow(id="one", line=2, cells=base | cells)


def aligned_chip():
    chip = hand_chip(memory_bytes_per_s=1e30)
    assert chip.multiprocessors is not None
    return replace(chip, multiprocessors=replace(chip.multiprocessors, row_alignment_bytes=16.0))


def attention(**sizes) -> TimedAttention:
    usual = {"heads": 2, "kv_heads": 2, "queries": 8, "keys": 8, "head_size": 128}
    call = {"chip": "hand", "cores": 1, "batch": 1, "causal": True, "backward": False}
    return TimedAttention(**{**usual, **call, "number_format": "bf16", **sizes})


def test_shares_by_hand():
    # 0.5 x 1.2 x 300 / (300 + 100); in 8 bits 0.8 of it, and 200 elements later.
    assert float(reached_share(KNOWN, "bf16", np.array(300.0))) == pytest.approx(0.45)
    assert float(reached_share(KNOWN, "fp8_e4m3fn", np.array(300.0))) == pytest.approx(0.24)


@pytest.mark.parametrize(("shape", "slower"), [((8, 9, 8), 4), ((8, 8, 9), 4), ((9, 8, 8), 1)])
def test_rows_that_are_no_multiple_of_16_bytes_take_slow_kernels(shape, slower):
    chip, product = aligned_chip(), matrix_product(*shape)
    seconds = float(product_time_s(product, chip, alone(KNOWN)))
    padded = matrix_product(*(-(-size // 8) * 8 for size in shape))
    fast = float(product_time_s(padded, chip, alone(KNOWN)))
    # A second to start; tiles of 8 x 8 and steps of 8 are whole for both.
    assert seconds - 1 == pytest.approx(slower * (fast - 1))


def test_attention_by_hand():
    # 2 heads x 32 causal pairs x 2 products x 2 x 128: 32,768 FLOP at 1,024 x 1.2 FLOP/s. Tiles add
    # 16 / 2 x 8 / 32 = 2, the tail 4 x 1 x 8 / (2 x 32) = 1/2; heads of 128 have their own share.
    chip = hand_chip(memory_bytes_per_s=1e30)
    one_s = 32768 / 1024 / 1.2
    found = attention_time_s(attention().op, chip, alone(KNOWN))
    assert float(found) == pytest.approx(one_s * 3.5 + 1)
    # Heads of 64: half the FLOP, and a softmax that counts twice: (1 + 64 / 64) / (1 + 64 / 128).
    small = attention_time_s(attention(head_size=64).op, chip, alone(KNOWN))
    assert float(small) == pytest.approx(one_s / 2 * 3.5 * 2 / 1.5 + 1)
    # Backward: 5 products for 2, tiles add 4, three kernels; above 128 at half the share.
    back = attention_time_s(attention(backward=True).op, chip, alone(KNOWN))
    assert float(back) == pytest.approx(one_s * 2.5 * 5.5 + 3)
    wide = attention_time_s(attention(backward=True, head_size=256).op, chip, alone(KNOWN))
    assert float(wide) == pytest.approx(one_s * 5 * 5.5 * 2 + 3)


def test_a_kernel_alone_also_starts_its_program():
    chip, known = load_chip(CATALOG, "h200"), load_chip_efficiency(CATALOG, "h200")
    unit = chip.multiprocessors
    assert unit is not None
    empty = gpu_kernel(CATALOG, row(kind="launch", shape="1 element add", dtype="fp32"))
    start_s = unit.program_start_s + unit.launch_latency_s
    assert float(empty.times_s(chip, known)) == pytest.approx(start_s)
    copy = gpu_kernel(CATALOG, row(kind="copy", shape="1024 MiB"))
    # Read and written once.
    moved_s = 2 * 2**30 / (4.8e12 * float(known.memory_share))
    assert float(copy.times_s(chip, known)) == pytest.approx(moved_s + start_s)


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ({"shape": "64x128"}, "shape"),
        ({"kind": "sort"}, "kind"),
        ({"device": "a fast one"}, "device"),
    ],
)
def test_what_a_row_does_not_say(cells, words):
    with pytest.raises(RowFault, match=words):
        gpu_kernel(CATALOG, row(**cells))


def test_devices_are_named_as_their_drivers_name_them():
    for device, chip in (("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA A100-SXM4-80GB", "a100-80gb")):
        assert gpu_kernel(CATALOG, row(device=device)).chip == chip


def test_scores_of_the_set():
    (file,) = shipped_evidence(["gpu-kernels"])
    found = compare_gpu_kernels(CATALOG, file)
    assert not [one.reason for one in found if one.reason]
    by_use = {use: [one for one in found if one.use == use] for use in ("fit", "check")}
    assert {use: len(rows) for use, rows in by_use.items()} == {"fit": 74, "check": 104}
    assert all(one.fitted is (one.use == "fit") for one in found)

    def mean(rows):
        return float(np.mean([abs(one.error) for one in rows]))

    def sizes(one):
        return [int(size) for size in one.layout.split("x")]

    aligned = [
        one
        for one in by_use["check"]
        if one.model == "product"
        and min(sizes(one)) >= 1024
        and all(size % 8 == 0 for size in sizes(one))
    ]
    long = [
        one
        for one in by_use["check"]
        if one.model.startswith("attention") and " s512 " not in (one.layout or "")
    ]
    assert len(aligned) == 43
    assert len(long) == 30
    assert mean(aligned) <= 0.08
    assert mean(long) <= 0.07
    assert mean(by_use["fit"]) <= 0.07
    inside = [bool(one.time.covered) for one in found]
    assert math.isclose(float(np.mean(inside)), 0.8, abs_tol=0.08)
