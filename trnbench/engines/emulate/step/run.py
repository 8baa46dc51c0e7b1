"""Seconds of played work, and busy seconds of the parts of the machine meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trnbench.facts.records import Record, field


class BusyRun(Record):
    """Seconds of something played; `busy`: of each part, named as in `costs.busy`."""

    time_s: float = 0.0
    busy: Mapping[str, float] = field(default_factory=dict)

    def times(self, factor: float) -> BusyRun:
        """Time and busy seconds scaled by a factor: repeated runs, or a slower one."""
        return BusyRun(
            time_s=self.time_s * factor,
            busy={name: value * factor for name, value in self.busy.items()},
        )


NO_RUN = BusyRun()


def in_turn(runs: Iterable[BusyRun]) -> BusyRun:
    """Sum of runs played in sequence."""
    time_s, busy = 0.0, dict[str, float]()
    for run in runs:
        time_s += run.time_s
        for name, value in run.busy.items():
            busy[name] = busy.get(name, 0.0) + value
    return BusyRun(time_s=time_s, busy=busy)


def side_by_side(one: BusyRun, other: BusyRun) -> BusyRun:
    """Longer of two runs that use different parts of the machine."""
    return one if one.time_s >= other.time_s else other
