"""A plan: patterns on lines of ranks, phase after phase, that together do one collective.

Levels nest: the scatter at the innermost level leaves each rank a share, the next level works on
that share. Segment p of the buffer belongs to the rank whose place on each level's line gives p in
mixed radix, innermost level first, so what a phase moves is always a contiguous run of segments.
"""

from __future__ import annotations

import math

import numpy as np

from trnbench.facts.arrays import BoolArray, FloatArray, IntArray
from trnbench.facts.calibration.collective_stack import Tuning
from trnbench.facts.records import Record
from trnbench.facts.workload.choices import Op
from trnbench.machine.message_plan.algorithm import Fan, MessagePattern, Messages


class PlanPhase(Record, eq=False):
    """One pattern, run on all lines of ranks at once."""

    pattern: MessagePattern
    level: int  # of the lines' stage; 0 is the innermost
    lane: int  # phases of a lane use the same links; chunks take turns
    lines: IntArray  # [line, position]: rank in the group


class RankMessages(Record, eq=False):
    """Messages between ranks of a group; arrays are [message]."""

    source: IntArray
    target: IntArray
    share: FloatArray  # of the collective's size
    reduces: bool
    fan: Fan
    members: IntArray | None  # with a fan: ranks that all send or all receive
    fanout: int  # most messages one rank sends on one channel
    way: IntArray  # number of line and channel
    piece: IntArray  # first block


class Moves(Record, eq=False):
    """Segments that a round moves: from rank, to rank, number of the segment."""

    source: IntArray
    target: IntArray
    segment: IntArray
    reduces: BoolArray


class MessagePlan(Record, eq=False):
    """One collective among `ranks`: its phases in order."""

    op: Op
    algorithm: str
    ranks: int
    radix: tuple[int, ...]  # blocks by level
    place: IntArray  # [rank, level]: place on its line
    phases: tuple[PlanPhase, ...]
    share_per_block: tuple[float, ...]
    pairs: IntArray | None = None

    @property
    def items(self) -> bool:
        """True when one item moves for each pair of ranks, in place of segments."""
        return self.op in ("all-to-all", "permute", "send-receive")

    @property
    def channels(self) -> int:
        return math.lcm(*(phase.pattern.channels for phase in self.phases), 1)

    @property
    def blocks(self) -> int:
        """Number of blocks of the buffer, or of items."""
        return self.ranks**2 if self.items else math.prod(self.radix)

    @property
    def segments(self) -> int:
        """Number of pieces that move on their own: blocks times channels."""
        return self.blocks * self.channels

    @property
    def owner(self) -> IntArray:
        """Block of each rank, in mixed radix over its places."""
        block = np.zeros(self.ranks, dtype=np.int64)
        for level, radix in enumerate(self.radix):
            block = block * radix + self.place[:, level]
        return block

    def moves(self, phase: PlanPhase, round_: int) -> Moves:
        """Every segment that a round moves, for carrying real data."""
        parts = [self._moves(phase, batch) for batch in phase.pattern.send(round_, None)]
        return Moves(
            source=np.concatenate([part.source for part in parts]),
            target=np.concatenate([part.target for part in parts]),
            segment=np.concatenate([part.segment for part in parts]),
            reduces=np.concatenate([part.reduces for part in parts]),
        )

    def _moves(self, phase: PlanPhase, batch: Messages) -> Moves:
        # Real data need every source and target, even where a switch adds or copies on the way.
        batch = _without_fan(batch, phase.pattern.positions)
        lines = phase.lines
        source, target = lines[:, batch.source], lines[:, batch.target]
        if batch.origin is not None:
            message, block = self._items(phase, batch)
        else:
            message, block = self._blocks(phase, batch)
        # Levels with fewer channels move several segments of a block where others move one.
        per_channel = self.channels // phase.pattern.channels
        first = np.tile(batch.channel, len(lines))[message] * per_channel
        segment = (block * self.channels + first)[:, None] + np.arange(per_channel)
        chosen = np.repeat(message, per_channel)
        return Moves(
            source=source.ravel()[chosen],
            target=target.ravel()[chosen],
            segment=segment.ravel(),
            reduces=np.full(len(chosen), batch.reduces),
        )

    def _blocks(self, phase: PlanPhase, batch: Messages) -> tuple[IntArray, IntArray]:
        """(message, block) for every block of every message on every line."""
        # The digits of inner levels are the line's own share and fixed; a step of this level's
        # digit spans all blocks of the outer levels, whose digits are still open.
        if self.op == "broadcast":
            stride, base = 1, np.zeros(len(phase.lines), dtype=np.int64)
        else:
            stride = math.prod(self.radix[phase.level + 1 :])
            base = np.zeros(len(phase.lines), dtype=np.int64)
            for level in range(phase.level):
                weight = math.prod(self.radix[level + 1 :])
                base += self.place[phase.lines[:, 0], level] * weight
        first = (base[:, None] + batch.block * stride).ravel()
        count = np.tile(batch.count * stride, len(phase.lines))
        return _ranges(first, count)

    def _items(self, phase: PlanPhase, batch: Messages) -> tuple[IntArray, IntArray]:
        """(message, item) for every item of every message; item = from * ranks + to."""
        assert batch.origin is not None
        if self.pairs is not None:
            messages = np.arange(len(batch.origin))
            return messages, batch.origin * self.ranks + batch.block
        # Level by level an item's digit changes from its sender's to its goal's, innermost first.
        # So at this level a message carries the items whose inner digits already fit the goal.
        owner = self.owner
        rank_of = np.argsort(owner)
        weights = [math.prod(self.radix[level + 1 :]) for level in range(len(self.radix))]
        inner = _combinations(self.radix[: phase.level], weights[: phase.level])
        outer = _combinations(self.radix[phase.level + 1 :], weights[phase.level + 1 :])
        here = self.place[phase.lines[:, 0]]
        fixed_inner = here[:, : phase.level] @ np.array(weights[: phase.level], dtype=np.int64)
        fixed_outer = here[:, phase.level + 1 :] @ np.array(
            weights[phase.level + 1 :], dtype=np.int64
        )
        weight = weights[phase.level]
        # Inner places of the sender are done with, outer ones not yet begun.
        base_from = (fixed_outer[:, None] + batch.origin * weight).ravel()
        base_to = (fixed_inner[:, None] + batch.block * weight).ravel()
        sender = base_from[:, None, None] + inner[None, :, None]
        goal = base_to[:, None, None] + outer[None, None, :]
        item = rank_of[sender] * self.ranks + rank_of[goal]
        message = np.repeat(np.arange(len(base_from)), item[0].size)
        return message, item.ravel()


