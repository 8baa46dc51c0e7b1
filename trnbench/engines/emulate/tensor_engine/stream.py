"""Any kernel as a stream of instructions on one NeuronCore, played without its repetitions.

Every engine, and every queue that triggers transfers, works its instructions off in program order.
An instruction waits for events (semaphores) and for room in pools (PSUM banks, buffers in SBUF),
which others give back; engines that share a port to a memory take turns at it, and all transfers
share the DMA engines: both go to whoever comes first. Times are whole fs.

Repetitions. From one state the same step always leads to the same next state, so every (state,
step) is played once and looked up afterwards; a run of equal steps ends in a cycle of states, and
whole rounds of it are counted, not walked. So are equal parts of a stream, such as the heads of
attention.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter, deque
from collections.abc import Sequence
from enum import IntEnum
from typing import TypeAlias

from trnbench.engines.emulate.tensor_engine.plan import femtoseconds
from trnbench.facts.hardware.compute_unit import Throttle
from trnbench.facts.records import Record


class CoreEngine(IntEnum):
    """Workers of a core: its engines, and queues that trigger transfers."""

    TENSOR = 0
    VECTOR = 1
    SCALAR = 2
    GPSIMD = 3
    LOADS = 4
    STORES = 5
    TURNS = 6


class Shared(IntEnum):
    """A resource that several engines take turns at."""

    SBUF = 0
    PSUM = 1
    DMA = 2


Event: TypeAlias = str
Pool: TypeAlias = str


class OnEngine(Record, kw_only=False):
    """An engine that can do an instruction, how long it takes there, and the ports it holds."""

    engine: CoreEngine
    duration_fs: int
    ports: tuple[Shared, ...] = ()


class Instruction(Record, kw_only=False):
    """An instruction of a stream."""

    ways: tuple[OnEngine, ...]  # engines that can run it; the one that ends first does
    after: tuple[Event, ...] = ()  # Events before the start
    takes: tuple[Pool, ...] = ()  # Pools in which a place is taken at the start
    done: Event | None = None  # Event of the end
    gives: tuple[Pool, ...] = ()  # Pools in which a place is free at the end
    transfer_fs: int = 0  # Time of a transfer on the DMA engines after the trigger by its queue


class Heat:
    """Clock state of a tensor engine: full rate or not, by its work in the last window."""

    def __init__(self, rule: Throttle) -> None:
        self.window = femtoseconds(rule.window_s)
        self.enough = round(rule.busy_share * self.window)
        self.slower = 1 / rule.slow_share
        self.warm = False
        self.worked = 0
        self.spans: list[tuple[int, int]] = []

    def duration_fs(self, start: int, at_full_rate: int) -> int:
        """Duration in fs of an instruction that starts now; the instruction is remembered."""
        # Only work inside the window before now decides; older spans are dropped.
        opened = start - self.window
        self.spans = [span for span in self.spans if span[1] > opened]
        busy = sum(end - max(begin, opened) for begin, end in self.spans)
        if self.warm and busy < self.enough:
            self.warm, self.worked = False, 0
        elif busy == 0:
            self.worked = 0
        elif not self.warm and self.worked >= self.window and busy >= self.enough:
            self.warm = True
        duration = at_full_rate if self.warm else round(at_full_rate * self.slower)
        if not self.warm:
            self.worked = min(self.worked + duration, self.window)
        if self.spans and self.spans[-1][1] == start:
            self.spans[-1] = self.spans[-1][0], start + duration
        else:
            self.spans.append((start, start + duration))
        return duration


class CoreState(Record, kw_only=False):
    """State of a machine that decides its future, in times since the step before began."""

    next_since: int
    free: tuple[int, ...]
    events: tuple[tuple[Event, int], ...]
    pools: tuple[tuple[int, ...], ...]
    held: tuple[tuple[tuple[int, int], ...], ...]
    heat: tuple[bool, int, tuple[tuple[int, int], ...]]


class Machine:
    """The state of a core while a stream plays."""

    def __init__(
        self, pools: dict[Pool, int], *, latency_s: float, throttle: Throttle | None = None
    ) -> None:
        self.latency_fs = femtoseconds(latency_s)
        self.heat = None if throttle is None else Heat(throttle)
        self.free = [0] * len(CoreEngine)
        self.events: dict[Event, int] = {}
        self.pools = {name: deque([0] * size) for name, size in pools.items()}
        self.held: list[list[tuple[int, int]]] = [[] for _ in Shared]
        self.busy = [0] * (len(CoreEngine) + 1)
        self.since = 0
        self.next_since = 0

    def play(self, step: tuple[Instruction, ...]) -> None:
        """Play the instructions of a step.

        Engines run ahead by at most the instructions of a step: all that ended before the tensor
        engine came to the last step is past.
        """
        events, pools = self.events, self.pools
        for instruction in step:
            # An event that was never signalled counts as past.
            ready = self.since
            for event in instruction.after:
                ready = max(ready, events.get(event, 0))
            for pool in instruction.takes:
                ready = max(ready, pools[pool].popleft())
            end = self._run(instruction, ready)
            if instruction.done is not None:
                events[instruction.done] = end
            for pool in instruction.gives:
                pools[pool].append(end)
        self.since, self.next_since = self.next_since, max(self.next_since, self.free[0])
        for spans in self.held:
            while spans and spans[0][1] <= self.since:
                del spans[0]

    @property
    def end_fs(self) -> int:
        last = [spans[-1][1] for spans in self.held if spans]
        return max(*self.free, *last, *self.events.values(), self.since)

    def _run(self, instruction: Instruction, ready: int) -> int:
        """Take the way that ends first; return the end."""
        found = None
        for way in instruction.ways:
            start = self._gap(way.ports, max(ready, self.free[way.engine]), way.duration_fs)
            if found is None or start + way.duration_fs < found[0] + found[1].duration_fs:
                found = start, way
        assert found is not None
        start, way = found
        duration = way.duration_fs
        if way.engine is CoreEngine.TENSOR and self.heat is not None:
            duration = self.heat.duration_fs(start, duration)
        end = start + duration
        self.free[way.engine] = end
        self.busy[way.engine] += duration
        for port in way.ports:
            insort(self.held[port], (start, end))
        if not instruction.transfer_fs:
            return end
        start = self._gap((Shared.DMA,), end + self.latency_fs, instruction.transfer_fs)
        end = start + instruction.transfer_fs
        insort(self.held[Shared.DMA], (start, end))
        self.busy[-1] += instruction.transfer_fs
        return end

    def _gap(self, shared: tuple[Shared, ...], ready: int, duration: int) -> int:
        """Earliest time at which all shared resources are free for this long, fs."""
        # Moving behind one resource's span may run into another's: repeat until nothing moves.
        start, before = ready, -1
        while start != before:
            before = start
            for one in shared:
                for begin, end in self.held[one]:
                    if begin >= start + duration:
                        break
                    start = max(start, end)
        return start

    # ---- states, for those who skip what repeats

    def state(self) -> CoreState:
        """Everything that decides the future, without times that are over for all engines."""
        now, heat = self.since, self.heat

        def after(time: int) -> int:
            return max(time - now, 0)

        return CoreState(
            next_since=self.next_since - now,
            free=tuple(map(after, self.free)),
            events=tuple(sorted((e, t - now) for e, t in self.events.items() if t > now)),
            pools=tuple(tuple(map(after, pool)) for pool in self.pools.values()),
            held=tuple(tuple((after(a), after(b)) for a, b in spans) for spans in self.held),
            heat=(False, 0, ())
            if heat is None
            else (
                heat.warm,
                heat.worked,
                tuple((a - now, b - now) for a, b in heat.spans if b > self.free[0] - heat.window),
            ),
        )

    def resume(self, state: CoreState, now: int) -> None:
        """Stand in a state at a time."""
        self.since, self.next_since = now, now + state.next_since
        self.free = [now + time for time in state.free]
        self.events = {event: now + time for event, time in state.events}
        for pool, times in zip(self.pools, state.pools, strict=True):
            self.pools[pool] = deque(now + time for time in times)
        self.held = [[(now + a, now + b) for a, b in spans] for spans in state.held]
        if self.heat is not None:
            self.heat.warm, self.heat.worked, spans = state.heat
            self.heat.spans = [(now + a, now + b) for a, b in spans]


StreamPart: TypeAlias = Sequence[tuple[int, int]]
"""Steps of a stream by number, each with how often it comes in a row."""


class Leap(Record, kw_only=False, eq=False):
    """Outcome of playing from a state: the next state, the time that has gone by, and
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
