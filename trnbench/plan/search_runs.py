"""Parts of a search that share a program and a schedule, and the layouts that passed there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import attrs
import numpy as np

from trnbench.plan.space import ALONG, Axis, IntArray, Space, Variant
from trnbench.program.points import Points
from trnbench.program.tensor import FloatArray
from trnbench.workload.layout import Layout


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """One schedule of one variant: `whole` is the space's grid in these, as one layout."""

    space: Space
    variant: Variant
    whole: Layout

    def nodes(self, place: int) -> int:
        """Return the nodes of the layout at a place of the flattened grid."""
        return self._values(place)["nodes"]

    def layout(self, place: int) -> Layout:
        """Return the layout at a place of the flattened grid."""
        values = self._values(place)
        # On a single tensor rank there is nothing to cut, unless the user said so.
        told = self.space.question.fixed.sequence_parallel is not None
        return attrs.evolve(
            self.whole,
            tp=values["tp"],
            pp=values["pp"],
            dp=self._dp(place),
            cp=values["cp"],
            ep=values["ep"],
            vpp=values["vpp"],
            micro_batch=values["micro_batch"],
            sequence_parallel=self.variant.sequence_parallel and (told or values["tp"] > 1),
        )

    def _values(self, place: int) -> Mapping[Axis, int]:
        index = np.unravel_index(place, self.space.shape)
        return {name: int(self.space.axes[name][index[along]]) for name, along in ALONG.items()}

    def _dp(self, place: int) -> int:
        index = np.unravel_index(place, self.space.shape)
        return int(np.broadcast_to(self.space.dp, self.space.shape)[index])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Seen:
    """Layouts priced together, for those who want all of them and not only the best."""

    run: Run
    points: Points
    step_time_s: FloatArray
    memory_bytes: FloatArray

    def __len__(self) -> int:
        """Layouts."""
        return len(self.points)

    def degree(self, axis: Axis) -> IntArray:
        """Return each layout's value along an axis."""
        return self.run.space.axes[axis][self.points.index[ALONG[axis]]]

    def layout(self, number: int) -> Layout:
        """Return one of the layouts."""
        index = tuple(int(axis[number]) for axis in self.points.index)
        return self.run.layout(int(np.ravel_multi_index(index, self.points.shape)))
