"""Seconds that a rank computes in each block of a training step, by phase and category.

Model: a matrix product takes the time of the matrix model with the tensor units at their reached
share, t = max(tensor / share(K), memory / memory share, rest) + fixed; shares, and the shape of
attention on GPUs, are those of `machine/costs/shares.py`. Fused attention takes the longer of its
operations, in whole tiles, and its bytes. Unfused attention takes
its products and a calibrated number of touches of every score; all other operations their bytes.
Kernels of one rank follow each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from typing import TypeAlias, TypeVar

import numpy as np

from trnbench.engines.analytic.matrix.time import HIDDEN_PART, MatrixPart, MatrixTime, matrix_time
from trnbench.errors import unhandled
from trnbench.facts.arrays import FloatArray
from trnbench.facts.calibration.chip_efficiency import ComputeEfficiency, ends_of
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.compute_unit import Multiprocessors, NeuronCores
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, field, replace
from trnbench.machine.costs import single_kernels
from trnbench.machine.costs.shares import attention_slowdown, reached_share, unaligned
from trnbench.machine.costs.single_kernels import KernelTraffic
from trnbench.machine.tiling.attention import QUERY_TILE
from trnbench.machine.tiling.legality import format_reasons
from trnbench.program import ops
from trnbench.program.block import Block, Passes
from trnbench.program.grid import Grid
from trnbench.program.matrix import MatrixProduct, matrix_product
from trnbench.program.optimizer import WeightBuckets, is_on_host
from trnbench.program.precision import PrecisionRecipe, recipe_named
from trnbench.program.slots import PASSES, ComputeCategory, has_experts, is_whole
from trnbench.program.step import JoinedProducts, StepProgram, Terms
from trnbench.program.tensor import ONE, Dim, array

DimShape: TypeAlias = tuple[Dim, ...]
PartSeconds: TypeAlias = Mapping[MatrixPart, FloatArray]
PhaseSeconds: TypeAlias = Mapping[tuple[ops.Phase, ComputeCategory], FloatArray]
Kernel = TypeVar("Kernel", ops.MatMul, ops.AttentionOp, ops.ScanOp, ops.Elementwise, ops.Gather)

MIXED = recipe_named("bf16-master")
"""Recipe of kernels priced without a program."""
_SHARING = 2  # Cores that can share a head of the forward pass
_BACKWARD_KERNELS = 3  # Of attention on a GPU: sums of rows, gradients, their conversion


class BlockSeconds(Record, eq=False):
    """Seconds that one instance of a block computes on a rank, by phase and category."""

    kind: str
    parts: PhaseSeconds
    """Phases run once a micro-batch, `optimizer` once a step. Arrays span the axes of the grid that
    they depend on, then samples if any. NaN where the chip cannot compute."""

    def seconds(self, *phases: ops.Phase, category: ComputeCategory | None = None) -> FloatArray:
        """Seconds of these phases (all if none is named), of one category or all."""
        wanted = (
            part
            for (phase, of), part in self.parts.items()
            if (not phases or phase in phases) and category in (None, of)
        )
        return np.asarray(sum(wanted, start=np.zeros(())))

    def times(
        self, factor: float | FloatArray, room: Callable[[FloatArray], FloatArray]
    ) -> BlockSeconds:
        """Seconds multiplied by `factor`; `room` adds the factor's axes to an array first."""
        parts = {key: np.asarray(room(seconds) * factor) for key, seconds in self.parts.items()}
        return BlockSeconds(kind=self.kind, parts=parts)


class ComputeTime(Record, eq=False):
    """Seconds of every block by kind, and reasons why the chip cannot compute some of them."""

    blocks: Mapping[str, BlockSeconds]
    reasons: tuple[str, ...]


class Products(Record, eq=False):
    """Seconds of operations priced so far, shared by programs on one chip and efficiency.

    All compare by identity.
    """

    seconds: dict[Terms, FloatArray] = field(default_factory=dict)  # Matrix products by their terms
    kernels: dict[ops.Operation, FloatArray] = field(
        default_factory=dict
    )  # all others, one call each
    passes: Memo[Passes, PhaseSeconds] = field(default_factory=Memo)
    updates: Memo[WeightBuckets, PhaseSeconds] = field(default_factory=Memo)
    reasons: dict[str, None] = field(default_factory=dict)  # why the chip cannot compute some


