"""Plan of an algorithm on a group: stages put together into phases, or a refusal."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from trnbench.facts.arrays import IntArray
from trnbench.facts.records import Record, replace
from trnbench.facts.workload.choices import Op
from trnbench.machine.message_plan.algorithm import (
    Algorithm,
    AlgorithmStage,
    CollectivePart,
    MessagePattern,
    Refusal,
    Site,
)
from trnbench.machine.message_plan.direct import pairwise
from trnbench.machine.message_plan.plan import MessagePlan, PlanPhase
from trnbench.machine.message_plan.stages import stages_of
from trnbench.machine.placement import NODES, Placement, RankGrid

_PARTS: Mapping[Op, CollectivePart] = {
    "all-reduce": "reduce",
    "all-gather": "gather",
    "reduce-scatter": "scatter",
    "all-to-all": "exchange",
    "broadcast": "broadcast",
}


class PlanStep(Record, eq=False):
    """One phase before its lines are drawn, and the stage it runs on."""

    pattern: MessagePattern
    stage: AlgorithmStage
    level: int  # of the stage; 0 is the innermost
    lane: int  # phases of a lane take turns on the same links


class Outline(Record, eq=False):
    """Plan of a collective, free of ranks."""

    site: Site
    op: Op
    steps: tuple[PlanStep, ...]
    stages: tuple[AlgorithmStage, ...]
    radix: tuple[int, ...]  # blocks by level
    share_per_block: tuple[float, ...]  # of the collective's size, by level
    pairs: IntArray | None = None  # (source, target) of permutes and sends


def outline(
    placement: Placement,
    op: Op,
    grid: RankGrid,
    algorithm: Algorithm,
    pairs: IntArray | None = None,
    stages: list[AlgorithmStage] | Refusal | None = None,
) -> Outline | Refusal:
    """Outline of one collective's plan on a grid of ranks, or a refusal.

    `stages`: those of the algorithm on the grid, where already made.
    """
    site = Site(placement=placement, grid=grid, algorithm=algorithm)
    if op in ("permute", "send-receive"):
        if algorithm.name != "direct":
            return Refusal(reason=f"{op} goes straight from pair to pair: its algorithm is direct")
        return _pairs(site, op, pairs)
    if grid.ranks.size == 1:
        return Outline(site=site, op=op, steps=(), stages=(), radix=(1,), share_per_block=(1.0,))
    if stages is None:
        stages = stages_of(site, algorithm.name)
    return stages if isinstance(stages, Refusal) else _schedule(site, op, stages)


def _schedule(site: Site, op: Op, stages: list[AlgorithmStage]) -> Outline | Refusal:
    """Outline with scatters from the inside out, the outermost stage, and gathers back."""
    last = len(stages) - 1
    # Inner levels scatter before the outermost reduces: its links, usually the slowest, then carry
    # the smallest buffer.
    schedule: list[tuple[int, CollectivePart]]
    if op == "all-reduce":
        schedule = [(level, "scatter") for level in range(last)] + [(last, "reduce")]
        schedule += [(level, "gather") for level in reversed(range(last))]
    elif op in ("all-gather", "broadcast"):
        schedule = [(level, _PARTS[op]) for level in reversed(range(last + 1))]
    else:
        schedule = [(level, _PARTS[op]) for level in range(last + 1)]
    sizes = [site.size(stage.axes) for stage in stages]
    steps, radix = [], list(sizes)
    for level, part in schedule:
        pattern = stages[level].make(part)
        if isinstance(pattern, Refusal):
            return pattern
        # A reduce may cut its buffer otherwise than into a block a rank: into the pieces of a tree.
        if part == "reduce":
            radix[level] = pattern.blocks
        # A switch that joins on the way in and copies on the way out does both at once.
        apart = pattern.name == "in-switch" and part == "gather"
        lane = level + len(stages) if apart else level
        steps.append(PlanStep(pattern=pattern, stage=stages[level], level=level, lane=lane))
    # A broadcast moves whole pieces at every level, and an all-to-all every item whose digit of the
    # level differs: neither shrinks the buffer from level to level.
    if op == "broadcast":
        radix = [site.algorithm.pieces]
        share = tuple(1.0 / site.algorithm.pieces for _ in stages)
    elif op == "all-to-all":
        share = tuple(1.0 / size for size in sizes)
    else:
        # The scatter at each level leaves its block as the buffer of the next level.
        share = tuple(1.0 / math.prod(radix[: level + 1]) for level in range(len(stages)))
    return Outline(
        site=site,
        op=op,
        steps=tuple(steps),
        stages=tuple(stages),
        radix=tuple(radix),
        share_per_block=share,
    )


def _pairs(site: Site, op: Op, pairs: IntArray | None) -> Outline:
    ranks = site.grid.ranks.size
    if pairs is None:
        here = np.arange(ranks)
        pairs = np.stack([here, (here + 1) % ranks], axis=1)
    # A rank that sends to itself moves nothing over a link.
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    pattern = pairwise(ranks, pairs, alike=_alike_on_nodes(site.grid, pairs))
    stage = AlgorithmStage(axes=tuple(range(len(site.grid.levels))), make=lambda _: pattern)
    step = PlanStep(pattern=pattern, stage=stage, level=0, lane=0)
    return Outline(
        site=site,
        op=op,
        steps=(step,) if len(pairs) else (),
        stages=(stage,),
        radix=(ranks,),
        share_per_block=(1.0,),
        pairs=pairs,
    )


def _alike_on_nodes(grid: RankGrid, pairs: IntArray) -> bool:
    """True when every node's ranks send to the same places, as many nodes further on."""
    nodes = grid.ranks.shape[0] if grid.levels[:1] == (NODES,) else 1
    node, place = np.divmod(pairs, grid.ranks.size // nodes)
    rows = np.stack([place[:, 0], place[:, 1], (node[:, 1] - node[:, 0]) % nodes], axis=1)
    if len(rows) % nodes:
        return False
    # Sorted within each node, like nodes have equal rows: source, target, nodes further on.
    ordered = rows[np.lexsort((*rows.T, node[:, 0]))].reshape(nodes, -1, 3)
    counted = np.bincount(node[:, 0], minlength=nodes)
    return bool((counted == counted[0]).all() and (ordered == ordered[0]).all())


def plan_of(found: Outline) -> MessagePlan:
    """Plan with the ranks of every line."""
    ranks = found.site.grid.ranks
    place = np.zeros((ranks.size, max(len(found.stages), 1)), dtype=np.int64)
    lines = [_lines(ranks, stage) for stage in found.stages]
    for level, line in enumerate(lines):
        place[line, level] = np.arange(line.shape[1])
    phases = []
    for step in found.steps:
        chosen = lines[step.level]
        # Broadcasts go from the outermost level inwards: only lines through the root's place on all
        # levels further in have data yet.
        if step.pattern.part == "broadcast":
            chosen = chosen[(place[chosen[:, 0], : step.level] == 0).all(axis=1)]
        phases.append(
            PlanPhase(pattern=step.pattern, level=step.level, lane=step.lane, lines=chosen)
        )
    return MessagePlan(
        op=found.op,
        algorithm="direct" if found.pairs is not None else found.site.algorithm.label,
        ranks=ranks.size,
        radix=found.radix,
        place=place,
        phases=tuple(phases),
        share_per_block=found.share_per_block,
        pairs=found.pairs,
    )


def node_lines(found: Outline, step: PlanStep) -> IntArray:
    """Lines of a step on the first node, [line, place].

    Lines over several nodes go through the places on a node, then on to the next node.
    """
    grid = found.site.grid
    over = grid.levels[:1] == (NODES,)
    inside = np.asarray(grid.ranks[0]) if over else grid.ranks
    axes = tuple(axis - over for axis in step.stage.axes if axis >= over)
    return _lines(inside, replace(step.stage, axes=axes))


def _lines(ranks: IntArray, stage: AlgorithmStage) -> IntArray:
    others = [axis for axis in range(ranks.ndim) if axis not in stage.axes]
    size = math.prod(ranks.shape[axis] for axis in stage.axes)
    lines = ranks.transpose(*others, *stage.axes).reshape(-1, size)
    return lines if stage.order is None else lines[:, stage.order]
