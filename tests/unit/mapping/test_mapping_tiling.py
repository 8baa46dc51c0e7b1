from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trnbench.errors import InputError
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.compute_unit import NeuronCores
from trnbench.facts.hardware.library import load_chip
from trnbench.machine.costs.instructions import instructions_of, transfer_cost
from trnbench.machine.tiling import KERNELS, Kernel
from trnbench.machine.tiling.legality import format_reasons, pattern_fits, rate_of, shape_reasons
from trnbench.machine.tiling.schedule import (
    KernelSchedule,
    core_count,
    core_reasons,
    schedule_of,
    split_over,
)
from trnbench.program.matrix import MatrixProduct, matrix_product

CATALOG = open_catalog()
CHIPS = {name: load_chip(CATALOG, name) for name in ("trainium1", "trainium2", "trainium3")}
H100 = load_chip(CATALOG, "h100")
SIZES = st.integers(1, 20000)


def unit_of(name: str) -> NeuronCores:
    unit = CHIPS[name].cores
    assert unit is not None
    return unit


def planned(product: MatrixProduct, chip: str, kernel: Kernel = "blocked") -> KernelSchedule:
    unit = unit_of(chip)
    return schedule_of(product, unit, rate_of(product, unit, "native"), kernel)


@settings(deadline=None, max_examples=60)
@given(
    m=SIZES,
    k=SIZES,
    n=SIZES,
    chip=st.sampled_from(sorted(CHIPS)),
    fmt=st.sampled_from(["bf16", "fp32", "fp8_e4m3"]),
)
def test_blocks_cover_the_product_and_fit_the_buffer(m: int, k: int, n: int, chip: str, fmt: str):
    s = planned(matrix_product(m, k, n, format_a=fmt), chip)
    assert bool(s.fits)
    for blocks, block, last, size in (
        (s.m_blocks, s.block_m, s.last_m, m),
        (s.n_blocks, s.block_n, s.last_n, n),
    ):
        assert 0 < float(last) <= float(block)
        assert (float(blocks) - 1) * float(block) + float(last) == size
    assert 0 < float(s.last_k) <= float(s.block_k)
    assert (float(s.k_tiles) - 1) * s.tile.k + float(s.last_contraction) == k
    # Per partition: two buffers of a block of each operand, and all partial sums of a block.
    held = 4 if float(s.k_blocks) > 1 else s.out_bytes
    operands = 2 * float(s.block_k) * s.b.stored_depth * s.a.stored_bytes
    used = operands * (float(s.block_m) + float(s.block_n))
    used += np.ceil(float(s.block_m) / 128) * float(s.block_n) * held
    assert used <= unit_of(chip).sbuf.partition_bytes


def test_blocks_are_near_square_and_as_large_as_fit():
    # Trainium1, bf16, K in two blocks of 8 tiles: a column of an operand takes 2 x 8 x 2 = 32 B, a
    # tile row of partial sums 4 B a column. 1408 x 1536: 11 x 1536 x 4 + 32 x 2944 = 161,792 of
    # 196,608 B; 12 tile rows of M would leave N two tiles.
    s = planned(matrix_product(16384, 2048, 16384), "trainium1")
    assert float(s.block_n) == 1536
    assert 1152 <= float(s.block_m) <= 1664
    assert (float(s.block_k), float(s.k_blocks)) == (8, 2)


def test_naive_kernel_loads_both_tiles_of_every_product():
    s = planned(matrix_product(4096, 8192, 8192), "trainium1", "naive")
    assert (float(s.m_blocks), float(s.n_blocks), float(s.k_tiles)) == (32, 16, 64)
    assert s.reload_a
    assert s.reload_b
    # 128 rows of 256 B and of 1 KiB
    a, b = s.a.load(s.columns_a, 128.0), s.b.load(s.columns_b, 128.0)
    assert (float(a.partitions), float(a.row_bytes)) == (128, 256)
    assert (float(b.partitions), float(b.row_bytes)) == (128, 1024)


