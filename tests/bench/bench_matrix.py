"""How fast the matrix engines are."""

from __future__ import annotations

from functools import partial

import numpy as np

from tests.bench.figure import best_of, show
from trnbench.engines.analytic.matrix.time import matrix_time
from trnbench.engines.emulate.tensor_engine.matrix import run_matrix
from trnbench.engines.execute.numbers.demonstrations import operands
from trnbench.engines.execute.numbers.product import ProductRecipe, matmul
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_chip
from trnbench.program.matrix import matrix_product

SHAPES = 1_000_000
NUMBERS = 2048


def main() -> None:
    """Print each figure beside its bar."""
    catalog = open_catalog()
    rng = np.random.default_rng(1)
    m, k, n = (np.round(2 ** rng.uniform(7, 14, SHAPES)) for _ in range(3))
    for name in ("trainium1", "trainium2", "h100"):
        chip = load_chip(catalog, name)
        _, cpu_s = best_of(partial(matrix_time, matrix_product(m, k, n), chip))
        show(f"closed-form matrix times, {name}", SHAPES / cpu_s, "shapes/s", 5e6, "at least")
    chip = load_chip(catalog, "trainium2")
    large = matrix_product(16384, 16384, 16384)
    _, cpu_s = best_of(lambda: run_matrix(large, chip))
    show("16384^3 played, blocked kernel", cpu_s, "s", 1.0, "at most")

    a, b = operands(NUMBERS, NUMBERS, NUMBERS)
    _, plain_s = best_of(lambda: a @ b)
    _, emulated_s = best_of(lambda: matmul(a, b, ProductRecipe.named(format_in_a="bf16")))
    ratio = emulated_s / plain_s
    show("emulated bf16 product over numpy's, 2048^3", ratio, "x", 3.0, "at most")


if __name__ == "__main__":
    main()
