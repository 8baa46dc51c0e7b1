"""A chip: compute units of one kind, memory, formats and what its maker states in headlines.

`cores` describes a Trainium chip (a systolic array with its memories and DMA engines per core),
`multiprocessors` a GPU. Exactly one is there: the `unit`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from trnbench.facts.catalog.provenance import Sourced
from trnbench.facts.catalog.quantity import Bytes, BytesPerS, Count, FlopPerS, Ratio, Watts
from trnbench.facts.hardware.compute_unit import (
    ComputeUnit,
    Multiprocessors,
    NeuronCores,
    UnitKind,
    check_formats,
)
from trnbench.facts.numbers.formats import format_named
from trnbench.facts.records import Record, field


class Memory(Record):
    """The device memory of a chip; `bandwidth_per_core`: what one core alone moves at most."""

    technology: str
    stacks: Count
    capacity_per_chip_bytes: Bytes
    bandwidth_per_chip_bytes_per_s: BytesPerS
    bandwidth_per_core_bytes_per_s: BytesPerS | None = None


class Sparsity(Record):
    """Structured sparsity of the stationary operand: legal patterns and the gain of each.

    `speedup`, by pattern: over the dense product of a format that the tensor unit takes at one row
    per processing element. Faster formats gain only up to `peak_per_chip`.
    """

    patterns: tuple[str, ...]
    speedup: dict[str, Ratio]
    peak_per_chip_flop_per_s: dict[str, FlopPerS] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a speed-up of a pattern that is not listed, and a pattern without one."""
        check_formats(self, "peak_per_chip_flop_per_s")
        if set(self.patterns) != set(self.speedup):
            raise ValueError("`speedup` must have just the keys that `patterns` lists")


class Rounding(Record):
    """Rounding modes of the hardware and where stochastic rounding gets its random bits."""

    modes: tuple[Literal["rne", "sr"], ...]
    generator: str | None = None


class Reserve(Record):
    """Memory a rank (of the default logical size) cannot use: runtime, code, rings."""

    per_rank_bytes: Bytes


class Chip(Sourced):
    """An accelerator chip; `like`: the one from which it has what its own file does not say."""

    section: ClassVar[str] = "chips"
    own_keys: ClassVar[tuple[str, ...]] = ("name", "title", "aliases")

    name: str
    title: str
    vendor: str
    aliases: tuple[str, ...] = ()
    like: str | None = None
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
        """Refuse chips that have no compute unit, or two."""
        check_formats(self, "headline_per_chip_flop_per_s")
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

    def bandwidth_gain(self, active: int, logical_size: int | None = None) -> float:
        """Return how many times its share of all ranks' bandwidth a rank has beside fewer.

        `active` ranks, itself among them, share the memory, each as far as its own cores reach.
        """
        ranks = self.ranks(logical_size)
        one_core = self.memory.bandwidth_per_core_bytes_per_s
        if active >= ranks or one_core is None:
            return 1.0
        unit: ComputeUnit = self.unit
        whole = self.memory.bandwidth_per_chip_bytes_per_s
        reached = min(whole / active, one_core * unit.cores_per_rank(logical_size))
        return max(reached / (whole / ranks), 1.0)

    def ranks(self, logical_size: int | None = None) -> int:
        """Return the ranks on one chip: logical cores on Trainium, one device on a GPU."""
        unit: ComputeUnit = self.unit
        return unit.separate_cores // unit.cores_per_rank(logical_size)
