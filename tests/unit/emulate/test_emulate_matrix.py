from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.steps import operand_bytes
from trnbench.engines.emulate.tensor_engine.matrix import run_matrix
from trnbench.errors import InputError
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_chip
from trnbench.machine.tiling import KERNELS
from trnbench.program.matrix import matrix_product

CATALOG = open_catalog()
CHIPS = {name: load_chip(CATALOG, name) for name in ("trainium1", "trainium2", "trainium3")}
PEAK = {"trainium1": 2 * 128 * 128 * 2.8e9, "trainium2": 2 * 128 * 128 * 2.4e9}
PEAK["trainium3"] = PEAK["trainium2"]
SIZES = st.integers(1, 6000)


def test_one_product_step_by_step():
    # Trainium1, 128^3 in bf16: each tile is 8 descriptors of 256 B an engine, 6 + 256 / 17 ns each,
    # so 168.47 ns; a lies there after 1300 + 168.47 ns and b as much later. The product (128 cycles
    # at 2.8 GHz) waits for b, the copy takes 128 + 60 cycles at 1.4 GHz, then start and store.
    run = run_matrix(matrix_product(128, 128, 128), CHIPS["trainium1"])
    tile = 8 * (6e-9 + 256 / 17e9)
    product, copy = 128 / 2.8e9, 188 / 1.4e9
    assert run.time_s == pytest.approx(1.3e-6 + 2 * tile + product + copy + 1.3e-6 + tile, rel=1e-6)
    assert run.multiplies == 1
    assert run.read_bytes == 2 * 128 * 128 * 2
    assert run.written_bytes == 128 * 128 * 2
    assert run.stalls_s["loads"] == pytest.approx(1.3e-6 + 2 * tile, rel=1e-6)
    assert run.cycles == pytest.approx(run.time_s * 2.8e9)


def test_generated_descriptors_trigger_one_transfer_at_a_time():
    # Trainium2: the second load is triggered 2 x 600 ns after the start.
    run = run_matrix(matrix_product(128, 128, 128), CHIPS["trainium2"])
    tile = 8 * (6e-9 + 256 / 23e9)
    product, copy = 128 / 2.4e9, 188 / 1.2e9
    expected = 1.2e-6 + 1.3e-6 + tile + product + copy + 0.6e-6 + 1.3e-6 + tile
    assert run.time_s == pytest.approx(expected, rel=1e-6)
    assert run.utilization["load queue"] == pytest.approx(1.2e-6 / run.time_s, rel=1e-6)


def test_a_long_contraction_accumulates_in_one_bank():
    # 16 products of 512 columns follow each other without a gap once their operands are there.
    run = run_matrix(matrix_product(128, 16384, 4096), CHIPS["trainium2"], trace=True)
    products = [event for event in run.events if event.name == "multiply"]
    assert len(products) == 128 * 8
    assert all(a.end_s <= b.start_s + 1e-15 for a, b in pairwise(products))


