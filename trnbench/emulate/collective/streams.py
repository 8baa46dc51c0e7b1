"""Overlapping collectives: chunks of one, or several at once, sharing links as they come and go.

Each chunk of a collective passes its phases in order, and each lane takes one chunk at a time, in a
fixed order.
Whatever is on its way at a moment shares every link max-min fairly; speeds change only when a
message ends or a step begins, so time jumps from one such event to the next. Equal rounds in a row
may be joined to one step; alone this changes nothing, under contention it averages over them.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from trnbench.arrays import BoolArray, FloatArray, IntArray
from trnbench.calibration.collective_stack import Tuning
from trnbench.emulate.collective.like_messages import RoundClasses, like_messages
from trnbench.emulate.collective.play import (
    PlayedCollective,
    after_round,
    busy_time,
    link_totals,
    pace,
    play,
    reached_capacity,
)
from trnbench.emulate.collective.sharing import fair_rates
from trnbench.errors import InputError
from trnbench.mapping.message_plan.chunks import chunks_of, turns
from trnbench.mapping.message_plan.placed import Placed, PlacedRound
from trnbench.mapping.message_plan.select import Selected, selected_for
from trnbench.records import dataclass

STEPS_PER_RUN = 16
REMEMBERED = 4096
"""Sets of steps whose speeds are remembered."""
_EQUAL = 1e-9


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ChunkStream:
    """One collective among several: when it starts, and into how many chunks it is cut."""

    placed: Placed
    tuning: Tuning
    size_bytes: float
    chunks: int = 1
    start_s: float = 0.0


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Together:
    """Several collectives played at once: when each ended (s), and what each link carried."""

    end_s: tuple[float, ...]
    link_bytes: FloatArray
    messages: int


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """Rounds joined, by class of like messages: bytes of each, its latency, and what follows all.

    `messages` counts all of them.
    """

    key: int
    classes: RoundClasses
    size_bytes: FloatArray
    latency_s: FloatArray
    after_s: float
    messages: int


@dataclass(slots=True, eq=False)
class _Running:
    """A step under way; `going`: classes of messages that are."""

    step: _Step
    task: tuple[int, int, int]
    position: int
    ends_s: float
    going: int


@dataclass(slots=True, eq=False)
class _OnTheWay:
    """What is under way, a row for each class of messages: whose, what is left, what it crosses."""

    whose: list[_Running]
    owner: IntArray
    left: FloatArray
    size_bytes: FloatArray
    latency_s: FloatArray
    links: IntArray
    crossing: FloatArray

    @property
    def whole(self) -> bool:
        """Whether nothing of the steps under way has ended."""
        return len(self.left) == sum(len(running.step.size_bytes) for running in self.whose)

    def with_more(self, new: list[_Running], none: int) -> _OnTheWay:
        """Return it with steps that begin."""
        wide = max(self.links.shape[1], *(r.step.classes.links.shape[1] for r in new))

        def joined(own: IntArray | FloatArray, name: str, fill: float) -> Any:  # noqa: ANN401
            parts = [own, *(getattr(running.step.classes, name) for running in new)]
            return np.concatenate(
                [np.pad(p, ((0, 0), (0, wide - p.shape[1])), constant_values=fill) for p in parts]
            )

        rows = [len(running.step.size_bytes) for running in new]
        owners = len(self.whose) + np.arange(len(new))
        sizes = [running.step.size_bytes for running in new]
        return _OnTheWay(
            whose=[*self.whose, *new],
            owner=np.concatenate([self.owner, np.repeat(owners, rows)]),
            left=np.concatenate([self.left, *sizes]),
            size_bytes=np.concatenate([self.size_bytes, *sizes]),
            latency_s=np.concatenate([self.latency_s, *(r.step.latency_s for r in new)]),
            links=joined(self.links, "links", none),
            crossing=joined(self.crossing, "crossing", 0.0),
        )

    def without(self, ended: BoolArray) -> _OnTheWay:
        """Return it without the rows that ended, and without steps of which nothing is left."""
        staying = [running.going > 0 for running in self.whose]
        number = np.cumsum(staying) - 1
        kept = ~ended
        return _OnTheWay(
            whose=[running for running, stays in zip(self.whose, staying, strict=True) if stays],
            owner=number[self.owner[kept]],
            left=self.left[kept],
            size_bytes=self.size_bytes[kept],
            latency_s=self.latency_s[kept],
            links=self.links[kept],
            crossing=self.crossing[kept],
        )


_NOTHING = _OnTheWay(
    whose=[],
    owner=np.zeros(0, dtype=np.int64),
    left=np.zeros(0),
    size_bytes=np.zeros(0),
    latency_s=np.zeros(0),
    links=np.zeros((0, 1), dtype=np.int64),
    crossing=np.zeros((0, 1)),
)


def play_selected(
    selected: Sequence[Selected], size_bytes: float
) -> tuple[Selected, PlayedCollective]:
    """Return the algorithm selected for a size, and that collective as played."""
    sizes = np.array([float(size_bytes)])
    choice = selected[int(selected_for(selected, sizes)[0])]
    chunks = int(chunks_of(choice.tuning, len(choice.placed.plan.phases), sizes)[0])
    return choice, play_chunked(choice.placed, choice.tuning, size_bytes, chunks)


def play_chunked(
    placed: Placed, tuning: Tuning, size_bytes: float, chunks: int
) -> PlayedCollective:
    """Return one collective with its chunks overlapping; one chunk is played in plain rounds."""
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
    """Return several collectives of one cluster played at once.

    A link that two stacks reach with different shares gives the smaller one.
    """
    return _Stage(streams, steps_per_run).run()


class _Stage:
    """The clock, what is on its way, and what waits for what."""

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
        like = like_messages(list(rounds.values()), capacity) if rounds else None
        classes = dict(zip(rounds, like.rounds, strict=True)) if like else {}
        self.capacity = like.capacity if like else capacity
        keys = itertools.count()
        self.steps = [_steps(stream, steps_per_run, classes, keys) for stream in streams]
        self.under_way = _NOTHING
        self.beginning: list[_Running] = []
        self.turns = [_turns_by_lane(stream) for stream in streams]
        self.ready: set[tuple[int, int, int]] = set()
        self.busy: set[tuple[int, int]] = set()
        self.end = [
            stream.start_s + (stream.tuning.launch_s if stream.placed.rounds else 0.0)
            for stream in streams
        ]
        self.queue: list[tuple[float, int, tuple[int, int, int], int]] = []
        self.serial = itertools.count()
        self.speeds: dict[tuple[int, ...] | None, FloatArray] = {}
        self.messages = 0

    def run(self) -> Together:
        """Play until nothing is left."""
        for number, stream in enumerate(self.streams):
            if self.steps[number]:
                self.ready |= {(number, chunk, 0) for chunk in range(stream.chunks)}
                self._next_on(self._lane((number, 0, 0)), self.end[number])
        now = 0.0
        while self.queue or self.under_way.whose or self.beginning:
            if self.beginning:
                none = len(self.capacity) - 1
                self.under_way = self.under_way.with_more(self.beginning, none)
                self.beginning = []
            rates = self._rates()
            through = float((self.under_way.left / rates).min()) if len(rates) else np.inf
            calls = self.queue[0][0] - now if self.queue else np.inf
            step = min(through, calls)
            now += step
            self._advance(rates, step, now)
            while self.queue and self.queue[0][0] <= now * (1 + 1e-15):
                _, _, task, position = heapq.heappop(self.queue)
                self._begin(task, position, now)
        carried = np.sum([link_totals(s.placed, s.size_bytes) for s in self.streams], axis=0)
        return Together(
            end_s=tuple(self.end),
            link_bytes=carried,
            messages=self.messages,
        )

    def _call(self, time: float, task: tuple[int, int, int], position: int) -> None:
        heapq.heappush(self.queue, (time, next(self.serial), task, position))

    def _begin(self, task: tuple[int, int, int], position: int, now: float) -> None:
        """Start the step of a task that is due, or end the task and start what waited for it."""
        stream, chunk, phase = task
        steps = self.steps[stream][phase]
        if position < len(steps):
            step = steps[position]
            self.beginning.append(_Running(step, task, position, now, len(step.size_bytes)))
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
        """Return the speed of what is on its way; sets of steps seen before are remembered."""
        found = self.under_way
        key = tuple(running.step.key for running in found.whose) if found.whole else None
        if key in self.speeds:
            return self.speeds[key]
        rates = fair_rates(found.links, self.capacity, found.crossing)
        if key is not None and len(self.speeds) < REMEMBERED:
            self.speeds[key] = rates
        return rates

    def _advance(self, rates: FloatArray, step: float, now: float) -> None:
        """Move everything on by `step`, and call the end of what has got through."""
        found = self.under_way
        found.left = found.left - rates * step
        ended = found.left <= _EQUAL * found.size_bytes
        if not ended.any():
            return
        rows = np.flatnonzero(ended)
        owners = found.owner[rows].tolist()
        for owner, latency_s in zip(owners, found.latency_s[rows].tolist(), strict=True):
            running = found.whose[owner]
            running.ends_s = max(running.ends_s, now + latency_s)
            running.going -= 1
        for owner in dict.fromkeys(owners):
            running = found.whose[owner]
            if running.going:
                continue
            end = running.ends_s + running.step.after_s
            self._call(end, running.task, running.position + 1)
        self.under_way = found.without(ended)


def _turns_by_lane(stream: ChunkStream) -> dict[int, deque[tuple[int, int]]]:
    lanes = tuple(phase.lane for phase in stream.placed.plan.phases)
    found: dict[int, deque[tuple[int, int]]] = {lane: deque() for lane in lanes}
    for chunk, phase in turns(lanes, stream.chunks):
        found[lanes[phase]].append((chunk, phase))
    return found


def _content(found: PlacedRound) -> Hashable:
    """Return what tells rounds apart as far as sharing links is concerned."""
    parts = (found.links, found.share, found.latency_s, found.remote)
    return found.links.shape, *(part.tobytes() for part in parts)


def _steps(
    stream: ChunkStream,
    per_run: int,
    classes: Mapping[Hashable, RoundClasses],
    keys: itertools.count[int],
) -> list[list[_Step]]:
    """Return the steps of each phase for one chunk."""
    phases: list[list[_Step]] = [[] for _ in stream.placed.plan.phases]
    size = stream.size_bytes / stream.chunks
    for found in stream.placed.rounds:
        alike = classes[_content(found)]
        latency = pace(stream.placed, stream.tuning, found, size)[alike.first]
        after = after_round(stream.placed, found, stream.tuning, size)
        runs = min(found.times, per_run)
        for count, repeats in _runs(found.times, runs):
            step = _Step(
                next(keys),
                alike,
                found.share[alike.first] * size * count,
                latency * count,
                after * count,
                len(found.source) * count,
            )
            phases[found.phase] += [step] * repeats
    return phases


def _runs(times: int, runs: int) -> list[tuple[int, int]]:
    """Return (rounds joined, how many such steps), `runs` steps in all."""
    short, longer = divmod(times, runs)
    return [(n, r) for n, r in ((short + 1, longer), (short, runs - longer)) if n and r]
