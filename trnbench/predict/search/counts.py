"""Counts of layouts by cluster: considered, valid, rejected by a rule, priced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from trnbench.facts.arrays import IntArray
from trnbench.predict.search.legality import ScheduleFamily
from trnbench.predict.search.result import Tally

MEMORY, COLLECTIVE, FORMAT = "memory", "collective", "format"
"""Reasons to reject a valid layout: chip or host memory, an exchange the stack lacks, a number
format the chip lacks."""


class Counts:
    """Counts of a search. Those of layouts that break a rule are complete before any is priced."""

    def __init__(self, clusters: int) -> None:
        self._clusters = clusters
        self._considered, self._legal = self._none(), self._none()
        self.priced, self.outpaced, self._done = self._none(), self._none(), 0
        self._rejected: dict[str, IntArray] = {}

    def take(self, families: Iterable[ScheduleFamily]) -> None:
        """Add the counts of families: layouts considered, valid ones, rejections by rule."""
        # Variants of a look have equal counts; each of them is a layout of its own.
        for look in (look for family in families for look in family.looks):
            variants = len(look.variants)
            self._considered += variants * look.considered
            self._legal += variants * look.legal
            for rule, count in look.rejected.items():
                self._add(rule, variants * count)

    @property
    def legal(self) -> int:
        return int(self._legal.sum())

    @property
    def done(self) -> int:
        """Valid layouts priced or rejected up to now."""
        return self._done

    def price(self, cluster: IntArray) -> None:
        """Add priced layouts, given the cluster of each."""
        self.priced += self.by_cluster(cluster)
        self._done += len(cluster)

    def outpace(self, cluster: IntArray, held: IntArray | None = None) -> None:
        """Add layouts that a bound of their time leaves out; the arguments of `by_cluster`."""
        count = self.by_cluster(cluster, held)
        self.outpaced += count
        self._done += int(count.sum())

    def reject(self, rule: str, count: IntArray) -> None:
        """Add rejections of valid layouts, given their number on each cluster."""
        if count.any():
            self._add(rule, count)
            self._done += int(count.sum())

    def by_cluster(self, cluster: IntArray, held: IntArray | None = None) -> IntArray:
        """Layouts on each cluster, given the cluster of each, or of rows that hold several."""
        count = np.bincount(cluster, held, minlength=self._clusters)
        return count if held is None else count.astype(np.int64)

    def tallies(self) -> Iterator[Tally]:
        """Yield the counts of each cluster."""
        yield from map(self._tally, np.stack(self._counted, axis=1).tolist())

    def tally(self) -> Tally:
        """Counts of all clusters added up."""
        return self._tally([int(count.sum()) for count in self._counted])

    @property
    def _counted(self) -> tuple[IntArray, ...]:
        counted = self._considered, self._legal, self.priced, self.outpaced
        return (*counted, *self._rejected.values())

    def _tally(self, row: Sequence[int]) -> Tally:
        considered, legal, priced, outpaced, *broken = row
        rejected = dict(zip(self._rejected, broken, strict=True))
        feasible = priced + outpaced + rejected.get(COLLECTIVE, 0) + rejected.get(FORMAT, 0)
        return Tally(
            considered=considered,
            legal=legal,
            feasible=feasible,
            priced=priced,
            outpaced=outpaced,
            unseen=legal - feasible - rejected.get(MEMORY, 0),
            rejected_by_reason=_sorted(rejected),
        )

    def _add(self, rule: str, count: IntArray) -> None:
        self._rejected[rule] = self._rejected.get(rule, self._none()) + count

    def _none(self) -> IntArray:
        return np.zeros(self._clusters, dtype=np.int64)


def _sorted(rejected: Mapping[str, int]) -> Mapping[str, int]:
    busy = sorted(rejected.items(), key=lambda item: (-item[1], item[0]))
    return {rule: count for rule, count in busy if count}