def compute_time(
    program: StepProgram,
    chip: Chip,
    efficiency: ComputeEfficiency,
    *,
    logical_size: int | None = None,
    chip_ranks: int | None = None,
    known: Products | None = None,
) -> ComputeTime:
    """Compute seconds of a rank (`logical_size` cores, or a GPU) by block of a step.

    `chip_ranks`: ranks of a chip in use, None for all. `known`: operations priced before.
    """
    known = known or Products()
    gain = 1.0 if chip_ranks is None else chip.bandwidth_gain(chip_ranks, logical_size)
    rank = PricedRank(chip, efficiency, logical_size, gain, program.recipe)
    load = rank.expert_load(program.grid)
    rank.reasons.update(known.reasons)
    for products in program.products(known.seconds, known.passes):
        known.seconds.update(rank.products(products))
    known.reasons.update(rank.reasons)
    blocks: dict[str, BlockSeconds] = {}
    for kind, block in program.blocks.items():
        parts = {
            **known.passes.of(block.passes, partial(_passes, rank, block, known, load)),
            **known.updates.of(block.held, partial(_updates, rank, block.held, known)),
        }
        blocks[kind] = BlockSeconds(kind=block.kind, parts=parts)
    return ComputeTime(blocks=blocks, reasons=tuple(rank.reasons))


def attention_time_s(
    op: ops.AttentionOp,
    chip: Chip,
    efficiency: ComputeEfficiency,
    *,
    logical_size: int | None = None,
) -> FloatArray:
    return PricedRank(chip, efficiency, logical_size, 1.0).attention(op)


def product_time_s(product: MatrixProduct, chip: Chip, efficiency: ComputeEfficiency) -> FloatArray:
    return _longest_s(product_parts_s(product, chip, efficiency))


def product_parts_s(
    product: MatrixProduct, chip: Chip, efficiency: ComputeEfficiency
) -> PartSeconds:
    """Seconds of each part for a product by itself; software aligns the rows of a step's."""
    return PricedRank(chip, efficiency, None, 1.0).parts(product, as_given=True)


def _longest_s(parts: PartSeconds) -> FloatArray:
    busy = (seconds for part, seconds in parts.items() if part != "fixed")
    return np.asarray(reduce(np.maximum, busy) + parts["fixed"])


def passed_time_s(size_bytes: float, chip: Chip, efficiency: ComputeEfficiency) -> FloatArray:
    return PricedRank(chip, efficiency, None, 1.0).moved(np.asarray(size_bytes))


def _passes(
    rank: PricedRank, block: Block, known: Products, expert_load: FloatArray
) -> PhaseSeconds:
    """Seconds of a block's passes; of operations on experts' tokens times `expert_load`."""
    parts = _summed(rank, block.passes.ops, known, expert_load)
    computed = {phase for phase, _ in parts}
    for phase in PASSES:
        if phase in computed and is_whole(block, phase):
            fixed = np.asarray(rank.efficiency.kernels.block_pass_s)
            if rank.efficiency.experts and has_experts(block, phase):
                fixed = np.asarray(fixed + rank.efficiency.experts.block_pass_s)
            parts[phase, "fixed"] = fixed
    return parts


def _updates(rank: PricedRank, held: WeightBuckets, known: Products) -> PhaseSeconds:
    return _summed(rank, held.synchronised, known, ONE)


