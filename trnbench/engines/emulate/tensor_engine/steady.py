"""A plan played to its end without its repetitions: exact, because states are compared whole.

After an iteration of a loop the core's state is noted relative to its own time. If it equals the
state after an earlier iteration, and all steps up to the furthest one already being loaded are
alike, then every further such iteration repeats what happened in between; whole repetitions are
added to the clocks and tallies instead of being played.
"""

from __future__ import annotations

from collections import deque

from trnbench.engines.emulate.tensor_engine.machine import Core, MachineTally
from trnbench.facts.records import astuple

MachineState = tuple[object, ...]
_LEVELS = 4
_CLOCKS = (
    *("multiply_start", "multiply_end", "vector_free", "scalar_free"),
    *("load_trigger", "store_trigger", "dma_free", "last_store_end"),
)


def play_all(core: Core, *, shorten: bool) -> None:
    """Play every step of the core's plan and drain its queues."""
    seen = _Seen(core)
    core.push_loads()
    index = 0
    while index < core.plan.steps:
        core.play(index)
        if shorten:
            index = seen.skip(index)
        index += 1
    core.serve()


class _Seen:
    """States after each iteration of each loop, and the jump when one comes back."""

    def __init__(self, core: Core) -> None:
        self._core = core
        counts = core.plan.counts
        self._counts = counts
        self._sizes = [1] * _LEVELS
        for level in range(_LEVELS - 2, -1, -1):
            self._sizes[level] = self._sizes[level + 1] * counts[level + 1]
        self._history: list[dict[MachineState, tuple[int, int, tuple[float, ...], list[int]]]] = [
            {} for _ in range(_LEVELS)
        ]

    def skip(self, index: int) -> int:
        """Next step to play: `index`, or a later one that the core's state has jumped to."""
        digits = self._core.plan.digits(index)
        # Innermost loop first; an outer loop has an iteration behind it only when the inner ends.
        for level in range(_LEVELS - 1, -1, -1):
            index = self._skip_level(index, level, digits[level])
            if digits[level] != self._counts[level] - 1:
                break
            self._history[level].clear()
        return index

    def _skip_level(self, index: int, level: int, iteration: int) -> int:
        core, size = self._core, self._sizes[level]
        first = index + 1 - (iteration + 1) * size
        # Iterations up to the one being loaded, and the last one, which differs, must be played.
        loading = (core.pushed_step - first) // size
        room = self._counts[level] - 2 - loading
        if room < 1:
            return index
        state = _state(core, index)
        history = self._history[level]
        if state not in history:
            history[state] = (
                iteration,
                core.multiply_end,
                astuple(core.tally),
                list(core.dma_fs_by_engines),
            )
            return index
        before, then, tally, dma = history[state]
        period = iteration - before
        times = room // period
        if times == 0:
            return index
        _repeat(core, times, then, tally, dma)
        _move_on(core, times * period * size)
        history.clear()
        return index + times * period * size


def _state(core: Core, index: int) -> MachineState:
    """State that decides the future, relative to the tensor engine's time and the step."""
    # Times that lie before it cannot be told apart by what follows, because whatever waits for them
    # waits for the tensor engine too.
    now = core.multiply_end

    def after(time: int) -> int:
        return max(time - now, 0)

    return (
        core.multiply_start - now,
        tuple(map(after, core.banks)),
        after(core.vector_free),
        after(core.scalar_free),
        tuple(map(after, core.output_rows)),
        *(tuple(map(after, slots)) for slots in core.slots),
        after(core.load_trigger),
        after(core.store_trigger),
        after(core.dma_free),
        core.pushed_step - index,
        core.pushed_k,
        core.pushed_side,
        tuple(
            (load.ready_fs - now, load.move, load.step - index, load.side, load.last_piece)
            for load in core.loads
        ),
        tuple((store.ready_fs - now, store.move) for store in core.stores),
        tuple(
            (step - index, side, tuple(map(after, times)))
            for (step, side), times in sorted(core.loaded.items())
            if step > index
        ),
    )


def _repeat(core: Core, times: int, then: int, tally: tuple[float, ...], dma: list[int]) -> None:
    """Add `times` repetitions of the changes since `then` to all clocks and tallies."""
    by = (core.multiply_end - then) * times
    for clock in _CLOCKS:
        setattr(core, clock, getattr(core, clock) + by)
    core.banks = deque(time + by for time in core.banks)
    core.output_rows = deque(time + by for time in core.output_rows)
    core.slots = [deque(time + by for time in slots) for slots in core.slots]
    for load in core.loads:
        load.ready_fs += by
    for store in core.stores:
        store.ready_fs += by
    for arrivals in core.loaded.values():
        arrivals[:] = [time + by for time in arrivals]
    now = astuple(core.tally)
    core.tally = MachineTally(*(a + (a - b) * times for a, b in zip(now, tally, strict=True)))
    core.dma_fs_by_engines = [
        a + (a - b) * times for a, b in zip(core.dma_fs_by_engines, dma, strict=True)
    ]


def _move_on(core: Core, steps: int) -> None:
    """Let the loads that are under way belong to the steps that are played next."""
    core.pushed_step += steps
    for load in core.loads:
        load.step += steps
    core.loaded = {(step + steps, side): times for (step, side), times in core.loaded.items()}
