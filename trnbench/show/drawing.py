"""Drawings of an interconnect in plain ASCII, from the levels an instance lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trnbench.errors import unhandled
from trnbench.facts.hardware.fabric import Direct, FullMesh, Level, Network, OnChip, Switch, Torus
from trnbench.facts.hardware.instance import Instance
from trnbench.facts.units import Dimension, show, significant, unit_scale

WRAP = "~"
GIGABITS_PER_S = unit_scale("Gbit/s", Dimension.BYTES_PER_S)


def topology(instance: Instance) -> str:
    return "\n\n".join(_level(level, instance) for level in instance.fabric)


def grid(shape: tuple[int, int], label: Callable[[int], str]) -> list[str]:
    """Return the lines of a 2D torus: cell `label(index)`, links between, `~` where it wraps."""
    rows, columns = shape
    labels = [[label(row * columns + column) for column in range(columns)] for row in range(rows)]
    width = max(len(text) for line in labels for text in line)
    edge = " " * (width + 1)
    spread = " " * (width + 2)
    wrap_line = edge + spread.join([WRAP] * columns)
    link_line = edge + spread.join(["|"] * columns)
    lines = [wrap_line]
    for row, texts in enumerate(labels):
        joined = " - ".join(text.rjust(width) for text in texts)
        lines.append(f"{WRAP} {joined} {WRAP}")
        lines.append(link_line if row + 1 < rows else wrap_line)
    return lines


def loaded_torus(
    shape: tuple[int, int], right: Sequence[float], below: Sequence[float]
) -> list[str]:
    """Return a 2D torus with the load (0 to 1) of the link right of and below each chip, in %.

    The last link of a row or column is the one that wraps round.
    """
    rows, columns = shape
    width = len(str(rows * columns - 1))
    pad = " " * width
    lines = []
    for row in range(rows):
        chips = range(row * columns, (row + 1) * columns)
        lines.append("".join(f"{chip:>{width}} -{100 * right[chip]:>3.0f}- " for chip in chips))
        lines.append("".join(f"{100 * below[chip]:>{width + 1}.0f}{pad}     " for chip in chips))
    return [line.rstrip() for line in lines]


def _level(level: Level, instance: Instance) -> str:
    def rate(value: float) -> str:
        return show(value, Dimension.BYTES_PER_S)

    match level:
        case OnChip():
            bandwidth = rate(level.bandwidth_per_rank_one_way_bytes_per_s)
            heading = f"{level.name}: ranks of one chip, {bandwidth} per rank each way"
            body: Sequence[str] = ()
        case Torus():
            bandwidth = rate(level.bandwidth_per_link_one_way_bytes_per_s)
            size = "x".join(map(str, level.shape))
            plural = "s" if level.links_per_chip != 1 else ""
            heading = (
                f"{level.name}: {size} {'torus' if len(level.shape) > 1 else 'ring'}, "
                f"{level.links_per_chip} link{plural} a chip, {bandwidth} each way a link"
            )
            body = _torus(level)
        case Switch():
            bandwidth = rate(level.bandwidth_per_chip_one_way_bytes_per_s)
            adds = ", adds in the switch" if level.reduces else ""
            groups = instance.chips // level.chips
            many = f"{groups} switches of {level.chips} chips" if groups > 1 else "one switch"
            heading = f"{level.name}: {many}, {bandwidth} per chip each way{adds}"
            body = _switch(level)
        case FullMesh():
            bandwidth = rate(level.bandwidth_per_link_one_way_bytes_per_s)
            heading = (
                f"{level.name}: {level.chips} chips, each linked to every other, "
                f"{bandwidth} each way a link"
            )
            body = ()
        case Direct():
            bandwidth = rate(level.bandwidth_per_link_one_way_bytes_per_s)
            heading = (
                f"{level.name}: chip i of group g to chip i of group g+{level.group_distance}, "
                f"groups of {level.chips_per_group}, {level.links_per_chip} x {bandwidth} each way"
            )
            body = ()
        case Network():
            adapter = level.bandwidth_per_adapter_one_way_bytes_per_s
            bandwidth = show(adapter, Dimension.BYTES_PER_S, scale=GIGABITS_PER_S)
            ratio = level.oversubscription or 1.0
            heading = (
                f"{level.name}: {level.adapters} x {bandwidth} to other instances"
                f"{', rail-optimised' if level.rails else ''}"
                f"{f', {significant(ratio)}:1 to the spine' if ratio > 1 else ''}"
            )
            body = ()
        case unknown:
            unhandled(unknown, "picture")
    return "\n".join([heading, *(f"    {line}" for line in body)])


def _torus(level: Torus) -> list[str]:
    if len(level.shape) == 2:
        return grid((level.shape[0], level.shape[1]), str)
    if len(level.shape) == 1:
        nodes = " - ".join(f"[{i}]" for i in range(level.shape[0]))
        return [f"{WRAP} {nodes} {WRAP}"]
    return []


def _switch(level: Switch) -> list[str]:
    shown = min(level.chips, 8)
    more = " ..." if shown < level.chips else ""
    legs = " ".join([" | "] * shown)
    chips = " ".join(str(i).center(3) for i in range(shown))
    return ["=" * len(legs), legs, chips + more]
