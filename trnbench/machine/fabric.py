r"""The graph of a cluster: every link of one instance, with its speed and latency, times nodes.

    r0 r1   r2 r3              ranks: logical cores of a chip; on-chip links where there are several
     \|      \|
     c0 ---- c1 ---- ...       chips: scale-up levels from the inside out, each joins `count` units
      |       |                of `span` chips by a torus, a switch, direct links or a full mesh
    ====================       adapters, one or more for each chip, or shared by neighbours
      |       |
     leaf or rails             only where the core blocks: the instance's share of the spine
      |       |
    ------ core ------         joins all instances; of no width of its own

A level's unit is what the levels before have joined. On a Trn2 UltraServer the first level is a
torus of 16 chips (span 1, count 16), the second joins four of these (span 16, count 4).

Links are directed. One instance's links are kept once; link `local` of node `k` has the number `k *
links_per_node + local`. Instances meet in a core. Where the core does not block, a message pays
only the adapters at both ends; where it is oversubscribed, also each end's share of the spine.

From a fabric to seconds, in the order in which modules read each other:

    fabric           links, their speed and latency          fabric_bounds  time nothing can beat
    fabric_routes    links that a message crosses            rank_groups    groups of a layout
    placement        chip of each rank, grid of a group      layout_rules   layouts refused
    message_plan/    collective -> messages                  tiling/        product -> tiles
    costs/           price of an instruction

There are no seconds before the engines: a plan says which links carry how much of a size, and the
engines put the stack's shares of link speed and its step times on that.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np

from trnbench.errors import InputError, unhandled
from trnbench.facts.arrays import FloatArray, IntArray
from trnbench.facts.hardware.fabric import Direct, FullMesh, Network, OnChip, Switch, Torus
from trnbench.facts.hardware.instance import Instance
from trnbench.facts.records import Record

CORE, LEAF, RAIL = "core", "leaf", "rail"
"""Ends of links beyond the adapters: the core, the leaf switch that an instance's adapters share,
and the switches of rails, which are numbered."""


class LinkKind(IntEnum):
    """Part of the fabric that a link belongs to; each kind has its own efficiency."""

    ON_CHIP = 0
    SCALE_UP = 1
    NETWORK = 2


class Link(Record):
    """One directed link of an instance; ends are chips ("c5"), ranks ("r3") or switches."""

    source: str
    target: str
    kind: LinkKind
    level: str
    bandwidth_bytes_per_s: float
    latency_s: float

    @property
    def name(self) -> str:
        """Link as text, such as "c0>c1"."""
        return f"{self.source}>{self.target}"


class LinkFault(Record):
    """Link that is slow (0 < `factor` < 1) or dead (0), in both directions unless `one_way`."""

    source: int  # chip, counted through the cluster
    target: int | None  # chip; None: the source's way to the network
    factor: float = 0.0  # share of the speed left
    one_way: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.factor < 1:
            raise InputError(f"a faulty link keeps 0 to 1 of its speed, not {self.factor}")


class ScaleUp(Record):
    """Level of a fabric that joins units of chips."""

    level: Torus | Switch | Direct | FullMesh
    span: int  # chips of a unit
    count: int  # units


class Fabric(Record, eq=False):
    """`nodes` instances of one type: their links, and tables of link numbers (-1: no link)."""

    instance: Instance
    nodes: int
    ranks_per_chip: int
    links: tuple[Link, ...]  # of one instance
    levels: tuple[ScaleUp, ...]
    torus_link: tuple[IntArray, ...]  # by level, [chip, axis, 0|1]: to the next or previous chip
    up: tuple[IntArray, ...]  # by level, [chip]: to its switch
    down: tuple[IntArray, ...]  # by level, [chip]: from its switch
    rank_out: IntArray  # [rank]: to its chip
    rank_in: IntArray  # [rank]: from its chip
    to_network: IntArray  # [chip]: through its adapter
    from_network: IntArray  # [chip]
    to_spine: IntArray  # [chip]: beyond the leaf switch; -1 where that does not block
    from_spine: IntArray  # [chip]
    bandwidth: FloatArray  # bytes/s by local link
    latency: FloatArray  # s by local link
    kind: IntArray  # `LinkKind` by local link
    faulty: dict[int, float]  # link, by its number in the cluster -> share of speed left

    @property
    def chips(self) -> int:
        return self.instance.chips

    @property
    def links_per_node(self) -> int:
        return len(self.links)

    @property
    def ranks_per_node(self) -> int:
        return self.chips * self.ranks_per_chip

    def capacity(self, links: IntArray) -> FloatArray:
        """Speed of links by their cluster-wide number, bytes/s, faults included."""
        speed = self.bandwidth[links % self.links_per_node]
        for link, factor in self.faulty.items():
            speed = np.where(links == link, speed * factor, speed)
        return speed

    def dead_local_links(self) -> dict[int, set[int]]:
        """Node -> its dead links, by local number."""
        dead: dict[int, set[int]] = {}
        for link, factor in self.faulty.items():
            if factor == 0:
                dead.setdefault(link // self.links_per_node, set()).add(link % self.links_per_node)
        return dead

    def worst_factor(self) -> FloatArray:
        """Smallest share of speed left on any node, by local link."""
        worst = np.ones(self.links_per_node)
        for link, factor in self.faulty.items():
            local = link % self.links_per_node
            worst[local] = min(worst[local], factor)
        return worst


class _Wiring:
    """Links of one instance, collected while its levels are walked."""

    def __init__(self) -> None:
        self.links: list[Link] = []

    def add(
        self, source: str, target: str, kind: LinkKind, level: str, speed: float, latency_s: float
    ) -> int:
        self.links.append(
            Link(
                source=source,
                target=target,
                kind=kind,
                level=level,
                bandwidth_bytes_per_s=speed,
                latency_s=latency_s,
            )
        )
        return len(self.links) - 1


def build_fabric(
    instance: Instance, *, nodes: int = 1, ranks_per_chip: int = 1, faults: Sequence[LinkFault] = ()
) -> Fabric:
    """Graph of `nodes` instances with the ranks of each chip, faults applied."""
    if nodes < 1:
        raise InputError(f"a cluster has at least 1 node, not {nodes}")
    # Levels are listed from the inside out: each joins `count` units of the `span` chips that the
    # levels before have joined.
    wiring = _Wiring()
    levels: list[ScaleUp] = []
    tables: list[tuple[IntArray, IntArray, IntArray]] = []
    span = 1
    for level in instance.fabric:
        if isinstance(level, OnChip | Network):
            continue
        count = _units(level, span, instance.chips)
        levels.append(ScaleUp(level=level, span=span, count=count))
        tables.append(_wire(wiring, level, span, count, instance.chips))
        span *= count
    if span not in (1, instance.chips):
        raise InputError(f"{instance.name}: its fabric joins {span} chips, not {instance.chips}")
    rank_out, rank_in = _wire_ranks(wiring, instance, ranks_per_chip)
    out, back, to_spine, from_spine = _wire_network(wiring, instance)
    fabric = Fabric(
        instance=instance,
        nodes=nodes,
        ranks_per_chip=ranks_per_chip,
        links=tuple(wiring.links),
        levels=tuple(levels),
        torus_link=tuple(table[0] for table in tables),
        up=tuple(table[1] for table in tables),
        down=tuple(table[2] for table in tables),
        rank_out=rank_out,
        rank_in=rank_in,
        to_network=out,
        from_network=back,
        to_spine=to_spine,
        from_spine=from_spine,
        bandwidth=np.array([link.bandwidth_bytes_per_s for link in wiring.links]),
        latency=np.array([link.latency_s for link in wiring.links]),
        kind=np.array([int(link.kind) for link in wiring.links], dtype=np.int64),
        faulty={},
    )
    # Of several faults on a link the worst counts.
    for fault in faults:
        for link in _faulty_links(fabric, fault):
            fabric.faulty[link] = min(fault.factor, fabric.faulty.get(link, 1.0))
    return fabric


def _units(level: Torus | Switch | Direct | FullMesh, span: int, chips: int) -> int:
    match level:
        case Torus():
            return int(np.prod(level.shape))
        case Switch() | FullMesh():
            # A switch may join more instances than this one.
            return max(min(level.chips, chips) // span, 1)
        case Direct():
            # Group g meets group g + distance, so the level joins two halves of that many groups.
            return 2 if level.chips_per_group * level.group_distance * 2 <= chips else 1
        case _:
            unhandled(level, "number of units it joins")


def _wire(
    wiring: _Wiring, level: Torus | Switch | Direct | FullMesh, span: int, count: int, chips: int
) -> tuple[IntArray, IntArray, IntArray]:
    """Add the links of one level; the result is its neighbours, up and down ports by chip."""
    none = np.full(chips, -1, dtype=np.int64)
    kind = LinkKind.SCALE_UP
    match level:
        case Torus():
            axes = len(level.shape)
            table = np.full((chips, axes, 2), -1, dtype=np.int64)
            unit = np.arange(count)
            place = np.array(np.unravel_index(unit, level.shape))
            speed, latency = level.bandwidth_per_link_one_way_bytes_per_s, level.latency_per_hop_s
            for chip in range(chips):
                here = (chip // span) % count
                for axis, length in enumerate(level.shape):
                    for way, step in enumerate((1, -1)):
                        # On an axis of length 2 both ways lead over the same link.
                        if length < 2 or (length == 2 and way == 1):
                            continue
                        there = place[:, here].copy()
                        there[axis] = (there[axis] + step) % length
                        unit_there = int(np.ravel_multi_index(tuple(there), level.shape))
                        other = chip + (unit_there - here) * span
                        table[chip, axis, way] = wiring.add(
                            f"c{chip}", f"c{other}", kind, level.name, speed, latency
                        )
                    if length == 2:
                        table[chip, axis, 1] = table[chip, axis, 0]
            return table, none, none
        case Switch():
            up, down = none.copy(), none.copy()
            speed, latency = level.bandwidth_per_chip_one_way_bytes_per_s, level.latency_per_hop_s
            for chip in range(chips):
                switch = f"{level.name}{chip // (span * count)}"
                # One hop leads through the switch: half its latency on the way in, half out.
                up[chip] = wiring.add(f"c{chip}", switch, kind, level.name, speed, latency / 2)
                down[chip] = wiring.add(switch, f"c{chip}", kind, level.name, speed, latency / 2)
            return np.empty((chips, 0, 2), dtype=np.int64), up, down
        case Direct():
            table = np.full((chips, 1, 2), -1, dtype=np.int64)
            speed = level.bandwidth_per_link_one_way_bytes_per_s * level.links_per_chip
            distance = level.chips_per_group * level.group_distance
            if count == 2 and distance != span:
                raise InputError(
                    f"{level.name}: groups {distance} chips apart join units of {span}"
                )
            # Chips of the lower half have their partner above, those of the upper half below.
            for chip in range(chips if count == 2 else 0):
                other = chip + distance if chip // span % 2 == 0 else chip - distance
                table[chip, 0, :] = wiring.add(
                    f"c{chip}", f"c{other}", kind, level.name, speed, level.latency_per_hop_s
                )
            return table, none, none
        case FullMesh():
            table = np.full((chips, count, 2), -1, dtype=np.int64)
            speed, latency = level.bandwidth_per_link_one_way_bytes_per_s, level.latency_per_hop_s
            for chip in range(chips):
                here = (chip // span) % count
                for unit_there in range(count):
                    if unit_there != here:
                        other = chip + (unit_there - here) * span
                        table[chip, unit_there, :] = wiring.add(
                            f"c{chip}", f"c{other}", kind, level.name, speed, latency
                        )
            return table, none, none
        case _:
            unhandled(level, "links in the graph of a fabric")


def _wire_ranks(
    wiring: _Wiring, instance: Instance, ranks_per_chip: int
) -> tuple[IntArray, IntArray]:
    ranks = instance.chips * ranks_per_chip
    ports = np.full((2, ranks), -1, dtype=np.int64)
    level = next((level for level in instance.fabric if isinstance(level, OnChip)), None)
    # A rank that is a whole chip needs no way to its chip.
    if ranks_per_chip > 1:
        if level is None:
            raise InputError(f"{instance.name}: several ranks per chip but no on-chip level")
        speed, latency = level.bandwidth_per_rank_one_way_bytes_per_s, level.latency_per_hop_s
        for rank in range(ranks):
            chip = f"c{rank // ranks_per_chip}"
            kind = LinkKind.ON_CHIP
            ports[0, rank] = wiring.add(f"r{rank}", chip, kind, level.name, speed, latency / 2)
            ports[1, rank] = wiring.add(chip, f"r{rank}", kind, level.name, speed, latency / 2)
    return ports[0], ports[1]


def _wire_network(
    wiring: _Wiring, instance: Instance
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Add adapters, and shares of a spine that blocks; the result is each chip's four links."""
    out, back, up, down = np.full((4, instance.chips), -1, dtype=np.int64)
    network = instance.network
    if network is None:
        return out, back, up, down
    # More adapters than chips: each chip has its own several. Fewer: neighbours share one.
    ports = min(network.adapters, instance.chips)
    speed = network.bandwidth_per_adapter_one_way_bytes_per_s * network.adapters / ports
    port_of = np.arange(instance.chips) * ports // instance.chips
    # A core that does not block has no links of its own: the adapters set the limit.
    ratio = network.oversubscription or 1.0
    blocks = ratio > 1
    for port in range(ports):
        sharing = np.flatnonzero(port_of == port)
        end = "+".join(f"c{chip}" for chip in sharing)
        leaf = CORE if not blocks else f"{RAIL}{port}" if network.rails else LEAF
        latency = network.step_latency_s / 2
        out[sharing] = wiring.add(end, leaf, LinkKind.NETWORK, network.name, speed, latency)
        back[sharing] = wiring.add(leaf, end, LinkKind.NETWORK, network.name, speed, latency)
    if blocks:
        leaves = [(LEAF, ports, np.arange(instance.chips))]
        if network.rails:
            leaves = [(f"{RAIL}{p}", 1, np.flatnonzero(port_of == p)) for p in range(ports)]
        # Each instance has its share of the spine to itself, so instances do not slow one another.
        for leaf, below, chips in leaves:
            share = below * speed / ratio
            level = f"{network.name} spine"
            up[chips] = wiring.add(leaf, CORE, LinkKind.NETWORK, level, share, 0.0)
            down[chips] = wiring.add(CORE, leaf, LinkKind.NETWORK, level, share, 0.0)
    return out, back, up, down


