"""Load of a placed collective on its links, free of size and stack: the input of closed forms.

Messages of a round with the same latency and the same load are one class. Loads are seconds per
byte of the collective's size at the links' full speed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trnbench.facts.arrays import BoolArray, FloatArray, IntArray
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, field, fields, replace
from trnbench.machine.fabric import LinkKind

if TYPE_CHECKING:
    from trnbench.machine.message_plan.pieces import PieceFlow


class MessageClasses(Record, eq=False):
    """Classes of equal messages; one entry (or column) per class."""

    count: IntArray  # Messages of each class
    latency_s: FloatArray  # Sum of the latencies of the hops on the path
    remote: BoolArray  # True where the path leaves the node
    busiest_s_per_byte: FloatArray
    """[kind, class]: the busiest link of each kind on the path, with all messages that share the
    link."""
    share: FloatArray  # Share of the collective's size in one message
    alone_s_per_byte: FloatArray  # One message by itself on the narrowest link of its path
    hop_latencies_s: FloatArray  # [class, hop]; -1 behind the last hop
    queue: IntArray  # Messages that leave through the first link of the path

    def __len__(self) -> int:
        return len(self.count)

    def part(self, which: slice) -> MessageClasses:
        arrays = {one.name: getattr(self, one.name) for one in fields(MessageClasses)}
        busiest = arrays.pop("busiest_s_per_byte")[:, which]
        parts = {name: array[which] for name, array in arrays.items()}
        return MessageClasses(busiest_s_per_byte=busiest, **parts)


class RoundProfile(Record, eq=False):
    """Equal rounds of a phase: how many there are, and their messages."""

    times: int
    first: int  # Number of the first of these classes among those of the phase
    classes: MessageClasses


class Resource(Record):
    """The busiest link of one level that several lanes use, over the whole collective.

    A link of a single lane is left out: its load already lengthens that lane.
    """

    kind: LinkKind
    s_per_byte: FloatArray | float  # Seconds per byte of the collective at the link's full speed


class Way(Record):
    """A critical way, its hops and waits summed up."""

    latency_s: float
    near_hops: int
    remote_hops: int
    s_per_byte: tuple[float, float, float]  # [kind]: transfers that such links slow most


class ChunkPipeline(Record, eq=False):
    """Messages of a pipelined phase: dependencies, latencies and needs."""

    flow: PieceFlow
    latency_s: FloatArray
    remote: BoolArray
    s_per_byte: FloatArray  # [kind, message], at full link speed
    factor: float = 1.0  # Each message carries this many times its `s_per_byte`
    ways: Memo[tuple[float, ...], tuple[Way, ...]] = field(default_factory=Memo)
    """Critical ways by shares of link speeds and seconds of a software step, whatever the factor.
    """


class PhaseProfile(Record, eq=False):
    """The distinct rounds of a phase; arrays have one entry per round unless stated."""

    relays: bool  # True where ranks pass on what they have just received
    times: IntArray  # Equal rounds that follow one another
    counts: IntArray  # Classes of each round, in the order of `classes`
    adds: FloatArray  # Largest share of the size that a rank adds up in a round
    fanout: IntArray  # Messages that a rank sends at once
    classes: MessageClasses
    pipeline: ChunkPipeline | None
    loads: FloatArray
    """[link]: share of the size that all rounds move over a link; where one node represents all,
    over that link of the busiest node."""

    @property
    def rounds(self) -> tuple[RoundProfile, ...]:
        """The rounds as records."""
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
        """The same phase where every message carries `factor` times as much."""
        if factor == 1:
            return self
        # Latencies and counts stay: the factor is on bytes alone.
        classes = self.classes
        return replace(
            self,
            adds=self.adds * factor,
            classes=replace(
                classes,
                busiest_s_per_byte=classes.busiest_s_per_byte * factor,
                share=classes.share * factor,
                alone_s_per_byte=classes.alone_s_per_byte * factor,
            ),
            pipeline=self.pipeline and replace(self.pipeline, factor=self.pipeline.factor * factor),
            loads=self.loads * factor,
        )


class Profile(Record, eq=False):
    """Phases and shared resources of one placed collective."""

    ranks: int
    lanes: tuple[int, ...]  # Lane of each phase; chunks take turns on a lane
    phases: tuple[PhaseProfile, ...]
    resources: tuple[Resource, ...]
    add_s_per_byte: float  # One pass over a rank's memory per byte of the collective


def lanes(profile: Profile) -> list[list[int]]:
    """Numbers of the phases of each lane, in order."""
    return [
        [phase for phase, found in enumerate(profile.lanes) if found == lane]
        for lane in sorted(set(profile.lanes))
    ]
