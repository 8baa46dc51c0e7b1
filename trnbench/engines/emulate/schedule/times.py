"""Input of the schedule emulator: seconds of tasks, what may overlap, and slower ranks.

Arrays of times broadcast to [..., stage, chunk]; leading axes are a batch of layouts that share the
slot order and the lanes of their messages. A time is that of one micro-batch on one chunk.

Jitter. Each rank's compute time carries a log-normal factor of median 1, drawn once for a step.
Ranks that meet in every slot wait for the slowest of them, so a stage's factor is the maximum over
`ranks_per_stage`. The maximum of n equal draws has the distribution F(x)^n and is drawn as
F^-1(u^(1/n)), u uniform. That the slowest ranks of all stages belong to one pipeline is a small
overestimate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import NormalDist

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
    sums_s: ArrayLike = 0.0  # Further sums of gradients after the reduction; nothing hides them
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

    sends: float  # Share of a message during which its sender computes on
    gradients: float
    """Share of their reduction that may run from a chunk's last weight gradients on."""
    parameters: float
    """Share of their gathering that may run until a chunk's first forward in the next step ends."""
    optimizer_waits_for_all: bool  # for a norm over all gradients
    collectives: Mapping[str, Shares]  # Shares of collectives inside slots, by name
    gradient_traffic: Mapping[str, float] = field(default_factory=dict)
    """Share of a collective inside slots that holds up the reduction beside it, by name.

    Without an entry: all of those between nodes, none of the others.
    """

    def holds_up(self, name: str, lane: Lane) -> float:
        """Share of a collective on a lane that holds up the reduction of gradients."""
        return self.gradient_traffic.get(name, float(lane == "network"))

    def __post_init__(self) -> None:
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
    ends = (array.min(initial=0.0), array.max(initial=0.0)) if array.ndim else (0.0, float(array))
    if not (ends[0] == 0 and 0 <= ends[1] < np.inf):
        raise InputError(f"{what}: expected seconds of 0 or more")
    return array


class Jitter(Record):
    """Scatter of compute times."""

    sigma: float  # Relative scatter
    ranks_per_stage: int  # Equal ranks that wait for one another
    stages_together: int = 1  # Stages of a node, which share their draws
    seed: int

    def __post_init__(self) -> None:
        if not 0 <= self.sigma < np.inf:
            raise InputError("jitter: expected a relative scatter of 0 or more")
        if min(self.ranks_per_stage, self.stages_together) < 1:
            raise InputError("jitter: expected at least 1 rank of each stage")


class Straggler(Record):
    """A stage whose compute takes `factor` times as long."""

    stage: int
    factor: float

    def __post_init__(self) -> None:
        if not 0 < self.factor < np.inf:
            raise InputError(f"straggler: expected a positive factor, found {self.factor}")


def slowdown(jitter: Jitter | None, stragglers: tuple[Straggler, ...], *, pp: int) -> FloatArray:
    """Factor on the compute time of each stage."""
    factor = np.ones(pp)
    for straggler in stragglers:
        if not 0 <= straggler.stage < pp:
            raise InputError(f"straggler: stage {straggler.stage} of a pipeline of {pp} stages")
        factor[straggler.stage] *= straggler.factor
    if jitter is None:
        return factor
    random = np.random.default_rng(jitter.seed)
    together = jitter.stages_together
    drawn = _slowest(random, -(-pp // together), jitter.ranks_per_stage)
    return np.asarray(factor * np.exp(jitter.sigma * np.repeat(drawn, together)[:pp]))


def _slowest(random: np.random.Generator, draws: int, count: int) -> FloatArray:
    # u^(1/n) is close to 1 for many ranks: its distance from 1 keeps the digits.
    tail = -np.expm1(-random.standard_exponential(draws) / count)
    inside = np.clip(tail, np.finfo(np.float64).tiny, 1 - np.finfo(np.float64).eps)
    return -np.array([NormalDist().inv_cdf(share) for share in inside.tolist()])
