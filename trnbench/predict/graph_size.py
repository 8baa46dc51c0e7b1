"""The largest graph that a step gives to the compiler of NeuronCores: instructions and minutes.

A rank compiles one graph for the forward and backward pass of a micro-batch of its stage. A matrix
product counts as the tiles that the tensor engine takes at once:

    one sequence       tokens / 128 x inner / 128 x outer / 512
    several            positions    x inner / 128 x outer / 512      (measured: see below)

Of several sequences the compiler lays the sequences side by side in a tile and takes position by
position: refusals name one number at micro-batches of 2, 4 and 8, and memory for 128 sequences of
logits. Tensor parallelism divides outer or inner, pipeline stages divide layers; data parallelism
divides nothing.
"""

from __future__ import annotations

import math
from functools import cached_property, reduce
from math import ceil
from statistics import NormalDist

import numpy as np

from trnbench.facts.arrays import FloatArray, picked
from trnbench.facts.calibration.compiler import Compiler
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.compute_unit import NeuronCores, TensorEngine
from trnbench.facts.records import Record
from trnbench.facts.workload.layout import Layout
from trnbench.program.grid import Grid
from trnbench.program.ops import MatMul, Phase
from trnbench.program.step import StepProgram
from trnbench.program.tensor import LOGITS_DIM

DOUBT = 0.25
"""Log standard deviation of a count, from fitted rows."""
MICRO_BATCH_PHASES: tuple[Phase, ...] = ("F", "recompute", "B_input", "B_weight")
_NONE = np.zeros(())
_Z80 = NormalDist().inv_cdf(0.9)
_MILLION = 1e6
_NEAR = 0.2
"""Probability of passing below which a graph is called too large."""
_DOUBTED = 0.9
"""Probability of passing below which a graph is near its limit."""


class GraphSize(Record):
    """Instructions of the largest graph of a rank, and of its largest operation."""

    instructions: float
    operator: str
    operator_instructions: float
    """Of the loss of several sequences; 0 for one, of which no count is published."""

    def passes(self, compiler: Compiler) -> float:
        """Probability that neither count is refused: the doubt of both is one."""
        pairs = (
            (self.instructions, compiler.graph_instructions),
            (self.operator_instructions, compiler.operator_instructions),
        )
        return min(_below(count, limit) for count, limit in pairs)

    def interval(self) -> tuple[float, float]:
        """Ends of the 80 % interval of the graph's instructions."""
        factor = math.exp(_Z80 * DOUBT)
        return self.instructions / factor, self.instructions * factor

    def warning(self, compiler: Compiler, program: StepProgram) -> str | None:
        """A graph near or above its limit in words, with what makes it smaller."""
        chance = self.passes(compiler)
        if chance >= _DOUBTED:
            return None
        word = "may refuse" if chance >= _NEAR else "likely refuses"
        of_graph = _below(self.instructions, compiler.graph_instructions)
        of_operator = _below(self.operator_instructions, compiler.operator_instructions)
        what, count, limit = "a graph", self.instructions, compiler.graph_instructions
        if of_operator < of_graph:
            what, count = self.operator, self.operator_instructions
            limit = compiler.operator_instructions
        layout = program.layout
        ways = ["a larger --tp", "a shorter --sequence"]
        if layout.micro_batch > 1:
            ways.insert(0, "--micro-batch 1")
        elif of_graph <= of_operator:
            ways.insert(1, "a larger --pp")
        return (
            f"{compiler.title} {word} {what}: about {_count(count)} instructions, limit "
            f"{_count(limit)}; try {', '.join(ways[:-1])} or {ways[-1]}"
        )


class StepGraphs(Record, eq=False):
    """The graphs of a program on a chip, counted for all its layouts at once."""

    program: StepProgram
    chip: Chip
    compiler: Compiler
    phases: tuple[Phase, ...] = MICRO_BATCH_PHASES

    @cached_property
    def _instructions(self) -> FloatArray:
        return graph_instructions(self.program, self.chip, self.compiler, self.phases)

    def largest(self, index: tuple[int, ...] = ()) -> GraphSize:
        """The largest graph over the stages, of the layout at an index of the program's grid."""
        grid, loss = self.program.grid, 0.0

        def here(values: FloatArray) -> float:
            return float(picked(values, grid.shape, index))

        if here(grid.micro_batch) > 1 and "F" in self.phases:
            ops = (op for block in self.program.blocks.values() for op in block.phase("F"))
            loss = max(
                (
                    self.compiler.loss_passes * here(grid.sequence) * here(_wide(op, self.chip))
                    for op in ops
                    if isinstance(op, MatMul)
                    and here(op.count)
                    and op.writes[0].dims[-1].name == LOGITS_DIM
                ),
                default=0.0,
            )
        return GraphSize(
            instructions=here(self._instructions),
            operator="the loss" if loss else "",
            operator_instructions=loss,
        )


def graph_instructions(
    program: StepProgram,
    chip: Chip,
    compiler: Compiler,
    phases: tuple[Phase, ...] = MICRO_BATCH_PHASES,
) -> FloatArray:
    """Instructions of the largest graph over the stages, of each layout of a program."""
    assert isinstance(chip.unit, NeuronCores)
    of_kind: dict[str, FloatArray] = {}
    for kind, block in program.blocks.items():
        for op in block.phase(*phases):
            if isinstance(op, MatMul):
                count = _tiles(op, chip.unit.tensor, program.grid) * compiler.tile_instructions
                of_kind[kind] = of_kind.get(kind, np.zeros(())) + op.count * count
    stages = (
        (stage.multiplicity > 0)
        * sum((of_kind[kind] * n for kind, n in stage.blocks.items() if kind in of_kind), _NONE)
        for stage in program.stages
    )
    return np.asarray(reduce(np.maximum, stages, _NONE))


def graph_of_parameters(
    parameters: float, layout: Layout, chip: Chip, compiler: Compiler
) -> GraphSize:
    """The forward graph of a model of which a rank's parameters alone are known."""
    assert isinstance(chip.unit, NeuronCores)
    engine, single = chip.unit.tensor, layout.micro_batch == 1
    sequence = int(layout.sequence)
    rows = ceil(sequence / engine.columns) if single else sequence
    tiles = rows * parameters / (engine.rows * engine.moving_max)
    return GraphSize(
        instructions=tiles * compiler.tile_instructions, operator="", operator_instructions=0.0
    )


def _tiles(op: MatMul, engine: TensorEngine, grid: Grid) -> FloatArray:
    """Tiles of a product; of several sequences, the rows of tokens are taken one by one."""
    product, several = op.product, grid.micro_batch > 1
    rows, inner = np.ceil(product.m / engine.columns), np.ceil(product.k / engine.rows)
    if op.phase == "B_weight":
        inner = np.where(several, grid.sequence, inner)
    elif op.region != "core":
        rows = np.where(several, grid.sequence, rows)
    return np.asarray(product.batch * rows * inner * np.ceil(product.n / engine.moving_max))


def _wide(op: MatMul, chip: Chip) -> FloatArray:
    """Tiles of a row of a product."""
    assert isinstance(chip.unit, NeuronCores)
    return np.ceil(op.product.n / chip.unit.tensor.moving_max)


def _below(count: float, limit: float) -> float:
    return NormalDist().cdf(math.log(limit / count) / DOUBT) if count else 1.0


def _count(number: float) -> str:
    return f"{number / _MILLION:.1f} M" if number >= _MILLION else f"{number / 1e3:.0f} k"
