"""What a placed collective asks of its links, free of size and stack: the input of closed forms.

Messages of a round that meet the same latency and the same load are one class. Loads are seconds
per byte of the collective's size at the links' full speed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trnbench.facts.arrays import BoolArray, FloatArray, IntArray
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, field, replace
from trnbench.machine.fabric import LinkKind

if TYPE_CHECKING:
    from trnbench.machine.message_plan.pieces import PieceFlow


class MessageClasses(Record, eq=False):
    """Messages alike: `count` of each class, their path's latency, its busiest link of each kind.

    `busiest_s_per_byte[kind, class]` counts all messages that share the link; `alone_s_per_byte` is
    one message by itself on the narrowest link of its path, of `hop_latencies_s[class, hop]` (-1:
    none); `queue` is how many messages leave through its first link.
    """

    count: IntArray
    latency_s: FloatArray
    remote: BoolArray
    busiest_s_per_byte: FloatArray
    share: FloatArray
    alone_s_per_byte: FloatArray
    hop_latencies_s: FloatArray
    queue: IntArray

    def __len__(self) -> int:
        """Return the number of classes."""
        return len(self.count)

    def part(self, which: slice) -> MessageClasses:
        """Return some of the classes."""
        return MessageClasses(
            count=self.count[which],
            latency_s=self.latency_s[which],
            remote=self.remote[which],
            busiest_s_per_byte=self.busiest_s_per_byte[:, which],
            share=self.share[which],
            alone_s_per_byte=self.alone_s_per_byte[which],
            hop_latencies_s=self.hop_latencies_s[which],
            queue=self.queue[which],
        )


class RoundProfile(Record, eq=False):
    """`times` rounds alike: their messages, which begin at class `first` of their phase."""

    times: int
    first: int
    classes: MessageClasses


class Resource(Record):
    """The busiest link of one level that several lanes use, over the whole collective.

    `s_per_byte` at full speed. A link of one lane needs no mention: the lane is busy longer.
    """

    kind: LinkKind
    s_per_byte: FloatArray | float


class Way(Record):
    """A critical way, its hops and waits summed up.

    `s_per_byte[kind]`: the transfers on it that links of this kind slow most, at full speed.
    """

    latency_s: float
    near_hops: int
    remote_hops: int
    s_per_byte: tuple[float, float, float]


class ChunkPipeline(Record, eq=False):
    """The messages of a pipelined phase: what waits for what, latency and [kind] need of each.

    Each carries `factor` times `s_per_byte`. `ways`: the critical ways by shares of link speeds and
    times of a software step; they are the same whatever the factor is.
    """

    flow: PieceFlow
    latency_s: FloatArray
    remote: BoolArray
    s_per_byte: FloatArray
    factor: float = 1.0
    ways: Memo[tuple[float, ...], tuple[Way, ...]] = field(default_factory=Memo)


class PhaseProfile(Record, eq=False):
    """The distinct rounds of a phase: `times[round]` each, of `counts[round]` of the `classes`.

    `adds[round]`: the largest share a rank adds up in one; `fanout[round]`: the messages that a
    rank sends at once; `loads[link]`: the share of the size that all rounds move over a link (where
    one node may stand for all, over that of the busiest node).
    """

    relays: bool
    times: IntArray
    counts: IntArray
    adds: FloatArray
    fanout: IntArray
    classes: MessageClasses
    pipeline: ChunkPipeline | None
    loads: FloatArray

    @property
    def rounds(self) -> tuple[RoundProfile, ...]:
        """The rounds one by one."""
        ends = np.cumsum(self.counts)
        return tuple(
            RoundProfile(
                times=int(times),
                first=int(end - count),
                classes=self.classes.part(slice(int(end - count), int(end))),
            )
            for times, count, end in zip(self.times, self.counts, ends, strict=True)
        )

    def scaled(self, factor: float) -> PhaseProfile:
        """Return the same phase where every message carries that many times as much."""
        if factor == 1:
            return self
        found = self.classes
        return replace(
            self,
            adds=self.adds * factor,
            classes=replace(
                found,
                busiest_s_per_byte=found.busiest_s_per_byte * factor,
                share=found.share * factor,
                alone_s_per_byte=found.alone_s_per_byte * factor,
            ),
            pipeline=self.pipeline and replace(self.pipeline, factor=self.pipeline.factor * factor),
            loads=self.loads * factor,
        )


class Profile(Record, eq=False):
    """Phases and resources of one placed collective; chunks take turns on each `lanes[phase]`."""

    ranks: int
    lanes: tuple[int, ...]
    phases: tuple[PhaseProfile, ...]
    resources: tuple[Resource, ...]
    add_s_per_byte: float


def lanes(profile: Profile) -> list[list[int]]:
    """Return the phases of each lane, in order."""
    return [
        [phase for phase, found in enumerate(profile.lanes) if found == lane]
        for lane in sorted(set(profile.lanes))
    ]
