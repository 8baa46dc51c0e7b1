from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.steps import operand_bytes
from trnbench.engines.analytic.matrix.systolic import ArrayConventions, array_time
from trnbench.engines.analytic.matrix.time import matrix_time, roofline, stream_time_s
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.compute_unit import GpuTile, Multiprocessors
from trnbench.facts.hardware.library import load_chip
from trnbench.facts.records import replace
from trnbench.machine.tiling import KERNELS
from trnbench.program.matrix import matrix_product

CATALOG = open_catalog()
NEURON = ("trainium1", "trainium2", "trainium3")
CHIPS = {name: load_chip(CATALOG, name) for name in (*NEURON, "h100", "a100-80gb")}
SIZES = st.integers(1, 20000)


@settings(deadline=None, max_examples=150)
@given(
    m=SIZES,
    k=SIZES,
    n=SIZES,
    chip=st.sampled_from(sorted(CHIPS)),
    kernel=st.sampled_from(KERNELS),
    cores=st.sampled_from([1, "all"]),
)
def test_nothing_beats_the_peak_or_the_memory(m, k, n, chip, kernel, cores):
    if CHIPS[chip].cores is None:
        kernel = "blocked"
    time = matrix_time(matrix_product(m, k, n), CHIPS[chip], cores=cores, kernel=kernel)
    assert float(time.time_s) > 0
    rate = float(time.product.flop) / float(time.time_s)
    assert 0 < rate / float(time.peak_flop_per_s) <= 1
    intensity = float(time.product.flop) / float(time.hbm_bytes)
    roof = roofline(intensity, time.peak_flop_per_s, time.memory_bytes_per_s)
    assert rate <= float(roof) * (1 + 1e-9)
    assert float(time.hbm_bytes) >= float(operand_bytes(time.product)) * (1 - 1e-9)
    busiest = max(
        float(seconds) for part, seconds in time.parts_s.items() if part not in ("weights", "fixed")
    )
    assert float(time.time_s) == pytest.approx(busiest + float(time.parts_s["fixed"]))


@settings(deadline=None, max_examples=40)
@given(
    m=SIZES,
    k=SIZES,
    n=SIZES,
    batch=st.integers(1, 6),
    chip=st.sampled_from(sorted(CHIPS)),
    cores=st.sampled_from([1, "all"]),
)
def test_arrays_are_priced_as_scalars_are(m, k, n, batch, chip, cores):
    one = matrix_time(matrix_product(m, k, n, batch=batch), CHIPS[chip], cores=cores)
    ms = np.full((3000, 3), 77.0)
    ms[1234, 1] = m
    batches = np.full((3000, 1), 64.0)
    batches[1234] = batch
    many = matrix_time(matrix_product(ms, k, n, batch=batches), CHIPS[chip], cores=cores)
    assert np.broadcast_to(many.cores, (3000, 3))[1234, 1] == float(one.cores)
    for name in ("time_s", "hbm_bytes"):
        assert getattr(many, name)[1234, 1] == pytest.approx(float(getattr(one, name)), rel=1e-12)
    for part, seconds in one.parts_s.items():
        assert many.parts_s[part][1234, 1] == pytest.approx(float(seconds), rel=1e-12)


@settings(deadline=None, max_examples=40)
@given(m=SIZES, k=SIZES, n=SIZES, chip=st.sampled_from(NEURON))
def test_more_products_take_longer_and_more_cores_do_not(m, k, n, chip):
    chip_record = CHIPS[chip]
    one = float(matrix_time(matrix_product(m, k, n), chip_record).time_s)
    three = float(matrix_time(matrix_product(m, k, n, batch=3), chip_record).time_s)
    split = float(matrix_time(matrix_product(m, k, n, batch=3), chip_record, cores=2).time_s)
    assert one < three <= 3 * one * 1.001
    # Where a product is one thin column, a ragged share costs a core a little more than a half.
    assert split <= three * 1.005


