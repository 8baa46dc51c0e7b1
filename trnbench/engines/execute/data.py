"""Texts to train on that need no download: a Markov chain, and a copy task; drawn step by step."""

from __future__ import annotations

from typing import Literal

import numpy as np

from trnbench.errors import InputError
from trnbench.facts.arrays import IntArray
from trnbench.facts.records import Record

Task = Literal["markov", "copy"]
TASKS: tuple[Task, ...] = ("markov", "copy")

_FOLLOWERS = 8
"""Words that may follow a word of the chain."""
_TABLE, _STEPS = 0, 1
"""Streams of random numbers: the chain itself, and the texts of each step."""


class Text(Record):
    """Words of each step; the same for the same seed and step, in any layout.

    `markov`: each word is followed by one of a few, with shares that fall by half from one to the
    next. `copy`: the second half of a text repeats its first half.
    """

    task: Task
    vocabulary: int
    seed: int

    def batch(self, step: int, samples: int, length: int) -> IntArray:
        """[sample, word] texts one word longer than `length`: inputs and their followers."""
        generator = np.random.default_rng([self.seed, _STEPS, step])
        if self.task == "copy":
            half = generator.integers(0, self.vocabulary, (samples, length // 2 + 1))
            return np.concatenate([half, half], axis=1)[:, : length + 1]
        followers = self._followers()
        text = np.empty((samples, length + 1), dtype=np.int64)
        text[:, 0] = generator.integers(0, self.vocabulary, samples)
        choices = np.minimum(generator.geometric(0.5, (samples, length)), followers.shape[1]) - 1
        for i in range(length):
            text[:, i + 1] = followers[text[:, i], choices[:, i]]
        return text

    def _followers(self) -> IntArray:
        generator = np.random.default_rng([self.seed, _TABLE])
        count = min(_FOLLOWERS, self.vocabulary)
        return generator.integers(0, self.vocabulary, (self.vocabulary, count))


def text_of(task: str, vocabulary: int, seed: int) -> Text:
    """Text of a task; an unknown one, or no words at all, is an input error."""
    known = {name: name for name in TASKS}
    if task not in known:
        raise InputError(f"unknown task {task!r}", hint=f"known: {', '.join(TASKS)}")
    if vocabulary < 2:
        raise InputError(f"a text needs at least 2 words, not {vocabulary}")
    return Text(task=known[task], vocabulary=vocabulary, seed=seed)
