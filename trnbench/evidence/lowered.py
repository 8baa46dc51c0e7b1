"""Layouts of measured rows as programs, alone or many on one grid.

Lowering and pricing a grid costs little more than one layout, with bit-identical numbers: rows that
differ only in degrees and batch share a grid, on any machine. Recomputation and ZeRO are varied
from one lowering.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np

from trnbench.facts.arrays import BoolArray, FloatArray, IntArray, picked, spread
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, field, replace
from trnbench.facts.workload.choices import PAIRED, REINFORCED
from trnbench.facts.workload.layout import DEGREES, KNOBS, Layout, Value
from trnbench.facts.workload.model import Model
from trnbench.facts.workload.sizes import resized, sizes_of
from trnbench.program.step import SHARED_KNOBS, StepProgram, training_step
from trnbench.program.tensor import array

MOST_TOGETHER = 128
"""Layouts per grid: more cost memory, and save no time."""
_VARIED = tuple(sorted(SHARED_KNOBS))
_ALIKE = ("transformer", "vocabulary", "head")
_modes = attrgetter(*(name for name in KNOBS if name not in {*DEGREES, *_VARIED}))

PlacedLayout: TypeAlias = tuple[Hashable, Layout, tuple[str | None, tuple[int, ...]]]
"""(key of layouts priced together, the layout, what else tells rows of a grid apart: the software's
release, and the sizes of the model)."""


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

    `model`: as one, the models of the layouts; `degrees`: the differing degrees.
    """

    model: Model
    degrees: Mapping[str, Any]
    _by_mode: Memo[tuple[Value | None, ...], StepProgram] = field(default_factory=Memo)

    def of(self, layout: Layout) -> StepProgram:
        """Program of the layouts with the same varied knobs as this one."""

        def lower() -> StepProgram:
            # Any program of the grid serves as the base of a variation.
            like = next((program for _, program in self._by_mode.items()), None)
            whole = replace(layout, **self.degrees)
            return training_step(self.model, whole, like=like)

        return self._by_mode.of(tuple(getattr(layout, name) for name in _VARIED), lower)


class LoweredLayout(Record, eq=False):
    """A layout at an index of its grid, with the grid's programs."""

    programs: GridPrograms
    layout: Layout
    part: GridPart
    index: tuple[int, ...] = ()

    @cached_property
    def program(self) -> StepProgram:
        """Program of the layout and its neighbours."""
        return self.programs.of(self.layout)

    def refusals(self, model: Model) -> tuple[str, ...]:
        """Reasons why the layout does not divide its model; empty if it does."""
        broken = self.program.broken(self.index)
        return training_step(model, self.layout).refusals() if broken else ()

    def of(self, values: FloatArray) -> FloatArray:
        """Values of an array over the program's grid at the layout, with any further axes."""
        shape = self.program.shape
        return picked(values, (*shape, *np.shape(values)[len(shape) :]), self.index)


def modes_of(layout: Layout) -> tuple[Value | None, ...]:
    """Knobs shared by all layouts of one lowering."""
    found: tuple[Value | None, ...] = _modes(layout)
    return found


def family_of(model: Model, layout: Layout) -> tuple[Model, tuple[int, ...]]:
    """What models lowered together share, and the sizes in which they differ.

    Apart are jobs with other models beside the trained one.
    """
    sizes = () if layout.job in (*PAIRED, *REINFORCED) else sizes_of(model)
    if not sizes:
        return model, ()
    alike = resized(model, (1,) * len(sizes))
    return Model(name="", title="", **{name: getattr(alike, name) for name in _ALIKE}), sizes


def lowered_alike(wanted: Iterable[tuple[Model, Layout]]) -> list[LoweredLayout]:
    """Layouts of models as programs, in order; similar ones share a grid."""
    placed: list[PlacedLayout] = []
    alike: dict[Hashable, tuple[Model, list[PlacedLayout]]] = {}
    for model, layout in wanted:
        family, sizes = family_of(model, layout)
        placed.append((family, layout, (None, sizes)))
        alike.setdefault((family, modes_of(layout)), (model, []))[1].append(placed[-1])
    found = dict(one for model, each in alike.values() for one in lowered(model, each))
    return [found[one] for one in placed]


def lowered(
    model: Model, placed: Sequence[PlacedLayout]
) -> list[tuple[PlacedLayout, LoweredLayout]]:
    """Layouts of equal modes as programs, with as many on one grid as pays off.

    `model` is any of theirs. Every place has a grid part of its own.
    """
    of_degrees: dict[tuple[Any, ...], list[PlacedLayout]] = {}
    for one in dict.fromkeys(placed):
        _, layout, apart = one
        degrees = apart, *(getattr(layout, name) for name in DEGREES)
        of_degrees.setdefault(degrees, []).append(one)
    each = [*of_degrees.items()]
    parts = [each[i : i + MOST_TOGETHER] for i in range(0, len(each), MOST_TOGETHER)]
    return [one for part in parts for one in _on_one_grid(model, dict(part))]


def _on_one_grid(
    model: Model, rows: Mapping[tuple[Any, ...], Sequence[PlacedLayout]]
) -> list[tuple[PlacedLayout, LoweredLayout]]:
    apart, *degrees = zip(*rows, strict=True)
    columns = dict(zip(DEGREES, map(np.array, degrees), strict=True))
    several: dict[str, Any] = {
        name: each for name, each in columns.items() if np.any(each != each[0])
    }
    if len(rows) > 1 and not several:  # they differ in sizes or releases alone
        several["sequence"] = columns["sequence"]
    shape = (len(rows),) if several else ()
    sizes = [np.array(column) for column in zip(*(sizes for _, sizes in apart), strict=True)]
    if any(np.any(each != each[0]) for each in sizes):
        model = resized(model, [array(each) for each in sizes])
    elif sizes and (alike := tuple(each.item(0) for each in sizes)) != sizes_of(model):
        model = resized(model, alike)
    programs = GridPrograms(model=model, degrees=several)
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
