"""The numbers ranks compute with: emulated formats, or float64 throughout as a reference.

Emulated numbers lie in float32 arrays that hold exactly what the tensor's format can. An engine
computes in FP32 and rounds when it writes. fp8 operands of a quantised recipe have one power-of-two
scale per tensor and rank, so that their largest number comes near the top of the format.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from trnbench.engines.execute.numbers.blocks import block_round
from trnbench.engines.execute.numbers.product import summed_by_tile
from trnbench.engines.execute.numbers.rounding import nearest_in, round_to, round_with
from trnbench.facts.arrays import FloatArray
from trnbench.facts.numbers.formats import STORED_FORMATS, NumberFormat, StoredFormat, format_named
from trnbench.facts.records import Record
from trnbench.program.precision import PrecisionRecipe
from trnbench.program.tensor import INDEX, MASK

Numbers: TypeAlias = FloatArray
"""Numbers of all ranks, rank first. Typed alike; at run time float32 where formats are emulated,
float64 in the reference, int64 for ids and choices."""
Flow: TypeAlias = tuple[Numbers, ...]  # what a block takes from the one before, or hands on
NoiseArray: TypeAlias = NDArray[np.uint32]

_UNROUNDED = (INDEX, MASK, "fp32")
_AS_THEY_ARE = ("fp32", "fp32")
_ONE_BYTE = 8
_FLOAT32: np.dtype[np.float64] = np.dtype("float32")  # type: ignore[assignment]


class Arithmetic(Record):
    """Storage and products of numbers; `exact`: in float64, formats only name their bytes."""

    recipe: PrecisionRecipe
    exact: bool = False

    @property
    def dtype(self) -> np.dtype[np.float64]:
        return np.dtype(np.float64) if self.exact else _FLOAT32

    def store(self, numbers: Numbers, number_format: str) -> Numbers:
        write = None if self.exact else _writer(number_format, self.recipe.quantised)
        return numbers if write is None else write(numbers)

    def settles(self, number_format: str) -> bool:
        """True when numbers of a format may be rounded again, in any order, without a change.

        Scales shared by a group of numbers depend on the members of the group.
        """
        if self.exact or number_format in _UNROUNDED:
            return True
        target = format_named(number_format)
        return target.block == 1 and not (self.recipe.quantised and target.bits == _ONE_BYTE)

    def packed(self, weights: Numbers, number_format: str) -> Numbers:
        """Flat weights as they come out of the format they are kept in."""
        if self.exact or number_format in _UNROUNDED:
            return weights
        if number_format in STORED_FORMATS:
            return packed_round(weights, STORED_FORMATS[number_format])
        target = format_named(number_format)
        if target.bits == _ONE_BYTE:
            return _scaled(weights[np.newaxis], target).reshape(-1)
        return self.store(weights, number_format)

    def update(self, numbers: Numbers, number_format: str, noise: NoiseArray | None) -> Numbers:
        if noise is None or self.exact:
            return self.store(numbers, number_format)
        return round_with(numbers, number_format, noise)  # type: ignore[return-value]

    def operand(self, numbers: Numbers, stored: str, wanted: str) -> tuple[Numbers, str]:
        """An operand of a product, and the format it still has to be rounded to."""
        if self.exact or stored == wanted or wanted == "fp32":
            return numbers, "fp32"
        target = format_named(wanted)
        if self.recipe.quantised and target.block == 1 and target.bits == _ONE_BYTE:
            return _scaled(numbers, target), "fp32"
        return numbers, wanted

    def multiply(
        self, left: Numbers, right: Numbers, formats: tuple[str, str] = _AS_THEY_ARE
    ) -> Numbers:
        """Left [..., m, k] x right [..., k, n] in FP32, rounding operands to `formats`."""
        if self.exact:
            return np.asarray(np.matmul(left, right))
        stationary, moving = (
            _operand(numbers, name, axis)
            for numbers, name, axis in zip((left, right), formats, (-1, -2), strict=True)
        )
        return summed_by_tile(stationary, moving)  # type: ignore[return-value, arg-type]


def _operand(numbers: Numbers, number_format: str, axis: int) -> Numbers:
    """An operand as an engine reads it, in groups along the sum where its format has any."""
    if number_format == "fp32":
        return np.asarray(numbers, dtype=_FLOAT32)
    target = format_named(number_format)
    if target.block > 1:
        return block_round(numbers, target, axis=axis)  # type: ignore[return-value]
    write = _writer(number_format, False)
    return numbers if write is None else write(numbers)


@cache
def _writer(number_format: str, quantised: bool) -> Callable[[Numbers], Numbers] | None:
    """Function that rounds numbers to a format; None where nothing is rounded."""
    if number_format in _UNROUNDED:
        return None
    target = format_named(number_format)
    if target.block > 1:
        return partial(block_round, format=target)  # type: ignore[return-value]
    if quantised and target.bits == _ONE_BYTE:
        return partial(_scaled, target=target)
    nearest = nearest_in(target)

    def write(numbers: Numbers) -> Numbers:
        # `round_to` for arrays that need no second look.
        if numbers.dtype != _FLOAT32:
            return round_to(numbers, target)  # type: ignore[return-value]
        return nearest(numbers)  # type: ignore[return-value, arg-type]

    return write


def _scaled(numbers: Numbers, target: NumberFormat) -> Numbers:
    """Numbers rounded to a format after each rank's were scaled to its range."""
    largest = np.abs(numbers).max(axis=tuple(range(1, numbers.ndim)), keepdims=True)
    exponent = np.floor(np.log2(target.max_value / np.maximum(largest, np.finfo("float32").tiny)))
    scale = np.exp2(exponent).astype(numbers.dtype)
    return np.asarray(round_to(numbers * scale, target) / scale)


def packed_round(weights: FloatArray, format: StoredFormat) -> FloatArray:
    """Flat weights as a packed format holds them: nearest listed value, times a block's scale.

    The scale of a block is its largest magnitude; the last block may be short.
    """
    # NF4 packs its scales, too. Their bits are counted; their error, below 1 %, is left out.
    block, _ = format.scales[0]
    groups = np.pad(weights, (0, -weights.size % block)).reshape(-1, block)
    largest = np.abs(groups).max(axis=1, keepdims=True)
    scale = np.where(largest > 0, largest, 1)
    values = np.array(format.values, dtype=weights.dtype)
    nearest = np.searchsorted((values[1:] + values[:-1]) / 2, groups / scale)
    return np.asarray((values[nearest] * scale).reshape(-1)[: weights.size])