def draw(rng: random.Random, largest: float) -> tuple[int, int, int]:
    m, k, n = (int(2 ** rng.uniform(5, largest)) for _ in range(3))
    if rng.random() < 0.5:
        return max(128, m // 128 * 128), max(128, k // 128 * 128), max(128, n // 128 * 128)
    return m, k, n


@pytest.mark.parametrize("seed", range(6))
def test_skipping_repetitions_changes_nothing(seed: int):
    rng = random.Random(seed)
    for _ in range(12):
        m, k, n = draw(rng, 12.5)
        chip = rng.choice(sorted(CHIPS))
        product = matrix_product(
            m,
            k,
            n,
            batch=rng.choice([1, 1, 6]),
            format_a=rng.choice(["bf16", "fp32", "fp8_e4m3"]),
            transpose_a=rng.random() < 0.2,
        )
        kernel = rng.choice(KERNELS)
        short = run_matrix(product, CHIPS[chip], kernel=kernel)
        full = run_matrix(product, CHIPS[chip], kernel=kernel, shorten=False)
        assert short == full, (chip, m, k, n, kernel)


def test_skipping_happens_and_is_exact_over_many_blocks():
    product = matrix_product(6000, 3000, 7000)
    short = run_matrix(product, CHIPS["trainium2"])
    assert short == run_matrix(product, CHIPS["trainium2"], shorten=False)
    traced = run_matrix(product, CHIPS["trainium2"], trace=True)
    assert traced.time_s == short.time_s
    assert len([e for e in traced.events if e.name == "multiply"]) == short.multiplies


@settings(deadline=None, max_examples=60)
@given(
    m=SIZES, k=SIZES, n=SIZES, chip=st.sampled_from(sorted(CHIPS)), kernel=st.sampled_from(KERNELS)
)
def test_nothing_beats_the_peak_or_the_memory(m, k, n, chip, kernel):
    product = matrix_product(m, k, n)
    run = run_matrix(product, CHIPS[chip], kernel=kernel)
    assert float(product.flop) / run.time_s <= PEAK[chip]
    moved = run.read_bytes + run.written_bytes
    assert moved >= float(operand_bytes(product)) * (1 - 1e-9)
    unit = CHIPS[chip].cores
    assert unit is not None
    share = CHIPS[chip].memory.bandwidth_per_chip_bytes_per_s / unit.count
    assert moved / run.time_s <= share * (1 + 1e-9)
    assert all(0 <= part <= 1 for part in run.utilization.values())
    assert all(stall >= 0 for stall in run.stalls_s.values())


def test_engines_do_one_thing_at_a_time():
    run = run_matrix(matrix_product(700, 1500, 1300), CHIPS["trainium3"], trace=True)
    for engine in ("tensor", "vector", "scalar", "dma"):
        events = [event for event in run.events if event.engine == engine]
        assert events
        ordered = sorted(events, key=lambda event: event.start_s)
        assert all(a.end_s <= b.start_s + 1e-15 for a, b in pairwise(ordered))
    busy = sum(event.end_s - event.start_s for event in run.events if event.engine == "tensor")
    assert busy / run.time_s == pytest.approx(run.utilization["tensor"], rel=1e-6)


def test_stalls_account_for_the_tensor_engine():
    run = run_matrix(matrix_product(2000, 300, 3000), CHIPS["trainium2"])
    idle = sum(run.stalls_s[cause] for cause in ("loads", "PSUM bank", "weights", "drain"))
    assert run.utilization["tensor"] + idle / run.time_s == pytest.approx(1, rel=1e-6)
    assert run.stalls_s["loads"] > 0


def test_each_kernel_of_the_ladder_moves_less_and_none_is_slower():
    product = matrix_product(2048, 2048, 4096)
    runs = [run_matrix(product, CHIPS["trainium1"], kernel=kernel) for kernel in KERNELS]
    read = [run.read_bytes for run in runs]
    times = [run.time_s for run in runs]
    assert read == sorted(read, reverse=True)
    assert times == sorted(times, reverse=True)


def test_a_rank_of_two_cores_halves_the_work():
    product = matrix_product(4096, 4096, 4096)
    one = run_matrix(product, CHIPS["trainium2"])
    two = run_matrix(product, CHIPS["trainium2"], cores=2)
    assert two.cores == 2
    assert two.multiplies * 2 == one.multiplies
    assert one.time_s / 2 < two.time_s < one.time_s * 0.56


def test_what_cannot_be_played_is_a_result_with_reasons():
    gpu = run_matrix(matrix_product(1, 1, 1), load_chip(CATALOG, "h100"))
    assert not gpu.feasible
    assert "use the analytic engine" in gpu.reasons[0]
    lacking = run_matrix(matrix_product(1, 1, 1, format_a="mxfp4"), CHIPS["trainium1"])
    assert "it has fp32" in lacking.reasons[0]
    large = matrix_product(4096, 131072, 4096, format_a="fp32")
    assert "try blocked" in run_matrix(large, CHIPS["trainium1"], kernel="hoisted").reasons[0]
    odd = run_matrix(matrix_product(1, 100, 1, pattern="4:16"), CHIPS["trainium2"])
    assert "try 96 or 112" in odd.reasons[0]


def test_only_one_product_is_played():
    with pytest.raises(InputError, match="plays one product"):
        run_matrix(matrix_product([1, 2], 1, 1), CHIPS["trainium1"])
