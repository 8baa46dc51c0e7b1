"""Parts of a search that share a program and a schedule, and the layouts that passed there."""

from __future__ import annotations

import numpy as np

from trnbench.facts.arrays import FloatArray, IntArray
from trnbench.facts.records import Record, replace
from trnbench.facts.workload.layout import Layout
from trnbench.predict.search.space import ALONG, Axis, Space, Variant
from trnbench.program.points import Points


class Run(Record, eq=False):
    """One schedule of one variant: `whole` is the space's grid in these, as one layout."""

    space: Space
    variant: Variant
    whole: Layout

    def nodes(self, place: int) -> int:
        """Return the nodes of the layout at a place of the flattened grid."""
        return self._value("nodes", self._index(place)) + self.space.question.generation_nodes

    def layout(self, place: int) -> Layout:
        """Return the layout at a place of the flattened grid."""
        index = self._index(place)
        degrees = {name: self._value(name, index) for name in ALONG if name != "nodes"}
        found = replace(self.whole, **degrees, dp=self._dp(index))
        if found.tp == 1 and self.space.question.layout["sequence_parallel"] is None:
            # On a single tensor rank there is nothing to cut, unless the user said so.
            return replace(found, sequence_parallel=False)
        return found

    def _index(self, place: int) -> tuple[int, ...]:
        found = []
        for size in reversed(self.space.shape):
            place, at = divmod(place, size)
            found.append(at)
        return tuple(reversed(found))

    def _value(self, axis: Axis, index: tuple[int, ...]) -> int:
        return int(self.space.axes[axis][index[ALONG[axis]]])

    def _dp(self, index: tuple[int, ...]) -> int:
        dp = self.space.dp
        # A fixed degree has no axes, others one for each of the grid.
        return int(dp if not dp.ndim else dp[tuple(map(min, index, (n - 1 for n in dp.shape)))])


class Seen(Record, eq=False):
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