def test_tensor_time_of_a_whole_product():
    # 32 x 16 x 64 products of 512 cycles at 2.8 GHz = 5.99 ms; weights 32 cycles each.
    time = matrix_time(matrix_product(4096, 8192, 8192), CHIPS["trainium1"])
    assert float(time.parts_s["tensor"]) == pytest.approx(32768 * 512 / 2.8e9)
    assert float(time.parts_s["weights"]) == pytest.approx(32768 * 32 / 2.8e9)
    assert str(time.binds) == "tensor"
    assert float(time.cycles) == pytest.approx(float(time.time_s) * 2.8e9)


def test_tensor_time_is_the_systolic_model_with_overlap():
    # The moving operand streams past a stationary K x M tile: the `is` flow.
    product = matrix_product(512, 1024, 2048)
    conventions = ArrayConventions(
        dataflow="is", rows=128, columns=128, overlap=True, count_from_zero=False
    )
    cycles = float(array_time(product, conventions).cycles)
    time = matrix_time(product, CHIPS["trainium2"])
    assert float(time.parts_s["tensor"]) * 2.4e9 == pytest.approx(cycles)


def test_ragged_tiles_cost_at_least_the_shortest_product():
    # N = 520: a tile of 512 and one of 8 that takes 64 cycles.
    time = matrix_time(matrix_product(128, 128, 520), CHIPS["trainium1"])
    assert float(time.parts_s["tensor"]) == pytest.approx((512 + 64) / 2.8e9)


@pytest.mark.parametrize(
    ("chip", "number_format", "pattern", "times"),
    [
        ("trainium1", "fp8_e4m3", None, 1.0),
        ("trainium2", "fp8_e4m3", None, 2.0),
        ("trainium3", "mxfp8_e4m3", None, 4.0),
        ("trainium2", "bf16", "4:16", 4.0),
        ("trainium2", "bf16", "2:4", 2.0),
        ("trainium2", "fp8_e4m3", "4:16", 4.0),
        ("trainium2", "fp32", None, 0.25),
    ],
)
def test_formats_and_patterns_against_dense_bf16(chip, number_format, pattern, times):
    dense = matrix_time(matrix_product(4096, 8192, 4096), CHIPS[chip])
    other = matrix_product(4096, 8192, 4096, format_a=number_format, pattern=pattern)
    time = matrix_time(other, CHIPS[chip])
    assert float(dense.parts_s["tensor"]) / float(time.parts_s["tensor"]) == pytest.approx(times)
    assert float(time.product.flop) / float(time.time_s) <= float(time.peak_flop_per_s)


def test_naive_kernel_reads_both_operands_again_and_again():
    # a: 16 moving tiles, b: 32 stationary ones
    time = matrix_time(matrix_product(4096, 8192, 8192), CHIPS["trainium1"], kernel="naive")
    a, b = 4096 * 8192 * 2, 8192 * 8192 * 2
    assert float(time.read_bytes) == 16 * a + 32 * b
    assert float(time.written_bytes) == 4096 * 8192 * 2
    assert str(time.binds) == "memory"


def test_short_contractions_are_bound_by_writing_results():
    time = matrix_time(matrix_product(8192, 128, 8192), CHIPS["trainium1"])
    assert str(time.binds) == "memory"
    assert float(time.product.flop) / float(time.hbm_bytes) < 128


def test_turning_an_operand_costs_time():
    plain = matrix_time(matrix_product(2048, 2048, 2048), CHIPS["trainium1"])
    turned = matrix_time(matrix_product(2048, 2048, 2048, transpose_a=True), CHIPS["trainium1"])
    assert float(turned.time_s) > float(plain.time_s)
    assert float(turned.parts_s["tensor"]) > float(plain.parts_s["tensor"])


def test_what_cannot_be_is_a_result_with_reasons():
    lacking = matrix_time(matrix_product([1, 2], 1, 1, format_a="mxfp4"), CHIPS["trainium1"])
    assert not lacking.feasible
    assert np.isnan(lacking.time_s).all()
    assert "it has fp32" in lacking.reasons[0]
    partly = matrix_time(matrix_product(256, [100, 160], 128, pattern="4:16"), CHIPS["trainium2"])
    assert not partly.feasible
    assert np.isnan(partly.time_s).tolist() == [True, False]
    cores = matrix_time(matrix_product(1, 1, 1), CHIPS["h100"], cores=2)
    assert cores.reasons == ("h100 has 1 core, not 2",)
    kernel = matrix_time(matrix_product(1, 1, 1), CHIPS["h100"], kernel="naive")
    assert kernel.reasons == ("h100 has no kernel naive, NeuronCores have; leave it out",)


