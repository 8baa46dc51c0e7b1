"""Times no collective can beat, whatever its algorithm: bytes over the speed of their carriers.

Model. Cut the chips in two. All-reduce must carry its whole size over the cut each way, all-gather
one side's blocks, reduce-scatter one side's sums, all-to-all each side's part for the other. The
bound is the largest ratio of such bytes to the speed of the links over the cut; cutting off one
chip gives the injection bound. Reduced without a switch, all-reduce also sends 2 (m - 1) sizes in
all from m chips. Latency and software are left out.
"""

from __future__ import annotations

import numpy as np

from trnbench.errors import unhandled
from trnbench.facts.arrays import BoolArray, FloatArray, IntArray, distinct
from trnbench.facts.hardware.fabric import Torus
from trnbench.facts.records import Record
from trnbench.facts.workload.choices import Op
from trnbench.machine.fabric import CORE, LEAF, RAIL, Fabric, LinkKind
from trnbench.machine.message_plan.algorithm import Fan
from trnbench.machine.message_plan.placed import Placed

_NODES_LOOKED_AT = 8
"""Nodes whose cuts are tried: any few give a valid bound, more only take time."""


class Bound(Record):
    """Least time per byte of a collective's size, and the cut that sets it."""

    s_per_byte: float
    cut: str


