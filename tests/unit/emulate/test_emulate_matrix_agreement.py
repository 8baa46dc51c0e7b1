"""The two matrix engines read one schedule and must agree, though neither calls the other."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest

from tests.sampling import sampled
from trnbench.engines.analytic.matrix.time import matrix_time
from trnbench.engines.emulate.tensor_engine.matrix import run_matrix
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_chip
from trnbench.machine.tiling import KERNELS
from trnbench.program.matrix import matrix_product

CATALOG = open_catalog()
SEED = 20261121
SHAPES = (60, 200)
"""So many are played, the more of them where tests may take minutes."""


def sample(seed: int, count: int) -> list[tuple[int, int, int]]:
    """Return so many shapes from 128 to 16384, evenly over the logarithm, half of them ragged."""
    rng = random.Random(seed)
    shapes = []
    for place in range(count):
        m, k, n = (round(2 ** rng.uniform(7, 14)) for _ in range(3))
        if place % 2:
            m, k, n = (round(size / 128) * 128 for size in (m, k, n))
        shapes.append((m, k, n))
    return shapes


@pytest.mark.slow
@pytest.mark.parametrize("count", sampled(SHAPES, SHAPES[:1]))
@pytest.mark.parametrize("number_format", ["bf16", "tf32", "fp32", "fp8_e4m3"])
@pytest.mark.parametrize("chip_name", ["trainium1", "trainium2", "trainium3"])
def test_blocked_times_agree(chip_name: str, number_format: str, count: int):
    chip = load_chip(CATALOG, chip_name)
    shapes = sample(SEED, count)
    m, k, n = np.array(shapes, dtype=np.float64).T
    closed = matrix_time(matrix_product(m, k, n, format_a=number_format), chip)
    played = [run_matrix(matrix_product(*shape, format_a=number_format), chip) for shape in shapes]
    error = np.abs(closed.time_s / np.array([run.time_s for run in played]) - 1)
    assert np.mean(error < 0.05) >= 0.95
    assert np.max(error) < 0.10
    # Memory's part is what the busiest DMA engine does, the short last row of stores included.
    served = np.array([run.utilization["dma 0"] * run.time_s for run in played])
    assert np.allclose(closed.parts_s["memory"], served, rtol=0.005)
    read = np.array([run.read_bytes for run in played])
    assert np.allclose(closed.read_bytes, read, rtol=0.01)


@pytest.mark.parametrize(
    ("chip_name", "number_format", "shape"),
    [
        ("trainium1", "bf16", (128, 1024, 12416)),
        ("trainium1", "fp32", (128, 1024, 2176)),
        ("trainium2", "tf32", (131, 656, 3094)),
    ],
)
def test_a_ragged_last_block_is_loaded_in_its_own_time(chip_name, number_format, shape):
    # One block of M and of K, whole blocks of N and a short one that loads faster.
    chip = load_chip(CATALOG, chip_name)
    product = matrix_product(*shape, format_a=number_format)
    closed = float(matrix_time(product, chip).time_s)
    assert closed == pytest.approx(run_matrix(product, chip).time_s, rel=0.03)


def kernels_apart(rng: random.Random) -> dict[str, list[float]]:
    """Return by how much the engines differ over all kernels, ways to lie, and odd shapes."""
    found: dict[str, list[float]] = {}
    for chip_name in ("trainium1", "trainium2", "trainium3"):
        chip = load_chip(CATALOG, chip_name)
        for kernel, turned, number_format in product(KERNELS, (0, 1, 2, 3), ("bf16", "fp32")):
            for _ in range(4):
                m, k, n = (round(2 ** rng.uniform(4, 11.5)) for _ in range(3))
                program = matrix_product(
                    m,
                    k,
                    n,
                    batch=rng.choice([1, 3]),
                    format_a=number_format,
                    transpose_a=bool(turned & 1),
                    transpose_b=bool(turned & 2),
                )
                closed, played = (
                    matrix_time(program, chip, kernel=kernel),
                    run_matrix(program, chip, kernel=kernel),
                )
                assert bool(np.all(closed.legal)) == played.feasible
                if played.feasible:
                    apart = float(closed.time_s) / played.time_s - 1
                    name = f"{kernel}{' turned' if turned else ''}"
                    found.setdefault(name, []).append(abs(apart))
    return found


def test_every_kernel_agrees_on_most_odd_shapes_whichever_way_operands_lie():
    apart = kernels_apart(random.Random(SEED))
    assert {name.removesuffix(" turned") for name in apart} == {*KERNELS}
    for name, found in apart.items():
        # Small shapes and what transposes wait for have no closed form; the output names them.
        assert np.mean(np.array(found) < 0.1) >= 0.75, name
        assert np.median(found) < 0.05, name
        assert max(found) < 0.5, name
