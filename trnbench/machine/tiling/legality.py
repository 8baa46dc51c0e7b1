"""Legality of a product on a chip, and the rate at which its tensor unit takes the product."""

from __future__ import annotations

import numpy as np

from trnbench.errors import unhandled
from trnbench.facts.arrays import BoolArray
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.compute_unit import Multiprocessors, NeuronCores
from trnbench.facts.numbers.formats import format_named
from trnbench.facts.numbers.sparsity import parse_pattern, pattern_problem
from trnbench.facts.records import Record
from trnbench.machine.tiling import Precision
from trnbench.program.matrix import MatrixProduct

_SOLO_FORMATS = ("fp32", "tf32")


class Rate(Record):
    """Rate at which a systolic array takes a product."""

    passes: float  # over the moving data
    rows_per_pe: int  # stored contraction elements that a row of the array covers
    ratio: int  # dense elements per stored one, under a pruning pattern

    @property
    def depth(self) -> int:
        """Contraction elements that one row of the array covers."""
        return self.rows_per_pe * self.ratio


def format_reasons(product: MatrixProduct, chip: Chip, precision: Precision) -> tuple[str, ...]:
    """Reasons that the chip cannot take the product's formats or pattern; else empty."""
    reasons = [
        f"{chip.name} has no {name} product; it has {', '.join(chip.formats)}"
        for name in dict.fromkeys((product.format_a, product.format_b))
        if name not in chip.formats
    ]
    reasons += _mixed_reasons(product, chip)
    if product.pattern is not None:
        reasons += _pattern_reasons(product, chip)
    if precision == "fast" and not reasons and not _has_fast_mode(product, chip):
        reasons.append(_no_fast_mode(product, chip))
    return tuple(reasons)


def pattern_fits(product: MatrixProduct) -> BoolArray:
    """Mask of products with a contraction that the pruning pattern divides."""
    if product.pattern is None:
        return np.ones(product.k.shape, dtype=np.bool_)
    group = parse_pattern(product.pattern).group
    fits: BoolArray = product.k % group == 0
    return fits


def shape_reasons(product: MatrixProduct, fits: BoolArray, kernel: str) -> tuple[str, ...]:
    """Reasons that some shapes cannot run, one example each.

    The pattern does not divide K, or a kernel's buffers exceed SBUF.
    """
    reasons: list[str] = []
    odd = ~pattern_fits(product)
    if np.any(odd):
        assert product.pattern is not None
        problem = pattern_problem(parse_pattern(product.pattern), int(product.k[odd].flat[0]))
        reasons += [problem] if problem else []
    if not np.all(fits):
        k = int(np.broadcast_to(product.k, fits.shape)[~fits].flat[0])
        reasons.append(f"kernel {kernel} keeps k={k} in SBUF and it does not fit; try blocked")
    return tuple(reasons)


def rate_of(product: MatrixProduct, cores: NeuronCores, precision: Precision) -> Rate:
    """Passes and depth of a product on the array; the slower operand decides.

    A compressed product takes the time of a dense one with one row per element: the array's extra
    input width carries the rows to choose from, not a second row.
    """
    rates = [cores.tensor.formats[name] for name in (product.format_a, product.format_b)]
    passes = [
        rate.fast_passes if precision == "fast" and rate.fast_passes else rate.passes
        for rate in rates
    ]
    sparse = product.pattern is not None
    return Rate(
        passes=max(passes),
        rows_per_pe=1 if sparse else min(rate.rows_per_pe for rate in rates),
        ratio=product.ratio,
    )


def _mixed_reasons(product: MatrixProduct, chip: Chip) -> list[str]:
    first, second = product.format_a, product.format_b
    if first == second:
        return []
    match chip.unit:
        case Multiprocessors():
            same = format_named(first).bits == format_named(second).bits == 8
            return [] if same else [f"{chip.name} takes {first} and {second} not in one product"]
        case NeuronCores():
            return _mixed_on_cores(first, second)
        case unknown:
            unhandled(unknown, "rule for two formats in one product")


def _mixed_on_cores(first: str, second: str) -> list[str]:
    solo = [name for name in (first, second) if name in _SOLO_FORMATS]
    if solo:
        return [f"{solo[0]} mixes with no other format ({first} x {second})"]
    if {"fp8_e4m3", "fp8_e4m3fn"} == {first, second}:
        return [f"{first} and {second} do not mix in one product"]
    return []


def _pattern_reasons(product: MatrixProduct, chip: Chip) -> list[str]:
    assert product.pattern is not None
    if chip.sparsity is None:
        return [f"{chip.name} has no structured sparsity; leave out {product.pattern}"]
    if product.pattern not in chip.sparsity.patterns:
        known = ", ".join(chip.sparsity.patterns)
        return [f"{chip.name} has no sparsity {product.pattern}; it has {known}"]
    peaks = chip.sparsity.peak_per_chip_flop_per_s
    names = dict.fromkeys((product.format_a, product.format_b))
    return [
        f"{chip.name} has no sparse {name} product; it has {', '.join(peaks)}"
        for name in names
        if peaks and name not in peaks
    ]


def _has_fast_mode(product: MatrixProduct, chip: Chip) -> bool:
    return bool({product.format_a, product.format_b} & {*chip.unit.fast_formats})


def _no_fast_mode(product: MatrixProduct, chip: Chip) -> str:
    fast = chip.unit.fast_formats
    has = f"it has one for {', '.join(fast)}" if fast else "it has none"
    return f"{chip.name} has no fast mode for {product.format_a}; {has}"