def _faulty_links(fabric: Fabric, fault: LinkFault) -> list[int]:
    """Cluster-wide numbers of the links that a fault touches."""
    total = fabric.nodes * fabric.chips
    for chip in (fault.source, fault.target):
        if chip is not None and not 0 <= chip < total:
            raise InputError(f"no chip {chip}: the cluster has chips 0 to {total - 1}")
    node, source = divmod(fault.source, fabric.chips)
    base = node * fabric.links_per_node
    if fault.target is None:
        if fabric.to_network[source] < 0:
            raise InputError(f"{fabric.instance.name} has no network adapters")
        found = [int(fabric.to_network[source])]
        if not fault.one_way:
            found.append(int(fabric.from_network[source]))
        return [base + link for link in found]
    other_node, target = divmod(fault.target, fabric.chips)
    ends = {(f"c{source}", f"c{target}")}
    if not fault.one_way:
        ends.add((f"c{target}", f"c{source}"))
    # Faults are named by chips; a switch lies between chips that have no link of their own.
    found = [i for i, link in enumerate(fabric.links) if (link.source, link.target) in ends]
    if node != other_node or not found:
        near = sorted(
            {
                int(link.target[1:])
                for link in fabric.links
                if link.source == f"c{source}"
                and link.target.startswith("c")
                and link.target[1:].isdigit()
            }
        )
        neighbours = ", ".join(str(node * fabric.chips + chip) for chip in near)
        raise InputError(
            f"chips {fault.source} and {fault.target} have no link of their own",
            hint=f"neighbours of chip {fault.source}: {neighbours}" if near else None,
        )
    return [base + link for link in found]
