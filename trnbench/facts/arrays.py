"""Names for the numpy array types of annotations, and operations on arrays of values. Layer 0."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

BoolArray: TypeAlias = NDArray[np.bool_]
Float32Array: TypeAlias = NDArray[np.float32]
FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
Number: TypeAlias = FloatArray | float

_FEW = 32
"""Up to this many numbers, Python's sort is faster than numpy's fixed cost."""
_WIDE = 128
"""Entries of a table for each number that is looked up, up to which numpy's sort is slower."""


_BLOCK_BYTES = 2**25 - 2**16
"""Just below the largest block after which glibc sets what it hands back (`mallopt`)."""


def keep_freed_memory() -> None:
    """Let the process keep what arrays free, for the arrays after them.

    Pages that are handed back cost a fault each when they are needed again. glibc hands back what
    is larger than the largest block freed so far, so one such block, never written to, is freed.
    """
    np.empty(_BLOCK_BYTES, dtype=np.uint8)


def distinct(values: NDArray[Any]) -> NDArray[Any]:
    """Distinct numbers of an array, ascending; `np.unique` would import masked arrays."""
    ordered = np.sort(values, axis=None)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if ordered.size else ordered


def some(values: NDArray[Any] | np.bool_ | float) -> bool:
    """True where a number is not 0: `np.any` without its cost for a single number."""
    if type(values) is np.ndarray and values.ndim:
        # The first mostly tells, which spares a pass over all.
        return bool(values.size and (values.item(0) or values.any()))
    return bool(values)


def chosen(mask: BoolArray, values: FloatArray, others: FloatArray) -> FloatArray:
    """`values` where the mask is true and `others` elsewhere: one of them as it is if it is all."""
    if mask.all():
        return values
    return np.where(mask, values, others) if mask.any() else others


def uneven(whole: Number | IntArray, parts: Number | IntArray) -> BoolArray:
    """True where a whole number is no multiple of another one, both exact as floats."""
    # Remainders take ten times as long.
    share = np.divide(whole, parts)
    return np.asarray(share != np.floor(share))


def numbered(values: NDArray[Any]) -> tuple[NDArray[Any], IntArray]:
    """Distinct numbers of an array, ascending, and for each value its index among them."""
    if values.size == 1:  # mostly so for one layout, and much quicker
        return values.reshape(1), np.zeros(values.shape, dtype=np.int64)
    if values.size <= _FEW:
        flat = values.ravel().tolist()
        ordered = sorted({*flat})
        # NaN differs from itself and has no key in a dictionary: numpy counts it.
        if not math.isnan(sum(ordered)):
            number_of = {number: place for place, number in enumerate(ordered)}
            places_of = np.array([number_of[number] for number in flat], dtype=np.int64)
            return np.array(ordered, dtype=values.dtype), places_of.reshape(values.shape)
    if values.dtype.kind == "i" and 0 <= values.min() <= values.max() < _WIDE * values.size:
        # A table takes less than a sort.
        known = np.zeros(int(values.max()) + 1, dtype=np.bool_)
        known[values] = True
        found = np.flatnonzero(known)
        number = np.empty(len(known), dtype=np.int64)
        number[found] = np.arange(len(found))
        return found, number[values]
    ordered_values, places = np.unique(values, return_inverse=True)
    return ordered_values, places.reshape(values.shape)


def true_in_rows(mask: BoolArray) -> IntArray:
    """Number of true values along the last axis, which has fewer than 2^24."""
    # Sums of floats are several times as fast as a count along an axis.
    return np.asarray(np.einsum("...i->...", mask.astype(np.float32)), dtype=np.int64)


