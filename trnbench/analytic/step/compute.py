"""Seconds that a rank computes in each block of a training step, by phase and category.

Model: a matrix product takes the time of the matrix model with the tensor units at their reached
share, t = max(tensor / (share * K / (K + K0)), memory / memory share, rest) + fixed. Fused
attention takes the longer of its operations and its bytes; unfused attention its products and so
many touches of every score; everything else its bytes. Kernels of one rank follow each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Literal, TypeAlias

import numpy as np

from trnbench.analytic.matrix.time import HIDDEN_PART, MatrixPart, MatrixTime, matrix_time
from trnbench.arrays import FloatArray
from trnbench.calibration.chip_efficiency import ComputeEfficiency
from trnbench.errors import unhandled
from trnbench.hardware.chip import Chip
from trnbench.mapping.tiling.legality import format_reasons
from trnbench.numerics.formats import format_named
from trnbench.program.block import Block
from trnbench.program.matrix import MatrixProduct, matrix_product
from trnbench.program.ops import (
    AttentionOp,
    CollectiveOp,
    Elementwise,
    Gather,
    MatMul,
    Operation,
    Phase,
    Term,
)
from trnbench.program.step import StepProgram
from trnbench.program.tensor import Dim
from trnbench.units import BITS_PER_BYTE

ComputeCategory = Literal["matrix", "attention", "element-wise", "gather", "fixed"]

DimShape: TypeAlias = tuple[Dim, ...]

_PASSES: tuple[Phase, ...] = ("F", "recompute", "B_input")
"""The phases that go through a whole block."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockSeconds:
    """What one instance of a block computes on a rank, seconds by phase and category.

    Phases run once a micro-batch, `optimizer` once a step. Arrays span only the axes of the grid
    they depend on, then that of the efficiency's samples if it has any. NaN: the chip cannot.
    """

    kind: str
    parts: Mapping[tuple[Phase, ComputeCategory], FloatArray]

    def seconds(self, *phases: Phase, category: ComputeCategory | None = None) -> FloatArray:
        """Return the seconds of these phases (all if none is named), of one category or all."""
        wanted = (
            part
            for (phase, of), part in self.parts.items()
            if (not phases or phase in phases) and category in (None, of)
        )
        return np.asarray(sum(wanted, start=np.zeros(())))

    def times(
        self, factor: float | FloatArray, room: Callable[[FloatArray], FloatArray]
    ) -> BlockSeconds:
        """Return as many times these seconds, after `room` was made for the factor's axes."""
        parts = {key: np.asarray(room(seconds) * factor) for key, seconds in self.parts.items()}
        return BlockSeconds(kind=self.kind, parts=parts)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ComputeTime:
    """The seconds of every block by kind, and why the chip cannot compute some of them."""

    blocks: Mapping[str, BlockSeconds]
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Products:
    """Matrix products priced so far, by what they multiply, and why a chip cannot; in seconds.

    Holds for one chip and efficiency; programs that have operations in common may share it.
    """

    seconds: dict[tuple[Term, ...], FloatArray] = field(default_factory=dict)
    reasons: dict[str, None] = field(default_factory=dict)


def compute_time(
    program: StepProgram,
    chip: Chip,
    efficiency: ComputeEfficiency,
    *,
    logical_size: int | None = None,
    known: Products | None = None,
) -> ComputeTime:
    """Return the compute seconds of a rank (`logical_size` cores, or a GPU) by block of a step."""
    known = known or Products()
    rank = _Rank(chip, efficiency, logical_size)
    rank.reasons.update(known.reasons)
    products = [
        op
        for block in program.blocks.values()
        for op in block.ops
        if isinstance(op, MatMul) and op.terms not in known.seconds
    ]
    known.seconds.update((op.terms, seconds) for op, seconds in rank.products(products).items())
    known.reasons.update(rank.reasons)
    blocks = {kind: _block(rank, block, known.seconds) for kind, block in program.blocks.items()}
    return ComputeTime(blocks=blocks, reasons=tuple(rank.reasons))


def _block(
    rank: _Rank, block: Block, product_s: Mapping[tuple[Term, ...], FloatArray]
) -> BlockSeconds:
    """Return the seconds of a block's operations, added up."""
    scores = _score_shapes(block.ops)
    parts: dict[tuple[Phase, ComputeCategory], FloatArray] = {}

    def add(phase: Phase, category: ComputeCategory, seconds: FloatArray) -> None:
        before = parts.get((phase, category), np.zeros(()))
        parts[phase, category] = np.asarray(before + seconds)

    for op in block.ops:
        match op:
            case MatMul():
                seconds = product_s[op.terms]
                if op.terms[0].out.dims in scores:
                    seconds = seconds + rank.scores(op)
                category: ComputeCategory = "attention" if op.region == "core" else "matrix"
                add(op.phase, category, rank.along(op.count) * seconds)
            case AttentionOp():
                add(op.phase, "attention", rank.along(op.count) * rank.attention(op))
            case Elementwise():
                if not any(tensor.dims in scores for tensor in (*op.reads, *op.writes)):
                    add(op.phase, "element-wise", rank.along(op.count) * rank.elementwise(op))
            case Gather():
                add(op.phase, "gather", rank.along(op.count) * rank.moved(op.bytes))
            case CollectiveOp():
                pass  # `step_exchanges` prices it.
            case _:
                unhandled(op, "price in compute time")
    computed = {phase for phase, _ in parts}
    for phase in _PASSES:
        if phase in computed and _is_whole(block, phase):
            add(phase, "fixed", np.asarray(rank.efficiency.kernels.block_pass_s))
    return BlockSeconds(kind=block.kind, parts=parts)


