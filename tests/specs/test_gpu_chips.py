"""The GPU chip files: formats, rates that follow from the multiprocessors, recorded conflicts."""

from __future__ import annotations

import pytest

from trnbench.facts.catalog.provenance import Kind
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.library import load_chip

AMPERE = ("fp64", "fp32", "tf32", "bf16", "fp16", "int8")
EIGHT_BIT = ("fp8_e4m3fn", "fp8_e5m2", "blockfp8_e4m3")
HOPPER = ("fp64", "fp32", "tf32", "bf16", "fp16", *EIGHT_BIT, "int8")
BLACKWELL = (*HOPPER[:-1], "mxfp8_e4m3", "mxfp8_e5m2", "nvfp4", "mxfp4", "int8")
GPUS = {
    "a100-40gb": AMPERE,
    "a100-80gb": AMPERE,
    "h100": HOPPER,
    "h100-96gb-500w": HOPPER,
    "h200": HOPPER,
    "b200": BLACKWELL,
    "b300": BLACKWELL,
    "gb200": BLACKWELL,
    "gb300": BLACKWELL,
    "gh200": HOPPER,
}
# Dense bf16 FLOP a multiprocessor does in a clock: 4 tensor cores x 256, 512, 1,024 multiply-adds.
BF16_FLOP_PER_CLOCK = {"a100": 2048, "h100": 4096, "b200": 8192}
CATALOG = open_catalog(environment={})


@pytest.fixture(params=GPUS)
def gpu(request: pytest.FixtureRequest) -> Chip:
    return load_chip(CATALOG, request.param)


def test_formats(gpu: Chip) -> None:
    assert gpu.formats == GPUS[gpu.name]
    assert gpu.ranks() == 1


def test_no_other_gpu_is_untested() -> None:
    chips = [load_chip(CATALOG, entry.name) for entry in CATALOG.entries("chips")]
    assert {chip.name for chip in chips if chip.multiprocessors} == set(GPUS)


def test_bf16_rate_follows_from_the_multiprocessors(gpu: Chip) -> None:
    # H100: 132 x 4,096 x 1.83 GHz = 989.4 TFLOP/s.
    sm = gpu.multiprocessors
    assert sm is not None
    derived = sm.count * BF16_FLOP_PER_CLOCK[gpu.family] * sm.clock_hz
    assert gpu.peak_flop_per_s("bf16") == pytest.approx(derived, rel=3e-3)


def test_rates_halve_with_every_doubling_of_width(gpu: Chip) -> None:
    peak = gpu.peak_flop_per_s
    assert peak("fp16") == peak("bf16")
    assert peak("tf32") == pytest.approx(peak("bf16") / 2, rel=1e-3)
    for eight_bit in {*EIGHT_BIT, "mxfp8_e4m3", "mxfp8_e5m2"} & set(gpu.formats):
        assert peak(eight_bit) == pytest.approx(2 * peak("bf16"), rel=1e-3)


def test_sparsity_doubles_the_dense_rate(gpu: Chip) -> None:
    assert gpu.sparsity is not None
    assert gpu.sparsity.speedup == {"2:4": 2}
    for name, sparse in gpu.sparsity.peak_per_chip_flop_per_s.items():
        # The dense fp4 of Blackwell Ultra is 3/4 of its sparse rate.
        if gpu.name not in ("b300", "gb300") or not name.endswith("fp4"):
            assert sparse == pytest.approx(2 * gpu.peak_flop_per_s(name), rel=1e-3)


def test_the_best_tile_sets_the_scale(gpu: Chip) -> None:
    sm = gpu.multiprocessors
    assert sm is not None
    assert max(tile.relative_rate for tile in sm.tiles) == 1
    assert all(0 < tile.relative_rate <= 1 for tile in sm.tiles)
    assert sm.cache_bandwidth_per_chip_bytes_per_s > gpu.memory.bandwidth_per_chip_bytes_per_s


def test_values_used_are_the_ones_conflicts_name(gpu: Chip) -> None:
    assert gpu.provenance.conflicts
    for conflict in gpu.provenance.conflicts:
        assert gpu.provenance.evidence[conflict.field].text == conflict.used
        assert len({reading.value for reading in conflict.values}) > 1
        assert any(reading.value.startswith(conflict.used) for reading in conflict.values)


def test_what_nobody_published_is_marked(gpu: Chip) -> None:
    evidence = gpu.provenance.evidence
    assert evidence["reserve.per_rank"].kind is Kind.ASSUMED
    timed = gpu.family == "h100"
    for field in ("multiprocessors.launch_latency", "multiprocessors.program_start"):
        assert (evidence[field].kind is Kind.ASSUMED) is not timed
    assert all(e.low is not None for e in evidence.values() if e.kind is Kind.ASSUMED)


@pytest.mark.parametrize(
    ("name", "capacity_gib", "bandwidth_tb_s", "bf16_tflop_s", "power_w"),
    [
        ("a100-40gb", 40, 1.555, 312, 400),
        ("a100-80gb", 80, 2.039, 312, 400),
        ("h100", 80, 3.35, 989.4, 700),
        ("h100-96gb-500w", 95, 2.4, 912, 500),
        ("h200", 141, 4.8, 989.4, 700),
        ("b200", 183359 / 1024, 8, 2250, 1000),
        ("b300", 275040 / 1024, 8, 2250, 1100),
        ("gb200", 185, 8, 2500, 1200),
        ("gb300", 277, 8, 2500, 1400),
        ("gh200", 144e9 / 2**30, 4.9, 989.4, 900),
    ],
)
def test_headline_figures(
    name: str, capacity_gib: float, bandwidth_tb_s: float, bf16_tflop_s: float, power_w: float
) -> None:
    chip = load_chip(CATALOG, name)
    assert chip.memory.capacity_per_chip_bytes == capacity_gib * 2**30
    assert chip.memory.bandwidth_per_chip_bytes_per_s == pytest.approx(bandwidth_tb_s * 1e12)
    assert chip.peak_flop_per_s("bf16") == pytest.approx(bf16_tflop_s * 1e12)
    assert chip.power_w == power_w


def test_only_blackwell_rounds_stochastically() -> None:
    modes = {name: load_chip(CATALOG, name).rounding.modes for name in GPUS}
    assert {name for name, known in modes.items() if "sr" in known} == {
        "b200",
        "b300",
        "gb200",
        "gb300",
    }


def test_a_gpu_without_a_memory_size_is_the_larger_one() -> None:
    assert load_chip(CATALOG, "a100").name == "a100-80gb"
