"""Kernel schedules of a matrix product on one core: blocks, loop order, loads and buffers.

    naive         every product loads both its tiles
    hoisted       the stationary row of tiles stays while the moving tiles go by
    blocked-free  blocks of the free dimensions M and N, the whole contraction in PSUM
    blocked       blocks of M, N and K; partial sums of the blocks of K add up in SBUF

They follow the matrix tutorial of the vendor. `blocked` differs in its block sizes, which are the
largest near-square ones that fit SBUF, and in having M inside N and K inside both, so that partial
sums fit for any M.

Sizes are floats that hold whole numbers, because arrays of millions of shapes run through here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Literal

import numpy as np

from trnbench.errors import InputError
from trnbench.facts.arrays import BoolArray, FloatArray, Number
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.compute_unit import NeuronCores
from trnbench.facts.records import Record, replace
from trnbench.machine.tiling import DEFAULT_KERNEL, Cores, Kernel
from trnbench.machine.tiling.legality import Rate
from trnbench.program.matrix import MatrixProduct

ACCUMULATOR_BYTES = 4
# What a kernel is, as the public NKI matmul tutorial builds it: tiles in a block of a free
# dimension and of K; one buffer fills while the other is read; result rows that await their store.
FREE_BLOCK_TILES = 2
CONTRACTION_BLOCK_TILES = 8
BUFFERS = 2
SPARE_OUTPUT_ROWS = 2


class Tile(Record):
    """Largest product of one instruction: stationary columns, moving columns, depth."""

    m: int
    n: int
    k: int


class Transfer(Record, eq=False):
    """Shape of a DMA transfer."""

    partitions: Number  # touched
    rows: Number  # of each partition
    row_bytes: Number

    @property
    def size_bytes(self) -> Number:
        return self.partitions * self.rows * self.row_bytes


class Operand(Record):
    """Operand of a product as it lies in memory."""

    stored_bytes: float  # of a stored element
    stored_depth: int  # stored elements along k that a row of the array takes
    ratio: int  # dense elements along k per stored one
    turned: bool  # k is innermost in memory
    partitions: int

    @property
    def dense_bytes(self) -> float:
        return self.stored_bytes / self.ratio

    def load(self, columns: Number, contraction: Number) -> Transfer:
        """Transfer of `columns` columns of a K tile of `contraction` dense elements.

        Turned, columns are on the partitions and the contraction along the row.
        """
        stored = np.ceil(contraction / self.ratio)
        if self.turned:
            rows = np.ceil(columns / self.partitions)
            return Transfer(
                partitions=columns / rows, rows=rows, row_bytes=stored * self.stored_bytes
            )
        return Transfer(
            partitions=np.ceil(stored / self.stored_depth),
            rows=self.stored_depth,
            row_bytes=columns * self.stored_bytes,
        )

    def turns(self, columns: Number) -> Number:
        """Tensor-engine transposes that a loaded K tile needs."""
        return np.ceil(columns / self.partitions) * self.stored_depth if self.turned else 0.0


class KernelSchedule(Record, eq=False):
    """One kernel on one core; the last block of a dimension may be smaller.

    The outer loop goes over blocks of `outer`, then the other free dimension, then K. An operand is
    loaded a K tile at a time, and again when its block changes.
    """

    kernel: Kernel
    tile: Tile
    outer: Literal["m", "n"]
    reload_a: bool  # loaded again for every output block
    reload_b: bool  # loaded again for every output block
    a: Operand
    b: Operand
    out_bytes: float
    m: FloatArray  # rows of the result, elements
    n: FloatArray  # columns of the result, elements
    k: FloatArray  # contraction, dense elements
    batch: FloatArray  # like products, one after the other
    m_tiles: FloatArray  # tiles in all
    n_tiles: FloatArray  # tiles in all
    k_tiles: FloatArray  # tiles in all
    rows: FloatArray  # output tiles of a block along M
    columns: FloatArray  # output tiles of a block along N
    block_m: FloatArray  # elements of a block
    block_n: FloatArray  # elements of a block
    block_k: FloatArray  # K tiles of a block
    m_blocks: FloatArray  # blocks in all
    n_blocks: FloatArray  # blocks in all
    k_blocks: FloatArray  # blocks in all
    columns_a: FloatArray  # most columns of a transfer
    columns_b: FloatArray  # most columns of a transfer
    slots_a: FloatArray  # buffers of a K tile
    slots_b: FloatArray  # buffers of a K tile
    output_rows: FloatArray  # tile rows of results that SBUF has room for
    fits: BoolArray  # True where the kernel's least buffers fit SBUF

    def store(self, rows: Number, columns: Number) -> Transfer:
        """Transfer that writes one row of output tiles."""
        return Transfer(partitions=rows, rows=1, row_bytes=columns * self.out_bytes)

    @property
    def last_m(self) -> FloatArray:
        """Elements of the last block of M."""
        return self.m - (self.m_blocks - 1) * self.block_m

    @property
    def last_n(self) -> FloatArray:
        """Elements of the last block of N."""
        return self.n - (self.n_blocks - 1) * self.block_n

    @property
    def last_k(self) -> FloatArray:
        """Tiles of the last block of K."""
        return self.k_tiles - (self.k_blocks - 1) * self.block_k

    @property
    def last_contraction(self) -> FloatArray:
        """Elements of the last K tile."""
        return self.k - (self.k_tiles - 1) * self.tile.k


class _Frame(Record):
    """Sizes that all kernels of a product share."""

    tile: Tile
    a: Operand
    b: Operand
    room_bytes: float  # SBUF per partition
    a_bytes: float  # per partition, for a column of a K tile
    b_bytes: float  # per partition, for a column of a K tile


def kernel_reasons(kernel: Kernel, chip: Chip) -> tuple[str, ...]:
    if chip.unit.has_kernels or kernel == DEFAULT_KERNEL:
        return ()
    return (f"{chip.name} has no kernel {kernel}, NeuronCores have; leave it out",)


def schedule_of(
    product: MatrixProduct, cores: NeuronCores, rate: Rate, kernel: Kernel
) -> KernelSchedule:
    """Schedule of a kernel for each product on one core."""
    bank_columns = int(cores.psum.bank_per_partition_bytes) // ACCUMULATOR_BYTES
    partitions = cores.sbuf.partitions
    a = Operand(
        stored_bytes=product.element_bytes_a * rate.ratio,
        stored_depth=rate.rows_per_pe,
        ratio=rate.ratio,
        turned=product.transpose_a,
        partitions=partitions,
    )
    b = Operand(
        stored_bytes=product.element_bytes_b,
        stored_depth=rate.depth,
        ratio=1,
        turned=product.transpose_b,
        partitions=partitions,
    )
    frame = _Frame(
        # Stationary columns become result rows, one a PE column; the moving tile is as wide as a
        # PSUM bank takes fp32 sums; the contraction fills the array's rows.
        tile=Tile(
            m=cores.tensor.columns,
            n=min(cores.tensor.moving_max, bank_columns),
            k=cores.tensor.rows * rate.depth,
        ),
        a=a,
        b=b,
        room_bytes=cores.sbuf.partition_bytes,
        a_bytes=a.stored_depth * a.stored_bytes,
        b_bytes=b.stored_depth * b.stored_bytes,
    )
    if kernel == "blocked":
        return _blocked(product, frame)
    return _whole_contraction(product, frame, kernel)


def _blocked(product: MatrixProduct, frame: _Frame) -> KernelSchedule:
    tile, room = frame.tile, frame.room_bytes
    m_tiles, n_tiles, k_tiles = _tiles(product, tile)
    block_k, k_blocks = _even(k_tiles, CONTRACTION_BLOCK_TILES)
    out_bytes = product.element_bytes_out
    # With one block of K results are written in their own format; else partial sums stay in fp32.
    held = out_bytes + np.minimum(k_blocks - 1, 1.0) * (ACCUMULATOR_BYTES - out_bytes)
    # Per partition, a column of an operand takes this much in its buffers (and in the spare output
    # rows), and a row of output tiles `held` a column: the largest square comes from a quadratic,
    # then each dimension takes what the other leaves.
    a_bytes = block_k * (BUFFERS * frame.a_bytes)
    b_bytes = block_k * (BUFFERS * frame.b_bytes) + SPARE_OUTPUT_ROWS * held
    grow = held / tile.m
    linear = a_bytes + b_bytes
    square = (np.sqrt(linear * linear + (4 * room) * grow) - linear) / (2 * grow)
    columns = np.maximum(1, np.minimum(n_tiles, np.floor(square / tile.n))) * tile.n
    rows = np.floor((room - columns * b_bytes) / ((a_bytes + grow * columns) * tile.m))
    rows = np.maximum(1, np.minimum(m_tiles, rows))
    # A product with few rows leaves room for wider blocks than the square has.
    left = np.floor((room - rows * tile.m * a_bytes) / ((b_bytes + rows * held) * tile.n))
    columns = np.maximum(1, np.minimum(n_tiles, left))
    block_m, m_blocks = _even(m_tiles, rows)
    block_n, n_blocks = _even(n_tiles, columns)
    width_m = np.minimum(block_m * tile.m, product.m)
    width_n = np.minimum(block_n * tile.n, product.n)
    used = width_m * a_bytes + width_n * (b_bytes + block_m * held)
    slots = BUFFERS * block_k
    return _schedule(product, frame, "blocked")(
        outer="n",
        reload_a=False,
        reload_b=False,
        m_tiles=m_tiles,
        n_tiles=n_tiles,
        k_tiles=k_tiles,
        rows=block_m,
        columns=block_n,
        block_m=width_m,
        block_n=width_n,
        block_k=block_k,
        m_blocks=m_blocks,
        n_blocks=n_blocks,
        k_blocks=k_blocks,
        columns_a=width_m,
        columns_b=width_n,
        slots_a=slots,
        slots_b=slots,
        output_rows=block_m + SPARE_OUTPUT_ROWS,
        fits=used <= room,
    )


def _whole_contraction(product: MatrixProduct, frame: _Frame, kernel: Kernel) -> KernelSchedule:
    tile = frame.tile
    m_tiles, n_tiles, k_tiles = _tiles(product, tile)
    a_tile, b_tile = tile.m * frame.a_bytes, tile.n * frame.b_bytes
    row_bytes = tile.n * product.element_bytes_out
    block_m, block_n = np.ones_like(m_tiles), np.ones_like(n_tiles)
    if kernel == "blocked-free":
        # Blocks shrink to one tile where the whole contraction of both would not fit.
        need = k_tiles * (FREE_BLOCK_TILES * a_tile + b_tile)
        both = need + k_tiles * (FREE_BLOCK_TILES - 1) * b_tile
        held = (FREE_BLOCK_TILES + SPARE_OUTPUT_ROWS) * FREE_BLOCK_TILES * row_bytes
        block_m = np.where(need + held <= frame.room_bytes, FREE_BLOCK_TILES, 1.0)
        block_n = np.where(both + held <= frame.room_bytes, FREE_BLOCK_TILES, 1.0)
        block_m, block_n = np.minimum(m_tiles, block_m), np.minimum(n_tiles, block_n)
    # Results come first, operands get the rest: a row that cannot be stored stops every kernel.
    output_rows = block_m + SPARE_OUTPUT_ROWS
    room = frame.room_bytes - output_rows * block_n * row_bytes
    a_slot, b_slot = block_m * a_tile, block_n * b_tile
    most = BUFFERS * k_tiles
    turned = frame.a.turned or frame.b.turned
    if kernel == "naive":
        slots_a = slots_b = np.floor(room / (a_slot + b_slot))
        fits = slots_a >= (k_tiles if turned else 1)
    else:
        # A block of `a` stays for a whole row of blocks of `b`; one of `b` has to be there whole
        # only if several output tiles use it, or if operands are turned before they are used.
        least_b = np.where((block_m * block_n > 1) | turned, k_tiles, BUFFERS)
        slots_a = np.minimum(most, np.floor((room - least_b * b_slot) / a_slot))
        # Room for two whole blocks of `a` lets the next one load ahead; anything between one and
        # two would only take space from `b`.
        slots_a = np.where(slots_a < most, np.minimum(slots_a, k_tiles), slots_a)
        slots_b = np.floor((room - slots_a * a_slot) / b_slot)
        fits = (slots_a >= k_tiles) & (slots_b >= least_b)
    width_m = np.minimum(block_m * tile.m, product.m)
    width_n = np.minimum(block_n * tile.n, product.n)
    return _schedule(product, frame, kernel)(
        outer="m",
        reload_a=kernel == "naive",
        reload_b=True,
        m_tiles=m_tiles,
        n_tiles=n_tiles,
        k_tiles=k_tiles,
        rows=block_m,
        columns=block_n,
        block_m=width_m,
        block_n=width_n,
        block_k=k_tiles,
        m_blocks=np.ceil(m_tiles / block_m),
        n_blocks=np.ceil(n_tiles / block_n),
        k_blocks=np.ones_like(k_tiles),
        columns_a=np.minimum(tile.m, product.m),
        columns_b=np.minimum(tile.n, product.n),
        slots_a=slots_a,
        slots_b=slots_b,
        output_rows=output_rows,
        fits=fits,
    )


def _schedule(product: MatrixProduct, frame: _Frame, kernel: Kernel) -> partial[KernelSchedule]:
    """Constructor of the product's schedule, which still lacks its blocks and buffers."""
    return partial(
        KernelSchedule,
        kernel=kernel,
        tile=frame.tile,
        a=frame.a,
        b=frame.b,
        out_bytes=product.element_bytes_out,
        m=product.m,
        n=product.n,
        k=product.k,
        batch=product.batch,
    )


def _tiles(product: MatrixProduct, tile: Tile) -> tuple[FloatArray, FloatArray, FloatArray]:
    return (np.ceil(product.m / tile.m), np.ceil(product.n / tile.n), np.ceil(product.k / tile.k))


def _even(tiles: FloatArray, at_most: Number) -> tuple[FloatArray, FloatArray]:
    # (Tiles of a block, blocks): as few blocks as allowed, as even as possible.
    blocks = np.ceil(tiles / at_most)
    return np.ceil(tiles / blocks), blocks


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