def _summed(
    rank: PricedRank, each: Sequence[ops.Operation], known: Products, expert_load: FloatArray
) -> dict[tuple[ops.Phase, ComputeCategory], FloatArray]:
    """Sums of the seconds of operations."""
    scores = _score_shapes(each)
    parts: dict[tuple[ops.Phase, ComputeCategory], FloatArray] = {}

    def add(phase: ops.Phase, category: ComputeCategory, seconds: FloatArray) -> None:
        before = parts.get((phase, category))
        parts[phase, category] = seconds if before is None else before + seconds

    def counted(op: ops.Operation, category: ComputeCategory, seconds: FloatArray) -> None:
        if op.region == "experts":
            seconds = rank.along(op.count) * expert_load * seconds
        elif op.count is not ONE:  # as it is for most
            seconds = rank.along(op.count) * seconds
        add(op.phase, category, seconds)

    def once(op: Kernel, price: Callable[[Kernel], FloatArray]) -> FloatArray:
        if op not in known.kernels:
            known.kernels[op] = price(op)
        return known.kernels[op]

    for op in each:
        match op:
            case ops.MatMul():
                seconds = known.seconds[op.terms]
                if op.terms[0].out.dims in scores:
                    seconds = seconds + rank.scores(op)
                if rank.single or rank.recipe.cached:
                    counted(op, "element-wise", once(op, rank.around))
                counted(op, "attention" if op.region == "core" else "matrix", seconds)
            case ops.AttentionOp():
                counted(op, "attention", once(op, rank.attention))
            case ops.ScanOp():
                counted(op, "attention", once(op, rank.scan))
            case ops.Elementwise():
                if is_on_host(op):
                    continue  # `job_prices` prices it.
                # The calibrated touches of `rank.scores` already contain the passes over scores.
                if scores and any(t.dims in scores for t in (*op.reads, *op.writes)):
                    continue
                counted(op, "element-wise", once(op, rank.elementwise))
            case ops.Gather():
                counted(op, "gather", once(op, lambda one: rank.moved(one.bytes)))
            case ops.CollectiveOp():
                pass  # `step_exchanges` prices it.
            case _:
                unhandled(op, "price in compute time")
    return {key: np.asarray(seconds) for key, seconds in parts.items()}


def _score_shapes(each: Iterable[ops.Operation]) -> frozenset[DimShape]:
    return frozenset(
        op.writes[0].dims for op in each if isinstance(op, ops.Elementwise) and op.region == "core"
    )


