"""The supported number formats: names, sizes, ranges and rounding rules.

Light: no numpy, no ml_dtypes, since questions name formats before numpy loads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Literal

from trnbench.errors import UnknownNameError
from trnbench.facts.records import Record, replace
from trnbench.facts.units import BITS_PER_BYTE

RoundingRule = Literal["rne", "sr"]
"""To nearest even, or stochastically."""
ROUNDINGS: tuple[RoundingRule, ...] = ("rne", "sr")
OverflowResult = Literal["infinity", "nan", "maximum"]
ScaleRule = Literal["trainium", "ocp", "nvidia", "blockwise"]

MX_GROUP = 32
MX_SCALE_BITS = 8
NV_GROUP = 16
"""Elements of NVFP4 that share a scale (NVIDIA, arXiv 2509.25149)."""
FP8_BLOCK = 128
"""Elements of blockwise FP8 that share a scale; weights in both directions (arXiv 2412.19437)."""


class NumberFormat(Record):
    """Storage of one number; in block (MX) formats the fields describe one element."""

    name: str
    title: str
    bits: int
    """Storage, bits (tf32 uses 19 of its 32)."""
    exponent_bits: int
    mantissa_bits: int
    min_exponent: int
    """Exponent of the smallest normal number; the step is constant below."""
    max_value: float
    overflow: OverflowResult
    """Result of rounding past `max_value`."""
    dtype_name: str | None
    """The numpy or ml_dtypes type; None where neither has one."""
    block: int = 1
    """Elements that share a scale of `scale_bits` bits."""
    scale_bits: int = 0
    scale_rule: ScaleRule | None = None
    tile: int = 1
    """Rows that share the scales of their blocks."""

    @property
    def bytes_per_element(self) -> float:
        """Storage per element, bytes, including a block's shared scale."""
        return (self.bits + self.scale_bits / (self.block * self.tile)) / BITS_PER_BYTE

    @property
    def max_exponent(self) -> int:
        """floor(log2(max_value))."""
        return math.frexp(self.max_value)[1] - 1

    @property
    def min_value(self) -> float:
        """The lowest finite value; two's complement reaches one beyond -max_value."""
        return -self.max_value if self.exponent_bits else -self.max_value - 1

    @property
    def smallest(self) -> float:
        """The smallest positive value, also the step of the subnormal range."""
        return math.ldexp(1.0, self.min_exponent - self.mantissa_bits)


class StoredFormat(Record):
    """A packed format of weights: each one of `values`, times a scale of its block."""

    name: str
    title: str
    bits: int
    scales: tuple[tuple[int, int], ...]
    """(weights per scale, bits of the scale), innermost block first."""
    values: tuple[float, ...]

    @property
    def bytes_per_element(self) -> float:
        """Storage per element, bytes, including the shares of all scales."""
        return (self.bits + sum(bits / weights for weights, bits in self.scales)) / BITS_PER_BYTE


def _ieee(
    name: str, title: str, bits: int, layout: tuple[int, int], dtype_name: str | None
) -> NumberFormat:
    exponent_bits, mantissa_bits = layout
    bias = 2 ** (exponent_bits - 1) - 1
    return NumberFormat(
        name=name,
        title=title,
        bits=bits,
        exponent_bits=exponent_bits,
        mantissa_bits=mantissa_bits,
        min_exponent=1 - bias,
        max_value=math.ldexp(2.0 - 2.0**-mantissa_bits, bias),
        overflow="infinity",
        dtype_name=dtype_name,
    )


def _block(element: NumberFormat, name: str, title: str, rule: ScaleRule) -> NumberFormat:
    return replace(
        element, name=name, title=title, block=MX_GROUP, scale_bits=MX_SCALE_BITS, scale_rule=rule
    )


