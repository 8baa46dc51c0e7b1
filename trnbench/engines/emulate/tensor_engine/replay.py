"""A stream of steps played without its repetitions: exact, because states are compared whole.

From one state the same step always leads to the same next state, so every (state, step) is played
once and looked up afterwards; a run of equal steps ends in a cycle of states, and whole rounds of
it are counted, not walked. So are equal parts of a stream, such as the heads of attention.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

from trnbench.engines.emulate.tensor_engine.stream import CoreState, Instruction, Machine
from trnbench.facts.records import Record

StreamPart: TypeAlias = Sequence[tuple[int, int]]
"""Steps of a stream by number, each with how often it comes in a row."""


class Leap(Record, kw_only=False, eq=False):
    """What playing something from a state comes to: the next state, the time that has gone by, and
    how long everything was busy.
    """

    state: int
    elapsed_fs: int
    busy_fs: tuple[int, ...]


class Replay:
    """One machine, and everything it was seen to do. `steps` are the instructions by number."""

    def __init__(self, machine: Machine, steps: Sequence[tuple[Instruction, ...]]) -> None:
        self._machine = machine
        self._steps = steps
        self._states: list[CoreState] = []
        self._numbers: dict[CoreState, int] = {}
        self._leaps: dict[tuple[int, int], Leap] = {}
        self._stands: int | None = None

    def run(self, parts: Sequence[tuple[StreamPart, int]]) -> tuple[int, tuple[int, ...]]:
        """Play each part its number of times in a row; return the seconds (fs) and busy tallies."""
        number = self._number(self._machine.state())
        here = Leap(number, 0, (0,) * len(self._machine.busy))
        for part, times in parts:
            known: dict[int, Leap] = {}
            for _ in range(times):
                leap = known.get(here.state)
                if leap is None:
                    leap = known[here.state] = self._part(here.state, part)
                here = Leap(
                    leap.state,
                    here.elapsed_fs + leap.elapsed_fs,
                    tuple(a + b for a, b in zip(here.busy_fs, leap.busy_fs, strict=True)),
                )
        self._machine.resume(self._states[here.state], here.elapsed_fs)
        return self._machine.end_fs, here.busy_fs

    def _part(self, state: int, part: StreamPart) -> Leap:
        """Play a part. Where a step comes often in a row, walk until a state comes back, and count
        the rounds that are left.
        """
        elapsed = 0
        often: Counter[Leap] = Counter()
        for step, times in part:
            walked: list[Leap] = []
            seen: dict[int, int] = {}
            done = 0
            while done < times:
                leap = self._step(state, step)
                state = leap.state
                elapsed += leap.elapsed_fs
                often[leap] += 1
                done += 1
                # A single step has no cycle to look for.
                if times == 1:
                    break
                walked.append(leap)
                if state not in seen:
                    seen[state] = done
                    continue
                again = walked[seen[state] :]
                rounds = (times - done) // len(again)
                for leap in again:
                    elapsed += rounds * leap.elapsed_fs
                    often[leap] += rounds
                done += rounds * len(again)
                seen, walked = {}, []
        busy = zip(*([fs * n for fs in leap.busy_fs] for leap, n in often.items()), strict=True)
        return Leap(state, elapsed, tuple(map(sum, busy)))

    def _step(self, state: int, step: int) -> Leap:
        """Play a step, or look up its result from the last time."""
        leap = self._leaps.get((state, step))
        if leap is None:
            machine = self._machine
            if self._stands != state:
                machine.resume(self._states[state], machine.since)
            then, busy = machine.since, tuple(machine.busy)
            machine.play(self._steps[step])
            leap = Leap(
                self._number(machine.state()),
                machine.since - then,
                tuple(a - b for a, b in zip(machine.busy, busy, strict=True)),
            )
            self._leaps[state, step] = leap
            self._stands = leap.state
        return leap

    def _number(self, state: CoreState) -> int:
        number = self._numbers.setdefault(state, len(self._states))
        if number == len(self._states):
            self._states.append(state)
        return number
