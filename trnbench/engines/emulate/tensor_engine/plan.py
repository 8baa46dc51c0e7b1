"""A kernel's schedule as the instructions of its steps, with their durations in whole femtoseconds.

A step is one block of K of one output block. Whole femtoseconds make states comparable exactly.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

from trnbench.facts.arrays import Number
from trnbench.facts.records import Record
from trnbench.machine.costs.instructions import Instructions, TransferCost
from trnbench.machine.tiling.schedule import KernelSchedule, Operand, Transfer

Side: TypeAlias = Literal[0, 1]  # An operand: a or b
SIDES: tuple[Side, ...] = (0, 1)
FS_PER_S = 10**15
_SLACK = 1e-3


def femtoseconds(seconds: float) -> int:
    """A duration in fs, rounded up so that nothing is faster than its rate."""
    return math.ceil(seconds * FS_PER_S - _SLACK)


class DmaMove(Record, kw_only=False):
    """One DMA transfer: seconds on its engines, number of engines, and bytes."""

    occupancy_fs: int
    engines: int
    size_bytes: float


class ProductChain(Record, kw_only=False):
    """The products that accumulate into one output tile; the last of a row of tiles stores it."""

    multiply_fs: int
    load_weights_fs: int
    copy_fs: tuple[int, ...]
    add_fs: int
    first_in_row: bool
    store: DmaMove | None


class KTile(Record, kw_only=False):
    """Work of one K tile of a step: transfers and transposes of either operand."""

    moves: tuple[tuple[DmaMove, ...], tuple[DmaMove, ...]]
    turns: tuple[int, int]


class KernelStep(Record, kw_only=False):
    """All instructions of one block of K of one output block."""

    k_tiles: tuple[KTile, ...]
    chains: tuple[ProductChain, ...]


class KernelPlan:
    """The steps of a schedule in order: their shapes, made once each, and their loads."""

    def __init__(self, schedule: KernelSchedule, instructions: Instructions) -> None:
        self._schedule = schedule
        self._costs = instructions
        self._inner_is_m = schedule.outer == "n"
        m_blocks, n_blocks = int(schedule.m_blocks), int(schedule.n_blocks)
        outer, inner = (n_blocks, m_blocks) if self._inner_is_m else (m_blocks, n_blocks)
        self.counts = (int(schedule.batch), outer, inner, int(schedule.k_blocks))
        self.steps = math.prod(self.counts)
        self._cache: dict[tuple[bool, bool, bool], KernelStep] = {}
        columns = float(schedule.tile.m)
        # Durations of a transpose on the tensor engine: the product, its weights, the copy back.
        self.turn = (
            self._cycles_fs(instructions.multiply_cycles(columns, columns)),
            self._cycles_fs(instructions.weight_load_cycles(columns)),
            self._copies(columns),
        )

    def digits(self, index: int) -> tuple[int, int, int, int]:
        """(batch, outer block, inner block, block of K) of a step."""
        _, outer, inner, k = self.counts
        index, k_at = divmod(index, k)
        index, inner_at = divmod(index, inner)
        batch_at, outer_at = divmod(index, outer)
        return batch_at, outer_at, inner_at, k_at

    def step(self, index: int) -> KernelStep:
        """Instructions of a step."""
        _, outer, inner, k = self.counts
        _, outer_at, inner_at, k_at = self.digits(index)
        last_outer, last_inner = outer_at == outer - 1, inner_at == inner - 1
        last_m, last_n = (last_inner, last_outer) if self._inner_is_m else (last_outer, last_inner)
        # Blocks differ only where they are the last of a dimension: eight kinds of steps at most.
        key = (last_m, last_n, k_at == k - 1)
        step = self._cache.get(key)
        if step is None:
            step = self._cache[key] = self._make(*key)
        return step

    def loads(self, index: int) -> tuple[bool, bool]:
        """True for `a` and for `b` where a step loads its block, False if it is in SBUF."""
        if index >= self.steps:
            return True, True
        _, outer, inner, k = self.counts
        _, outer_at, inner_at, _ = self.digits(index)
        # With several blocks of K every step has operands of its own. With one, the operand of the
        # outer loop stays while the inner loop runs.
        new_outer = k > 1 or (inner_at == 0 and (outer > 1 or outer_at == 0))
        new_inner = k > 1 or inner > 1 or outer_at == 0
        new_m, new_n = (new_inner, new_outer) if self._inner_is_m else (new_outer, new_inner)
        return new_m or self._schedule.reload_a, new_n or self._schedule.reload_b

    def _make(self, last_m: bool, last_n: bool, last_k: bool) -> KernelStep:
        schedule = self._schedule
        m = int(schedule.last_m) if last_m else int(schedule.block_m)
        n = int(schedule.last_n) if last_n else int(schedule.block_n)
        count = int(schedule.last_k) if last_k else int(schedule.block_k)
        full = schedule.tile.k
        depths = [full] * count
        if last_k:
            depths[-1] = int(schedule.last_contraction)
        tiles = {depth: self._k_tile(m, n, depth) for depth in set(depths)}
        return KernelStep(
            k_tiles=tuple(tiles[depth] for depth in depths), chains=self._chains(m, n, last_k)
        )

    def _k_tile(self, m: int, n: int, contraction: int) -> KTile:
        schedule = self._schedule
        a, b = schedule.a, schedule.b
        return KTile(
            (
                self._loads(a, m, int(schedule.columns_a), contraction),
                self._loads(b, n, int(schedule.columns_b), contraction),
            ),
            (int(a.turns(float(m))), int(b.turns(float(n)))),
        )

    def _loads(
        self, operand: Operand, columns: int, at_once: int, contraction: int
    ) -> tuple[DmaMove, ...]:
        return tuple(
            _move(self._costs.transfer, operand.load(float(piece), float(contraction)))
            for piece in _pieces(columns, at_once)
        )

    def _chains(self, m: int, n: int, last_k: bool) -> tuple[ProductChain, ...]:
        tile = self._schedule.tile
        chains: list[ProductChain] = []
        for rows in _pieces(m, tile.m):
            store = _move(self._costs.transfer, self._schedule.store(float(rows), float(n)))
            widths = _pieces(n, tile.n)
            chains += [
                ProductChain(
                    self._cycles_fs(self._costs.multiply_cycles(rows, width)),
                    self._cycles_fs(self._costs.weight_load_cycles(rows)),
                    self._copies(float(width)),
                    femtoseconds(float(self._costs.add_s(float(width)))),
                    place == 0,
                    store if last_k and place == len(widths) - 1 else None,
                )
                for place, width in enumerate(widths)
            ]
        return tuple(chains)

    def _copies(self, columns: float) -> tuple[int, ...]:
        costs = self._costs
        return tuple(
            femtoseconds(float(costs.copy_s(engine, columns))) for engine in costs.evacuators
        )

    def _cycles_fs(self, cycles: Number) -> int:
        return femtoseconds(float(cycles) / self._costs.tensor_clock_hz)


def _move(cost: TransferCost, transfer: Transfer) -> DmaMove:
    seconds = cost.occupancy_s(transfer.partitions, transfer.row_bytes, transfer.rows)
    return DmaMove(
        occupancy_fs=femtoseconds(float(seconds)),
        engines=cost.engines(float(transfer.partitions)),
        size_bytes=float(transfer.size_bytes),
    )


def _pieces(size: int, at_most: int) -> list[int]:
    whole, rest = divmod(size, at_most)
    return [at_most] * whole + [rest] * (rest > 0)