def _score_shapes(ops: Iterable[Operation]) -> frozenset[DimShape]:
    """Return the shape of unfused attention's scores: what its passes between products write."""
    return frozenset(
        op.writes[0].dims for op in ops if isinstance(op, Elementwise) and op.region == "core"
    )


def _is_whole(block: Block, phase: Phase) -> bool:
    """Tell whether a phase goes beyond the attention core, which selective recompute repeats."""
    return any(op.region == "" for op in block.phase(phase))


class _Rank:
    """What a rank computes with, and the time its kernels take; notes why it cannot."""

    def __init__(self, chip: Chip, efficiency: ComputeEfficiency, logical_size: int | None) -> None:
        self.chip = chip
        self.efficiency = efficiency
        self.reasons: dict[str, None] = {}
        self._sampled = efficiency.samples is not None
        self._cores = chip.unit.cores_per_rank(logical_size)
        self._part = self._cores / chip.unit.separate_cores
        self._memory_bytes_per_s = (
            self._part * chip.memory.bandwidth_per_chip_bytes_per_s * efficiency.chip.memory_share
        )

    def along(self, array: FloatArray) -> FloatArray:
        """Return an array over layouts with the axis of samples behind it, if there is one."""
        return array[..., np.newaxis] if self._sampled else array

    def moved(self, size_bytes: FloatArray) -> FloatArray:
        """Return the time of moving bytes to or from memory, s."""
        return np.asarray(self.along(size_bytes) / self._memory_bytes_per_s)

    def elementwise(self, op: Elementwise) -> FloatArray:
        """Return the time of a pass over memory, s."""
        kernels = self.efficiency.kernels
        update = op.phase == "optimizer"
        traffic = kernels.optimizer_traffic if update else kernels.elementwise_traffic
        return np.asarray(self.moved(op.bytes) * traffic)

    def scores(self, op: MatMul) -> FloatArray:
        """Return the time of all passes over the scores that a product makes, s."""
        kernels = self.efficiency.kernels
        backward = op.phase in ("B_input", "B_weight")
        touches = kernels.score_touches_backward if backward else kernels.score_touches_forward
        return np.asarray(self.moved(op.terms[0].out.bytes) * touches)

    def attention(self, op: AttentionOp) -> FloatArray:
        """Return the time of fused attention, s."""
        number_format = self.chip.own_format(op.format)
        example = matrix_product(1, 1, 1, format_a=number_format)
        if refused := format_reasons(example, self.chip, "native"):
            self.reasons.update(dict.fromkeys(refused))
            return np.asarray(np.nan)
        kernels = self.efficiency.kernels
        share = kernels.attention_backward_share if op.backward else kernels.attention_forward_share
        flop_per_s = self._part * self.chip.peak_flop_per_s(number_format) * share
        return np.maximum(self.along(op.flop) / flop_per_s, self.moved(op.bytes))

    def products(self, ops: Sequence[MatMul]) -> Mapping[MatMul, FloatArray]:
        """Return the time of each product, s; like ones are priced once, all of a format at once.

        A product's sizes span only the axes they depend on, so there are few, however many layouts.
        """
        groups: dict[tuple[str, ...], list[tuple[MatMul, MatrixProduct]]] = {}
        for op in ops:
            product = self._taken(op.product)
            formats = (product.format_a, product.format_b, product.format_out)
            groups.setdefault(formats, []).append((op, product))
        return {op: seconds for group in groups.values() for op, seconds in self._group(group)}

    def _taken(self, product: MatrixProduct) -> MatrixProduct:
        """Return a product in the chip's own kinds of its operands' formats."""
        return replace(
            product,
            format_a=self.chip.own_format(product.format_a),
            format_b=self.chip.own_format(product.format_b),
        )

    def _group(
        self, group: Sequence[tuple[MatMul, MatrixProduct]]
    ) -> Iterable[tuple[MatMul, FloatArray]]:
        distinct = {_key(product): product for _, product in group}
        sizes = [_flat(product) for product in distinct.values()]
        m, k, n, batch = np.concatenate(sizes, axis=1)
        joined = replace(group[0][1], m=m, k=k, n=n, batch=batch)
        seconds = self._reached(matrix_time(joined, self.chip, cores=self._cores))
        starts = np.cumsum([0, *(size.shape[1] for size in sizes)])
        where = {key: slice(*starts[i : i + 2]) for i, key in enumerate(distinct)}
        for op, product in group:
            found = seconds[where[_key(product)]]
            yield op, found.reshape(product.shape + seconds.shape[1:])

    def _reached(self, ideal: MatrixTime) -> FloatArray:
        """Return the time of products at the shares that tensor units and memory reach, s."""
        self.reasons.update(dict.fromkeys(ideal.reasons))
        chip, depth = self.efficiency.chip, self.along(ideal.product.k)
        share = chip.tensor_share * depth / (depth + chip.half_share_depth)
        if format_named(ideal.product.format_a).bits <= BITS_PER_BYTE:
            share = share * chip.narrow_share
        shares: Mapping[MatrixPart, FloatArray | float] = {
            "tensor": share,
            "memory": chip.memory_share,
        }
        alone = (
            self.along(seconds) / shares.get(part, 1.0)
            for part, seconds in ideal.parts_s.items()
            if part not in (HIDDEN_PART, "fixed")
        )
        return reduce(np.maximum, alone) + self.along(ideal.parts_s["fixed"])


def _key(product: MatrixProduct) -> tuple[tuple[tuple[int, ...], bytes], ...]:
    sizes = (product.m, product.k, product.n, product.batch)
    return tuple((size.shape, size.tobytes()) for size in sizes)


def _flat(product: MatrixProduct) -> FloatArray:
    """Return the sizes of products, one column each."""
    sizes = np.broadcast_arrays(product.m, product.k, product.n, product.batch)
    return np.stack(sizes).reshape(len(sizes), -1)