def rank_messages(
    pattern: MessagePattern,
    round_: int,
    lines: IntArray,
    share_per_block: float,
    *,
    sources: IntArray | None = None,
    in_node: int = 0,
) -> list[RankMessages]:
    """Messages of a round on these lines of ranks.

    With `sources`, the lines are cut off after one node: only these positions send, and ranks
    further on are the same `in_node` ranks later on the next node.
    """
    return [
        _on_lines(pattern, batch, lines, share_per_block, in_node if sources is not None else 0)
        for batch in pattern.send(round_, sources)
        if len(batch.source)
    ]


def _on_lines(
    pattern: MessagePattern, batch: Messages, lines: IntArray, share_per_block: float, in_node: int
) -> RankMessages:
    unit = share_per_block / pattern.channels

    def ranks(position: IntArray) -> IntArray:
        if not in_node:
            return lines[:, position].ravel()
        # Lines list the positions of the first node only; the others follow node by node.
        node, place = np.divmod(position, lines.shape[1])
        return np.asarray(lines[:, place] + node * in_node).ravel()

    source = ranks(batch.source) if batch.fan is not Fan.IN else None
    target = ranks(batch.target) if batch.fan is not Fan.OUT else None
    members = None
    if batch.fan is not Fan.POINT:
        members = np.repeat(lines, len(batch.source), axis=0)
    # A fan has one end in the switch: the other stands for both, and `members` lists the ranks.
    ends = source if target is None else target
    assert ends is not None
    many = len(lines) > 1
    share = np.asarray(batch.count * unit, dtype=np.float64)
    return RankMessages(
        source=ends if source is None else source,
        target=ends if target is None else target,
        share=np.tile(share, len(lines)) if many else share,
        reduces=batch.reduces,
        fan=batch.fan,
        members=members,
        fanout=_fanout(batch),
        way=(np.arange(len(lines))[:, None] * pattern.channels + batch.channel).ravel(),
        piece=np.tile(batch.block, len(lines)) if many else batch.block,
    )


def _fanout(batch: Messages) -> int:
    if batch.fan is Fan.IN:
        return 1  # each rank sends once and the switch adds
    channels = int(batch.channel.max()) + 1
    return int(np.bincount(batch.source * channels + batch.channel).max())


def _without_fan(batch: Messages, positions: int) -> Messages:
    """The same data movement, point to point."""
    if batch.fan is Fan.POINT:
        return batch
    ends = batch.target if batch.fan is Fan.IN else batch.source
    everyone = np.tile(np.arange(positions), len(ends))
    end = np.repeat(ends, positions)
    kept = everyone != end
    many = {
        name: np.repeat(getattr(batch, name), positions)[kept]
        for name in ("block", "count", "channel")
    }
    return Messages(
        source=everyone[kept] if batch.fan is Fan.IN else end[kept],
        target=end[kept] if batch.fan is Fan.IN else everyone[kept],
        reduces=batch.reduces,
        **many,
    )


def _ranges(first: IntArray, count: IntArray) -> tuple[IntArray, IntArray]:
    # Consecutive numbers first .. first + count - 1 of every message, without a loop over messages.
    message = np.repeat(np.arange(len(first)), count)
    start = np.concatenate([[0], np.cumsum(count)[:-1]]) if len(count) else count
    return message, np.arange(len(message)) - start[message] + first[message]


def _combinations(radix: tuple[int, ...], weights: list[int]) -> IntArray:
    values = np.zeros(1, dtype=np.int64)
    for size, weight in zip(radix, weights, strict=True):
        values = (values[:, None] + np.arange(size) * weight).ravel()
    return values


def chunks_of(tuning: Tuning, phases: int, size_bytes: FloatArray) -> FloatArray:
    """Number of chunks of a collective of these sizes; 1 where a single phase cannot overlap."""
    if phases < 2:
        return np.ones_like(size_bytes)
    return np.clip(np.ceil(size_bytes / tuning.chunk_bytes), 1.0, float(tuning.chunks))


def turns(lanes: tuple[int, ...], chunks: int) -> list[tuple[int, int]]:
    """Turns (chunk, phase) in the order in which each lane takes them.

    A chunk follows the one before by one phase; where two would take a lane at once, the older goes
    first. `lanes[phase]` is the lane of each phase.
    """
    # Chunk c is in phase p at time c + p at the earliest: sorted by that time, then by age.
    every = [(chunk, phase) for chunk in range(chunks) for phase in range(len(lanes))]
    return sorted(every, key=lambda turn: (turn[0] + turn[1], turn[0]))