_E4M3FN = replace(
    _ieee("fp8_e4m3fn", "FP8 E4M3, OCP: no infinity, one NaN, max 448", 8, (4, 3), "float8_e4m3fn"),
    max_value=448.0,
    overflow="nan",
)
_BLOCKWISE = replace(
    _E4M3FN,
    name="blockfp8_e4m3",
    title="Blockwise FP8: E4M3 (max 448), a power of two in fp32 per 128",
    block=FP8_BLOCK,
    scale_bits=32,
    scale_rule="blockwise",
)
_E5M2 = _ieee("fp8_e5m2", "FP8 E5M2, max 57344", 8, (5, 2), "float8_e5m2")
_E2M1_TITLE = "FP4 E2M1, only as an element of MXFP4 and NVFP4"
_E2M1 = replace(
    _ieee("fp4_e2m1", _E2M1_TITLE, 4, (2, 1), "float4_e2m1fn"), max_value=6.0, overflow="maximum"
)
# In [64, 128) seven mantissa bits step by 1; calling everything below 2^7 "subnormal" makes the
# step 1 over the whole range, so integers need no rules of their own.
_INT8 = NumberFormat(
    name="int8",
    title="8-bit integer, saturating",
    bits=8,
    exponent_bits=0,
    mantissa_bits=7,
    min_exponent=7,
    max_value=127.0,
    overflow="maximum",
    dtype_name="int8",
)

_ALL = (
    _ieee("fp64", "IEEE double", 64, (11, 52), "float64"),
    _ieee("fp32", "IEEE single", 32, (8, 23), "float32"),
    _ieee("tf32", "TensorFloat-32 (1-8-10), stored in 32 bits", 32, (8, 10), None),
    _ieee("bf16", "bfloat16 (1-8-7)", 16, (8, 7), "bfloat16"),
    _ieee("fp16", "IEEE half (1-5-10)", 16, (5, 10), "float16"),
    _ieee("fp8_e4m3", "FP8 E4M3, IEEE-like: infinity, max 240", 8, (4, 3), "float8_e4m3"),
    _E4M3FN,
    _E5M2,
    _ieee("fp8_e3m4", "FP8 E3M4, max 15.5", 8, (3, 4), "float8_e3m4"),
    _block(_E4M3FN, "mxfp8_e4m3", "MXFP8: E4M3 (max 448), E8M0 scale per 32", "trainium"),
    _block(_E5M2, "mxfp8_e5m2", "MXFP8: E5M2, E8M0 scale per 32", "trainium"),
    # QuantizeMX writes no FP4, so MXFP4 data comes from elsewhere and follows the OCP sample rule.
    _block(_E2M1, "mxfp4", "MXFP4: E2M1 (max 6), E8M0 scale per 32", "ocp"),
    replace(
        _block(
            _E2M1, "nvfp4", "NVFP4: E2M1 (max 6), E4M3 scale per 16, one of fp32 in all", "nvidia"
        ),
        block=NV_GROUP,
    ),
    _BLOCKWISE,
    replace(
        _BLOCKWISE,
        name="blockfp8_tile_e4m3",
        title="Blockwise FP8 of weights: a scale per 128 x 128",
        tile=FP8_BLOCK,
    ),
    _INT8,
)

NF4 = StoredFormat(
    name="nf4",
    title="NF4 (QLoRA): 4 bits, a scale of 8 bits per 64, of which 256 share one of fp32",
    bits=4,
    scales=((64, 8), (64 * 256, 32)),
    values=(
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
        *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
        *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
        *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
    ),
)
STORED_FORMATS: Mapping[str, StoredFormat] = {NF4.name: NF4}
"""Storage-only formats of weights (arXiv 2305.14314), unpacked before multiplication."""

FORMATS: Mapping[str, NumberFormat] = {format.name: format for format in _ALL}

ALIASES: Mapping[str, str] = {
    "float64": "fp64",
    "double": "fp64",
    "float32": "fp32",
    "float": "fp32",
    "single": "fp32",
    "tensorfloat32": "tf32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "fp8": "fp8_e4m3",
    "e4m3": "fp8_e4m3",
    "float8_e4m3": "fp8_e4m3",
    "e4m3fn": "fp8_e4m3fn",
    "float8_e4m3fn": "fp8_e4m3fn",
    "e5m2": "fp8_e5m2",
    "float8_e5m2": "fp8_e5m2",
    "e3m4": "fp8_e3m4",
    "float8_e3m4": "fp8_e3m4",
    "mxfp8": "mxfp8_e4m3",
    "mxfp8_e4m3fn": "mxfp8_e4m3",
    "mxfp4_e2m1": "mxfp4",
    "fp8_blockwise": "blockfp8_e4m3",
}


@cache
def format_named(name: str) -> NumberFormat:
    """The format of this name or alias; case is ignored, and `-` equals `_`."""
    key = name.strip().lower().replace("-", "_")
    format = FORMATS.get(ALIASES.get(key, key))
    if format is None:
        raise UnknownNameError("number format", name, [*FORMATS, *ALIASES])
    return format
