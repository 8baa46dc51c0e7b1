"""The best layouts up to now, for every cluster.

Order: the smallest score; scores that agree to 7 digits are equal, and then the earlier one wins.
Layouts come in the order of the space's variants (recompute, ZeRO stage), then its schedules, then
its grid (clusters, and small degrees before large ones), so of equals the plainer layout wins.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trnbench.facts.arrays import FloatArray, IntArray, distinct
from trnbench.facts.records import Record, fields
from trnbench.program.points import Points


class Entries(Record, eq=False):
    """Layouts as columns."""

    score: FloatArray
    """Seconds of a step for layouts that fit; bytes needed for those that do not."""
    memory_bytes: FloatArray
    run: IntArray
    """Number of the run of the search that saw the layout."""
    place: IntArray
    """Flat index in the run's grid."""
    cluster: IntArray

    def __len__(self) -> int:
        return len(self.score)

    def at(self, chosen: IntArray) -> Entries:
        """Selected layouts, in the given order."""
        return Entries(
            **{field.name: getattr(self, field.name)[chosen] for field in fields(Entries)}
        )


class LayoutRanking:
    """Keeps the `top` layouts with the smallest score of every cluster, or of all together."""

    def __init__(self, *, clusters: int, top: int, together: bool = False) -> None:
        self._top, self._together = top, together
        self.worst = np.full(clusters, np.inf)
        """Score up to which a layout of each cluster may be among those that are kept."""
        self._columns: list[Entries] = []

    def add(
        self,
        run: int,
        points: Points,
        cluster: IntArray,
        score: FloatArray,
        memory_bytes: FloatArray,
    ) -> None:
        """Add layouts of a run; of equal layouts, the one of the smaller number comes first."""
        # Most layouts are slower than the `top` kept ones: this filter spares nearly all sorting.
        good = np.flatnonzero(score <= self.worst[cluster])
        if not len(good):
            return
        index = tuple(axis[good] for axis in points.index)
        self._columns.append(
            Entries(
                score=score[good],
                memory_bytes=memory_bytes[good],
                run=np.full(len(good), run),
                place=np.ravel_multi_index(index, points.shape),
                cluster=cluster[good],
            )
        )
        self._keep_best()

    def of_clusters(self) -> Mapping[int, Entries]:
        """Cluster number -> its layouts, best first; clusters without a layout are absent."""
        if not self._columns:
            return {}
        (kept,) = self._columns
        return {
            int(cluster): kept.at(np.flatnonzero(kept.cluster == cluster))
            for cluster in distinct(kept.cluster)
        }

    def _keep_best(self) -> None:
        names = [field.name for field in fields(Entries)]
        columns = {name: [getattr(part, name) for part in self._columns] for name in names}
        joined = Entries(**{name: np.concatenate(parts) for name, parts in columns.items()})
        # Scores in single precision: sums in another order must not decide between equal layouts.
        equal = joined.score.astype(np.float32)
        # Of equal layouts together, those on the first cluster come first.
        by = (joined.cluster, equal) if self._together else (equal, joined.cluster)
        order = np.lexsort((joined.place, joined.run, *by))
        cluster = np.zeros_like(order) if self._together else joined.cluster[order]
        first = np.searchsorted(cluster, cluster)
        rank = np.arange(len(order)) - first
        kept = joined.at(order[rank < self._top])
        self._columns = [kept]
        full = np.flatnonzero(rank == self._top - 1)
        if len(full):
            # A score equal to the worst in 7 digits may still come earlier in the order.
            worst = joined.score[order[full]] * (1 + np.finfo(np.float32).eps)
            self.worst[... if self._together else cluster[full]] = worst
