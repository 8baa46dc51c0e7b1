"""The collective use case, step by step: what every link carries in each round of an algorithm."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trnbench.engines.emulate.collective.play import busy_time
from trnbench.facts.arrays import FloatArray
from trnbench.facts.calibration.collective_stack import stack_of
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.fabric import Torus
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.records import Record, replace
from trnbench.facts.workload.choices import Op
from trnbench.facts.workload.library import Place
from trnbench.machine.legality import PlacementVerdict, cluster_verdict
from trnbench.machine.message_plan.algorithm import Refusal
from trnbench.machine.message_plan.placed import Placed, PlacedRound
from trnbench.machine.message_plan.select import algorithm_named
from trnbench.machine.placement import place
from trnbench.verbs.collective.answer import LinkLoad, Plane
from trnbench.verbs.collective.groups import (
    busier,
    choice_at,
    link_loads,
    plane_of,
    replica_groups,
    selected_of,
)

BUSIEST = 12
"""Links that are listed of each step."""


class CollectiveStep(Record):
    """One round, or all of them: `times` it is repeated, the messages of it, and link loads.

    A load is the part of its capacity that a link carries over `over_s`: how long the collective
    takes, or, of one round, how long its busiest link is busy.
    """

    phase: int
    round: int
    times: int
    messages: int
    over_s: float
    planes: tuple[Plane, ...]
    busiest: tuple[LinkLoad, ...]


class CollectiveSteps(Record):
    """A collective round by round; `reasons` where it cannot run, and then no steps."""

    op: Op
    instance: str
    nodes: int
    size_bytes: float
    algorithm: str = ""
    whole: CollectiveStep | None = None
    steps: tuple[CollectiveStep, ...] = ()
    reasons: tuple[str, ...] = ()


def collective_steps(
    catalog: Catalog,
    op: Op,
    where: Place,
    size_bytes: float,
    *,
    algorithm: str | None = None,
    time_s: float | None = None,
) -> CollectiveSteps:
    """Return the rounds of a collective over all ranks of a place, as its stack would run it.

    `time_s` is how long all of it takes, where that is known.
    """
    platform = load_platform(catalog, where.instance)
    blank = CollectiveSteps(
        op=op, instance=platform.instance.name, nodes=where.nodes, size_bytes=size_bytes
    )
    legal = cluster_verdict(platform, where.nodes)
    if not legal.legal:
        return _refused(blank, legal.reasons)
    placement = place(platform, nodes=where.nodes)
    groups = replica_groups(placement, None, None)
    if isinstance(groups, PlacementVerdict):
        return _refused(blank, groups.reasons)
    selected = selected_of(
        stack_of(catalog, platform.instance.name),
        placement,
        op,
        groups,
        algorithm=algorithm_named(algorithm) if algorithm else None,
    )
    if isinstance(selected, Refusal):
        return _refused(blank, (selected.reason,))
    choice = choice_at(selected, size_bytes)
    placed = choice.placed
    return replace(
        blank,
        algorithm=choice.algorithm.label,
        whole=_step(placed, placed.rounds, size_bytes, over_s=time_s, whole=True),
        steps=tuple(_step(placed, (round_,), size_bytes) for round_ in placed.rounds),
    )


def _refused(blank: CollectiveSteps, reasons: tuple[str, ...]) -> CollectiveSteps:
    return replace(blank, reasons=reasons)


def _step(
    placed: Placed,
    rounds: tuple[PlacedRound, ...],
    size_bytes: float,
    *,
    over_s: float | None = None,
    whole: bool = False,
) -> CollectiveStep:
    carried = np.zeros(placed.link_count + 1)
    for round_ in rounds:
        weights = np.repeat(round_.share * (round_.times if whole else 1), round_.links.shape[1])
        carried += np.bincount(round_.links.ravel(), weights=weights, minlength=len(carried))
    carried = carried[:-1] * size_bytes
    busy_s = busy_time(carried, placed.capacity[:-1])
    over_s = over_s or float(busy_s.max(initial=0.0))
    loads = busy_s / over_s if over_s > 0 else busy_s
    return CollectiveStep(
        phase=rounds[0].phase if rounds else 0,
        round=rounds[0].round_ if rounds else 0,
        times=sum(round_.times for round_ in rounds) if whole else rounds[0].times,
        messages=sum(len(round_.source) * (round_.times if whole else 1) for round_ in rounds),
        over_s=over_s,
        planes=tuple(_planes(placed, loads)),
        busiest=link_loads(placed, loads, carried, BUSIEST),
    )


def _planes(placed: Placed, loads: FloatArray) -> Iterator[Plane]:
    """Yield every unit of a 2D torus of the first instance; a link's load is its busier way's."""
    fabric = placed.placement.fabric
    tori = [
        (up, fabric.torus_link[number])
        for number, up in enumerate(fabric.levels)
        if isinstance(up.level, Torus)
    ]
    # Neighbouring numbers lie in one plane: chips that are further apart are on another axis.
    flat = [(up, wired) for up, wired in tori if len(up.level.shape) == 2 and up.span == 1]  # type: ignore[union-attr]
    if not flat:
        return
    up, wired = flat[0]
    others = [table for other, table in tori if other is not up]
    level = up.level
    assert isinstance(level, Torus)
    shape = (level.shape[0], level.shape[1])
    units = fabric.chips // up.count
    for unit in range(units):
        first = unit * up.count
        name = f"{level.name} {unit}, from c{first}" if units > 1 else level.name
        onward = [
            busier(loads, *(link for table in others for link in table[chip].ravel().tolist()))
            for chip in range(first, first + shape[0] * shape[1])
        ]
        plane = plane_of(name, shape, wired, loads, first)
        yield replace(plane, onward=tuple(onward)) if others else plane