class PricedRank:
    """The compute resources of a rank, and seconds of its kernels; collects refusals."""

    def __init__(
        self,
        chip: Chip,
        efficiency: ComputeEfficiency,
        logical_size: int | None,
        gain: float,
        recipe: PrecisionRecipe = MIXED,
    ) -> None:
        self.chip = chip
        self.efficiency = efficiency
        self.reasons: dict[str, None] = {}
        self.recipe = recipe
        self.single = efficiency.kernels.passes == "single"
        self._sampled = efficiency.samples is not None
        self._cores = chip.unit.cores_per_rank(logical_size)
        self._part = self._cores / chip.unit.separate_cores
        self._memory_share = efficiency.chip.memory_share * gain
        self._memory_bytes_per_s = (
            self._part * chip.memory.bandwidth_per_chip_bytes_per_s * self._memory_share
        )

    def along(self, array: FloatArray) -> FloatArray:
        return array[..., np.newaxis] if self._sampled else array

    def expert_load(self, grid: Grid) -> FloatArray:
        """Factor by which work on experts' tokens takes longer on the busiest rank.

        A capacity, up to which every expert is filled, evens out the routers' draws.
        """
        experts = self.efficiency.experts
        if experts is None:
            return np.ones(())
        uneven = (self.along(grid.ep) > 1) & (grid.capacity_factor is None)
        return np.asarray(experts.compute * np.where(uneven, 1 + experts.imbalance, 1.0))

    def moved(self, size_bytes: FloatArray) -> FloatArray:
        return np.asarray(self.along(size_bytes) / self._memory_bytes_per_s)

    def elementwise(self, op: ops.Elementwise) -> FloatArray:
        """Seconds of a pass over memory."""
        kernels = self.efficiency.kernels
        if op.phase == "optimizer":
            return np.asarray(self.moved(op.bytes) * kernels.optimizer_traffic)
        if self.single:
            return self.kernels(single_kernels.moved(op, self.recipe))
        return np.asarray(self.moved(op.bytes) * kernels.elementwise_traffic)

    def around(self, op: ops.MatMul) -> FloatArray:
        """Seconds of sums and casts beside a product."""
        seconds = self.kernels(single_kernels.around(op, self.recipe))
        casts = self.efficiency.kernels.adapter_casts
        if ends_of(casts)[1] > 0:
            seconds = seconds + casts * self.kernels(single_kernels.adapted(op))
        return np.asarray(seconds)

    def kernels(self, of: KernelTraffic) -> FloatArray:
        """Seconds of single kernels: their bytes, and the launch of each."""
        unit = self.chip.unit
        launch_s = unit.launch_latency_s if isinstance(unit, Multiprocessors) else 0.0
        moved_s = self.moved(of.bytes) * self.efficiency.kernels.elementwise_traffic
        return np.asarray(moved_s + of.kernels * launch_s)

    def scores(self, op: ops.MatMul) -> FloatArray:
        """Seconds of all passes over the scores that a product makes."""
        kernels = self.efficiency.kernels
        backward = op.phase in ("B_input", "B_weight")
        touches = kernels.score_touches_backward if backward else kernels.score_touches_forward
        return np.asarray(self.moved(op.terms[0].out.bytes) * touches)

    def attention(self, op: ops.AttentionOp) -> FloatArray:
        """Seconds of fused attention."""
        number_format = self.chip.own_format(op.format)
        example = matrix_product(1, 1, 1, format_a=number_format)
        if refused := format_reasons(example, self.chip, "native"):
            self.reasons.update(dict.fromkeys(refused))
            return np.asarray(np.nan)
        kernels = self.efficiency.kernels
        share = kernels.attention_backward_share if op.backward else kernels.attention_forward_share
        keys = kernels.attention_backward_keys if op.backward else kernels.attention_forward_keys
        flop_per_s = self._part * self.chip.peak_flop_per_s(number_format) * share
        tiles = np.ones(())
        if op.causal and ends_of(keys)[1] > 0:
            queries, pairs = self.along(op.query.shape[1]), self.along(op.pairs)
            tiles = np.asarray(np.minimum(1 + keys / 2 * queries / pairs, 2.0))
        # Pairs are paid in whole tiles on both sides, keys besides for loading and draining.
        flop = self.along(op.flop * self._unfilled(op))
        flop = flop * (tiles * self.along(self._query_tiles(op)) + self.along(self._key_side(op)))
        unit, launched_s = self.chip.unit, 0.0
        if isinstance(unit, Multiprocessors):
            known = self.efficiency.chip
            flop = flop * attention_slowdown(known, unit, op, self.along) / known.power_gain
            launched_s = unit.launch_latency_s * (_BACKWARD_KERNELS if op.backward else 1)
        computed = flop / flop_per_s
        if ends_of(kernels.attention_call_s)[1] > 0 or ends_of(kernels.attention_head_s)[1] > 0:
            batch, _, heads, _ = op.query.shape
            on_core = np.ceil(batch * heads / self._cores)
            computed = computed + kernels.attention_call_s
            computed = computed + kernels.attention_head_s * self.along(on_core)
        return np.maximum(computed, self.moved(op.bytes)) + launched_s

    def scan(self, op: ops.ScanOp) -> FloatArray:
        """Seconds of a scan: its products at the speed of attention's, or its bytes.

        No published figure says what share of the peak scan kernels reach; bytes bound most of
        them.
        """
        number_format = self.chip.own_format(op.format)
        kernels = self.efficiency.kernels
        share = kernels.attention_backward_share if op.backward else kernels.attention_forward_share
        flop_per_s = self._part * self.chip.peak_flop_per_s(number_format) * share
        filled = np.ones(())
        if isinstance(self.chip.unit, NeuronCores):
            # Heads and states narrower than the array leave a part of it idle.
            rows, sizes = self.chip.unit.tensor.rows, (*op.sizes, array(op.chunk))
            filled = reduce(np.maximum, (np.ceil(size / rows) * rows / size for size in sizes))
        computed = self.along(op.flop * filled) / flop_per_s
        return np.maximum(computed, self.moved(op.bytes) * kernels.elementwise_traffic)

    def _unfilled(self, op: ops.AttentionOp) -> FloatArray:
        """Seconds on a systolic array over those on an array that the heads would fill."""
        # Heads go whole to the cores of a rank; forward, two cores share an odd one.
        if not isinstance(self.chip.unit, NeuronCores):
            return np.ones(())
        batch, _, heads, size = op.query.shape
        rows = self.chip.unit.tensor.rows
        filled = np.ceil(size / rows) * rows / size
        if op.backward or self._cores != _SHARING:
            calls = batch * heads
            filled = filled * (np.ceil(calls / self._cores) * self._cores / calls)
        return np.asarray(filled)

    def _query_tiles(self, op: ops.AttentionOp) -> FloatArray:
        """Queries of whole tiles over the queries of the operation."""
        # Ranks that share a sequence under a causal mask have an early and a late part of it, and
        # tiles of their own for each.
        if not isinstance(self.chip.unit, NeuronCores):
            return np.ones(())
        queries = op.query.shape[1]
        parts = np.where(op.causal & (queries < op.key.shape[1]), 2, 1)
        return np.asarray(np.ceil(queries / parts / QUERY_TILE) * QUERY_TILE * parts / queries)

    def _key_side(self, op: ops.AttentionOp) -> FloatArray:
        """Cost of a head beyond its pairs, over that of the pairs: keys loaded, turned, drained."""
        # About as long as one more tile of queries that attends to all keys (played on Trainium2:
        # 95 queries backward, 190 forward). Where a rank has a whole sequence, the calibrated cost
        # of a head already contains these seconds.
        if not isinstance(self.chip.unit, NeuronCores):
            return np.zeros(())
        queries, keys = op.query.shape[1], op.key.shape[1]
        return np.asarray((queries < keys) * QUERY_TILE * keys / op.pairs)

    def products(self, joined: JoinedProducts) -> Mapping[Terms, FloatArray]:
        """Seconds of products by their terms; equal products are priced once.

        A product's sizes span only the axes they depend on, so they are few for any number of
        layouts.
        """
        seconds = self.time(joined.product)
        return {terms: seconds[places] for terms, places in joined.places.items()}

    def time(self, product: MatrixProduct) -> FloatArray:
        return _longest_s(self.parts(product))

    def parts(self, product: MatrixProduct, *, as_given: bool = False) -> PartSeconds:
        """Seconds of each part for a product, of rows aligned by software unless `as_given`."""
        ideal = matrix_time(self._taken(product), self.chip, cores=self._cores)
        parts: dict[MatrixPart, FloatArray] = {
            **self.busy(ideal),
            "fixed": self.along(ideal.parts_s["fixed"]),
        }
        unit = self.chip.unit
        if as_given and isinstance(unit, Multiprocessors):
            slow = self.along(unaligned(ideal.product, unit))
            slow_share = np.where(slow, self.efficiency.chip.unaligned_share, 1.0)
            parts["tensor"] = np.asarray(parts["tensor"] / slow_share)
        return parts

    def _taken(self, product: MatrixProduct) -> MatrixProduct:
        return replace(
            product,
            format_a=self.chip.own_format(product.format_a),
            format_b=self.chip.own_format(product.format_b),
        )

    def product_busy(self, op: ops.MatMul) -> Mapping[MatrixPart, FloatArray]:
        return self.busy(matrix_time(self._taken(op.product), self.chip, cores=self._cores))

    def busy(self, ideal: MatrixTime) -> Mapping[MatrixPart, FloatArray]:
        """Busy seconds of each part for products, at the share of its peak that it reaches."""
        self.reasons.update(dict.fromkeys(ideal.reasons))
        depth = self.along(self.chip.unit.padded_depth(ideal.product.k))
        share = reached_share(self.efficiency.chip, ideal.product.format_a, depth)
        shares: Mapping[MatrixPart, FloatArray | float] = {
            "tensor": share,
            "memory": self._memory_share,
        }
        return {
            part: np.asarray(self.along(seconds) / shares.get(part, 1.0))
            for part, seconds in ideal.parts_s.items()
            if part not in (HIDDEN_PART, "fixed")
        }