def test_gpu_runs_in_waves_of_tiles():
    # H100, 132 multiprocessors: 16 x 8 tiles of 256 x 128 are one wave, 17 x 8 need two.
    one = matrix_time(matrix_product(4096, 8192, 1024), CHIPS["h100"])
    per_unit = 989.4e12 / 132
    assert float(one.parts_s["tensor"]) == pytest.approx(2 * 256 * 128 * 8192 / per_unit)
    more = matrix_time(matrix_product(4096 + 256, 8192, 1024), CHIPS["h100"])
    assert float(more.parts_s["tensor"]) > 1.4 * float(one.parts_s["tensor"])


def test_gpu_pads_the_contraction_and_waits_for_memory():
    short = matrix_time(matrix_product(4096, 1, 4096), CHIPS["h100"])
    full = matrix_time(matrix_product(4096, 64, 4096), CHIPS["h100"])
    assert float(short.parts_s["tensor"]) == float(full.parts_s["tensor"])
    thin = matrix_time(matrix_product(1, 8192, 8192), CHIPS["h100"])
    assert str(thin.binds) == "memory"
    bytes_moved = 8192 * 8192 * 2 + 2 * 8192 * 2
    assert float(thin.parts_s["memory"]) == pytest.approx(bytes_moved / 3.35e12)


@pytest.mark.parametrize(
    ("cache_bytes", "n", "read_bytes"),
    [
        # The cache holds neither operand. 4 multiprocessors with tiles of 8 x 8 work on a patch of
        # 16 x 16 at a time; 32 x 32 are 4 such waves, each reading 16 rows and 16 columns of
        # 32 elements of 2 bytes: 4 x (16 + 16) x 64.
        (0.0, 32, 8192),
        # It holds one operand (2,048 bytes), but not both: as above.
        (4095.0, 32, 8192),
        # It holds both, so each is read once: 2 x 32 x 64.
        (4096.0, 32, 4096),
        # 32 x 8 is one wave over a patch of 16 x 8: 24 x 64 = 1,536 bytes are less than both
        # operands once, (32 + 8) x 64, and nothing is read less than once.
        (0.0, 8, 2560),
        # 32 x 24 is 12 tiles, so 3 waves of 16 x 16 patches: 3 x 32 x 64.
        (0.0, 24, 6144),
    ],
)
def test_gpu_memory_traffic_by_hand(cache_bytes, n, read_bytes):
    unit = Multiprocessors(
        count=4,
        clock_hz=1.0,
        cache_per_chip_bytes=cache_bytes,
        cache_bandwidth_per_chip_bytes_per_s=1e12,
        launch_latency_s=0.5,
        contraction_step=8,
        rates_per_chip_flop_per_s={"bf16": 1e9},
        tiles=(GpuTile(rows=8, columns=8, relative_rate=1.0),),
    )
    memory = replace(CHIPS["h100"].memory, bandwidth_per_chip_bytes_per_s=1024.0)
    chip = replace(CHIPS["h100"], multiprocessors=unit, memory=memory)
    time = matrix_time(matrix_product(32, 32, n), chip)
    written_bytes = 32 * n * 2
    assert float(time.read_bytes) == read_bytes
    assert float(time.written_bytes) == written_bytes
    assert float(time.time_s) == (read_bytes + written_bytes) / 1024 + 0.5


def test_streaming_takes_bytes_at_the_rate_of_their_rows():
    # Trainium1: 16 engines, a row of 8 KiB in 6 + 8192 / 17 ns.
    rate = 16 * 8192 / (6e-9 + 8192 / 17e9)
    assert stream_time_s(1e9, 8192, CHIPS["trainium1"]) == pytest.approx(1.3e-6 + 1e9 / rate)
    assert stream_time_s(3.35e12, 1, CHIPS["h100"]) == pytest.approx(1.0)