def test_free_blocks_shrink_where_the_contraction_is_long():
    short = planned(matrix_product(4096, 1024, 8192, format_a="fp32"), "trainium2", "blocked-free")
    assert (float(short.block_m), float(short.block_n)) == (256, 1024)
    # 64 tiles of (2 x 512 + 2 x 2048) B are 320 KiB a partition of 224 KiB.
    long = planned(matrix_product(4096, 8192, 8192, format_a="fp32"), "trainium2", "blocked-free")
    assert (float(long.block_m), float(long.block_n)) == (256, 512)


def test_a_contraction_that_does_not_fit_is_a_reason():
    product = matrix_product(4096, 131072, 4096, format_a="fp32")
    s = planned(product, "trainium1", "hoisted")
    assert shape_reasons(product, s.fits, "hoisted") == (
        "kernel hoisted keeps k=131072 in SBUF and it does not fit; try blocked",
    )
    assert shape_reasons(product, planned(product, "trainium1").fits, "blocked") == ()


def test_turned_operands_lie_with_their_columns_on_the_partitions():
    s = planned(matrix_product(300, 256, 512, transpose_a=True), "trainium1")
    shape = s.a.load(300.0, 128.0)
    assert (float(shape.rows), float(shape.row_bytes)) == (3, 256)
    assert float(shape.size_bytes) == 300 * 128 * 2
    assert float(s.a.turns(300.0)) == 3
    assert float(s.b.turns(512.0)) == 0


def test_depth_of_a_tile_follows_the_format_and_the_pattern():
    assert planned(matrix_product(1, 1, 1, format_a="fp8"), "trainium1").tile.k == 128
    assert planned(matrix_product(1, 1, 1, format_a="fp8"), "trainium2").tile.k == 256
    assert planned(matrix_product(1, 1, 1, format_a="mxfp4"), "trainium3").tile.k == 512
    sparse = matrix_product(1, 16, 1, format_a="fp8", pattern="4:16")
    assert planned(sparse, "trainium2").tile.k == 512


def test_transfers_cost_their_descriptors_on_the_busiest_engine():
    # Trainium1: 8 descriptors of 256 B an engine: 8 x (6 + 256 / 17) = 168.47 ns; 4 partitions: 4.
    cost = transfer_cost(CHIPS["trainium1"], unit_of("trainium1"))
    assert float(cost.occupancy_s(128.0, 256.0)) == pytest.approx(168.47e-9, rel=1e-4)
    assert float(cost.occupancy_s(4.0, 256.0)) == pytest.approx(168.47e-9 / 2, rel=1e-4)
    assert [cost.engines(p) for p in (1, 8, 9, 128)] == [1, 1, 2, 16]


def test_transfers_draw_no_more_than_the_share_of_memory():
    # Trainium2, 32 KiB rows: 16 x 23 GB/s would be 368, the share is 2.9 TB/s / 8.
    cost = transfer_cost(CHIPS["trainium2"], unit_of("trainium2"))
    assert 128 * 32768 / float(cost.occupancy_s(128.0, 32768.0)) == pytest.approx(362.5e9)


def test_instruction_costs_of_a_product_and_its_evacuation():
    product = matrix_product(128, 128, 512, format_a="fp32")
    unit = unit_of("trainium2")
    costs = instructions_of(CHIPS["trainium2"], unit, rate_of(product, unit, "native"))
    assert float(costs.multiply_cycles(128.0, 512.0)) == 4 * 512
    assert float(costs.multiply_cycles(128.0, 10.0)) == 4 * 64
    assert float(costs.multiply_cycles(32.0, 10.0)) == 4 * 32
    assert float(costs.weight_load_cycles(128.0)) == 4 * 32
    # (512 + 60) cycles at 0.96 GHz and at 1.2 GHz; together 2.16 GHz
    assert float(costs.copy_s("vector", 512.0)) == pytest.approx(572 / 0.96e9)
    assert float(costs.copy_s("scalar", 512.0)) == pytest.approx(572 / 1.2e9)
    assert float(costs.copy_each_s(512.0)) == pytest.approx(572 / 2.16e9)
    assert float(costs.copy_alone_s(512.0)) == pytest.approx(572 / 1.2e9)
    assert float(costs.add_s(512.0)) == pytest.approx(572 / 0.96e9)


