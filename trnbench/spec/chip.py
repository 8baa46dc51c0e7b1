"""A chip: compute units of one kind, memory, formats and what its maker states in headlines.

`cores` describes a Trainium chip (a systolic array with its memories and DMA engines per core),
`multiprocessors` a GPU. Exactly one is there; engines dispatch on which.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal

import attrs

from trnbench.catalog.provenance import Provenance
from trnbench.catalog.quantity import Bytes, BytesPerS, FlopPerS, Hertz, Ratio, Seconds, Watts
from trnbench.errors import did_you_mean
from trnbench.numerics.formats import FORMATS, format_named
from trnbench.units import FLOP_PER_MULTIPLY_ADD

SPARSE = "sparse"
"""Stands for any format under a sparsity pattern."""


def keyed_by_format(
    record: object, attribute: attrs.Attribute[Any], table: Mapping[str, object]
) -> None:
    """Refuse a table whose keys are not all number formats."""
    _refuse_keys(attribute.name, table, FORMATS)


def keyed_by_format_or_sparse(
    record: object, attribute: attrs.Attribute[Any], table: Mapping[str, object]
) -> None:
    """Refuse a table whose keys are not all number formats, or `sparse`."""
    _refuse_keys(attribute.name, table, (*FORMATS, SPARSE))


def _refuse_keys(name: str, table: Iterable[str], known: Collection[str]) -> None:
    for key in table:
        if key not in known:
            raise ValueError(f"{name}: unknown number format {key!r}{did_you_mean(key, known)}")


@attrs.frozen(kw_only=True)
class Memory:
    """The device memory of a chip."""

    technology: str
    stacks: int
    capacity_per_chip_bytes: Bytes
    bandwidth_per_chip_bytes_per_s: BytesPerS


@attrs.frozen(kw_only=True)
class TensorRate:
    """How the tensor engine takes a format.

    `passes`: times the moving data streams through for one product. `rows_per_pe`: contraction
    elements a processing element takes at once (2: double-row FP8, 4: micro-scaled formats).
    `fast_passes`: passes of a faster mode of the same format that some kernels reach.
    """

    passes: float
    rows_per_pe: int = 1
    fast_passes: float | None = None


@attrs.frozen(kw_only=True)
class TensorEngine:
    """A systolic array that multiplies a stationary tile with a moving one.

    One product costs max(min(`moving_min`, stationary columns), moving columns) cycles per pass.
    A stationary tile loads `load_rows_per_cycle` rows a cycle, behind the running product.
    Rows or columns cut into `slices` of a smaller size run small products side by side.
    """

    rows: int
    columns: int
    clock_hz: Hertz
    moving_min: int
    moving_max: int
    load_rows_per_cycle: int
    formats: dict[str, TensorRate] = attrs.field(validator=keyed_by_format)
    accumulates_into: tuple[str, ...] = ("fp32",)
    slices: tuple[int, ...] = ()
    input_elements_per_cycle: dict[str, int] = attrs.field(
        factory=dict, validator=keyed_by_format_or_sparse
    )
    output_elements_per_cycle: int | None = None

    def peak_flop_per_s(self, passes: float, rows_per_pe: int) -> float:
        """Return the peak of one core's array when it takes a format so, FLOP/s."""
        multiply_adds = self.rows * self.columns * rows_per_pe / passes
        return FLOP_PER_MULTIPLY_ADD * multiply_adds * self.clock_hz


@attrs.frozen(kw_only=True)
class OnChipMemory:
    """The state buffer: software-managed memory of `partitions` rows."""

    partitions: int
    partition_bytes: Bytes
    bandwidth_per_interface_bytes_per_s: BytesPerS | None = None


@attrs.frozen(kw_only=True)
class Accumulator:
    """PSUM: banks in which the tensor engine accumulates in fp32."""

    partitions: int
    banks: int
    bank_per_partition_bytes: Bytes


@attrs.frozen(kw_only=True)
class VectorEngine:
    """A lane-wise engine: `lanes` elements a cycle; `elements_per_cycle` in its fast modes.

    An instruction takes at least `minimum_cycles`, and `access_overhead_cycles` on each tensor. One
    that reads two tensors takes `two_input_cycles_per_element`; without it the engine cannot.
    """

    clock_hz: Hertz
    lanes: int
    minimum_cycles: int
    access_overhead_cycles: int
    two_input_cycles_per_element: float | None = None
    elements_per_cycle: dict[str, int] = attrs.field(factory=dict, validator=keyed_by_format)
    headline_fp32_per_core_flop_per_s: FlopPerS | None = None


