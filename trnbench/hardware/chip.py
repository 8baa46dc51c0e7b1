"""A chip: compute units of one kind, memory, formats and what its maker states in headlines.

`cores` describes a Trainium chip (a systolic array with its memories and DMA engines per core),
`multiprocessors` a GPU. Exactly one is there: the `unit`.
"""

from __future__ import annotations

from typing import Literal

import attrs

from trnbench.catalog.provenance import Provenance
from trnbench.catalog.quantity import Bytes, BytesPerS, FlopPerS, Ratio, Watts
from trnbench.hardware.compute_unit import (
    ComputeUnit,
    Multiprocessors,
    NeuronCores,
    UnitKind,
    keyed_by_format,
)
from trnbench.numerics.formats import format_named


@attrs.frozen(kw_only=True)
class Memory:
    """The device memory of a chip."""

    technology: str
    stacks: int
    capacity_per_chip_bytes: Bytes
    bandwidth_per_chip_bytes_per_s: BytesPerS


@attrs.frozen(kw_only=True)
class Sparsity:
    """Structured sparsity of the stationary operand: legal patterns and the gain of each.

    `speedup`, by pattern: over the dense product of a format that the tensor unit takes at one row
    per processing element. Faster formats gain only up to `peak_per_chip`.
    """

    patterns: tuple[str, ...]
    speedup: dict[str, Ratio]
    peak_per_chip_flop_per_s: dict[str, FlopPerS] = attrs.field(
        factory=dict, validator=keyed_by_format
    )

    def __attrs_post_init__(self) -> None:
        """Refuse a speed-up of a pattern that is not listed, and a pattern without one."""
        if set(self.patterns) != set(self.speedup):
            raise ValueError("`speedup` must have just the keys that `patterns` lists")


@attrs.frozen(kw_only=True)
class Rounding:
    """Rounding modes of the hardware and where stochastic rounding gets its random bits."""

    modes: tuple[Literal["rne", "sr"], ...]
    generator: str | None = None


@attrs.frozen(kw_only=True)
class Reserve:
    """Memory a rank (of the default logical size) cannot use: runtime, code, rings."""

    per_rank_bytes: Bytes


@attrs.frozen(kw_only=True)
class Chip:
    """An accelerator chip."""

    name: str
    title: str
    vendor: str
    aliases: tuple[str, ...] = ()
    family: str
    dies: int | None = None
    memory: Memory
    cores: NeuronCores | None = None
    multiprocessors: Multiprocessors | None = None
    headline_per_chip_flop_per_s: dict[str, FlopPerS] = attrs.field(validator=keyed_by_format)
    sparsity: Sparsity | None = None
    rounding: Rounding
    reserve: Reserve
    power_w: Watts | None = None
    provenance: Provenance = attrs.field(
        factory=Provenance, repr=False, eq=False, metadata={"derived": True}
    )

    def __attrs_post_init__(self) -> None:
        """Refuse chips that have no compute unit, or two."""
        if (self.cores is None) == (self.multiprocessors is None):
            raise ValueError("expected either [cores] or [multiprocessors]")

    @property
    def unit(self) -> UnitKind:
        """Its compute units, whichever kind they are."""
        unit = self.cores or self.multiprocessors
        assert unit is not None
        return unit

    @property
    def formats(self) -> tuple[str, ...]:
        """The number formats its tensor units take, in the file's order."""
        return self.unit.formats

    def format_named(self, text: str) -> str:
        """Return the canonical name of a format; `fp8` and `mxfp8` mean the chip's first such."""
        family = [name for name in self.formats if name.startswith(f"{text}_")]
        return family[0] if family else format_named(text).name

    def own_format(self, number_format: str) -> str:
        """Return the chip's own kind of a format; one that it has no kind of comes back as it is.

        An 8-bit `fp8_e4m3` is IEEE-like on some chips and finite-only (`fp8_e4m3fn`) on others.
        """
        if number_format in self.formats:
            return number_format
        return next((own for own in self.formats if own.startswith(number_format)), number_format)

    def peak_flop_per_s(self, number_format: str) -> float:
        """Return the dense peak of the whole chip's tensor units, FLOP/s."""
        return self.unit.peak_flop_per_s(number_format)

    def ranks(self, logical_size: int | None = None) -> int:
        """Return the ranks on one chip: logical cores on Trainium, one device on a GPU."""
        unit: ComputeUnit = self.unit
        return unit.separate_cores // unit.cores_per_rank(logical_size)