def test_a_shared_port_leaves_copying_to_the_faster_engine():
    product = matrix_product(128, 128, 512)
    unit = unit_of("trainium1")
    costs = instructions_of(CHIPS["trainium1"], unit, rate_of(product, unit, "native"))
    assert costs.evacuators == ("scalar",)
    assert float(costs.add_s(512.0)) == pytest.approx((2 * 512 + 60) / 1.12e9)


@pytest.mark.parametrize(
    ("chip", "request_", "reason"),
    [
        ("trainium1", {"format_a": "mxfp4"}, "trainium1 has no mxfp4 product; it has fp32, tf32"),
        ("trainium1", {"pattern": "4:16"}, "trainium1 has no structured sparsity"),
        ("trainium2", {"format_a": "fp32", "format_b": "bf16"}, "fp32 mixes with no other format"),
        (
            "trainium3",
            {"format_a": "fp8_e4m3", "format_b": "fp8_e4m3fn"},
            "fp8_e4m3 and fp8_e4m3fn do not mix",
        ),
        ("trainium2", {"format_a": "fp8_e3m4", "pattern": "4:16"}, "no sparse fp8_e3m4 product"),
        ("h100", {"pattern": "4:16"}, "h100 has no sparsity 4:16; it has 2:4"),
        ("h100", {"format_a": "bf16", "format_b": "fp16"}, "bf16 and fp16 not in one product"),
    ],
)
def test_what_a_chip_lacks_is_a_reason(chip: str, request_: dict[str, str], reason: str):
    product = matrix_product(128, 256, 128, **request_)  # type: ignore[arg-type]
    found = format_reasons(product, CHIPS.get(chip, H100), "native")
    assert len(found) == 1
    assert reason in found[0]


def test_fast_mode_needs_a_format_that_has_one():
    assert (
        format_reasons(matrix_product(1, 1, 1, format_a="fp32"), CHIPS["trainium2"], "fast") == ()
    )
    found = format_reasons(matrix_product(1, 1, 1), CHIPS["trainium2"], "fast")
    assert found == ("trainium2 has no fast mode for bf16; it has one for fp32",)


def test_pattern_has_to_divide_the_contraction():
    product = matrix_product(128, [100, 160], 128, pattern="4:16")
    assert pattern_fits(product).tolist() == [False, True]
    assert shape_reasons(product, np.ones(2, dtype=np.bool_), "blocked") == (
        "sparsity 4:16 needs k to be a multiple of 16; k=100, try 96 or 112",
    )


@settings(deadline=None, max_examples=60)
@given(m=SIZES, n=SIZES, batch=st.integers(1, 9), cores=st.sampled_from([1, 2, 4, 8]))
def test_shares_cover_the_product(m: int, n: int, batch: int, cores: int):
    product = matrix_product(m, 64, n, batch=batch)
    split = split_over(product, cores, unit_of("trainium2"))
    share = split.share
    parts = [
        np.ceil(float(whole) / float(part))
        for whole, part in (
            (product.batch, share.batch),
            (product.m, share.m),
            (product.n, share.n),
        )
    ]
    assert np.prod(parts) == float(split.cores) <= cores
    assert float(share.flop) <= float(product.flop)


def test_shares_are_equal_where_the_product_divides():
    split = split_over(matrix_product(4096, 8192, 8192), 8, unit_of("trainium2"))
    assert (float(split.share.m), float(split.share.n)) == (2048, 2048)


def test_a_split_does_not_depend_on_what_else_is_split():
    # Five members on eight cores: one each on five cores, and not two each on three.
    alone = split_over(matrix_product(1, 1, 1, batch=5), 8, unit_of("trainium2"))
    beside = split_over(matrix_product(1, 1, 1, batch=[5, 4096]), 8, unit_of("trainium2"))
    assert (float(alone.share.batch), float(alone.cores)) == (1, 5)
    assert (float(beside.share.batch[0]), float(beside.cores[0])) == (1, 5)


def test_cores_a_chip_does_not_have_are_a_reason():
    assert core_count("all", CHIPS["trainium3"]) == 8
    assert core_count("all", H100) == 1
    assert core_reasons(3, CHIPS["trainium1"]) == ("trainium1 has 2 cores, not 3",)
    with pytest.raises(InputError, match="cores"):
        core_count(0, H100)


def test_kernels_are_those_of_the_ladder():
    assert KERNELS == ("naive", "hoisted", "blocked-free", "blocked")
