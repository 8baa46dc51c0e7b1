"""A plan on its cluster: the links every message crosses. What both timed engines read.

Rounds that repeat are kept once with their count. Where every node does the same, one node's
messages stand for all: a message counts on its own node's links at both ends, because another
node's like message comes in there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trnbench.errors import InputError
from trnbench.mapping.fabric import Fabric, FloatArray, IntArray, LinkKind
from trnbench.mapping.message_plan.algorithm import Algorithm, Refusal
from trnbench.mapping.message_plan.build import build_plan
from trnbench.mapping.message_plan.pattern import Fan
from trnbench.mapping.message_plan.plan import Phase, Plan, RankMessages
from trnbench.mapping.placement import Groups, Placement, grid_of
from trnbench.program.collective import Op
from trnbench.spec.fabric import Switch


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PlacedRound:
    """Messages of `times` like rounds: links [message, hop] (the number `link_count` for none).

    `share`: of the collective's size. `remote`: crosses the network. `adds`: largest share one
    rank adds up in the round. `fanout`: messages a rank sends on one channel. `way`: messages of
    one line and channel, which alone wait for each other on a ring that relays; `piece`: what they
    carry, for which alone a pipelined tree waits.
    """

    phase: int
    round_: int
    times: int
    source: IntArray
    target: IntArray
    links: IntArray
    latency_s: FloatArray
    share: FloatArray
    remote: NDArray[np.bool_]
    way: IntArray
    piece: IntArray
    adds: float
    fanout: int


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Placed:
    """A collective of like groups on a cluster.

    `of_one_node`: links are one node's, and stand for every node's. `levels[phase]` and
    `relays[phase]` belong to the phases of `plan` (all groups' plans have the same phases).
    """

    placement: Placement
    op: Op
    groups: IntArray
    plan: Plan
    rounds: tuple[PlacedRound, ...]
    of_one_node: bool
    link_count: int
    capacity: FloatArray
    kind: IntArray

    @property
    def ranks(self) -> int:
        """Ranks of one group."""
        return int(self.groups.shape[1])

    @property
    def messages(self) -> int:
        """Messages of the rounds kept, each counted as often as it repeats."""
        return sum(len(found.source) * found.times for found in self.rounds)

    def link_name(self, link: int) -> str:
        """Return a link as text, with its node where there are several."""
        fabric = self.placement.fabric
        node, local = divmod(link, fabric.links_per_node)
        name = fabric.links[local].name
        return name if self.of_one_node or fabric.nodes == 1 else f"n{node}:{name}"


def place_collective(
    placement: Placement,
    op: Op,
    groups: Groups,
    algorithm: Algorithm,
    *,
    pairs: IntArray | None = None,
    symmetric: bool = True,
) -> Placed | Refusal:
    """Return a collective run by all `groups` at once (lists of ranks of equal length).

    `symmetric` allows one node to stand for all where they do the same.
    """
    members = checked_groups(placement, groups)
    fabric = placement.fabric
    kept, one_node = (
        _representative(fabric, members) if symmetric and pairs is None else (members, False)
    )
    plans: dict[object, Plan | Refusal] = {}
    chosen: list[Plan] = []
    for group in kept:
        grid = grid_of(placement, group)
        key = (grid.levels, grid.places, grid.ranks.shape)
        if key not in plans:
            plans[key] = build_plan(placement, op, group, algorithm, pairs)
        plan = plans[key]
        if isinstance(plan, Refusal):
            return plan
        chosen.append(plan)
    if len({_structure(plan) for plan in chosen}) > 1:
        return Refusal(reason="groups of different shape cannot run in step; run them one by one")
    if one_node and not all(phase.pattern.alike for phase in chosen[0].phases):
        kept, one_node = members, False
        chosen = [plans[_key(placement, group)] for group in kept]  # type: ignore[misc]
    rounds = _rounds(placement, kept, chosen, one_node=one_node)
    if isinstance(rounds, Refusal):
        return rounds
    count = fabric.links_per_node * (1 if one_node else fabric.nodes)
    numbers = np.arange(count)
    return Placed(
        placement=placement,
        op=op,
        groups=members,
        plan=chosen[0],
        rounds=rounds,
        of_one_node=one_node,
        link_count=count,
        capacity=np.append(fabric.capacity(numbers), np.inf),
        kind=np.append(fabric.kind[numbers % fabric.links_per_node], -1),
    )


def checked_groups(placement: Placement, groups: Groups) -> IntArray:
    """Return groups as an array of sorted ranks, or raise InputError for what is malformed."""
    lengths = {len(group) for group in groups}
    if len(lengths) != 1 or 0 in lengths:
        raise InputError("replica groups must be lists of ranks of one length")
    members = np.sort(np.array(groups, dtype=np.int64), axis=1)
    if members.min() < 0 or members.max() >= placement.ranks:
        raise InputError(f"ranks are 0 to {placement.ranks - 1}, found {members.max()}")
    if np.bincount(members.ravel()).max() > 1:
        raise InputError("a rank is in two replica groups, or twice in one")
    return members


def _key(placement: Placement, group: IntArray) -> object:
    grid = grid_of(placement, group)
    return grid.levels, grid.places, grid.ranks.shape


def _structure(plan: Plan) -> object:
    return tuple((phase.level, phase.pattern.distinct_rounds) for phase in plan.phases)


def _representative(fabric: Fabric, members: IntArray) -> tuple[IntArray, bool]:
    """Return the groups to look at, and whether one node's links then tell all."""
    if fabric.nodes == 1 or fabric.faulty:
        return members, False
    node, local = np.divmod(members, fabric.ranks_per_node)
    if (node == node[:, :1]).all():
        first = node[:, 0]
        patterns = {
            n: sorted(map(tuple, local[first == n].tolist())) for n in np.unique(first).tolist()
        }
        alike = len({str(pattern) for pattern in patterns.values()}) == 1
        return (members[first == first.min()], True) if alike else (members, False)
    used = [np.unique(row) for row in node]
    spans = all(len(row) == len(used[0]) and (row == used[0]).all() for row in used)
    per_node = members.shape[1] // len(used[0])
    if not spans or per_node * len(used[0]) != members.shape[1]:
        return members, False
    cut = local.reshape(len(members), len(used[0]), per_node)
    return members, bool((cut == cut[:, :1]).all())


def _rounds(
    placement: Placement, groups: IntArray, plans: list[Plan], *, one_node: bool
) -> tuple[PlacedRound, ...] | Refusal:
    found = []
    for index, phase in enumerate(plans[0].phases):
        for round_, times in phase.pattern.distinct_rounds:
            if not times:
                continue
            parts: list[tuple[IntArray, RankMessages]] = []
            for group, plan in zip(groups, plans, strict=True):
                own = plan.phases[index]
                lines, senders = _seen(placement, group, own) if one_node else (None, None)
                batches = plan.rank_messages(own, round_, lines, senders)
                parts += [(group, batch) for batch in batches]
            placed = _placed_round(placement, parts, index, round_, times, one_node=one_node)
            if isinstance(placed, Refusal):
                return placed
            if placed is not None:
                found.append(placed)
    return tuple(found)


def _seen(placement: Placement, group: IntArray, phase: Phase) -> tuple[IntArray, IntArray | None]:
    """Return the lines that touch the group's first node, and their places on it."""
    node = group // placement.fabric.ranks_per_node
    here = node[phase.lines] == node[0]
    lines = np.flatnonzero(here.any(axis=1))
    inside = here[lines]
    return lines, None if inside.all() else np.flatnonzero(inside[0])


def _placed_round(
    placement: Placement,
    parts: list[tuple[IntArray, RankMessages]],
    phase: int,
    round_: int,
    times: int,
    *,
    one_node: bool,
) -> PlacedRound | Refusal | None:
    fabric = placement.fabric
    none = fabric.nodes * fabric.links_per_node
    sources, targets, links, ways, pieces = _lists(5)
    shares: list[FloatArray] = []
    latencies: list[FloatArray] = []
    adds = np.zeros(0)
    fanout = 1
    for group, batch in parts:
        source, target = group[batch.source], group[batch.target]
        if batch.fan is Fan.POINT:
            found, latency = placement.routes.between_ranks(source, target)
            if (found == none).all(axis=1).any():
                lost = int(np.flatnonzero((found == none).all(axis=1))[0])
                return Refusal(reason=f"rank {source[lost]} has no way to rank {target[lost]}")
        else:
            found = _fan_links(fabric, group, batch)
            # All ways in (or out) run side by side: in by one port, out by one.
            latency = placement.routes.latency(found[:, [0, -1]])
        latencies.append(latency)
        pieces.append(batch.piece)
        sources.append(source)
        targets.append(target)
        links.append(found)
        shares.append(batch.share)
        ways.append(batch.way + (int(ways[-1].max()) + 1 if ways else 0))
        fanout = max(fanout, batch.fanout)
        if batch.reduces and batch.fan is Fan.POINT:
            at = target % fabric.ranks_per_node if one_node else target
            adds = _added(adds, np.bincount(at, weights=batch.share).astype(float))
    if not links:
        return None
    width = max(found.shape[1] for found in links)
    padded = np.concatenate(
        [np.pad(f, ((0, 0), (0, width - f.shape[1])), constant_values=none) for f in links]
    )
    remote = (np.append(fabric.kind, -1)[_local(fabric, padded)] == LinkKind.NETWORK).any(axis=1)
    if one_node:
        padded = _local(fabric, padded)
    return PlacedRound(
        phase=phase,
        round_=round_,
        times=times,
        source=np.concatenate(sources),
        target=np.concatenate(targets),
        links=padded,
        latency_s=np.concatenate(latencies),
        share=np.concatenate(shares),
        remote=remote,
        way=np.concatenate(ways),
        piece=np.concatenate(pieces),
        adds=float(adds.max(initial=0.0)),
        fanout=fanout,
    )


def _lists(count: int) -> tuple[list[IntArray], ...]:
    return tuple([] for _ in range(count))


def _local(fabric: Fabric, links: IntArray) -> IntArray:
    """Return local link numbers; `links_per_node` for none."""
    none = fabric.nodes * fabric.links_per_node
    return np.where(links == none, fabric.links_per_node, links % fabric.links_per_node)


def _added(a: FloatArray, b: FloatArray) -> FloatArray:
    size = max(len(a), len(b))
    return np.pad(a, (0, size - len(a))) + np.pad(b, (0, size - len(b)))


def _fan_links(fabric: Fabric, group: IntArray, batch: RankMessages) -> IntArray:
    """Return the ports of a reducing switch that a joined or spread message crosses."""
    assert batch.members is not None
    level = next(
        i for i, up in enumerate(fabric.levels) if isinstance(up.level, Switch) and up.level.reduces
    )
    many, one = fabric.up[level], fabric.down[level]
    end = batch.target
    if batch.fan is Fan.OUT:
        many, one = one, many
        end = batch.source

    def port(table: IntArray, ranks: IntArray) -> IntArray:
        node, local = np.divmod(group[ranks], fabric.ranks_per_node)
        return np.asarray(table[local // fabric.ranks_per_chip] + node * fabric.links_per_node)

    return np.concatenate([port(many, batch.members), port(one, end)[:, None]], axis=1)
