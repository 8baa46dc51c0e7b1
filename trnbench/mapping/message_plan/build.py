"""Algorithm and group -> plan: the levels put together into phases, or why there is no plan."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from trnbench.mapping.fabric import IntArray
from trnbench.mapping.message_plan.algorithm import Algorithm, Refusal, Site, Stage
from trnbench.mapping.message_plan.direct import Pairs
from trnbench.mapping.message_plan.in_switch import InSwitch
from trnbench.mapping.message_plan.pattern import Part
from trnbench.mapping.message_plan.plan import Phase, Plan
from trnbench.mapping.message_plan.stages import stages_of
from trnbench.mapping.placement import Placement, grid_of
from trnbench.program.collective import Op

_PARTS: Mapping[Op, Part] = {
    "all-reduce": "reduce",
    "all-gather": "gather",
    "reduce-scatter": "scatter",
    "all-to-all": "exchange",
    "broadcast": "broadcast",
}


def build_plan(
    placement: Placement,
    op: Op,
    group: IntArray,
    algorithm: Algorithm,
    pairs: IntArray | None = None,
) -> Plan | Refusal:
    """Return the plan of one collective among the ranks `group`, or why there is none.

    `pairs` are (from, to) numbers within the group, for permute and send-receive; left out, each
    rank sends to the next.
    """
    ranks = len(group)
    if op in ("permute", "send-receive"):
        if algorithm.name != "direct":
            return Refusal(reason=f"{op} goes straight from pair to pair: its algorithm is direct")
        return _pairs_plan(op, ranks, pairs)
    site = Site(placement=placement, grid=grid_of(placement, group), algorithm=algorithm)
    if ranks == 1:
        return Plan(
            op=op,
            algorithm=algorithm.label,
            ranks=1,
            radix=(1,),
            place=np.zeros((1, 1), np.int64),
            phases=(),
            share_per_block=(1.0,),
        )
    stages = stages_of(site, algorithm.name)
    return stages if isinstance(stages, Refusal) else _compose(site, op, stages)


def _compose(site: Site, op: Op, stages: list[Stage]) -> Plan | Refusal:
    """Return the phases: inward scatters, the outermost stage, gathers back."""
    last = len(stages) - 1
    schedule: list[tuple[int, Part]]
    if op == "all-reduce":
        schedule = [(level, "scatter") for level in range(last)] + [(last, "reduce")]
        schedule += [(level, "gather") for level in reversed(range(last))]
    elif op in ("all-gather", "broadcast"):
        schedule = [(level, _PARTS[op]) for level in reversed(range(last + 1))]
    else:
        schedule = [(level, _PARTS[op]) for level in range(last + 1)]
    sizes = [site.size(stage.axes) for stage in stages]
    lines = [_lines(site.grid.ranks, stage) for stage in stages]
    place = np.empty((site.grid.ranks.size, len(stages)), dtype=np.int64)
    for level, found in enumerate(lines):
        place[found, level] = np.arange(found.shape[1])
    phases, radix = [], list(sizes)
    for level, part in schedule:
        pattern = stages[level].make(part)
        if isinstance(pattern, Refusal):
            return pattern
        chosen = lines[level]
        if part == "broadcast":
            chosen = chosen[(place[chosen[:, 0], :level] == 0).all(axis=1)]
        if part == "reduce":
            radix[level] = pattern.blocks
        # A switch that joins on the way in and copies on the way out does both at once.
        apart = isinstance(pattern, InSwitch) and part == "gather"
        lane = level + len(stages) if apart else level
        phases.append(Phase(pattern=pattern, level=level, lane=lane, lines=chosen))
    if op == "broadcast":
        radix = [site.algorithm.pieces]
        share = tuple(1.0 / site.algorithm.pieces for _ in stages)
    elif op == "all-to-all":
        share = tuple(1.0 / size for size in sizes)
    else:
        share = tuple(1.0 / math.prod(radix[: level + 1]) for level in range(len(stages)))
    return Plan(
        op=op,
        algorithm=site.algorithm.label,
        ranks=site.grid.ranks.size,
        radix=tuple(radix),
        place=place,
        phases=tuple(phases),
        share_per_block=share,
    )


def _lines(ranks: IntArray, stage: Stage) -> IntArray:
    others = [axis for axis in range(ranks.ndim) if axis not in stage.axes]
    size = math.prod(ranks.shape[axis] for axis in stage.axes)
    lines = ranks.transpose(*others, *stage.axes).reshape(-1, size)
    return lines if stage.order is None else lines[:, stage.order]


def _pairs_plan(op: Op, ranks: int, pairs: IntArray | None) -> Plan | Refusal:
    if pairs is None:
        here = np.arange(ranks)
        pairs = np.stack([here, (here + 1) % ranks], axis=1)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    pattern = Pairs(positions=ranks, pairs=pairs)
    lines = np.arange(ranks)[None, :]
    phases = (Phase(pattern=pattern, level=0, lane=0, lines=lines),) if len(pairs) else ()
    return Plan(
        op=op,
        algorithm="direct",
        ranks=ranks,
        radix=(ranks,),
        place=np.arange(ranks)[:, None],
        phases=phases,
        share_per_block=(1.0,),
        pairs=pairs,
    )
