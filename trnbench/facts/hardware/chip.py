"""A chip: compute units of one kind, memory, formats and the vendor's headline figures.

`cores` describes a Trainium chip (a systolic array with memories and DMA engines per core),
`multiprocessors` a GPU. Exactly one is present: the `unit`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from trnbench.facts.catalog.provenance import Sourced
from trnbench.facts.catalog.quantity import Bytes, BytesPerS, Count, FlopPerS, Ratio, Watts
from trnbench.facts.hardware.compute_unit import (
    ComputeUnit,
    Multiprocessors,
    NeuronCores,
    check_formats,
)
from trnbench.facts.numbers.formats import format_named
from trnbench.facts.records import Record, field


class Memory(Record):
    """The device memory of a chip."""

    technology: str
    stacks: Count
    capacity_per_chip_bytes: Bytes
    bandwidth_per_chip_bytes_per_s: BytesPerS
    bandwidth_per_core_bytes_per_s: BytesPerS | None = None
    """The most that one core alone can move."""


class Sparsity(Record):
    """Structured sparsity of the stationary operand: supported patterns and their gains."""

    patterns: tuple[str, ...]
    speedup: dict[str, Ratio]
    """Speed-up by pattern, over the dense product of a format with one row per processing element.
    """
    peak_per_chip_flop_per_s: dict[str, FlopPerS] = field(default_factory=dict)
    """Upper bound by format, FLOP/s: faster formats gain only up to this."""

    def __post_init__(self) -> None:
        check_formats(self, "peak_per_chip_flop_per_s")
        if set(self.patterns) != set(self.speedup):
            raise ValueError("`speedup` must have just the keys that `patterns` lists")


class Rounding(Record):
    """Rounding modes of the hardware, and the random generator of stochastic rounding."""

    modes: tuple[Literal["rne", "sr"], ...]
    generator: str | None = None
    fp8_sum_bits: Count | None = None
    """Bits of mantissa that sums of 8-bit products keep; None: those of fp32."""


class Reserve(Record):
    """Memory that a rank (of the default logical size) cannot use: runtime, code, rings."""

    per_rank_bytes: Bytes


class Chip(Sourced):
    """An accelerator chip."""

    section: ClassVar[str] = "chips"
    own_keys: ClassVar[tuple[str, ...]] = ("name", "title", "aliases")

    name: str
    title: str
    vendor: str
    aliases: tuple[str, ...] = ()
    like: str | None = None
    """Chip that fills the keys missing from the file."""
    family: str
    dies: Count | None = None
    memory: Memory
    cores: NeuronCores | None = None
    multiprocessors: Multiprocessors | None = None
    headline_per_chip_flop_per_s: dict[str, FlopPerS]
    sparsity: Sparsity | None = None
    rounding: Rounding
    reserve: Reserve
    power_w: Watts | None = None

    def __post_init__(self) -> None:
        check_formats(self, "headline_per_chip_flop_per_s")
        if (self.cores is None) == (self.multiprocessors is None):
            raise ValueError("expected either [cores] or [multiprocessors]")

    @property
    def unit(self) -> ComputeUnit:
        """The compute units, of either kind."""
        unit = self.cores or self.multiprocessors
        assert unit is not None
        return unit

    @property
    def formats(self) -> tuple[str, ...]:
        return self.unit.formats

    def format_named(self, text: str) -> str:
        """Canonical name of a format; `fp8` and `mxfp8` mean the chip's first of the family."""
        family = [name for name in self.formats if name.startswith(f"{text}_")]
        return family[0] if family else format_named(text).name

    def own_format(self, number_format: str) -> str:
        """The chip's variant of a format; a format without a variant is returned unchanged.

        An 8-bit `fp8_e4m3` is IEEE-like on some chips and finite-only (`fp8_e4m3fn`) on others.
        """
        if number_format in self.formats:
            return number_format
        return next((own for own in self.formats if own.startswith(number_format)), number_format)

    def peak_flop_per_s(self, number_format: str) -> float:
        return self.unit.peak_flop_per_s(number_format)

    def bandwidth_gain(self, active: int, logical_size: int | None = None) -> float:
        """Bandwidth of a rank with `active` ranks at work, over its share with all at work."""
        ranks = self.ranks(logical_size)
        one_core = self.memory.bandwidth_per_core_bytes_per_s
        if active >= ranks or one_core is None:
            return 1.0
        whole = self.memory.bandwidth_per_chip_bytes_per_s
        # A lone rank is limited by its own cores, not by its share of the memory.
        reached = min(whole / active, one_core * self.unit.cores_per_rank(logical_size))
        return max(reached / (whole / ranks), 1.0)

    def ranks(self, logical_size: int | None = None) -> int:
        """Ranks on one chip: logical cores on Trainium, one device on a GPU."""
        return self.unit.separate_cores // self.unit.cores_per_rank(logical_size)
