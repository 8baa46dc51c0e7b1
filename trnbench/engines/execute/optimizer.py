"""Keeping replicas alike and updating weights: gradient sums, clipping, AdamW, in ZeRO slices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Literal, TypeAlias

import numpy as np

from trnbench.engines.execute.arithmetic import Arithmetic, NoiseArray, Numbers
from trnbench.engines.execute.exchange import Exchanger
from trnbench.engines.execute.shards import (
    GRADIENTS_SLICED,
    OPTIMIZER_SLICED,
    WEIGHTS_SLICED,
    BucketShape,
)
from trnbench.errors import InputError
from trnbench.facts.arrays import IntArray
from trnbench.facts.records import Record
from trnbench.program.ops import CollectiveOp

StateName: TypeAlias = Literal["weights", "mean", "square", "master"]
_NORM_GUARD = 1e-6
_TOGETHER = 1 << 15  # Elements updated at a time, which stay in a core's cache meanwhile


class AdamW(Record):
    """Settings of the optimizer; gradients are clipped to a norm of `clip`, weights shrink.

    The rate rises over the first `warm_up` steps and stays.
    """

    learning_rate: float = 1e-3
    warm_up: int = 10
    mean_decay: float = 0.9
    square_decay: float = 0.95
    guard: float = 1e-8
    weight_decay: float = 0.1
    clip: float = 1.0

    def __post_init__(self) -> None:
        """Refuse settings that cannot train."""
        for name in ("learning_rate", "guard", "clip"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be positive, found {getattr(self, name)}")
        for name in ("mean_decay", "square_decay"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"{name} must be from 0 to 1, found {getattr(self, name)}")

    def rate(self, step: int) -> float:
        return self.learning_rate * min(1.0, (step + 1) / max(self.warm_up, 1))


def _mover(
    settings: AdamW, step: int
) -> Callable[[Numbers, Numbers, Numbers, Numbers, Numbers], None]:
    """Function that turns gradients into new weights, and old moments into new ones, in place."""
    # A mean has this share of its limit after so many steps.
    mean_share = 1 - settings.mean_decay ** (step + 1)
    square_share = 1 - settings.square_decay ** (step + 1)
    rate = settings.rate(step)

    def move(numbers: Numbers, mean: Numbers, square: Numbers, old: Numbers, room: Numbers) -> None:
        # AdamW step by step in place: `room` is the only temporary, so that a part stays in cache.
        mean *= settings.mean_decay
        mean += np.multiply(numbers, 1 - settings.mean_decay, out=room)
        square *= settings.square_decay
        np.multiply(numbers, 1 - settings.square_decay, out=room)
        room *= numbers
        square += room
        np.divide(square, square_share, out=room)
        np.sqrt(room, out=room)
        room += settings.guard
        np.divide(mean, mean_share, out=numbers)
        numbers /= room
        numbers += np.multiply(old, settings.weight_decay, out=room)
        numbers *= rate
        np.subtract(old, numbers, out=numbers)

    return move


class HeldWeights:
    """The weights of one block's bucket on all ranks of a stage, from the whole of them.

    Slices under ZeRO 3. Of a frozen bucket they are all that ranks hold.
    """

    def __init__(self, shape: BucketShape, exchange: Exchanger, whole: Numbers) -> None:
        self.shape = shape
        self._exchange = exchange
        self.weights = self._own(shape.taken(whole, shape.place), since=WEIGHTS_SLICED)

    def _own(self, flat: Numbers, *, since: int) -> Numbers:
        if self.shape.zero < since:
            return flat.copy()
        return self._exchange.slice_of(flat, self.shape.shard)

    def whole_weights(self) -> Numbers:
        sliced = self.shape.zero >= WEIGHTS_SLICED
        return self.shape.joined(self.weights, self.shape.own_place if sliced else self.shape.place)

    def gather(self, op: CollectiveOp | None) -> Numbers:
        """All weights for a pass through the block; under ZeRO 3 they come together."""
        if self.shape.zero < WEIGHTS_SLICED:
            return self.weights
        if op is None:
            return self.weights[:, : self.shape.elements]
        return self._exchange.flat(op, self.weights)


class BucketState(HeldWeights):
    """The weights, gradients and optimizer state of one block's bucket on all ranks of a stage.

    `weights` are slices under ZeRO 3, `gradients` since ZeRO 2, the rest since ZeRO 1.
    """

    def __init__(
        self, shape: BucketShape, arithmetic: Arithmetic, exchange: Exchanger, first: Numbers
    ) -> None:
        recipe = arithmetic.recipe
        whole = first.astype(arithmetic.dtype)
        super().__init__(shape, exchange, arithmetic.store(whole, recipe.weights))
        self._arithmetic = arithmetic
        exact = shape.taken(whole, shape.place)
        self.gradients = np.zeros_like(self._own(exact, since=GRADIENTS_SLICED))
        self.summed = self.gradients
        self.mean = np.zeros_like(self._own(exact, since=OPTIMIZER_SLICED))
        self.square = np.zeros_like(self.mean)
        self.master: Numbers | None = None
        if recipe.master is not None:
            master = self._own(exact, since=OPTIMIZER_SLICED)
            self.master = arithmetic.store(master, recipe.master)
        self.updated = self.weights
        once = shape.held_once()
        self._once = None if once.all() else once

    # The whole, for who wants to keep or compare it

    def whole(self) -> Mapping[StateName, Numbers]:
        """Weights and state over all elements of the bucket's whole weights, by name."""
        shape = self.shape
        state: dict[StateName, Numbers] = {
            "weights": self.whole_weights(),
            "mean": shape.joined(self.mean, shape.own_place),
            "square": shape.joined(self.square, shape.own_place),
        }
        if self.master is not None:
            state["master"] = shape.joined(self.master, shape.own_place)
        return state

    def restore(self, whole: Mapping[StateName, Numbers]) -> None:
        """Take the arrays that `whole` returned, cut to this layout."""
        shape = self.shape
        place = shape.own_place if shape.zero >= WEIGHTS_SLICED else shape.place
        self.weights[...] = shape.taken(whole["weights"], place)
        self.mean = shape.taken(whole["mean"], shape.own_place)
        self.square = shape.taken(whole["square"], shape.own_place)
        if self.master is not None:
            self.master = shape.taken(whole["master"], shape.own_place)

    def whole_sums(self) -> Numbers:
        return self.shape.joined(self.summed, self.shape.own_place)

    def clear(self) -> None:
        self.gradients = np.zeros_like(self.gradients)

    # Gradients of micro-batches

    def add(self, name: str, gradient: Numbers) -> None:
        """Add a weight's gradient of one micro-batch to the sum that the rank keeps."""
        # Rounded after every micro-batch, as software keeps the sum in the gradients' format.
        into = self.shape.spans[name].of(self.gradients)
        recipe = self._arithmetic.recipe
        into += gradient
        rounded = self._arithmetic.store(into, recipe.gradients)
        if rounded is not into:
            into[...] = rounded

    def add_flat(self, gradients: Numbers, op: CollectiveOp | None) -> None:
        """Add all gradients of one micro-batch to the slices that ranks keep."""
        store, recipe = self._arithmetic.store, self._arithmetic.recipe
        if op is not None:
            travelling = store(gradients, recipe.reduction)
            gradients = store(self._exchange.flat(op, travelling), recipe.reduction)
        self.gradients = store(self.gradients + gradients, recipe.gradients)

    # The end of a step

    def sum_within_stage(self, op: CollectiveOp) -> None:
        """Sum gradients of weights that ranks of a stage hold alike though their work differs."""
        columns, group = self.shape.alike, None
        if op.axis == "kv_copies":
            columns, group = self.shape.shared, self.shape.copies
        part = self.gradients_at(columns)
        self.put_gradients(columns, self._exchange.flat(op, part, group=group))

    def gradients_at(self, columns: IntArray) -> Numbers:
        return self._sent(self._spread()[:, _run(columns)])

    def put_gradients(self, columns: IntArray, summed: Numbers) -> None:
        """Take over the sums of some elements, as far as each rank keeps them."""
        flat = self._spread()
        flat[:, _run(columns)] = self._arithmetic.store(summed, self._arithmetic.recipe.gradients)
        if self.shape.zero < GRADIENTS_SLICED:
            self.gradients = flat
        else:
            self.gradients = self._exchange.slice_of(flat, self.shape.shard)

    def _spread(self) -> Numbers:
        if self.shape.zero < GRADIENTS_SLICED:
            return self.gradients
        count = self.shape.shards
        at = self._exchange.coordinate(self.shape.shard)[:, None, None]
        pieces = np.zeros((*self.gradients.shape, count), dtype=self.gradients.dtype)
        np.put_along_axis(pieces, at, self.gradients[..., None], axis=-1)
        return pieces.reshape(len(pieces), -1)[:, : self.shape.elements]

    def reduce(self, op: CollectiveOp | None) -> None:
        """Sum gradients over the replicas: all of them, or each its slice under ZeRO 1."""
        store, recipe = self._arithmetic.store, self._arithmetic.recipe
        if op is not None:
            summed = self._exchange.flat(op, self._sent(self.gradients))
            self.summed = store(summed, recipe.reduction)
        elif self.shape.zero == OPTIMIZER_SLICED:
            self.summed = self._exchange.slice_of(self.gradients, self.shape.shard)
        else:
            self.summed = self.gradients

    def sum_copies(self, op: CollectiveOp | None) -> None:
        """Sum slices over the groups that keep the same, where a group is not all replicas."""
        if op is not None:
            store, recipe = self._arithmetic.store, self._arithmetic.recipe
            summed = self._exchange.flat(op, self._sent(self.summed))
            self.summed = store(summed, recipe.reduction)

    def _sent(self, gradients: Numbers) -> Numbers:
        """Gradients that ranks keep as they travel."""
        arithmetic, recipe = self._arithmetic, self._arithmetic.recipe
        if recipe.gradients == recipe.reduction and arithmetic.settles(recipe.reduction):
            return gradients
        return arithmetic.store(gradients, recipe.reduction)

    def squares(self, left_out: IntArray) -> Numbers:
        """Each rank's sum of squares, of elements that no other rank counts."""
        counted = self.summed if self._once is None else np.where(self._once, self.summed, 0)
        if left_out.size:
            flat = np.zeros((len(counted), self.shape.elements), dtype=counted.dtype)
            flat[:, left_out] = 1
            counted = counted * (1 - self._own(flat, since=OPTIMIZER_SLICED))
        return np.asarray(np.square(counted, dtype=np.float64).sum(axis=1))

    def update(
        self, settings: AdamW, step: int, share: float, noise: Callable[[str], NoiseArray | None]
    ) -> None:
        """Update what ranks work on with gradients times `share`; `noise` rounds by a state's name.

        An engine holds FP32: weights move by the new mean and square as they were computed.
        """
        recipe, move = self._arithmetic.recipe, _mover(settings, step)
        old = self.weights if self.master is None else self.master
        if old.shape != self.mean.shape:
            old = self._exchange.slice_of(old, self.shape.shard)
        # Noise is drawn for whole weights before the loop: parts of it belong to fixed elements.
        updated = np.empty_like(self.mean)
        drawn = [noise(name) for name in ("mean", "square", "weights")]
        room = np.empty(min(_TOGETHER, updated.shape[1]), dtype=updated.dtype)
        for rank, start in product(range(len(updated)), range(0, updated.shape[1], _TOGETHER)):
            part = rank, slice(start, start + _TOGETHER)
            bits = [None if whole is None else whole[part] for whole in drawn]
            new, mean, square = updated[part], self.mean[part], self.square[part]
            np.multiply(self.summed[part], share, out=new)
            move(new, mean, square, old[part], room[: new.size])
            if self.master is not None and recipe.master is not None:
                self.master[part] = self._arithmetic.store(new, recipe.master)
            formats = (recipe.moments, recipe.moments, recipe.weights)
            for numbers, written, noisy in zip((mean, square, new), formats, bits, strict=True):
                rounded = self._arithmetic.update(numbers, written, noisy)
                if rounded is not numbers:
                    numbers[...] = rounded
        self.updated = updated
        self.clear()

    def publish(self, op: CollectiveOp | None) -> None:
        """Bring the new weights to every replica."""
        if op is not None:
            self.weights[...] = self._exchange.flat(op, self.updated)
        else:
            self.weights[...] = self.updated[:, : self.weights.shape[1]]


def _run(columns: IntArray) -> IntArray | slice:
    """Ascending columns; neighbours as a slice, which numpy copies a row at a time."""
    if columns.size and columns[-1] - columns[0] + 1 == columns.size:
        return slice(int(columns[0]), int(columns[-1]) + 1)
    return columns


def share_kept(squares: float, settings: AdamW) -> float:
    norm = float(np.sqrt(squares))
    return min(1.0, settings.clip / (norm + _NORM_GUARD))
