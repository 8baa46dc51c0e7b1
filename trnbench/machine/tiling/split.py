"""A matrix product split over the cores of a chip: batch, rows, columns; never the contraction."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trnbench.errors import InputError
from trnbench.facts.arrays import FloatArray
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.compute_unit import NeuronCores
from trnbench.facts.records import Record, replace
from trnbench.machine.tiling import Cores
from trnbench.program.matrix import MatrixProduct

# Far below any difference that matters, so that it only decides between equal shares of work.
_TIE = 1e-6


class Split(Record, eq=False):
    """Share of the busiest core, and the number of cores with work."""

    share: MatrixProduct
    cores: FloatArray


def core_count(cores: Cores, chip: Chip) -> int:
    """Number of cores meant; a GPU counts as one."""
    if cores == "all":
        return chip.unit.separate_cores
    if cores < 1:
        raise InputError(f"cores: expected at least 1 or all, found {cores}")
    return cores


def core_reasons(cores: int, chip: Chip) -> tuple[str, ...]:
    """Reason that a chip has fewer cores than asked for; empty if it has enough."""
    available = chip.unit.separate_cores
    if cores <= available:
        return ()
    return (f"{chip.name} has {available} core{'s' * (available > 1)}, not {cores}",)


def split_over(product: MatrixProduct, cores: int, unit: NeuronCores) -> Split:
    """Split that gives the busiest core least work, then least to load.

    Shares are whole tiles of the array's width, because a core pads to it anyway.
    """
    if cores == 1:
        return Split(share=product, cores=np.ones(()))
    wide = unit.tensor.columns
    m_tiles, n_tiles = np.ceil(product.m / wide), np.ceil(product.n / wide)
    best: list[FloatArray] = []
    for batch_parts, m_parts, n_parts in _factors(cores, float(np.max(product.batch, initial=1.0))):
        batch = np.ceil(product.batch / batch_parts)
        m = np.minimum(np.ceil(m_tiles / m_parts) * wide, product.m)
        n = np.minimum(np.ceil(n_tiles / n_parts) * wide, product.n)
        # Work counts tiles; among equal work, shares nearer to a square load fewer elements.
        work = batch * np.ceil(m / wide) * np.ceil(n / wide)
        work = work * (1 + _TIE * (m + n) / (product.m + product.n))
        split = [np.asarray(part) for part in np.broadcast_arrays(work, batch, m, n)]
        if not best:
            best = split
            continue
        # Strictly less: of equal splits the first wins, with the fewest parts of the batch.
        better = split[0] < best[0]
        best = [np.where(better, new, old) for new, old in zip(split, best, strict=True)]
    _, batch, m, n = best
    used = np.ceil(product.batch / batch) * np.ceil(product.m / m) * np.ceil(product.n / n)
    return Split(share=replace(product, batch=batch, m=m, n=n), cores=used)


def _factors(cores: int, largest_batch: float) -> Iterator[tuple[int, int, int]]:
    """Parts of batch, m and n, up to the first split that leaves each part one of the batch.

    More parts of the batch never do better, so a product's split does not depend on the other
    products it is priced with.
    """
    divisors = [part for part in range(1, cores + 1) if cores % part == 0]
    for batch in divisors:
        for m in divisors:
            if (cores // batch) % m == 0:
                yield batch, m, cores // batch // m
        if batch >= largest_batch:
            return
