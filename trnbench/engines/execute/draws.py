"""All random numbers, drawn by purpose: first weights, the noise of rounding, and texts.

A draw depends on the seed and on the name of a whole weight, its layer, the step; not on the layout
or the order in which ranks work.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod, sqrt
from typing import Literal
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from trnbench.engines.execute.arithmetic import NoiseArray, Numbers
from trnbench.errors import InputError
from trnbench.facts.arrays import IntArray
from trnbench.facts.records import Record
from trnbench.program.ends import TOKEN_TABLE
from trnbench.program.parameters import B
from trnbench.program.tensor import Tensor

_FIRST_SPREAD = 0.02  # Of GPT-2; products that add to the stream get less, by depth
_INTO_STREAM = ("attention.output", ".down")


def number_of(name: str, layer: int) -> int:
    """Number of a weight: that of its layer; copies of the token table share a number."""
    return 0 if name == TOKEN_TABLE else layer


class Draws(Record):
    """The random numbers of one run of a model."""

    seed: int
    layers: int

    def first_weights(self, weights: Iterable[Tensor], layer: int) -> Numbers:
        return np.concatenate([self._first(weight, layer).reshape(-1) for weight in weights])

    def _first(self, weight: Tensor, layer: int) -> Numbers:
        shape = [int(dim.whole) for dim in weight.dims]
        if weight.name.endswith((".bias", B)):
            # Beside a B of zeros an adapter changes nothing yet.
            return np.zeros(shape)
        if "norm" in weight.name:
            return np.ones(shape)
        spread = _FIRST_SPREAD
        if weight.name.endswith(_INTO_STREAM):
            spread /= sqrt(2 * self.layers)
        return np.random.default_rng(self._words(weight.name, layer)).normal(0.0, spread, shape)

    def noise(self, weights: Iterable[Tensor], layer: int, state: str, step: int) -> NoiseArray:
        """32 random bits for each element of the whole weights, for one state in a step."""
        found = []
        for weight in weights:
            count = prod(int(dim.whole) for dim in weight.dims)
            drawn = np.random.PCG64(
                self._words(weight.name, layer, crc32(state.encode()), step + 1)
            )
            # Two of 32 bits in one draw of 64, the low half first.
            pairs = drawn.random_raw(-(-count // 2))
            found.append(pairs.astype("<u8", copy=False).view("<u4")[:count])
        return np.concatenate(found)

    def _words(self, name: str, *where: int) -> NDArray[np.uint32]:
        """Seed of a draw in 32-bit words, the low word first: the fastest form for numpy."""
        layer, *more = where
        # Names enter by a checksum, not by Python's hash, which differs from process to process.
        numbers = (self.seed, crc32(name.encode()), number_of(name, layer), *more)
        sizes = (max(1, -(-number.bit_length() // 32)) for number in numbers)
        words = (
            number.to_bytes(4 * size, "little") for number, size in zip(numbers, sizes, strict=True)
        )
        return np.frombuffer(b"".join(words), dtype="<u4").astype(np.uint32)


Task = Literal["markov", "copy"]
TASKS: tuple[Task, ...] = ("markov", "copy")

_FOLLOWERS = 8  # Words that may follow a word of the chain
_TABLE, _STEPS = 0, 1  # Streams of random numbers: the chain itself, and the texts of each step


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
        count = min(_FOLLOWERS, self.vocabulary)
        table = np.random.default_rng([self.seed, _TABLE])
        followers = table.integers(0, self.vocabulary, (self.vocabulary, count))
        text = np.empty((samples, length + 1), dtype=np.int64)
        text[:, 0] = generator.integers(0, self.vocabulary, samples)
        choices = np.minimum(generator.geometric(0.5, (samples, length)), followers.shape[1]) - 1
        for i in range(length):
            text[:, i + 1] = followers[text[:, i], choices[:, i]]
        return text


def text_of(task: str, vocabulary: int, seed: int) -> Text:
    """Text of a task; an unknown one, or no words at all, is an input error."""
    known = {name: name for name in TASKS}
    if task not in known:
        raise InputError(f"unknown task {task!r}", hint=f"known: {', '.join(TASKS)}")
    if vocabulary < 2:
        raise InputError(f"a text needs at least 2 words, not {vocabulary}")
    return Text(task=known[task], vocabulary=vocabulary, seed=seed)
