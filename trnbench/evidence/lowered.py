"""Layouts of measured rows as programs: one by one, or many that are alike on one grid.

Lowering and pricing a grid costs little more than one layout does, and gives the same numbers to
the bit: rows that differ in degrees and batch alone are taken together, wherever they ran. What
they repeat and how they cut states is varied from one lowering.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from trnbench.arrays import BoolArray, FloatArray, picked
from trnbench.program.step import SHARED_KNOBS, StepProgram, training_step
from trnbench.records import dataclass
from trnbench.workload.layout import DEGREES, KNOBS, Layout, Value
from trnbench.workload.model import Model

MOST_TOGETHER = 128
"""Degrees on one grid: more cost memory, and save no time."""
_VARIED = tuple(sorted(SHARED_KNOBS))
_MODES = tuple(name for name in KNOBS if name not in {*DEGREES, *_VARIED})

PlacedLayout: TypeAlias = tuple[Hashable, Layout]
"""A layout, and what it has in common with others that can be priced together with it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GridPart:
    """The layouts of a grid that are in one place: `wanted` of all that it spans."""

    wanted: BoolArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoweredLayout:
    """A layout, the program that has it at an index of its grid, and its neighbours there."""

    program: StepProgram
    layout: Layout
    part: GridPart
    index: tuple[int, ...] = ()

    def refusals(self) -> tuple[str, ...]:
        """Return in words why the layout does not divide; empty if it does."""
        return self.program.refusals(self.index)

    def of(self, values: FloatArray) -> FloatArray:
        """Return what an array over the program's grid has for the layout, with further axes."""
        shape = self.program.shape
        return picked(values, (*shape, *np.shape(values)[len(shape) :]), self.index)


def modes_of(layout: Layout) -> tuple[Value | None, ...]:
    """Return the knobs in which all layouts of one lowering are alike."""
    return tuple(getattr(layout, name) for name in _MODES)


def lowered(model: Model, placed: Sequence[PlacedLayout]) -> list[tuple[Hashable, LoweredLayout]]:
    """Return layouts of equal modes as programs, each with its place, as many on one grid as pay.

    Every place has neighbours of its own.
    """
    of_degrees: dict[tuple[int, ...], list[PlacedLayout]] = {}
    for place, layout in dict.fromkeys(placed):
        degrees = tuple(getattr(layout, name) for name in DEGREES)
        of_degrees.setdefault(degrees, []).append((place, layout))
    each = [*of_degrees.items()]
    parts = [each[i : i + MOST_TOGETHER] for i in range(0, len(each), MOST_TOGETHER)]
    return [one for part in parts for one in _on_one_grid(model, dict(part))]


def _on_one_grid(
    model: Model, rows: Mapping[tuple[int, ...], Sequence[PlacedLayout]]
) -> list[tuple[Hashable, LoweredLayout]]:
    columns = dict(zip(DEGREES, zip(*rows, strict=True), strict=True))
    several: dict[str, Any] = {
        name: np.array(column) for name, column in columns.items() if len({*column}) > 1
    }
    shape = (len(rows),) if several else ()
    parts: dict[Hashable, GridPart] = {}
    programs: dict[tuple[Value | None, ...], StepProgram] = {}
    found = []
    for row, each in enumerate(rows.values()):
        index = (row,) if several else ()
        for place, layout in each:
            mode = tuple(getattr(layout, name) for name in _VARIED)
            if mode not in programs:
                like = next(iter(programs.values()), None)
                programs[mode] = training_step(model, replace(layout, **several), like=like)
            if place not in parts:
                parts[place] = GridPart(wanted=np.zeros(shape, dtype=np.bool_))
            here = parts[place]
            here.wanted[index] = True
            one = LoweredLayout(program=programs[mode], layout=layout, part=here, index=index)
            found.append((place, one))
    return found
