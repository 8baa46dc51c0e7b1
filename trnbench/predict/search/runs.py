"""Runs of a search: one variant in one schedule, and the layouts priced in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from trnbench.facts.arrays import FloatArray, IntArray
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, State, field, replace
from trnbench.facts.workload.layout import Layout, Schedule
from trnbench.predict.search.legality import block_modes, own_modes
from trnbench.predict.search.rows import Rows, listed, together
from trnbench.predict.search.space import ALONG, Axis, Space, Variant
from trnbench.program.points import Points
from trnbench.program.step import StepProgram, training_step


class Run(Record, eq=False):
    """One variant of a space in one schedule."""

    space: Space
    variant: Variant
    schedule: Schedule

    @cached_property
    def whole(self) -> Layout:
        """The space's grid in this variant and schedule, as one layout of arrays."""
        return self.space.layout(self.schedule, self.variant)

    def nodes(self, place: int) -> int:
        """Instances of the layout at a flat index of the grid, with those that generate answers."""
        return self._value("nodes", self._index(place)) + self.space.question.generation_nodes

    def layout(self, place: int) -> Layout:
        """The layout at a flat index of the grid."""
        index = self._index(place)
        degrees = {name: self._value(name, index) for name in ALONG if name != "nodes"}
        layout = replace(self.whole, **degrees, dp=self._dp(index))
        if layout.tp == 1 and self.space.question.layout["sequence_parallel"] is None:
            # On a single tensor rank there is no sequence to cut, unless the user asked for the
            # mode.
            return replace(layout, sequence_parallel=False)
        return layout

    def _index(self, place: int) -> tuple[int, ...]:
        index = []
        for size in reversed(self.space.shape):
            place, at = divmod(place, size)
            index.append(at)
        return tuple(reversed(index))

    def _value(self, axis: Axis, index: tuple[int, ...]) -> int:
        return int(self.space.axes[axis][index[ALONG[axis]]])

    def _dp(self, index: tuple[int, ...]) -> int:
        dp = self.space.dp
        # A fixed degree has no axes, a computed one has one for each axis of the grid (length 1 or
        # full).
        return int(dp if not dp.ndim else dp[tuple(map(min, index, (n - 1 for n in dp.shape)))])


class Seen(Record, eq=False):
    """Layouts priced together, for callers that want all layouts and not only the best."""

    run: Run
    points: Points
    step_time_s: FloatArray

    def __len__(self) -> int:
        return len(self.points)

    def degree(self, axis: Axis) -> IntArray:
        return self.run.space.axes[axis][self.points.index[ALONG[axis]]]

    def layout(self, number: int) -> Layout:
        index = tuple(int(axis[number]) for axis in self.points.index)
        return self.run.layout(int(np.ravel_multi_index(index, self.points.shape)))


class Programs(Record, eq=False):
    """Programs of a space's variants in all ZeRO stages, each lowered at its first use."""

    space: Space
    known: Memo[Variant, StepProgram] = field(default_factory=Memo)
    likely: dict[Variant, StepProgram] = field(default_factory=dict)
    """The last program lowered, by the modes that operations depend on, with and without those of
    recompute."""

    def of(self, variant: Variant) -> StepProgram:
        return self.known.of(variant, lambda: self._lowered(variant))

    def _lowered(self, variant: Variant) -> StepProgram:
        space = self.space
        model, layout = space.question.model, space.layout(space.schedules[0], variant)
        # Variants with the same blocks differ only in what their stages hold: they share
        # operations.
        own = block_modes(own_modes(variant))
        # Those that repeat the same share the backward pass, too.
        repeats = own.changed(recompute=variant["recompute"])
        like = self.likely.get(repeats) or self.likely.get(own)
        program = training_step(model, layout, like=like, known_legal=True, zero=space.zeros)
        self.likely[own] = self.likely[repeats] = program
        return program


class SharedPrograms(State):
    """Programs of the last grid that searches one after another looked at.

    No program depends on hardware: instance types with equal ranks a node mostly share a grid.
    """

    last: Programs | None = None

    def of(self, space: Space) -> Programs:
        """Programs of a space: those of the last one, if that has the same grid."""
        if self.last is None or not _alike(self.last.space, space):
            self.last = Programs(space=space)
        return self.last


def _alike(one: Space, other: Space) -> bool:
    asked, also = one.question, other.question
    return (
        one.shape == other.shape
        and all(np.array_equal(one.axes[name], other.axes[name]) for name in ALONG)
        and (one.schedules, one.zeros) == (other.schedules, other.zeros)
        and (asked.ranks_per_node, asked.completed) == (also.ranks_per_node, also.completed)
        and (asked.model, asked.layout) == (also.model, also.layout)
    )


class SearchHooks(Record):
    """What a caller hands on: callbacks, called between one chunk of layouts and the next."""

    progress: Callable[[int, int, str], None] = lambda done, total, what: None
    """Called with (layouts done, valid layouts expected in all, the word "layouts")."""
    cancel: Callable[[], bool] = lambda: False
    """Ends the search once it returns true; results up to then are kept."""
    watch: Callable[[Seen], None] | None = None
    """Called with every layout that was priced."""
    lowered: SharedPrograms = field(default_factory=SharedPrograms)
    """Programs that searches with the same hooks share."""


def played(program: StepProgram, schedule: Schedule) -> StepProgram:
    """The program in another schedule: the same operations in another order."""
    if schedule == program.layout.schedule:
        return program
    layout = replace(program.layout, schedule=schedule)
    grid = replace(program.grid, layout=layout, schedule=schedule)
    return replace(program, layout=layout, grid=grid)


def joined(shape: tuple[int, ...], several: Sequence[Points | Rows]) -> Points | Rows:
    """Layouts of several parts; in rows where some of these are."""
    parts = [part for part in several if isinstance(part, Points)]
    if len(parts) < len(several):
        each = (listed(part) if isinstance(part, Points) else part for part in several)
        return together(shape, [*each])
    columns = zip(*(part.index for part in parts), strict=True)
    empty = (np.zeros(0, dtype=np.int64),) * len(shape)
    return Points(shape=shape, index=tuple(map(np.concatenate, columns)) or empty)
