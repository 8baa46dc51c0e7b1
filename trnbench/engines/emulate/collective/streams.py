"""Overlapping collectives: chunks of one, or several at once, sharing links as they come and go.

Each chunk of a collective passes its phases in order, and each lane takes a chunk at a time, in a
fixed order. All messages on their way share every link max-min fairly; speeds change only when a
message ends or a step begins, so time jumps from one such event to the next. Equal rounds in a row
may be joined to a step; alone this changes nothing, under contention it averages over them.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from trnbench.engines.emulate.collective.play import (
    PlayedCollective,
    after_round,
    busy_time,
    link_totals,
    pace,
    play,
    reached_capacity,
)
from trnbench.engines.emulate.collective.sharing import class_loads, fair_rates, like_messages
from trnbench.errors import InputError
from trnbench.facts.arrays import FloatArray, IntArray
from trnbench.facts.calibration.collective_stack import Tuning
from trnbench.facts.records import Record, State
from trnbench.machine.message_plan.placed import Placed, PlacedRound
from trnbench.machine.message_plan.plan import chunks_of, turns
from trnbench.machine.message_plan.select import Selected, selected_for

_EQUAL = 1e-9


class Step(Record, kw_only=False, eq=False):
    """Rounds joined, by class of equal messages: bytes and latency of each message."""

    classes: IntArray
    size_bytes: FloatArray
    latency_s: FloatArray
    after_s: float  # Seconds between the end of all messages and the end of the step
    messages: int  # All messages of the step


class Running(State, kw_only=False, eq=False):
    """A step under way; `going`: classes of messages that are."""

    step: Step
    task: tuple[int, int, int]
    position: int
    ends_s: float
    going: int


class OnTheWay:
    """Messages under way, one place for each class of messages of a step: owner and bytes left.

    A free place has the class behind all others, and endless bytes left.
    """

    def __init__(self, classes: int) -> None:
        self.nothing = classes
        self.owner: list[Running | None] = []
        self.free: list[int] = []
        self.left = self.latency_s = self.through_bytes = np.zeros(0)
        self.of_class = np.zeros(0, dtype=np.int64)

    @property
    def going(self) -> bool:
        return len(self.free) < len(self.owner)

    def begin(self, running: Running) -> None:
        """Give the messages of a step their places."""
        step, count = running.step, running.going
        # Places are reused: arrays of a fixed length are cheaper than joining and cutting them.
        if len(self.free) < count:
            self._grow(count)
        places = self.free[-count:]
        del self.free[-count:]
        self.of_class[places] = step.classes
        self.left[places] = step.size_bytes
        self.through_bytes[places] = _EQUAL * step.size_bytes
        self.latency_s[places] = step.latency_s
        for place in places:
            self.owner[place] = running

    def move(self, rates: FloatArray, step: float) -> IntArray:
        self.left -= rates * step
        return np.flatnonzero(self.left <= self.through_bytes)

    def end(self, places: IntArray, now: float) -> list[Running]:
        """Free the places of arrived messages, and return the steps that have no messages left."""
        done = []
        numbers = places.tolist()
        for place, latency_s in zip(numbers, self.latency_s[places].tolist(), strict=True):
            running = self.owner[place]
            assert running is not None
            running.ends_s = max(running.ends_s, now + latency_s)
            running.going -= 1
            if not running.going:
                done.append(running)
            self.owner[place] = None
        self.of_class[places] = self.nothing
        self.left[places] = np.inf
        self.free += numbers
        return done

    def _grow(self, count: int) -> None:
        before = len(self.owner)
        more = before + count
        self.owner += [None] * more
        self.free += range(before, before + more)
        self.left = np.append(self.left, np.full(more, np.inf))
        self.latency_s, self.through_bytes = (
            np.append(array, np.zeros(more)) for array in (self.latency_s, self.through_bytes)
        )
        self.of_class = np.append(self.of_class, np.full(more, self.nothing))


STEPS_PER_RUN = 16
REMEMBERED = 1 << 20  # Speeds that are remembered at most, of all sets of messages together


class ChunkStream(Record, eq=False):
    """A collective among several."""

    placed: Placed
    tuning: Tuning
    size_bytes: float
    chunks: int = 1  # Number of chunks that the size is cut into
    start_s: float = 0.0


class Together(Record, eq=False):
    """Several collectives played at once."""

    end_s: tuple[float, ...]  # End of each collective, seconds
    link_bytes: FloatArray  # Bytes over each link
    messages: int  # Number of messages of all collectives


def play_selected(
    selected: Sequence[Selected], size_bytes: float
) -> tuple[Selected, PlayedCollective]:
    """Algorithm selected for a size, and that collective as played."""
    sizes = np.array([float(size_bytes)])
    choice = selected[int(selected_for(selected, sizes)[0])]
    chunks = int(chunks_of(choice.tuning, len(choice.placed.plan.phases), sizes)[0])
    return choice, play_chunked(choice.placed, choice.tuning, size_bytes, chunks)


def play_chunked(
    placed: Placed, tuning: Tuning, size_bytes: float, chunks: int
) -> PlayedCollective:
    """One collective with its chunks overlapping; one chunk is played in plain rounds."""
    if chunks == 1 or len(placed.plan.phases) < 2:
        return play(placed, tuning, size_bytes)
    together = play_together(
        [ChunkStream(placed=placed, tuning=tuning, size_bytes=size_bytes, chunks=chunks)]
    )
    time = together.end_s[0]
    return PlayedCollective(
        time_s=time,
        link_bytes=together.link_bytes,
        link_busy=busy_time(together.link_bytes, placed.capacity[:-1]) / time,
        messages=together.messages,
        chunks=chunks,
        events=(),
    )


def play_together(
    streams: Sequence[ChunkStream], *, steps_per_run: int = STEPS_PER_RUN
) -> Together:
    """Several collectives of one cluster played at once.

    A link that two stacks reach with different shares gives the smaller one.
    """
    return _Stage(streams, steps_per_run).run()


class _Stage:
    """The clock, the messages under way, and the dependencies between tasks."""

    def __init__(self, streams: Sequence[ChunkStream], steps_per_run: int) -> None:
        if not streams:
            raise InputError("no collective to play")
        counts = {stream.placed.link_count for stream in streams}
        if len(counts) > 1 or len({s.placed.of_one_node for s in streams}) > 1:
            raise InputError("collectives played together must be placed on one cluster alike")
        self.streams = streams
        capacity = np.minimum.reduce(
            [reached_capacity(stream.placed, stream.tuning) for stream in streams]
        )
        rounds = {_content(found): found for s in streams for found in s.placed.rounds}
        classes, self.capacity = like_messages([*rounds.values()], capacity)
        self.loads = class_loads(classes, len(self.capacity) - 1)
        # Messages of a round with equal load on equal links have equal speeds: a class stands for
        # all of them, and its speed is computed once.
        alike = {
            key: (of.first, numbers)
            for key, of, numbers in zip(rounds, classes, self.loads.numbers, strict=True)
        }
        self.steps = [_steps(stream, steps_per_run, alike) for stream in streams]
        self.under_way = OnTheWay(len(self.loads.links))
        self.rates: FloatArray | None = None
        self.turns = [_turns_by_lane(stream) for stream in streams]
        self.ready: set[tuple[int, int, int]] = set()
        self.busy: set[tuple[int, int]] = set()
        self.end = [
            stream.start_s + (stream.tuning.launch_s if stream.placed.rounds else 0.0)
            for stream in streams
        ]
        self.queue: list[tuple[float, int, tuple[int, int, int], int]] = []
        self.serial = itertools.count()
        self.speeds: dict[bytes, FloatArray] = {}
        self.messages = 0

    def run(self) -> Together:
        """Play until nothing is left."""
        for number, stream in enumerate(self.streams):
            if self.steps[number]:
                self.ready |= {(number, chunk, 0) for chunk in range(stream.chunks)}
                self._next_on(self._lane((number, 0, 0)), self.end[number])
        now = 0.0
        under_way = self.under_way
        while self.queue or under_way.going:
            # The next event is the end of a message or the start of a step, whichever comes first.
            rates = self._rates()
            through = float((under_way.left / rates).min(initial=np.inf))
            calls = self.queue[0][0] - now if self.queue else np.inf
            step = min(through, calls)
            now += step
            ended = under_way.move(rates, step)
            if len(ended):
                self.rates = None
                for running in under_way.end(ended, now):
                    end = running.ends_s + running.step.after_s
                    self._call(end, running.task, running.position + 1)
            # All that is due now begins before speeds are shared again; the clock is a sum of
            # steps, so an equal time may differ by its rounding.
            while self.queue and self.queue[0][0] <= now * (1 + 1e-15):
                _, _, task, position = heapq.heappop(self.queue)
                self._begin(task, position, now)
        carried = np.sum([link_totals(s.placed, s.size_bytes) for s in self.streams], axis=0)
        return Together(end_s=tuple(self.end), link_bytes=carried, messages=self.messages)

    def _call(self, time: float, task: tuple[int, int, int], position: int) -> None:
        # The serial number keeps equal times in the order of the calls: runs repeat exactly.
        heapq.heappush(self.queue, (time, next(self.serial), task, position))

    def _begin(self, task: tuple[int, int, int], position: int, now: float) -> None:
        """Start the step of a task that is due, or end the task and start what waited for it."""
        stream, chunk, phase = task
        steps = self.steps[stream][phase]
        if position < len(steps):
            step = steps[position]
            self.under_way.begin(Running(step, task, position, now, len(step.size_bytes)))
            self.rates = None
            self.messages += step.messages
            return
        self.end[stream] = max(self.end[stream], now)
        lane = self._lane(task)
        self.busy.discard(lane)
        if phase + 1 < len(self.steps[stream]):
            follower = (stream, chunk, phase + 1)
            self.ready.add(follower)
            self._next_on(self._lane(follower), now)
        self._next_on(lane, now)

    def _lane(self, task: tuple[int, int, int]) -> tuple[int, int]:
        stream, _, phase = task
        return stream, self.streams[stream].placed.plan.phases[phase].lane

    def _next_on(self, lane: tuple[int, int], now: float) -> None:
        """Give a free lane to the chunk whose turn it is, if that is ready."""
        waiting = self.turns[lane[0]][lane[1]]
        if lane not in self.busy and waiting and (lane[0], *waiting[0]) in self.ready:
            chunk, phase = waiting.popleft()
            self.busy.add(lane)
            self._call(now, (lane[0], chunk, phase), 0)

    def _rates(self) -> FloatArray:
        """Speed of what is on its way, by place."""
        # It follows from how many messages of each class there are; numbers seen are remembered.
        if self.rates is None:
            of_class = self.under_way.of_class
            counts = np.bincount(of_class, minlength=len(self.loads.links) + 1)
            key = counts.tobytes()
            speeds = self.speeds.get(key)
            if speeds is None:
                there = np.flatnonzero(counts[:-1])
                speeds = np.ones(len(counts))
                crossing = self.loads.crossing[there] * counts[there, None]
                speeds[there] = fair_rates(self.loads.links[there], self.capacity, crossing)
                if len(self.speeds) * len(counts) < REMEMBERED:
                    self.speeds[key] = speeds
            self.rates = speeds[of_class]
        return self.rates


def _turns_by_lane(stream: ChunkStream) -> dict[int, deque[tuple[int, int]]]:
    lanes = tuple(phase.lane for phase in stream.placed.plan.phases)
    found: dict[int, deque[tuple[int, int]]] = {lane: deque() for lane in lanes}
    for chunk, phase in turns(lanes, stream.chunks):
        found[lanes[phase]].append((chunk, phase))
    return found


def _content(found: PlacedRound) -> Hashable:
    parts = (found.links, found.share, found.latency_s, found.remote)
    return found.links.shape, *(part.tobytes() for part in parts)


def _steps(
    stream: ChunkStream, per_run: int, alike: Mapping[Hashable, tuple[IntArray, IntArray]]
) -> list[list[Step]]:
    """Steps of each phase for one chunk."""
    # `alike`: of a round's content the first message of each class, and the number of the class.
    phases: list[list[Step]] = [[] for _ in stream.placed.plan.phases]
    size = stream.size_bytes / stream.chunks
    for found in stream.placed.rounds:
        first, classes = alike[_content(found)]
        latency = pace(stream.placed, stream.tuning, found, size)[first]
        after = after_round(stream.placed, found, stream.tuning, size)
        runs = min(found.times, per_run)
        for count, repeats in _runs(found.times, runs):
            step = Step(
                classes,
                found.share[first] * size * count,
                latency * count,
                after * count,
                len(found.source) * count,
            )
            phases[found.phase] += [step] * repeats
    return phases


def _runs(times: int, runs: int) -> list[tuple[int, int]]:
    short, longer = divmod(times, runs)
    return [(n, r) for n, r in ((short + 1, longer), (short, runs - longer)) if n and r]
