"""Groups of ranks that an instance's software cannot route, and layouts near that it can.

Groups inside an instance have to be blocks of its torus (`torus_blocks`). Groups over several
instances hold the same ranks on each of them, and are never refused here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from trnbench.facts.arrays import BoolArray
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.workload.choices import neighbours_of
from trnbench.machine.rank_groups import MEGATRON, groups_along
from trnbench.machine.torus_blocks import routable
from trnbench.program.grid import SHARDED, Grid
from trnbench.program.reasons import FEW, Reason, Scalars

OUTER = ("tp", "cp", "data")
"""Axes whose groups do not depend on expert parallelism."""
OF_EXPERTS = ("ep", "expert_data")
_NAMES: Mapping[str, str] = {
    "tp": "tensor",
    "cp": "context",
    "cp_inside": "context",
    "cp_outside": "context ring",
    "data": "data",
    "ep": "expert",
    "expert_data": "expert data",
    "shard": "shard",
    "expert_shard": "expert shard",
    "copies": "copy",
}


def group_reasons(
    platform: Platform, grid: Grid, axes: tuple[str, ...], *, logical_size: int | None = None
) -> Iterator[Reason]:
    """Rules on groups along these axes that cannot be routed, one reason an axis."""
    if platform.instance.routing is None:
        return
    for axis in (own for whole in axes for own in _in_use(grid, whole)):
        broken = _unroutable(platform, grid, axis, logical_size)
        if axis in (*OF_EXPERTS, "expert_shard"):
            broken = broken & (grid.ep > 1)
        if np.any(broken):
            yield _reason(platform, axis, broken, logical_size, grid)


def _in_use(grid: Grid, axis: str) -> tuple[str, ...]:
    """Axes of the exchanges along one axis: a ring and its groups, a shard group and its copies."""
    if axis == "cp" and neighbours_of(grid.context_parallel) is not None:
        return ("cp_inside", "cp_outside")
    if grid.shard is None or axis not in SHARDED.values():
        return (axis,)
    return (grid.shard_axis(axis), *(("copies",) if axis == "data" else ()))


def _unroutable(platform: Platform, grid: Grid, axis: str, logical_size: int | None) -> BoolArray:
    groups = groups_along(axis, grid, MEGATRON)
    ranks, stride = np.broadcast_arrays(groups.ranks, groups.stride)
    # Grids have few kinds of groups: each kind is asked about once, then spread over the grid.
    in_instance = platform.instance.chips * platform.chip.ranks(logical_size)
    inside = (ranks > 1) & (ranks * stride <= in_instance)
    kinds, place = np.unique((ranks * in_instance + stride)[inside], return_inverse=True)
    asked = (divmod(int(kind), in_instance) for kind in kinds)
    bad = np.zeros(ranks.shape, dtype=np.bool_)
    bad[inside] = np.array([not routable(platform, logical_size, *one) for one in asked])[place]
    return bad


def _reason(
    platform: Platform,
    axis: str,
    broken: BoolArray,
    logical_size: int | None,
    grid: Grid,
) -> Reason:
    name, what = platform.instance.name, _NAMES[axis]

    def words(at: Scalars) -> str:
        ranks, stride = _groups(at, grid)[axis]
        near = ", ".join(_near(platform, at, logical_size, grid))
        remedy = f"; try {near}" if near else ""
        return (
            f"{name} cannot route {what} groups of {ranks} ranks, {stride} apart: their chips are "
            f"no neighbours, row, column or rectangle of its torus{remedy}"
        )

    return Reason(rule=f"routable {what} groups", broken=broken, words=words)


def _groups(at: Scalars, grid: Grid) -> dict[str, tuple[int, int]]:
    """Ranks of a group along each axis and the distance between them, for one layout."""
    data = at["cp"] * at["dp"]
    shard = grid.shard or data
    cut = grid.expert_tp or at["tp"]
    experts = max(data * at["tp"] // (cut * at["ep"]), 1)
    inside = min(neighbours_of(grid.context_parallel) or at["cp"], at["cp"])
    return {
        "tp": (at["tp"], 1),
        "cp": (at["cp"], at["tp"]),
        "cp_inside": (inside, at["tp"]),
        "cp_outside": (max(at["cp"] // inside, 1), at["tp"] * inside),
        "data": (data, at["tp"]),
        "ep": (at["ep"], cut),
        "expert_data": (experts, cut * at["ep"]),
        "shard": (shard, at["tp"]),
        "expert_shard": (max(experts * shard // data, 1), cut * at["ep"]),
        "copies": (max(data // shard, 1), at["tp"] * shard),
    }


def _near(platform: Platform, at: Scalars, logical_size: int | None, grid: Grid) -> list[str]:
    """Nearest other values of a degree with which all groups can be routed.

    The number of replicas makes up the difference, so that as many ranks are in use.
    """
    degrees = platform.legal_degrees(logical_size)
    found: list[tuple[float, str]] = []
    for name in ("tp", "cp", "ep"):
        listed = degrees.tensor_parallel if degrees and name == "tp" else None
        ranks = at[name] * (at["dp"] * at["cp"] if name == "ep" else at["dp"])
        for value in listed or _powers(ranks):
            other = {**at, name: value}
            # Expert parallelism lies inside the data ranks; other degrees take theirs from dp.
            if name != "ep" and ranks % value == 0:
                other["dp"] = ranks // value
            groups = _groups(other, grid).values()
            taken = all(routable(platform, logical_size, *one) for one in groups)
            if value != at[name] and ranks % value == 0 and taken:
                found.append((abs(np.log2(value / at[name])), f"{name}={value}"))
    return [text for _, text in sorted(found)[:FEW]]


def _powers(most: int) -> list[int]:
    return [2**power for power in range(most.bit_length())]
