"""Input of the schedule emulator: seconds of every task, and the tasks that may overlap.

Arrays of times broadcast to [..., stage, chunk]; leading axes are a batch of layouts that share the
slot order and the lanes of their messages. A time is that of one micro-batch on one chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import ArrayLike

from trnbench.errors import InputError
from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import Record, field
from trnbench.program.slots import Lane, SlotTimes


class Shares(Record, eq=False):
    """The share of a communication, 0 to 1, that may run beside the compute of each kind of slot.

    Arrays broadcast as times do. A weight-gradient share counts only where weight gradients have
    slots of their own.
    """

    forward: ArrayLike
    backward: ArrayLike
    weight: ArrayLike


class SlotCollective(Record, eq=False):
    """Collectives inside slots, all of one purpose ("tensor", "expert", ...) and on one lane."""

    name: str
    lane: Lane
    times: SlotTimes[ArrayLike]


class Sends(Record, eq=False):
    """One message from each stage to its neighbour: seconds of the lane, then seconds under way.

    Forward messages go to the next stage (the last one's to the first, between chunks), backward
    messages to the previous one; times and lanes are those of the sending stage.
    """

    forward_s: ArrayLike
    backward_s: ArrayLike
    latency_s: ArrayLike
    forward_lane: tuple[Lane, ...]
    backward_lane: tuple[Lane, ...]


class EndingTimes(Record, eq=False):
    """Seconds after the last slot: gradient reduction, optimizer, gathering of parameters.

    All of a chunk's gradients and parameters; the reduction and the gathering use the network.
    """

    gradients_s: ArrayLike
    sums_s: ArrayLike = 0.0
    """Further sums of gradients after the reduction; nothing hides them."""
    optimizer_s: ArrayLike
    parameters_s: ArrayLike


class StageTimes(Record, eq=False):
    """All times of a step, per stage and chunk."""

    compute: SlotTimes[ArrayLike]
    collectives: tuple[SlotCollective, ...] = ()
    sends: Sends
    ending: EndingTimes


class OverlapRules(Record):
    """Overlaps that a software stack allows; shares from 0 (none) to 1 (all)."""

    sends: float
    """Share of a message during which its sender computes on."""
    gradients: float
    """Share of their reduction that may run from a chunk's last weight gradients on."""
    parameters: float
    """Share of their gathering that may run until a chunk's first forward in the next step ends."""
    optimizer_waits_for_all: bool
    """True where no stage updates before all have reduced (a global gradient norm)."""
    collectives: Mapping[str, Shares]
    """Shares of collectives inside slots, by name."""
    gradient_traffic: Mapping[str, float] = field(default_factory=dict)
    """Share of a collective inside slots that holds up the reduction beside it, by name.

    Without an entry: all of those between nodes, none of the others.
    """

    def holds_up(self, name: str, lane: Lane) -> float:
        """Share of a collective on a lane that holds up the reduction of gradients."""
        return self.gradient_traffic.get(name, float(lane == "network"))

    def __post_init__(self) -> None:
        """Refuse shares that are none."""
        for name, share in self._shares():
            array = np.asarray(share, dtype=np.float64)
            wrong = array[~((array >= 0) & (array <= 1))]
            if wrong.size:
                raise InputError(
                    f"overlap of {name}: expected a share from 0 to 1, found {wrong.flat[0]:g}"
                )

    def _shares(self) -> Iterator[tuple[str, ArrayLike]]:
        yield from (
            ("sends", self.sends),
            ("gradients", self.gradients),
            ("parameters", self.parameters),
        )
        for name, shares in self.collectives.items():
            yield from ((name, x) for x in (shares.forward, shares.backward, shares.weight))

    def shares_of(self, name: str) -> Shares:
        """Shares of a collective; one the stack says nothing about is an error."""
        if name not in self.collectives:
            known = ", ".join(sorted(self.collectives)) or "none"
            raise InputError(f"no overlap rule for {name!r} collectives; rules exist for: {known}")
        return self.collectives[name]


def seconds(what: str, value: ArrayLike) -> FloatArray:
    """Times as an array; negative or endless ones are an error."""
    array = np.asarray(value, dtype=np.float64)
    # NaN makes least and largest NaN, so that both comparisons fail.
    if not (array.min(initial=0.0) == 0 and array.max(initial=0.0) < np.inf):
        raise InputError(f"{what}: expected seconds of 0 or more")
    return array
