"""Block (MX) formats: groups of 32 numbers along the contraction share one power-of-two scale.

Rules for the scale X of a group whose largest magnitude is amax, Emax being the exponent of the
element's largest value (8 for E4M3, 15 for E5M2, 2 for E2M1):

    trainium    X = 2^(floor(log2 amax) - (Emax - 1))     QuantizeMX: rounding never overflows
    ocp         X = 2^(floor(log2 amax) - Emax)           the OCP sample rule: the top may clamp

X is stored as E8M0 (2^-127 .. 2^127, and NaN), clamped to that range; an all-zero group takes
2^-127. A group holding a NaN or an infinity becomes NaN as a whole: what hardware does is not
documented, and nothing finite would be honest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnbench.errors import InputError, UnknownNameError
from trnbench.numerics.formats import NumberFormat, ScaleRule, format_named
from trnbench.numerics.rounding import (
    Float32Array,
    RoundingRule,
    numpy_dtype,
    round_elements,
    widen,
)

SCALE_RULES: tuple[ScaleRule, ...] = ("trainium", "ocp")

_E8M0_BIAS = 127
_E8M0_NAN = 255


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Blocks:
    """A quantised array; the grouped axis is last in both parts, `axis` is where it came from."""

    format: NumberFormat
    elements: NDArray[Any]
    scales: NDArray[Any]
    axis: int

    @property
    def size_bytes(self) -> float:
        """Return storage of elements and scales in bytes, elements packed."""
        return self.elements.size * self.format.bits / 8 + self.scales.size


def quantise(
    array: ArrayLike,
    format: NumberFormat | str,
    *,
    axis: int = -1,
    rule: ScaleRule | None = None,
    rounding: RoundingRule = "rne",
    rng: np.random.Generator | None = None,
) -> Blocks:
    """Return `array` in a block format, grouped along `axis`; the last group may be short.

    Without `rule` the scale follows the format's own: `trainium` for MXFP8, `ocp` for MXFP4.
    """
    target = format_named(format) if isinstance(format, str) else format
    chosen = rule or target.scale_rule
    if target.block == 1 or chosen is None:
        raise InputError(f"{target.name} has no block scale")
    values = np.moveaxis(np.asarray(array, dtype=np.float32), axis, -1)
    length = values.shape[-1]
    padding = -length % target.block
    if padding:
        values = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, padding)])
    groups = values.reshape(*values.shape[:-1], -1, target.block)
    codes = _scale_codes(np.abs(groups).max(axis=-1), target, chosen)
    usable = codes != _E8M0_NAN
    # Exact short of fp32 underflow, far below the smallest element: |exponent| <= 127.
    inverse = np.ldexp(np.float32(1), np.where(usable, _E8M0_BIAS - codes.astype(np.int32), 0))
    scaled = np.where(usable[..., None], groups, np.float32(0)) * inverse[..., None]
    rounded = round_elements(scaled, target, rounding=rounding, rng=rng, overflow="saturate")
    elements = rounded.astype(numpy_dtype(target)).reshape(values.shape)[..., :length]
    return Blocks(
        format=target, elements=elements, scales=codes.view(ml_dtypes.float8_e8m0fnu), axis=axis
    )


def dequantise(blocks: Blocks) -> Float32Array:
    """Return the numbers the blocks stand for, in the layout of the original array."""
    scales = np.repeat(blocks.scales.astype(np.float32), blocks.format.block, axis=-1)
    values = widen(blocks.elements) * scales[..., : blocks.elements.shape[-1]]
    return np.moveaxis(values, -1, blocks.axis)


def block_round(
    array: ArrayLike, format: NumberFormat | str, *, axis: int = -1, rule: ScaleRule | None = None
) -> Float32Array:
    """Return `array` as the block format holds it: quantised along `axis` and read back."""
    return dequantise(quantise(array, format, axis=axis, rule=rule))


def _scale_codes(amax: Float32Array, format: NumberFormat, rule: ScaleRule) -> NDArray[np.uint8]:
    if rule not in SCALE_RULES:
        raise UnknownNameError("scale rule", rule, SCALE_RULES)
    headroom = 1 if rule == "trainium" else 0
    exponent = np.frexp(amax)[1] - 1 - (format.max_exponent - headroom)
    exponent = np.where(amax == 0, -_E8M0_BIAS, exponent)
    codes = np.clip(exponent + _E8M0_BIAS, 0, 2 * _E8M0_BIAS)
    return np.where(np.isfinite(amax), codes, _E8M0_NAN).astype(np.uint8)
