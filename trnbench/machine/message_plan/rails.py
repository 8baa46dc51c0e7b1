"""Lines of one rank a node that run side by side between nodes: one of them shows them all."""

from __future__ import annotations

import numpy as np

from trnbench.facts.arrays import IntArray
from trnbench.facts.records import Record, replace
from trnbench.machine.message_plan.build import Outline
from trnbench.machine.message_plan.members import even_members
from trnbench.machine.message_plan.placed import Placed
from trnbench.machine.placement import NODES


class Rail(Record, eq=False):
    """One line of a phase between nodes, an example of `lines` like it."""

    placed: Placed
    lines: int
    lines_on: IntArray  # by local link: like lines on the link
    # to and from the network: (latency s, bytes/s, lines)
    links: tuple[tuple[float, float, int], ...]


def one_rail(placed: Placed, index: int) -> Rail | None:
    """One line of a phase if all lines load their adapters alike, else None.

    `placed` is one whose nodes hold like parts of every group.
    """
    members, fabric = placed.members, placed.placement.fabric
    steps = [found.steps[index] for found in placed.outlines]
    # Any difference between lines rules the short cut out.
    if members.local is None or fabric.faulty or placed.op == "broadcast":
        return None
    if any(_levels(found, index) != {NODES} for found in placed.outlines):
        return None
    if len({step.pattern.identity for step in steps}) > 1:
        return None
    chips = members.local.ravel() // fabric.ranks_per_chip
    lines_on = np.ones(fabric.links_per_node, dtype=np.int64)
    crossed: list[tuple[float, float, int]] = []
    ways = [fabric.to_network, fabric.from_network]
    # A line has the same place on every node, so it keeps to its rail.
    if fabric.instance.network is not None and not fabric.instance.network.rails:
        ways += [way for way in (fabric.to_spine, fabric.from_spine) if (way >= 0).all()]
    for way in ways:
        # Lines of chips that share an adapter share its speed, so like lines are counted by link.
        used, lines = np.unique(way[chips], return_counts=True)
        lines_on[used] = lines
        kinds = {
            (float(fabric.latency[link]), float(fabric.bandwidth[link]), int(count))
            for link, count in zip(used, lines, strict=True)
        }
        if len(kinds) > 1:
            return None
        crossed.extend(kinds)
    return Rail(
        placed=_line(placed, index),
        lines=members.local.size,
        lines_on=lines_on,
        links=tuple(crossed),
    )


def _levels(found: Outline, index: int) -> set[int]:
    return {found.site.grid.levels[axis] for axis in found.steps[index].stage.axes}


def _line(placed: Placed, index: int) -> Placed:
    """Phase as a collective of its own, on the first line."""
    assert placed.members.local is not None
    # The phase keeps its share of the data: the inner levels have cut the buffer down before it.
    found = placed.outlines[0]
    step = found.steps[index]
    nodes = len(placed.members.nodes)
    first = placed.members.local[:1, :1]
    members = even_members(placed.placement, first, nodes).in_full()
    stage = replace(step.stage, axes=(0,))
    alone = Outline(
        site=replace(found.site, grid=members.grids[0]),
        op=found.op,
        steps=(replace(step, stage=stage, level=0, lane=0),),
        stages=(stage,),
        radix=(step.pattern.blocks,),
        share_per_block=(found.share_per_block[step.level],),
    )
    return Placed(
        placement=placed.placement,
        op=placed.op,
        members=members,
        outlines=(alone,),
        of_one_node=False,
    )
