"""What the parts of a kernel schedule take: a row of output tiles, a K tile of loads, a store."""

from __future__ import annotations

import numpy as np

from trnbench.arrays import FloatArray, Number
from trnbench.costs.instructions import Instructions
from trnbench.mapping.tiling.schedule import KernelSchedule, Operand, Transfer
from trnbench.records import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Loads:
    """One K tile of a block of an operand: time on the DMA engines, transfers, transposes."""

    transfer_s: FloatArray
    transfers: Number
    turns: Number


@dataclass(frozen=True, slots=True, eq=False)
class RowBlock:
    """A block of M: how many rows of output tiles it has, that in whole stores, and loading it."""

    count: FloatArray
    stores: FloatArray
    load: Loads


@dataclass(frozen=True, slots=True, eq=False)
class ColumnBlock:
    """A block of N, per row of output tiles: a K tile multiplied; copied, added and stored."""

    tiles: FloatArray
    multiply_s: FloatArray
    copy_s: FloatArray
    add_s: FloatArray
    store_s: FloatArray
    load: Loads


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Parts:
    """The full and the last block of either free dimension, and single tiles.

    A transfer takes as long as its busiest engine, so fewer rows shorten it only when they no
    longer fill that one: `k_tiles` counts loads of K tiles with the last in units of a whole one,
    `last_row` is the last row's store likewise. `multiply_s`, `copy_s`, `add_s` belong to the last
    block's first tile, `turn_multiply_s` and `turn_copy_s` to a transpose.
    """

    m: RowBlock
    n: ColumnBlock
    last_m: RowBlock
    last_n: ColumnBlock
    k_tiles: FloatArray
    last_row: FloatArray
    multiply_s: FloatArray
    copy_s: FloatArray
    add_s: FloatArray
    turn_multiply_s: float
    turn_copy_s: float


def parts_of(s: KernelSchedule, costs: Instructions) -> Parts:
    """Return the prices of a schedule's parts on a core with these instruction costs."""
    last_m, last_n = s.last_m, s.last_n
    served = costs.transfer.partitions_per_engine
    stationary = np.minimum(s.m, s.tile.m)
    rows, last_rows = np.ceil(s.block_m / s.tile.m), np.ceil(last_m / s.tile.m)
    side = float(s.tile.m)
    tile = np.minimum(last_n, s.tile.n)
    last_k = np.minimum(np.ceil(s.last_contraction / s.b.stored_depth) / served, 1.0)
    last_row = np.minimum((last_m - (last_rows - 1) * s.tile.m) / served, 1.0)
    return Parts(
        m=RowBlock(rows, rows, _loads(s, costs, s.a, s.block_m, s.columns_a)),
        n=_whole_columns(s, costs),
        last_m=RowBlock(
            last_rows, last_rows - 1 + last_row, _loads(s, costs, s.a, last_m, s.columns_a)
        ),
        last_n=_ragged_columns(s, costs, stationary, last_n),
        k_tiles=s.k_tiles - 1 + last_k,
        last_row=last_row,
        multiply_s=_multiply_s(costs, stationary, tile),
        copy_s=costs.copy_alone_s(tile),
        add_s=costs.add_s(tile),
        turn_multiply_s=float(_multiply_s(costs, side, side)),
        turn_copy_s=float(costs.copy_each_s(side)),
    )


def _whole_columns(s: KernelSchedule, costs: Instructions) -> ColumnBlock:
    """Return a block of N that is not the last, so made of whole tiles."""
    full, side = float(s.tile.n), float(s.tile.m)
    tiles = np.ceil(s.block_n / full)
    return ColumnBlock(
        tiles,
        tiles * float(_multiply_s(costs, side, full)),
        tiles * float(costs.copy_each_s(full)),
        tiles * float(costs.add_s(full)),
        _transfer_s(costs, s.store(side, s.block_n)),
        _loads(s, costs, s.b, s.block_n, s.columns_b),
    )


def _ragged_columns(
    s: KernelSchedule, costs: Instructions, stationary: FloatArray, width: FloatArray
) -> ColumnBlock:
    full, side = float(s.tile.n), float(s.tile.m)
    whole = np.floor(width / full)
    rest = width - whole * full
    more = np.minimum(rest, 1.0)
    return ColumnBlock(
        whole + more,
        whole * float(_multiply_s(costs, side, full)) + more * _multiply_s(costs, stationary, rest),
        whole * float(costs.copy_each_s(full)) + more * costs.copy_each_s(rest),
        whole * float(costs.add_s(full)) + more * costs.add_s(rest),
        _transfer_s(costs, s.store(side, width)),
        _loads(s, costs, s.b, width, s.columns_b),
    )


def _multiply_s(costs: Instructions, stationary: Number, moving: Number) -> FloatArray:
    return costs.multiply_cycles(stationary, moving) * (1 / costs.tensor_clock_hz)


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