def lower_bound(placed: Placed) -> Bound:
    """Injection or narrowest-cut bound of a placed collective, whichever is larger."""
    fabric = placed.placement.fabric
    names, masks = _cuts(fabric)
    nodes = distinct(placed.groups // fabric.ranks_per_node)
    several = len(nodes) > 1
    best = Bound(s_per_byte=0.0, cut="none")
    # Any cut gives a valid bound, so only the choice of cuts decides how tight the largest is.
    for node in nodes[:_NODES_LOOKED_AT]:
        here = np.arange(fabric.links_per_node) + node * fabric.links_per_node
        out, back = _cut_speeds(fabric, masks, fabric.capacity(here), network=several)
        sends, gets = _needs(placed, masks, int(node))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.maximum(
                np.where(sends > 0, sends / out, 0.0), np.where(gets > 0, gets / back, 0.0)
            )
        worst = int(np.argmax(ratio))
        if ratio[worst] > best.s_per_byte:
            name = names[worst] if fabric.nodes == 1 else f"node {node}: {names[worst]}"
            best = Bound(s_per_byte=float(ratio[worst]), cut=name)
    total = _all_sends(placed, masks, names, several=several)
    return total if total.s_per_byte > best.s_per_byte else best


def _cuts(fabric: Fabric) -> tuple[list[str], BoolArray]:
    """Sets of a node's chips to cut off: chips, slabs of a torus, units, the node."""
    chips = np.arange(fabric.chips)
    found: dict[str, BoolArray] = {f"chip {chip}": chips == chip for chip in chips}
    for up in fabric.levels:
        unit = chips // up.span % up.count
        for place in range(up.count):
            found[f"{up.level.name} place {place}"] = unit == place
        inside = chips // (up.span * up.count)
        for place in distinct(inside):
            found[f"{up.level.name} unit {place}"] = inside == place
        if isinstance(up.level, Torus):
            places = np.array(np.unravel_index(unit, up.level.shape))
            for axis, length in enumerate(up.level.shape):
                for first in range(length):
                    for deep in range(1, length):
                        slab = (places[axis] - first) % length < deep
                        found[f"{up.level.name} axis {axis} from {first} by {deep}"] = slab
    found["the node"] = np.ones(fabric.chips, dtype=bool)
    return list(found), np.stack(list(found.values()))


def _cut_speeds(
    fabric: Fabric, masks: BoolArray, speed: FloatArray, *, network: bool
) -> tuple[FloatArray, FloatArray]:
    """Speed out of and into each set of chips, bytes/s; never too low.

    `speed`: bytes/s of each link of one node.
    """
    # A switch belongs to a set only with all its chips: else its links to the set count as cut, and
    # the speed comes out too high rather than too low.
    below: dict[str, set[int]] = {}
    for link in fabric.links:
        to_switch = link.kind == LinkKind.SCALE_UP and not _is_chip(link.target)
        if to_switch or (link.target == LEAF and link.source != CORE):
            below.setdefault(link.target, set()).update(_chips_at(link.source))
    out, back = np.zeros(len(masks)), np.zeros(len(masks))
    for number, link in enumerate(fabric.links):
        if link.kind == LinkKind.ON_CHIP or (link.kind == LinkKind.NETWORK and not network):
            continue
        from_here = _inside(masks, link.source, below)
        to_here = _inside(masks, link.target, below)
        out += speed[number] * (from_here & ~to_here)
        back += speed[number] * (to_here & ~from_here)
    return out, back


def _is_chip(end: str) -> bool:
    return end[0] == "c" and end[1:].isdigit()


def _inside(masks: BoolArray, end: str, below: dict[str, set[int]]) -> BoolArray:
    """Mask of the sets that an end of a link is in; a switch is inside with all its chips."""
    if _is_chip(end):
        return masks[:, int(end[1:])]
    if end in below:
        return np.asarray(masks[:, sorted(below[end])].all(axis=1))
    if end == CORE or end.startswith(RAIL):
        # Rails join nodes by themselves: their switches are outside, like the core.
        return np.zeros(len(masks), dtype=bool)
    return np.asarray(masks[:, _chips_at(end)].any(axis=1))


def _chips_at(end: str) -> list[int]:
    return [int(chip[1:]) for chip in end.split("+")]


def _needs(placed: Placed, masks: BoolArray, node: int) -> tuple[FloatArray, FloatArray]:
    """Shares of the size that must leave and enter each set of chips."""
    fabric = placed.placement.fabric
    sends, gets = np.zeros(len(masks)), np.zeros(len(masks))
    for group in placed.groups:
        at, local = np.divmod(group, fabric.ranks_per_node)
        inside = masks[:, local // fabric.ranks_per_chip] & (at == node)
        out, back = _group_needs(placed.op, inside, placed.plan.pairs)
        sends += out
        gets += back
    return sends, gets


def _group_needs(
    op: Op, inside: BoolArray, pairs: IntArray | None
) -> tuple[FloatArray, FloatArray]:
    size = inside.shape[1]
    here = inside.sum(axis=1)
    there = size - here
    # A group on one side of the cut alone sends nothing over it.
    split = ((here > 0) & (there > 0)).astype(float)
    match op:
        case "all-reduce":
            return split, split
        case "all-gather":
            return split * here / size, split * there / size
        case "reduce-scatter":
            return split * there / size, split * here / size
        case "all-to-all":
            return here * there / size, here * there / size
        case "broadcast":
            return split * inside[:, 0], split * ~inside[:, 0]
        case "permute" | "send-receive":
            assert pairs is not None
            source, target = inside[:, pairs[:, 0]], inside[:, pairs[:, 1]]
            return (
                (source & ~target).sum(axis=1).astype(float),
                (target & ~source).sum(axis=1).astype(float),
            )
        case _:
            unhandled(op, "bytes that must leave a set of chips")


def _all_sends(placed: Placed, masks: BoolArray, names: list[str], *, several: bool) -> Bound:
    """Bound on all chips' sends together, for all-reduce without a reducing switch."""
    nothing = Bound(s_per_byte=0.0, cut="none")
    # Asked first: among thousands of ranks the messages of an all-to-all take gigabytes.
    if placed.op != "all-reduce":
        return nothing
    fans = [
        batch.fan
        for phase in placed.plan.phases
        for batch in phase.pattern.send(phase.pattern.distinct_rounds[0][0], None)
    ]
    if any(fan is not Fan.POINT for fan in fans):
        return nothing
    fabric = placed.placement.fabric
    chips = placed.groups // fabric.ranks_per_chip
    # Of m chips, m - 1 send their part to be added, and the sum goes to m - 1 chips.
    sent = sum(2.0 * (len(distinct(group)) - 1) for group in chips)
    used = distinct(chips)
    singles = masks[[names.index(f"chip {chip}") for chip in range(fabric.chips)]]
    if not sent:
        return nothing
    # Links in good order: nodes differ in their faults, and a fault only makes it slower.
    out, _ = _cut_speeds(fabric, singles, fabric.bandwidth, network=several)
    # Chips that share an adapter are each counted with all of it, which only loosens the bound.
    return Bound(s_per_byte=sent / float(out[used % fabric.chips].sum()), cut="all sends together")
