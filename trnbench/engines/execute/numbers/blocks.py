"""Block formats: 16 (NVFP4), 32 (MX) or 128 (blockwise FP8) numbers along a sum share a scale.

Rules for the scale X of a group whose largest magnitude is amax, Emax being the exponent of the
element's largest value (8 for E4M3, 15 for E5M2, 2 for E2M1):

    trainium    X = 2^(floor(log2 amax) - (Emax - 1))     QuantizeMX: rounding never overflows
    ocp         X = 2^(floor(log2 amax) - Emax)           the OCP sample rule: the top may clamp
    blockwise   X = 2^ceil(log2(amax / max))              Transformer Engine's blockwise FP8
    nvidia      X = amax / 6 over a scale of the whole array, which is amax of that over 6 x 448

X of the last is an E4M3 number, that of `blockwise` one of fp32 (1 for zeros alone), which in a
weight 128 rows share too; that of the others is stored as E8M0 (2^-127 .. 2^127, and NaN),
clamped to that range, and an all-zero group takes 2^-127. A group holding a NaN or an infinity
becomes NaN as a whole: what hardware does is not documented, and nothing finite would be honest.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnbench.engines.execute.numbers.rounding import numpy_dtype, round_elements, widen
from trnbench.errors import InputError, UnknownNameError
from trnbench.facts.arrays import Float32Array
from trnbench.facts.numbers.formats import NumberFormat, ScaleRule, format_named
from trnbench.facts.records import Record

SCALE_RULES: tuple[ScaleRule, ...] = ("trainium", "ocp", "nvidia", "blockwise")
_NV_SCALE = ml_dtypes.float8_e4m3fn
_NV_SCALE_MAX = 448.0

_E8M0_BIAS = 127
_E8M0_NAN = 255


class Blocks(Record, eq=False):
    """A quantised array; the grouped axis is last in elements and scales."""

    format: NumberFormat
    elements: NDArray[Any]
    scales: NDArray[Any]
    axis: int  # Original position of the grouped axis
    whole_scale: float = 1.0  # Factor on the scales of all groups

    @property
    def size_bytes(self) -> float:
        rows = self.scales.shape[-2] if self.scales.ndim > 1 else 1
        scales = self.scales.size // rows * -(-rows // self.format.tile)
        return self.elements.size * self.format.bits / 8 + scales * self.format.scale_bits / 8


def quantise(
    array: ArrayLike, format: NumberFormat | str, *, axis: int = -1, rule: ScaleRule | None = None
) -> Blocks:
    """`array` in a block format, grouped along `axis`; the last group may be short.

    Without `rule` the scale follows the format's own: `trainium` for MXFP8, `ocp` for MXFP4,
    `nvidia` for NVFP4, `blockwise` for FP8 in blocks.
    """
    target = format_named(format) if isinstance(format, str) else format
    chosen = rule or target.scale_rule
    if target.block == 1 or chosen is None:
        raise InputError(f"{target.name} has no block scale")
    if (chosen == "blockwise") != (target.scale_rule == "blockwise"):
        raise InputError(f"scale rule {chosen} is not for {target.name}")
    values = np.moveaxis(np.asarray(array, dtype=np.float32), axis, -1)
    length = values.shape[-1]
    padding = -length % target.block
    if padding:
        values = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, padding)])
    groups = values.reshape(*values.shape[:-1], -1, target.block)
    amax, zero, whole = np.abs(groups).max(axis=-1), np.float32(0), np.float32(1)
    scales: NDArray[Any]
    if chosen == "nvidia":
        largest = np.max(amax, initial=0.0) / (target.max_value * _NV_SCALE_MAX)
        whole = np.float32(largest if np.isfinite(largest) and largest > 0 else 1.0)
        small = amax / np.float32(target.max_value) / whole
        scales = np.where(np.isfinite(small), small, np.nan).astype(_NV_SCALE)
        divisor = scales.astype(np.float32)[..., None] * whole
        usable = (divisor > 0) & np.isfinite(divisor)
        scaled = np.where(usable, groups, zero) / np.where(usable, divisor, np.float32(1))
    elif chosen == "blockwise":
        scales = _powers(_over_rows(amax, target.tile), target)
        scaled = np.where(np.isfinite(scales)[..., None], groups / scales[..., None], zero)
    else:
        codes = _scale_codes(amax, target, chosen)
        usable = codes != _E8M0_NAN
        # Exact short of fp32 underflow, far below the smallest element: |exponent| <= 127.
        inverse = np.ldexp(np.float32(1), np.where(usable, _E8M0_BIAS - codes.astype(np.int32), 0))
        scaled = np.where(usable[..., None], groups, zero) * inverse[..., None]
        scales = codes.view(ml_dtypes.float8_e8m0fnu)
    rounded = round_elements(scaled, target, rounding="rne", rng=None, overflow="saturate")
    return Blocks(
        format=target,
        elements=rounded.astype(numpy_dtype(target)).reshape(values.shape)[..., :length],
        scales=scales,
        axis=axis,
        whole_scale=float(whole),
    )


def _over_rows(amax: Float32Array, tile: int) -> Float32Array:
    """Largest of all rows of a tile, for each of them."""
    if tile == 1 or amax.ndim < 2:
        return amax
    rows = amax.shape[-2]
    starts = np.arange(0, rows, tile)
    largest = np.maximum.reduceat(amax, starts, axis=-2)
    return np.asarray(np.repeat(largest, tile, axis=-2)[..., :rows, :])


def _powers(amax: Float32Array, target: NumberFormat) -> Float32Array:
    """Least powers of two that bring groups into a format; NaN where not finite."""
    usable = np.isfinite(amax) & (amax > 0)
    mantissa, exponent = np.frexp(np.where(usable, amax, 1) / np.float32(target.max_value))
    exact = np.where(mantissa == 0.5, exponent - 1, exponent)
    # fp32 has no power of two below 2^-149; normal ones lose nothing.
    powers = np.ldexp(np.float32(1), np.maximum(exact, -126))
    return np.where(usable, powers, np.where(np.isfinite(amax), 1, np.nan)).astype(np.float32)


def dequantise(blocks: Blocks) -> Float32Array:
    """Values of the blocks, in the layout of the original array."""
    scales = np.repeat(
        blocks.scales.astype(np.float32) * np.float32(blocks.whole_scale),
        blocks.format.block,
        axis=-1,
    )
    values = widen(blocks.elements) * scales[..., : blocks.elements.shape[-1]]
    return np.moveaxis(values, -1, blocks.axis)


def block_round(
    array: ArrayLike, format: NumberFormat | str, *, axis: int = -1, rule: ScaleRule | None = None
) -> Float32Array:
    return dequantise(quantise(array, format, axis=axis, rule=rule))


def _scale_codes(amax: Float32Array, format: NumberFormat, rule: ScaleRule) -> NDArray[np.uint8]:
    if rule not in SCALE_RULES:
        raise UnknownNameError("scale rule", rule, SCALE_RULES)
    # One binade of headroom keeps the largest element of a group from being clamped when rounded.
    headroom = 1 if rule == "trainium" else 0
    exponent = np.frexp(amax)[1] - 1 - (format.max_exponent - headroom)
    exponent = np.where(amax == 0, -_E8M0_BIAS, exponent)
    codes = np.clip(exponent + _E8M0_BIAS, 0, 2 * _E8M0_BIAS)
    return np.where(np.isfinite(amax), codes, _E8M0_NAN).astype(np.uint8)