def combined(arrays: Sequence[FloatArray]) -> tuple[FloatArray, IntArray]:
    """Distinct combinations of values of broadcastable arrays.

    The first result has one column per combination; the second, of the common shape, is the column
    index of each element.
    """
    shapes = {array.shape for array in arrays} - {()}
    shape = shapes.pop() if len(shapes) == 1 else np.broadcast_shapes(*shapes)
    size = math.prod(shape)
    if size == 1:
        columns = np.array([array.item() for array in arrays]).reshape(-1, 1)
        return columns, np.zeros(shape, dtype=np.int64)
    if size <= _FEW:
        listed = (
            [array.item()] * size if array.size == 1 else spread(array, shape).ravel().tolist()
            for array in arrays
        )
        numbers: dict[tuple[float, ...], int] = {}
        flat = [numbers.setdefault(row, len(numbers)) for row in zip(*listed, strict=True)]
        return np.array([*numbers]).T, np.array(flat, dtype=np.int64).reshape(shape)
    columns, places = np.empty((0, 1)), np.zeros((), dtype=np.int64)
    for array in arrays:
        values, place = numbered(array)
        if len(values) > 1:
            # Renumber after each array, so that numbers never exceed the combinations found so far.
            pairs = places * len(values) + place
            seen = np.zeros(columns.shape[1] * len(values), dtype=np.bool_)
            seen[pairs] = True
            before, last = np.divmod(np.flatnonzero(seen), len(values))
            places = (np.cumsum(seen) - 1)[pairs]
            columns, values = columns[:, before], values[last]
        columns = np.vstack([columns, np.broadcast_to(values, columns.shape[1:])])
    return columns, spread(places, shape)


def times(share: Number, each: Number) -> Number:
    """The product `share * each`; a plain 0 or 1 skips the pass over the other array."""
    if type(each) is float and each in (0.0, 1.0):
        return share if each else each
    return share * each


def spread(values: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """The array broadcast to a shape, like `np.broadcast_to` without its cost when shapes agree."""
    return values if values.shape == shape else np.broadcast_to(values, shape)


def picked(values: NDArray[Any], shape: tuple[int, ...], index: tuple[int, ...]) -> NDArray[Any]:
    """Elements of an array at an index into the shape to which the array broadcasts."""
    own = index[len(shape) - values.ndim :]
    elements = values[tuple(i if n > 1 else 0 for i, n in zip(own, values.shape, strict=False))]
    return np.asarray(spread(np.asarray(elements), shape[len(index) :]))


def quantiles(values: FloatArray, shares: Sequence[float]) -> list[float]:
    """The quantiles of `np.quantile`, bit for bit, without its imports."""
    ordered = np.sort(values, axis=None)
    return [_between(ordered, (ordered.size - 1) * share) for share in shares]


def median(values: FloatArray) -> float:
    """The median of `np.median`, bit for bit, without its imports."""
    ordered = np.sort(values, axis=None)
    middle = len(ordered) // 2
    if np.isnan(ordered[-1]):
        return math.nan
    low = middle if len(ordered) % 2 else middle - 1
    return float(ordered[middle] if low == middle else (ordered[low] + ordered[middle]) / 2)


def _between(ordered: FloatArray, place: float) -> float:
    last = ordered.size - 1
    if math.isnan(ordered.item(last)):
        return math.nan
    first = min(int(place), last)
    low, high = ordered.item(first), ordered.item(min(first + 1, last))
    part, apart = place - first, high - low
    return high - apart * (1 - part) if part >= 0.5 else low + apart * part


_RANK_SHIFT, _COUNT_SHIFT = 3 / 8, 1 / 4
"""Blom's constants."""


def expected_maximum(count: FloatArray) -> FloatArray:
    """Mean of the largest of `count` standard normal draws, a whole number; 0 for one draw.

    Blom's closed form E[max] = q((n - 3/8) / (n + 1/4)), q the standard normal quantile (Blom,
    Statistical Estimates and Transformed Beta-Variables, 1958).
    """
    from statistics import NormalDist  # with fractions and decimals: slow to import

    # Grids repeat few distinct node counts, and inv_cdf is slow.
    values, where = numbered(np.asarray(count).astype(np.int64))
    quantile = NormalDist().inv_cdf
    means = [quantile((n - _RANK_SHIFT) / (n + _COUNT_SHIFT)) for n in values.tolist()]
    return np.asarray(np.array(means)[where])


def slowest_node(scatter: FloatArray | float, nodes: FloatArray) -> FloatArray:
    """Time of the slowest of `nodes` nodes over a typical one's, with a normal relative scatter."""
    return np.asarray(1 + scatter * expected_maximum(nodes))
