"""The grid of layouts a program spans: what each knob of a layout means to a step.

The lowering reads a knob as the attribute of `Grid` that bears its name, and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import prod

import numpy as np

from trnbench.arrays import FloatArray
from trnbench.program.precision import PrecisionRecipe, recipe_named
from trnbench.program.tensor import ONE, Dim, array
from trnbench.workload.layout import (
    DEGREES,
    KNOBS,
    AttentionKernel,
    ContextParallel,
    Layout,
    Recompute,
    Schedule,
    ZeroStage,
)

TIED_COPIES = 2
"""The first and the last stage hold the vocabulary that they share."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grid:
    """A layout, or an open grid of them: degrees as arrays, modes, and the precision's recipe."""

    layout: Layout
    tp: FloatArray
    pp: FloatArray
    dp: FloatArray
    cp: FloatArray
    ep: FloatArray
    vpp: FloatArray
    micro_batch: FloatArray
    global_batch: FloatArray
    sequence: FloatArray
    zero: ZeroStage
    sequence_parallel: bool
    recompute: Recompute
    schedule: Schedule
    attention: AttentionKernel
    context_parallel: ContextParallel
    capacity_factor: float | None
    precision: PrecisionRecipe

    @property
    def recipe(self) -> PrecisionRecipe:
        """The number formats in use."""
        return self.precision

    @property
    def arrays(self) -> dict[str, FloatArray]:
        """Degrees and batch sizes by name."""
        return {name: getattr(self, name) for name in DEGREES}

    @property
    def shape(self) -> tuple[int, ...]:
        """The common shape of all layouts."""
        return np.broadcast_shapes(*(value.shape for value in self.arrays.values()))

    @property
    def micro_batches(self) -> FloatArray:
        """Micro-batches of each replica in a step."""
        return np.ceil(self.global_batch / (self.dp * self.micro_batch))

    @property
    def ranks_per_stage(self) -> FloatArray:
        """Ranks that hold one pipeline stage."""
        return array(self.tp * self.cp * self.dp)

    def at(self, index: tuple[int, ...]) -> dict[str, int]:
        """Return degrees and batch sizes of the layout at an index, by name."""
        return {
            name: int(np.broadcast_to(values, self.shape)[index])
            for name, values in self.arrays.items()
        }

    def layout_at(self, index: tuple[int, ...]) -> Layout:
        """Return the one layout at an index."""
        return replace(self.layout, **self.at(index))  # type: ignore[arg-type]

    def ranks(self, axis: str) -> FloatArray:
        """Return how many ranks a group along an axis has."""
        match axis:
            case "data":
                return array(self.cp * self.dp)
            case "expert_data":
                return array(self.cp * self.dp / self.ep)
            case "tied":
                return array(TIED_COPIES)
            case "world":
                return array(self.ranks_per_stage * self.pp)
            case _:
                degree: FloatArray = getattr(self, axis)
                return degree

    def dim(self, name: str, whole: float | FloatArray, *axes: str) -> Dim:
        """Return a dimension cut along axes; a rest is padded."""
        size = array(whole)
        ranks = prod((self.ranks(axis) for axis in axes), start=ONE)
        return Dim(name=name, size=np.ceil(size / ranks), whole=size, axes=self.used(*axes))

    def used(self, *axes: str) -> tuple[str, ...]:
        """Return those of the axes along which some layout has more than one rank."""
        return tuple(axis for axis in axes if np.any(self.ranks(axis) > 1))

    def batch(self) -> Dim:
        """Return the samples of a micro-batch."""
        size, whole = self.micro_batch, array(self.micro_batch * self.dp)
        return Dim(name="batch", size=size, whole=whole, axes=self.used("dp"))

    def tokens(self, *axes: str) -> Dim:
        """Return the positions of a sequence, cut along the axes."""
        return self.dim("sequence", self.sequence, *axes)


_missing = sorted(set(KNOBS) - {one.name for one in fields(Grid)})
if _missing:
    raise TypeError(
        f"the knob {_missing[0]!r} of a layout has no meaning in a program: "
        "give `Grid` a field of its name, and read it where a step is lowered"
    )


def grid_of(layout: Layout) -> Grid:
    """Return the grid of a layout; an unknown precision is an input error."""
    values = {name: getattr(layout, name) for name in KNOBS}
    values |= {name: array(values[name]) for name in DEGREES}
    values["precision"] = recipe_named(layout.precision)
    return Grid(layout=layout, **values)