@attrs.frozen(kw_only=True)
class Dma:
    """The DMA engines of one core.

    A transfer starts after `start_latency`; a descriptor (one row of a partition) costs
    `descriptor_overhead` and its bytes at `bandwidth_per_engine`; one that adds or transposes runs
    at `reduce_rate` or `transpose_rate` of that. `largest_measured_per_core`: the most one core
    was seen to move, so a bound must not lie below it. GpSimd cores with a DMA engine of their own
    have `gpsimd_bandwidth_per_core_one_way`.
    """

    engines_per_core: int
    queues_per_engine: int
    bandwidth_per_engine_bytes_per_s: BytesPerS
    start_latency_s: Seconds
    descriptor_overhead_s: Seconds
    descriptor_generation_s: Seconds | None = None
    largest_measured_per_core_bytes_per_s: BytesPerS | None = None
    headline_per_chip_bytes_per_s: BytesPerS | None = None
    host_engines_per_chip: int | None = None
    compute_packet_bytes: Bytes | None = None
    collective_packet_bytes: Bytes | None = None
    reduce_rate: Ratio | None = None
    transpose_rate: Ratio | None = None
    gpsimd_bandwidth_per_core_one_way_bytes_per_s: BytesPerS | None = None


@attrs.frozen(kw_only=True)
class SharedPort:
    """Engines of a core that cannot use one of its memories at the same time."""

    engines: tuple[Literal["tensor", "vector", "scalar", "gpsimd"], ...]
    memory: Literal["sbuf", "psum"]


@attrs.frozen(kw_only=True)
class NeuronCores:
    """The cores of a Trainium chip; `logical_sizes` are the legal LNC values.

    `counter_clock`: the clock in whose cycles profiles of the vendor count.
    """

    generation: str
    count: int
    logical_sizes: tuple[int, ...]
    logical_default: int
    collective_cores_per_chip: int
    tensor: TensorEngine
    sbuf: OnChipMemory
    psum: Accumulator
    vector: VectorEngine
    scalar: VectorEngine
    gpsimd: VectorEngine
    dma: Dma
    shared_ports: tuple[SharedPort, ...] = ()
    counter_clock_hz: Hertz | None = None


@attrs.frozen(kw_only=True)
class GpuTile:
    """An output tile a multiprocessor works on, with its rate relative to the best tile."""

    rows: int
    columns: int
    relative_rate: Ratio


@attrs.frozen(kw_only=True)
class Multiprocessors:
    """The streaming multiprocessors of a GPU with their tensor cores."""

    count: int
    clock_hz: Hertz
    cache_per_chip_bytes: Bytes
    cache_bandwidth_per_chip_bytes_per_s: BytesPerS
    launch_latency_s: Seconds
    contraction_step: int
    rates_per_chip_flop_per_s: dict[str, FlopPerS] = attrs.field(validator=keyed_by_format)
    tiles: tuple[GpuTile, ...]


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
    def formats(self) -> tuple[str, ...]:
        """The number formats its tensor units take, in the file's order."""
        if self.cores is not None:
            return tuple(self.cores.tensor.formats)
        assert self.multiprocessors is not None
        return tuple(self.multiprocessors.rates_per_chip_flop_per_s)

    def format_named(self, text: str) -> str:
        """Return the canonical name of a format; `fp8` and `mxfp8` mean the chip's first such."""
        family = [name for name in self.formats if name.startswith(f"{text}_")]
        return family[0] if family else format_named(text).name

    def peak_flop_per_s(self, number_format: str) -> float:
        """Return the dense peak of the whole chip's tensor units, FLOP/s."""
        if self.multiprocessors is not None:
            return self.multiprocessors.rates_per_chip_flop_per_s[number_format]
        assert self.cores is not None
        tensor = self.cores.tensor
        rate = tensor.formats[number_format]
        return self.cores.count * tensor.peak_flop_per_s(rate.passes, rate.rows_per_pe)

    def ranks(self, logical_size: int | None = None) -> int:
        """Return the ranks on one chip: logical cores on Trainium, one device on a GPU."""
        if self.cores is None:
            return 1
        return self.cores.count // (logical_size or self.cores.logical_default)
