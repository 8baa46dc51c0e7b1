"""Keeping replicas alike and updating weights: gradient sums, clipping, AdamW, in ZeRO slices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from trnbench.arrays import IntArray
from trnbench.errors import InputError
from trnbench.execute.arithmetic import Arithmetic, NoiseArray, Numbers
from trnbench.execute.exchange import Exchanger
from trnbench.execute.shards import (
    GRADIENTS_SLICED,
    OPTIMIZER_SLICED,
    WEIGHTS_SLICED,
    BucketShape,
)
from trnbench.program.ops import CollectiveOp

StateName: TypeAlias = Literal["weights", "mean", "square", "master"]
_NORM_GUARD = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamW:
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
                raise InputError(f"{name} must lie in 0 .. 1, found {getattr(self, name)}")

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        return self.learning_rate * min(1.0, (step + 1) / max(self.warm_up, 1))


class BucketState:
    """The weights, gradients and optimizer state of one block's bucket on all ranks of a stage.

    `weights` are slices under ZeRO 3, `gradients` since ZeRO 2, the rest since ZeRO 1.
    """

    def __init__(
        self, shape: BucketShape, arithmetic: Arithmetic, exchange: Exchanger, first: Numbers
    ) -> None:
        recipe = arithmetic.recipe
        self.shape = shape
        self._arithmetic = arithmetic
        self._exchange = exchange
        exact = shape.taken(first, shape.place).astype(arithmetic.dtype)
        weights = arithmetic.store(exact, recipe.weights)
        self.weights = self._own(weights, since=WEIGHTS_SLICED)
        self.gradients = np.zeros_like(self._own(weights, since=GRADIENTS_SLICED))
        self.summed = self.gradients
        self.mean = np.zeros_like(self._own(weights, since=OPTIMIZER_SLICED))
        self.square = np.zeros_like(self.mean)
        self.master: Numbers | None = None
        if recipe.master is not None:
            master = self._own(exact, since=OPTIMIZER_SLICED)
            self.master = arithmetic.store(master, recipe.master)
        self.updated = self.weights
        self._once = shape.held_once()

    def _own(self, flat: Numbers, *, since: int) -> Numbers:
        if self.shape.zero < since:
            return flat.copy()
        return self._exchange.slice_of(flat, self.shape.axis)

    # The whole, for who wants to keep or compare it

    def whole(self) -> Mapping[StateName, Numbers]:
        """Return weights and state over all elements of the bucket's whole weights, by name."""
        shape = self.shape
        sliced = shape.zero >= WEIGHTS_SLICED
        found: dict[StateName, Numbers] = {
            "weights": shape.joined(self.weights, shape.own_place if sliced else shape.place),
            "mean": shape.joined(self.mean, shape.own_place),
            "square": shape.joined(self.square, shape.own_place),
        }
        if self.master is not None:
            found["master"] = shape.joined(self.master, shape.own_place)
        return found

    def restore(self, whole: Mapping[StateName, Numbers]) -> None:
        """Take over what `whole` returned, in this layout."""
        shape = self.shape
        sliced = shape.zero >= WEIGHTS_SLICED
        place = shape.own_place if sliced else shape.place
        self.weights[...] = shape.taken(whole["weights"], place)
        self.mean = shape.taken(whole["mean"], shape.own_place)
        self.square = shape.taken(whole["square"], shape.own_place)
        if self.master is not None:
            self.master = shape.taken(whole["master"], shape.own_place)

    def whole_sums(self) -> Numbers:
        """Return the gradients summed over all replicas, over all elements of the bucket."""
        return self.shape.joined(self.summed, self.shape.own_place)

    def clear(self) -> None:
        """Forget the gradients of this step."""
        self.gradients = np.zeros_like(self.gradients)

    # Gradients of micro-batches

    def gather(self, op: CollectiveOp | None) -> Numbers:
        """Return all weights for a pass through the block; under ZeRO 3 they come together."""
        if self.shape.zero < WEIGHTS_SLICED:
            return self.weights
        if op is None:
            return self.weights[:, : self.shape.elements]
        return self._exchange.flat(op, self.weights)

    def add(self, name: str, gradient: Numbers) -> None:
        """Add a weight's gradient of one micro-batch to the sum that the rank keeps."""
        into = self.shape.spans[name].of(self.gradients)
        recipe = self._arithmetic.recipe
        into[...] = self._arithmetic.store(into + gradient, recipe.gradients)

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
        columns, group = (
            (self.shape.shared, self.shape.copies)
            if op.axis == "kv_copies"
            else (self.shape.alike, None)
        )
        part = self.gradients_at(columns)
        self.put_gradients(columns, self._exchange.flat(op, part, group=group))

    def gradients_at(self, columns: IntArray) -> Numbers:
        """Return the gradients of some elements as they travel, zero where others keep them."""
        return self._arithmetic.store(self._spread()[:, columns], self._arithmetic.recipe.reduction)

    def put_gradients(self, columns: IntArray, summed: Numbers) -> None:
        """Take over the sums of some elements, as far as each rank keeps them."""
        flat = self._spread()
        flat[:, columns] = self._arithmetic.store(summed, self._arithmetic.recipe.gradients)
        if self.shape.zero < GRADIENTS_SLICED:
            self.gradients = flat
        else:
            self.gradients = self._exchange.slice_of(flat, self.shape.axis)

    def _spread(self) -> Numbers:
        """Return gradients at their places in the bucket."""
        if self.shape.zero < GRADIENTS_SLICED:
            return self.gradients
        count = self.shape.replicas
        at = self._exchange.coordinate(self.shape.axis)[:, None, None]
        pieces = np.zeros((*self.gradients.shape, count), dtype=self.gradients.dtype)
        np.put_along_axis(pieces, at, self.gradients[..., None], axis=-1)
        return pieces.reshape(len(pieces), -1)[:, : self.shape.elements]

    def reduce(self, op: CollectiveOp | None) -> None:
        """Sum gradients over the replicas: all of them, or each its slice under ZeRO 1."""
        store, recipe = self._arithmetic.store, self._arithmetic.recipe
        if op is not None:
            summed = self._exchange.flat(op, store(self.gradients, recipe.reduction))
            self.summed = store(summed, recipe.reduction)
        elif self.shape.zero == OPTIMIZER_SLICED:
            self.summed = self._exchange.slice_of(self.gradients, self.shape.axis)
        else:
            self.summed = self.gradients

    def squares(self, left_out: IntArray) -> Numbers:
        """Return each rank's sum of squares, of elements that no other rank counts."""
        counted = np.where(self._once, self.summed, 0)
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
        recipe, update = self._arithmetic.recipe, self._arithmetic.update
        old = self.master
        if old is None:
            of_all = self.weights.shape == self.mean.shape
            old = self.weights if of_all else self._exchange.slice_of(self.weights, self.shape.axis)
        gradient = self.summed * share
        mean = settings.mean_decay * self.mean + (1 - settings.mean_decay) * gradient
        square = settings.square_decay * self.square
        square += (1 - settings.square_decay) * gradient * gradient
        self.mean = update(mean, recipe.moments, noise("mean"))
        self.square = update(square, recipe.moments, noise("square"))
        moved = mean / (1 - settings.mean_decay ** (step + 1))
        root = np.sqrt(square / (1 - settings.square_decay ** (step + 1)))
        root += settings.guard
        moved /= root
        moved += settings.weight_decay * old
        moved *= settings.rate(step)
        new = old - moved
        if recipe.master is not None:
            self.master = self._arithmetic.store(new, recipe.master)
        self.updated = update(new, recipe.weights, noise("weights"))
        self.clear()

    def publish(self, op: CollectiveOp | None) -> None:
        """Bring the new weights to every replica."""
        if op is not None:
            self.weights[...] = self._exchange.flat(op, self.updated)
        else:
            self.weights[...] = self.updated[:, : self.weights.shape[1]]


def share_kept(squares: float, settings: AdamW) -> float:
    """Return the factor of gradients that makes their norm at most the limit."""
    norm = float(np.sqrt(squares))
    return min(1.0, settings.clip / (norm + _NORM_GUARD))
