"""The program of a training step: what is computed, moved and kept, for one layout or a grid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from trnbench.arrays import BoolArray, FloatArray
from trnbench.program.block import Block
from trnbench.program.blocks import layers_of, lower_blocks
from trnbench.program.grid import Grid, grid_of
from trnbench.program.legality import Reason, legal, reasons
from trnbench.program.ops import CollectiveOp
from trnbench.program.precision import PrecisionRecipe
from trnbench.program.stages import StageClass, stage_classes
from trnbench.program.tensor import Tensor, array
from trnbench.workload.layout import Layout
from trnbench.workload.model import Model


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepProgram:
    """A training step of a model in a layout, or in every layout of an open grid.

    A rank of a stage runs the stage's blocks for each micro-batch (their `optimizer` operations
    once), in the order of the layout's schedule, and `closing` once. Arrays broadcast to `shape`.
    """

    model: Model
    layout: Layout
    grid: Grid
    blocks: Mapping[str, Block]
    stages: tuple[StageClass, ...]
    closing: tuple[CollectiveOp, ...]
    reasons: tuple[Reason, ...]

    @property
    def recipe(self) -> PrecisionRecipe:
        """The number formats in use."""
        return self.grid.recipe

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the grid of layouts."""
        return self.grid.shape

    @property
    def micro_batches(self) -> FloatArray:
        """Micro-batches of each replica in a step."""
        return self.grid.micro_batches

    @property
    def legal(self) -> BoolArray:
        """Where a layout breaks no rule."""
        return legal(self.reasons, self.shape)

    @property
    def model_flop(self) -> FloatArray:
        """FLOP of a step that the model needs: causal attention halved, nothing computed twice."""
        return array(
            self.micro_batches
            * sum((self.instances(kind) * b.model_flop for kind, b in self.blocks.items()), 0.0)
        )

    @property
    def hardware_flop(self) -> FloatArray:
        """FLOP of a step that the ranks carry out, with recompute, copies and padding."""
        return array(
            self.micro_batches
            * self.grid.ranks_per_stage
            * sum((self.instances(kind) * b.flop() for kind, b in self.blocks.items()), 0.0)
        )

    def instances(self, kind: str) -> FloatArray:
        """Return the number of blocks of a kind over all stages."""
        return array(sum((s.multiplicity * s.blocks.get(kind, array(0)) for s in self.stages), 0.0))

    def refusals(self, index: tuple[int, ...] = ()) -> tuple[str, ...]:
        """Return in words why the layout at an index of the grid is refused; empty if it is not."""
        at = self.grid.at(index)
        return tuple(
            reason.words(at)
            for reason in self.reasons
            if np.broadcast_to(reason.broken, self.shape)[index]
        )

    def at(self, index: tuple[int, ...]) -> StepProgram:
        """Return the scalar program of the layout at an index, without what it does not need."""
        return training_step(self.model, self.grid.layout_at(index))


SHARED_KNOBS = frozenset({"zero", "recompute"})
"""Programs that differ in these alone compute and move the same forward, in the same layouts."""


def training_step(model: Model, layout: Layout, *, like: StepProgram | None = None) -> StepProgram:
    """Return the program of a step; a layout that does not divide comes back with its reasons.

    `like` is the program of a layout that differs in nothing but `SHARED_KNOBS`: what both have in
    common is not made again.
    """
    grid = grid_of(layout)
    layers = layers_of(model, grid)
    if like is not None:
        blocks = lower_blocks(model, grid, layers, like.blocks)
        return replace(like, layout=layout, grid=grid, blocks=blocks)
    blocks = lower_blocks(model, grid, layers)
    kind = next(iter(layers.kinds))
    return StepProgram(
        model=model,
        layout=layout,
        grid=grid,
        blocks=blocks,
        stages=stage_classes(grid, layers, blocks[kind].entering),
        closing=_closing(grid),
        reasons=reasons(model, grid),
    )


def _closing(grid: Grid) -> tuple[CollectiveOp, ...]:
    """Return the exchange that ends a step: the gradients' squares, summed to clip them."""
    ranks = grid.ranks("world")
    if not np.any(ranks > 1):
        return ()
    norm = Tensor(name="gradients.norm", dims=(), format=grid.recipe.statistics, role="gradient")
    return (
        CollectiveOp(
            name="gradients.norm.all-reduce",
            op="all-reduce",
            axis="world",
            phase="optimizer",
            read=norm,
            write=norm,
            ranks=ranks,
            count=array(ranks > 1),
        ),
    )
