"""Seconds of the parts of a kernel schedule: a row of output tiles, a K tile of loads, a store."""

from __future__ import annotations

import numpy as np

from trnbench.facts.arrays import FloatArray, Number, times
from trnbench.facts.records import Record
from trnbench.machine.costs.instructions import Instructions
from trnbench.machine.tiling.schedule import KernelSchedule, Operand, Transfer


class Loads(Record, kw_only=False, eq=False):
    """One K tile of a block of an operand: seconds on the DMA engines, transfers, transposes."""

    transfer_s: FloatArray
    transfers: Number
    turns: Number

    def times(self, share: Number) -> Loads:
        return Loads(
            share * self.transfer_s, times(share, self.transfers), times(share, self.turns)
        )

    def beside(self, other: Loads) -> Loads:
        """Both loads, a K tile of each."""
        return Loads(
            self.transfer_s + other.transfer_s,
            self.transfers + other.transfers,
            self.turns + other.turns,
        )


class RowBlock(Record, kw_only=False, eq=False):
    """A block of M."""

    count: FloatArray  # Rows of output tiles
    stores: FloatArray  # The same in whole stores
    load: Loads


class ColumnBlock(Record, kw_only=False, eq=False):
    """A block of N, seconds per row of output tiles: multiply a K tile; copy, add, store."""

    tiles: FloatArray
    multiply_s: FloatArray
    copy_s: FloatArray
    add_s: FloatArray
    store_s: FloatArray
    load: Loads


class Parts(Record, eq=False):
    """The full and the last block of each dimension, and single tiles.

    A transfer takes as long as its busiest engine, so fewer rows shorten it only when they no
    longer fill that engine.
    """

    m: RowBlock
    n: ColumnBlock
    last_m: RowBlock
    last_n: ColumnBlock
    down: FloatArray  # Blocks of M before the last
    across: FloatArray  # Blocks of N before the last
    steps: FloatArray  # Blocks of K before the last
    last_k: FloatArray  # K tiles of the last block of K
    stationary: FloatArray  # Columns of a stationary tile
    k_tiles: FloatArray  # Loads of K tiles, the last one in units of a whole one
    last_row: FloatArray  # Store of the last row in units of a whole one
    multiply_s: FloatArray  # Product of the first tile of the last block
    copy_s: FloatArray  # Copy of that tile
    add_s: FloatArray  # Addition of that tile
    turn_multiply_s: float  # A transpose on the tensor engine
    turn_copy_s: float  # Copy of a transpose out of PSUM


def parts_of(s: KernelSchedule, costs: Instructions) -> Parts:
    """Seconds of a schedule's parts on a core with these instruction costs."""
    down, across, steps = s.m_blocks - 1, s.n_blocks - 1, s.k_blocks - 1
    last_m, last_n = s.m - down * s.block_m, s.n - across * s.block_n
    # The last K tile and the last row may use fewer partitions than one DMA engine serves: only
    # then are their transfers shorter.
    served = costs.transfer.partitions_per_engine
    stationary = np.minimum(s.m, s.tile.m)
    last_rows = s.m_tiles - down * s.rows
    side = float(s.tile.m)
    tile = np.minimum(last_n, s.tile.n)
    k_before = s.k_tiles - 1
    last_contraction = s.k - k_before * s.tile.k
    if s.b.stored_depth > 1:
        last_contraction = np.ceil(last_contraction / s.b.stored_depth)
    last_k_tile = np.minimum(last_contraction / served, 1.0)
    rows_before = last_rows - 1
    last_row = np.minimum((last_m - rows_before * s.tile.m) / served, 1.0)
    return Parts(
        m=RowBlock(s.rows, s.rows, _loads(s, costs, s.a, s.block_m, s.columns_a)),
        n=_whole_columns(s, costs),
        last_m=RowBlock(
            last_rows, rows_before + last_row, _loads(s, costs, s.a, last_m, s.columns_a)
        ),
        last_n=_ragged_columns(s, costs, stationary, last_n),
        down=down,
        across=across,
        steps=steps,
        last_k=s.k_tiles - steps * s.block_k,
        stationary=stationary,
        k_tiles=k_before + last_k_tile,
        last_row=last_row,
        multiply_s=costs.multiply_s(stationary, tile),
        copy_s=costs.copy_alone_s(tile),
        add_s=costs.add_s(tile),
        turn_multiply_s=float(costs.multiply_s(side, side)),
        turn_copy_s=float(costs.copy_each_s(side)),
    )


def _whole_columns(s: KernelSchedule, costs: Instructions) -> ColumnBlock:
    full, side = float(s.tile.n), float(s.tile.m)
    load = _loads(s, costs, s.b, s.block_n, s.columns_b)
    return ColumnBlock(
        s.columns,
        s.columns * float(costs.multiply_s(side, full)),
        s.columns * float(costs.copy_each_s(full)),
        s.columns * float(costs.add_s(full)),
        _store_s(s, costs, s.block_n, load),
        load,
    )


def _ragged_columns(
    s: KernelSchedule, costs: Instructions, stationary: FloatArray, width: FloatArray
) -> ColumnBlock:
    full, side = float(s.tile.n), float(s.tile.m)
    whole = np.floor(width / full)
    rest = width - whole * full
    more = np.minimum(rest, 1.0)
    load = _loads(s, costs, s.b, width, s.columns_b)
    return ColumnBlock(
        whole + more,
        whole * float(costs.multiply_s(side, full)) + more * costs.multiply_s(stationary, rest),
        whole * float(costs.copy_each_s(full)) + more * costs.copy_each_s(rest),
        whole * float(costs.add_s(full)) + more * costs.add_s(rest),
        _store_s(s, costs, width, load),
        load,
    )


def _store_s(
    s: KernelSchedule, costs: Instructions, columns: FloatArray, load: Loads
) -> FloatArray:
    """Seconds of storing a row of output tiles, often equal to those of loading a K tile."""
    alike = not s.b.turned and s.kernel == "blocked"
    shape = (s.b.stored_bytes, s.b.stored_depth, s.tile.k)
    if alike and shape == (s.out_bytes, 1, s.tile.m):
        return load.transfer_s
    return _transfer_s(costs, s.store(float(s.tile.m), columns))


def _loads(
    s: KernelSchedule, costs: Instructions, operand: Operand, width: FloatArray, at_once: FloatArray
) -> Loads:
    depth: Number = np.minimum(s.k, s.tile.k) if operand.turned else float(s.tile.k)
    turns = operand.turns(width)
    if s.kernel == "blocked":
        return Loads(_transfer_s(costs, operand.load(width, depth)), 1.0, turns)
    whole = np.floor(width / at_once)
    rest = width - whole * at_once
    more = np.minimum(rest, 1.0)
    full_s = _transfer_s(costs, operand.load(at_once, depth))
    rest_s = _transfer_s(costs, operand.load(np.maximum(rest, 1.0), depth))
    return Loads(whole * full_s + more * rest_s, whole + more, turns)


def _transfer_s(costs: Instructions, shape: Transfer) -> FloatArray:
    return costs.transfer.occupancy_s(shape.partitions, shape.row_bytes, shape.rows)
