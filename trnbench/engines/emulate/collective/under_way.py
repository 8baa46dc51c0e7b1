"""Messages of overlapping collectives under way at a moment: bytes left, and their owners."""

from __future__ import annotations

import numpy as np

from trnbench.facts.arrays import FloatArray, IntArray
from trnbench.facts.records import Record, State

_EQUAL = 1e-9


class Step(Record, kw_only=False, eq=False):
    """Rounds joined, by class of equal messages: bytes and latency of each message."""

    classes: IntArray
    size_bytes: FloatArray
    latency_s: FloatArray
    after_s: float
    """Seconds between the end of all messages and the end of the step."""
    messages: int
    """All messages of the step."""


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
        """True while any message is under way."""
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
        """Advance all messages, and return the places of those that have arrived."""
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
        """Double the places, and add the number needed."""
        before = len(self.owner)
        more = before + count
        self.owner += [None] * more
        self.free += range(before, before + more)
        self.left = np.append(self.left, np.full(more, np.inf))
        self.latency_s, self.through_bytes = (
            np.append(array, np.zeros(more)) for array in (self.latency_s, self.through_bytes)
        )
        self.of_class = np.append(self.of_class, np.full(more, self.nothing))
