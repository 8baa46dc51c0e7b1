"""Layouts of measured rows as programs, alone or many on one grid.

Lowering and pricing a grid costs little more than one layout, with bit-identical numbers: rows that
differ only in degrees and batch share a grid, on any machine. Recomputation and ZeRO are varied
from one lowering.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from trnbench.facts.arrays import BoolArray, FloatArray, IntArray, picked, spread
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, field, replace
from trnbench.facts.workload.layout import DEGREES, KNOBS, Layout, Value
from trnbench.facts.workload.model import Model
from trnbench.facts.workload.weights import TABLES
from trnbench.program.step import SHARED_KNOBS, StepProgram, training_step
from trnbench.program.tensor import array

MOST_TOGETHER = 128
"""Layouts per grid: more cost memory, and save no time."""
_VARIED = tuple(sorted(SHARED_KNOBS))
_MODES = tuple(name for name in KNOBS if name not in {*DEGREES, *_VARIED})

PlacedLayout: TypeAlias = tuple[Hashable, Layout, tuple[int, str | None]]
"""(key of layouts priced together, the layout, what else tells rows of a grid apart: rows of the
model's position table, and the software's release)."""


class GridPart(Record, eq=False):
    """The layouts of a grid in one place: a mask over the grid."""

    wanted: BoolArray

    @cached_property
    def places(self) -> IntArray:
        """Number of each wanted layout among them, over the grid."""
        return np.cumsum(self.wanted, axis=None).reshape(self.wanted.shape) - 1

    def rows(self, values: FloatArray) -> FloatArray:
        """Values over the grid as a column [layout, 1] of the wanted layouts."""
        if not self.wanted.ndim or not values.ndim:
            return values
        return spread(values, self.wanted.shape)[self.wanted][:, np.newaxis]


class GridPrograms(Record, eq=False):
    """Programs of a grid of layouts, by the varied knobs, lowered on demand.

    `degrees` are the differing degrees, `positions` as in `Grid`.
    """

    model: Model
    degrees: Mapping[str, Any]
    positions: FloatArray | None
    _by_mode: Memo[tuple[Value | None, ...], StepProgram] = field(default_factory=Memo)

    def of(self, layout: Layout) -> StepProgram:
        """Program of the layouts with the same varied knobs as this one."""

        def lower() -> StepProgram:
            # Any program of the grid serves as the base of a variation.
            like = next((program for _, program in self._by_mode.items()), None)
            whole = replace(layout, **self.degrees)
            return training_step(self.model, whole, like=like, positions=self.positions)

        return self._by_mode.of(tuple(getattr(layout, name) for name in _VARIED), lower)


class LoweredLayout(Record, eq=False):
    """A layout at an index of its grid, with the grid's programs."""

    programs: GridPrograms
    layout: Layout
    part: GridPart
    index: tuple[int, ...] = ()

    @property
    def program(self) -> StepProgram:
        """Program of the layout and its neighbours."""
        return self.programs.of(self.layout)

    def refusals(self) -> tuple[str, ...]:
        """Reasons why the layout does not divide; empty if it does."""
        return self.program.refusals(self.index)

    def of(self, values: FloatArray) -> FloatArray:
        """Values of an array over the program's grid at the layout, with any further axes."""
        shape = self.program.shape
        return picked(values, (*shape, *np.shape(values)[len(shape) :]), self.index)


def modes_of(layout: Layout) -> tuple[Value | None, ...]:
    """Knobs shared by all layouts of one lowering."""
    return tuple(getattr(layout, name) for name in _MODES)


def family_of(model: Model) -> tuple[Model, int]:
    """The model shared by models lowered together, and the rows of the position table.

    The table is as long as a model's sequences; apart from this such models are often equal.
    """
    transformer = model.transformer
    if (
        transformer is None
        or model.image is not None
        or transformer.position.encoding not in TABLES
    ):
        return model, 0
    position = transformer.position
    plain = replace(transformer, position=replace(position, length=1))
    return replace(model, transformer=plain), position.length


def lowered(
    model: Model, placed: Sequence[PlacedLayout]
) -> list[tuple[PlacedLayout, LoweredLayout]]:
    """Layouts of equal modes as programs, with as many on one grid as pays off.

    `model` is the common family. Every place has a grid part of its own.
    """
    of_degrees: dict[tuple[Any, ...], list[PlacedLayout]] = {}
    for one in dict.fromkeys(placed):
        _, layout, (positions, release) = one
        degrees = release, positions, *(getattr(layout, name) for name in DEGREES)
        of_degrees.setdefault(degrees, []).append(one)
    each = [*of_degrees.items()]
    parts = [each[i : i + MOST_TOGETHER] for i in range(0, len(each), MOST_TOGETHER)]
    return [one for part in parts for one in _on_one_grid(model, dict(part))]


def _on_one_grid(
    model: Model, rows: Mapping[tuple[Any, ...], Sequence[PlacedLayout]]
) -> list[tuple[PlacedLayout, LoweredLayout]]:
    _, positions, *degrees = (np.array(column) for column in zip(*rows, strict=True))
    columns = dict(zip(DEGREES, degrees, strict=True))
    several: dict[str, Any] = {
        name: each for name, each in columns.items() if np.any(each != each[0])
    }
    if len(rows) > 1 and not several:  # they differ in tables or releases alone
        several["sequence"] = columns["sequence"]
    shape = (len(rows),) if several else ()
    table = array(positions if several else positions[0]) if positions[0] else None
    programs = GridPrograms(model=model, degrees=several, positions=table)
    parts: dict[Hashable, GridPart] = {}
    found = []
    for row, each in enumerate(rows.values()):
        index = (row,) if several else ()
        for placed in each:
            place, layout, _ = placed
            if place not in parts:
                parts[place] = GridPart(wanted=np.zeros(shape, dtype=np.bool_))
            here = parts[place]
            here.wanted[index] = True
            one = LoweredLayout(programs=programs, layout=layout, part=here, index=index)
            found.append((placed, one))
    return found
