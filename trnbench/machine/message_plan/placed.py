"""A plan on its cluster: the links every message crosses. Both timed engines read it.

Rounds that repeat are kept once with their count. Where every node does the same, one node's
messages are enough: a message counts on its own node's links at both ends, because another node's
like message comes in there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from itertools import pairwise
from typing import TypeAlias, TypeVar

import numpy as np

from trnbench.facts.arrays import BoolArray, FloatArray, IntArray
from trnbench.facts.hardware.fabric import Switch
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, field
from trnbench.facts.workload.choices import Op
from trnbench.machine.fabric import Fabric, LinkKind
from trnbench.machine.message_plan.algorithm import Algorithm, Fan, Refusal, Site
from trnbench.machine.message_plan.build import Outline, PlanStep, node_lines, outline, plan_of
from trnbench.machine.message_plan.members import Members
from trnbench.machine.message_plan.plan import MessagePlan, RankMessages, rank_messages
from trnbench.machine.message_plan.stages import stages_of
from trnbench.machine.placement import Placement

AnyArray = TypeVar("AnyArray", IntArray, FloatArray)


class PlacedRound(Record, eq=False):
    """Messages of `times` like rounds; arrays are [message]."""

    phase: int
    round_: int
    times: int
    source: IntArray
    target: IntArray
    links: IntArray  # [message, hop]; the number `link_count` for no link
    latency_s: FloatArray
    share: FloatArray  # of the collective's size
    remote: BoolArray  # crosses the network
    way: IntArray  # line and channel; on a relaying ring waits are within one
    piece: IntArray  # on a pipelined tree waits are within one
    adds: float  # largest share that one rank adds up
    fanout: int  # messages that a rank sends on one channel


class Placed(Record, eq=False):
    """Collective of like groups on a cluster; plan and rounds are drawn when asked for."""

    placement: Placement
    op: Op
    members: Members
    outlines: tuple[Outline, ...]  # by the members' grids; all have the same phases
    of_one_node: bool  # links are one node's, the same on every node
    on_a_node: Placed | None = None  # the same by one node, for phases that allow it
    plans: Memo[int, MessagePlan] = field(default_factory=Memo)
    phase_rounds: Memo[int, tuple[PlacedRound, ...]] = field(default_factory=Memo)

    @property
    def groups(self) -> IntArray:
        return self.members.groups

    @property
    def link_count(self) -> int:
        fabric = self.placement.fabric
        return fabric.links_per_node * (1 if self.of_one_node else fabric.nodes)

    @cached_property
    def capacity(self) -> FloatArray:
        """Speed of each link, bytes/s; the last entry, for no link, is infinite."""
        return np.append(self.placement.fabric.capacity(np.arange(self.link_count)), np.inf)

    @cached_property
    def kind(self) -> IntArray:
        """Kind of each link; the last entry, for no link, is -1."""
        fabric = self.placement.fabric
        return np.append(fabric.kind[np.arange(self.link_count) % fabric.links_per_node], -1)

    @property
    def ranks(self) -> int:
        return self.members.ranks

    @property
    def steps(self) -> tuple[PlanStep, ...]:
        return self.outlines[0].steps

    @property
    def plan(self) -> MessagePlan:
        """Plan of the first group."""
        return self.plan_on(0)

    def plan_on(self, grid: int) -> MessagePlan:
        return self.plans.of(grid, lambda: plan_of(self.outlines[grid]))

    @property
    def rounds(self) -> tuple[PlacedRound, ...]:
        return tuple(found for phase in range(len(self.steps)) for found in self.rounds_of(phase))

    def rounds_of(self, phase: int) -> tuple[PlacedRound, ...]:
        return self.phase_rounds.of(phase, lambda: _rounds(self, phase))

    def round_of(self, phase: int, round_: int, times: int) -> PlacedRound | None:
        """`times` rounds like this one of a phase; None if nothing is sent."""
        found = _placed_rounds(self, phase, ((round_, times),))
        return found[0] if found else None

    @property
    def messages(self) -> int:
        """Number of messages of the rounds kept, each as often as it repeats."""
        return sum(len(found.source) * found.times for found in self.rounds)

    def link_name(self, link: int) -> str:
        """Link as text, with its node where there are several."""
        fabric = self.placement.fabric
        node, local = divmod(link, fabric.links_per_node)
        name = fabric.links[local].name
        return name if self.of_one_node or fabric.nodes == 1 else f"n{node}:{name}"


def place_members(
    members: Members, op: Op, algorithm: Algorithm, *, pairs: IntArray | None = None
) -> Placed | Refusal:
    """Collective of groups that are ready to be placed, or a refusal."""
    outlines = _outlines(members, op, algorithm, pairs)
    if isinstance(outlines, Refusal):
        return outlines
    on_a_node = None
    # One node does not show a pattern whose positions differ, only the other phases of the plan.
    # Such plans are placed twice: in full, and on one node for the phases that do allow it.
    if members.one_node and not all(step.pattern.alike for step in outlines[0].steps):
        on_a_node = Placed(
            placement=members.placement, op=op, members=members, outlines=outlines, of_one_node=True
        )
        members = members.in_full()
        outlines = _outlines(members, op, algorithm, pairs)
        if isinstance(outlines, Refusal):
            return outlines
    placed = Placed(
        placement=members.placement,
        op=op,
        members=members,
        outlines=outlines,
        of_one_node=members.one_node,
        on_a_node=on_a_node,
    )
    return (_cut_off(placed) if members.placement.fabric.faulty else None) or placed


def _outlines(
    members: Members, op: Op, algorithm: Algorithm, pairs: IntArray | None
) -> tuple[Outline, ...] | Refusal:
    outlines: list[Outline] = []
    placement = members.placement
    for number, grid in enumerate(members.grids):
        stages = None
        if pairs is None and op != "send-receive" and members.ranks > 1:
            site = Site(placement=placement, grid=grid, algorithm=algorithm)
            stages = members.stages.of(
                (number, algorithm), partial(stages_of, site, algorithm.name)
            )
        plan = outline(placement, op, grid, algorithm, pairs, stages)
        if isinstance(plan, Refusal):
            return plan
        outlines.append(plan)
    # Rounds of all groups are timed together, so all groups need the same phases and rounds.
    if len(outlines) > 1 and len({_structure(plan) for plan in outlines}) > 1:
        return Refusal(reason="groups of different shape cannot run in step; run them one by one")
    return tuple(outlines)


def _structure(found: Outline) -> object:
    return tuple((step.level, step.pattern.distinct_rounds) for step in found.steps)


def _cut_off(placed: Placed) -> Refusal | None:
    """Refusal that names two ranks which dead links keep apart, if there are any."""
    for sent in placed.rounds:
        # A message without any link: routes leave the path of a cut-off pair empty.
        lost = np.flatnonzero((sent.links == placed.link_count).all(axis=1))
        if len(lost):
            source, target = int(sent.source[lost[0]]), int(sent.target[lost[0]])
            return Refusal(reason=f"rank {source} has no way to rank {target}")
    return None


def _rounds(placed: Placed, phase: int) -> tuple[PlacedRound, ...]:
    rounds = placed.steps[phase].pattern.distinct_rounds
    return _placed_rounds(placed, phase, [(round_, times) for round_, times in rounds if times])


def _placed_rounds(
    placed: Placed, phase: int, rounds: Sequence[tuple[int, int]]
) -> tuple[PlacedRound, ...]:
    """Rounds of a phase, each with the number of its like, but for those that send nothing."""
    grids, runs = range(len(placed.outlines)), _runs(placed.members.ways)
    sent = []
    for round_, times in rounds:
        batches = [_batches(placed, grid, phase, round_) for grid in grids]
        parts = [(groups, batches[grid]) for grid, groups in runs if batches[grid]]
        if parts:
            sent.append((round_, times, parts))
    # Paths of all rounds are looked up at once.
    paths = _paths(
        placed,
        [(groups, one) for *_, parts in sent for groups, batches in parts for one in batches],
    )
    return tuple(
        _placed_round(placed, parts, paths, (phase, round_, times)) for round_, times, parts in sent
    )


def _runs(ways: tuple[int, ...]) -> list[tuple[int, slice]]:
    # Neighbouring groups on one grid are handled as one slice of arrays.
    starts = [0, *(at for at in range(1, len(ways)) if ways[at] != ways[at - 1]), len(ways)]
    return [(ways[a], slice(a, b)) for a, b in pairwise(starts)]


def _batches(placed: Placed, grid: int, phase: int, round_: int) -> list[RankMessages]:
    """Messages of a round between places in a group, or only those that one node sends.

    One node is enough where every node holds a like part of every group (`local`), but for
    broadcasts, whose root's node alone sends. A pattern wider than the lines of one node runs over
    several: then only the positions on that node are asked for messages.
    """
    found = placed.outlines[grid]
    step = found.steps[phase]
    share = found.share_per_block[step.level]
    if placed.members.local is None or found.op == "broadcast":
        return rank_messages(step.pattern, round_, placed.plan_on(grid).phases[phase].lines, share)
    lines = node_lines(found, step)
    wide = step.pattern.positions > lines.shape[1]
    return rank_messages(
        step.pattern,
        round_,
        lines,
        share,
        sources=np.arange(lines.shape[1]) if wide else None,
        in_node=placed.members.local.shape[1],
    )


def _placed_round(
    placed: Placed,
    parts: list[tuple[slice, list[RankMessages]]],
    paths: Iterator[_Path],
    numbers: tuple[int, int, int],
) -> PlacedRound:
    """Messages of one round, of all groups, as flat arrays; `numbers`: phase, round and times.

    Parts are runs of groups that share a grid, and with it the batches of messages. All arrays have
    the order part, group, batch.
    """
    fabric, members = placed.placement.fabric, placed.members
    none = fabric.nodes * fabric.links_per_node
    blocks: list[list[IntArray]] = []
    latencies: list[FloatArray] = []
    shares: list[FloatArray] = []
    adds: FloatArray = np.zeros(0)
    first_way = 0
    for groups, batches in parts:
        count = len(members.ways[groups])
        found = [next(paths) for _ in batches]
        hops = max(links.shape[-1] for _, _, links, _ in found)
        # `way` numbers count from 0 in every batch of every group. To keep them apart, batch b of
        # group g starts at  first_way + g * sum(widths) + widths[0] + ... + widths[b - 1],
        # where widths[b] is how many numbers batch b uses: first_way counts those of the parts
        # before, `each` those of the groups before, `starts` those of the batches before.
        widths = [int(batch.way.max()) + 1 for batch in batches]
        starts = [first_way + sum(widths[:at]) for at in range(len(widths))]
        ways = [batch.way + start for batch, start in zip(batches, starts, strict=True)]
        each = np.arange(count)[:, None] * sum(widths)
        first_way += count * sum(widths)
        # What depends on the group comes as [group, message] a batch and is joined along the
        # messages before it is made flat; arrays that all groups share are repeated.
        blocks.append(
            [
                _joined([source for source, *_ in found]),
                _joined([target for _, target, *_ in found]),
                _joined([_padded(links, hops, none) for _, _, links, _ in found]),
                (each + _stacked(ways)).ravel(),
                _repeated([batch.piece for batch in batches], count),
            ]
        )
        latencies.append(_joined([latency for *_, latency in found]))
        shares.append(_repeated([batch.share for batch in batches], count))
        # The share that each rank adds up, of all messages it gets at once. If one node shows all,
        # ranks count by their place in the node.
        for batch, (_, target, *_) in zip(batches, found, strict=True):
            if batch.reduces and batch.fan is Fan.POINT:
                at = target % fabric.ranks_per_node if placed.of_one_node else target
                added = np.bincount(at.ravel(), weights=_repeated([batch.share], count))
                adds = _added(adds, added.astype(float))
    # Paths of all parts get as many columns as the longest has.
    hops = max(block[2].shape[-1] for block in blocks)
    for block in blocks:
        block[2] = _padded(block[2], hops, none)
    source, target, links, way, piece = (
        _stacked(list(column)) for column in zip(*blocks, strict=True)
    )
    local = links if fabric.nodes == 1 else _local(fabric, links)
    phase, round_, times = numbers
    return PlacedRound(
        phase=phase,
        round_=round_,
        times=times,
        source=source,
        target=target,
        links=local if placed.of_one_node else links,
        latency_s=_stacked(latencies),
        share=_stacked(shares),
        remote=(np.append(fabric.kind, -1)[local] == LinkKind.NETWORK).any(axis=1),
        way=way,
        piece=piece,
        adds=float(adds.max(initial=0.0)),
        fanout=max(1, *(batch.fanout for _, batches in parts for batch in batches)),
    )


_Path: TypeAlias = tuple[IntArray, IntArray, IntArray, FloatArray]
"""Source, target, links and latency of a batch, each [group, message]."""


def _paths(placed: Placed, batches: Sequence[tuple[slice, RankMessages]]) -> Iterator[_Path]:
    """Yield the paths of batches of messages of some groups."""
    members, routes = placed.members, placed.placement.routes
    ends = [(members.at(one.source, at), members.at(one.target, at)) for at, one in batches]
    plain = [pair for pair, (_, one) in zip(ends, batches, strict=True) if one.fan is Fan.POINT]
    if plain:
        every, latencies = routes.between_ranks(
            *(np.concatenate([one.ravel() for one in side]) for side in zip(*plain, strict=True))
        )
    first = 0
    for (source, target), (groups, batch) in zip(ends, batches, strict=True):
        if batch.fan is Fan.POINT:
            mine = slice(first, first + source.size)
            links, latency, first = every[mine], latencies[mine], mine.stop
        else:
            links = _fan_links(placed.placement.fabric, members, groups, batch)
            # All ways in (or out) run side by side: in by one port, out by one.
            latency = routes.latency(links[:, [0, -1]])
        yield source, target, links.reshape(*source.shape, -1), latency.reshape(source.shape)


def _joined(columns: list[AnyArray]) -> AnyArray:
    found = columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)
    return found.reshape(-1, *found.shape[2:])


def _repeated(columns: list[AnyArray], times: int) -> AnyArray:
    row = _stacked(columns)
    return np.tile(row, times) if times > 1 else row


def _padded(links: IntArray, hops: int, none: int) -> IntArray:
    """Paths with `hops` hops, `none` where a path is over."""
    missing = hops - links.shape[-1]
    if not missing:
        return links
    return np.concatenate([links, np.full((*links.shape[:-1], missing), none)], axis=-1)


def _stacked(columns: list[AnyArray]) -> AnyArray:
    return columns[0] if len(columns) == 1 else np.concatenate(columns)


def _local(fabric: Fabric, links: IntArray) -> IntArray:
    none = fabric.nodes * fabric.links_per_node
    return np.where(links == none, fabric.links_per_node, links % fabric.links_per_node)


def _added(a: FloatArray, b: FloatArray) -> FloatArray:
    """Sum of two arrays by rank, the shorter one filled up with 0."""
    if not len(a):
        return b
    size = max(len(a), len(b))
    return np.pad(a, (0, size - len(a))) + np.pad(b, (0, size - len(b)))


def _fan_links(fabric: Fabric, members: Members, groups: slice, batch: RankMessages) -> IntArray:
    """Ports of a reducing switch that a joined or spread message crosses."""
    assert batch.members is not None
    level = next(
        i for i, up in enumerate(fabric.levels) if isinstance(up.level, Switch) and up.level.reduces
    )
    many, one = fabric.up[level], fabric.down[level]
    end = batch.target
    if batch.fan is Fan.OUT:
        many, one = one, many
        end = batch.source

    def port(table: IntArray, index: IntArray) -> IntArray:
        node, local = np.divmod(members.at(index, groups), fabric.ranks_per_node)
        return np.asarray(table[local // fabric.ranks_per_chip] + node * fabric.links_per_node)

    found = [port(many, batch.members), port(one, end)[..., None]]
    return np.concatenate(found, axis=2).reshape(-1, batch.members.shape[1] + 1)
