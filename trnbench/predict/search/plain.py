"""Plainer layouts beside the fastest: the simplest that is nearly as fast, and the usual one.

A layout is the simpler the fewer knobs it needs: degrees above 1, and modes other than their
defaults. The usual one has no context parallelism and no chunks of stages, repeats nothing if it
can, has tensor parallelism of up to eight ranks, and the fewest pipeline stages with which it fits,
as users of Megatron begin.
"""

from __future__ import annotations

import numpy as np

from trnbench.facts.arrays import BoolArray, FloatArray, IntArray
from trnbench.facts.workload.layout import KNOBS, Layout
from trnbench.predict.search.ranking import Entries, LayoutRanking
from trnbench.predict.search.runs import Run
from trnbench.program.points import Points

NEARLY = 1.03
"""Times up to this multiple of the fastest are nearly as fast."""
USUAL_TP = (8, 4, 2, 1)
"""Tensor parallelism of the usual layout, the first that fits."""
_DEGREES = ("tp", "pp", "cp", "ep", "vpp")
LEVELS = len(_DEGREES) + 4
"""Numbers of knobs that a layout may need, with those of recompute, schedule and ZeRO."""
STAGES = 1024
"""Most pipeline stages of the usual layout."""


class PlainRanking:
    """The fastest layout of each cluster by the number of knobs it needs, and the usual one."""

    def __init__(self, clusters: int) -> None:
        self._fastest = LayoutRanking(clusters=clusters, top=1)
        self._simple = LayoutRanking(clusters=clusters * LEVELS, top=1)
        self._usual = {
            (repeats, tp): LayoutRanking(clusters=clusters * STAGES, top=1)
            for repeats in (False, True)
            for tp in USUAL_TP
        }

    def add(
        self,
        number: int,
        run: Run,
        points: Points,
        scored: tuple[IntArray, FloatArray, FloatArray],
    ) -> None:
        """Add layouts of a run: their clusters, their scores, and the bytes that they need."""
        cluster, score, size = scored
        values = {name: _values(run, points, name) for name in _DEGREES}
        self._fastest.add(number, points, cluster, score, size)
        level = sum(((values[name] > 1).astype(int) for name in _DEGREES), _modes(run.whole))
        self._simple.add(number, points, cluster * LEVELS + level, score, size)
        repeats, plain = run.whole.recompute == "full", usual(run, points)
        for tp in USUAL_TP if plain.any() else ():
            mine = plain & (values["tp"] == tp)
            if mine.any():
                keys = cluster[mine] * STAGES + values["pp"][mine]
                ranking = self._usual[repeats, tp]
                ranking.add(number, points.some(mine), keys, score[mine], size[mine])

    def worst(self, worst: FloatArray) -> FloatArray:
        """Scores up to which layouts count, on clusters whose best have scores up to `worst`."""
        return np.maximum(worst, NEARLY * self._fastest.worst)

    def of(self, cluster: int, best: float) -> tuple[Entries | None, Entries | None]:
        """The simplest layout with a score near the best one of a cluster, and the usual one."""
        simple = self._simple.of_clusters()
        levels = (simple.get(cluster * LEVELS + level) for level in range(LEVELS))
        near = (one for one in levels if one is not None and one.score[0] <= NEARLY * best)
        fewest = (
            entries
            for ranking in self._usual.values()
            for key, entries in sorted(ranking.of_clusters().items())
            if key // STAGES == cluster
        )
        return next(near, None), next(fewest, None)


def usual(run: Run, points: Points) -> BoolArray:
    """True of layouts of which one may be the usual one."""
    if run.schedule != "1f1b":
        return np.zeros(len(points), dtype=np.bool_)
    values = {name: _values(run, points, name) for name in ("tp", "cp", "vpp", "pp")}
    plain = (values["cp"] == 1) & (values["vpp"] == 1) & (values["pp"] < STAGES)
    return np.asarray(plain & np.isin(values["tp"], USUAL_TP))


def _values(run: Run, points: Points, name: str) -> IntArray:
    found = points.pick(np.asarray(getattr(run.whole, name)))
    return np.broadcast_to(found, len(points))


def _modes(layout: Layout) -> int:
    return (
        (layout.recompute != KNOBS["recompute"].default)
        + (layout.schedule == "zb-h1")
        + (int(layout.zero) > 1)
    )
