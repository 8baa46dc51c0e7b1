"""The compute units of a chip: tables of a chip's file, and what every engine may ask of them.

`cores` are NeuronCores (a systolic array with its memories and DMA engines per core),
`multiprocessors` those of a GPU. Each answers the questions of `ComputeUnit`, so that nobody asks
which kind it is; where a kind has a rule or a price of its own, a `match` on `Chip.unit` ends in
`unhandled` and names the kind it lacks.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from trnbench.errors import did_you_mean
from trnbench.facts.catalog.quantity import (
    Bytes,
    BytesPerS,
    Count,
    FlopPerS,
    Hertz,
    Ratio,
    Seconds,
)
from trnbench.facts.numbers.formats import FORMATS
from trnbench.facts.records import Record, field
from trnbench.facts.units import FLOP_PER_MULTIPLY_ADD

if TYPE_CHECKING:
    from trnbench.facts.arrays import FloatArray

SPARSE = "sparse"
"""Stands for any format under a sparsity pattern."""


def check_formats(record: object, *names: str, known: Collection[str] = FORMATS) -> None:
    """Refuse tables of a record whose keys are not all number formats."""
    for name in names:
        for key in getattr(record, name):
            if key in known:
                continue
            raise ValueError(f"{name}: unknown number format {key!r}{did_you_mean(key, known)}")


def check_above_zero(record: object, *names: str) -> None:
    """Refuse numbers of a record that something is divided by, where they are there and 0."""
    for name in names:
        if getattr(record, name) == 0:
            raise ValueError(f"`{name}` must be above 0")


class ComputeUnit(Protocol):
    """What engines ask of the compute units of a chip, whatever their kind."""

    @property
    def clock_hz(self) -> float:
        """The clock of the tensor units, Hz."""
        ...

    @property
    def formats(self) -> tuple[str, ...]:
        """The number formats that the tensor units take, in the file's order."""
        ...

    @property
    def fast_formats(self) -> tuple[str, ...]:
        """Those of them that have a faster mode, which some kernels reach."""
        ...

    @property
    def separate_cores(self) -> int:
        """Cores that products can be divided over; 1 where the hardware divides them itself."""
        ...

    @property
    def logical_sizes(self) -> tuple[int, ...]:
        """How many cores may form one rank; empty where a device is always one rank."""
        ...

    @property
    def has_kernels(self) -> bool:
        """Whether a product runs under a kernel schedule that can be chosen."""
        ...

    def padded_depth(self, depth: FloatArray) -> FloatArray:
        """Return the contraction depths that are computed where products have these."""
        ...

    def cores_per_rank(self, logical_size: int | None) -> int:
        """Return the cores that form one rank, of a logical size or of the default."""
        ...

    def peak_flop_per_s(self, number_format: str) -> float:
        """Return the dense peak of all tensor units of the chip, FLOP/s."""
        ...

    def rate_keys(self, number_format: str) -> tuple[str, ...]:
        """Return the keys of the chip's file that this peak rests on."""
        ...


class TensorRate(Record):
    """How the tensor engine takes a format.

    `passes`: times the moving data streams through for one product. `rows_per_pe`: contraction
    elements a processing element takes at once (2: double-row FP8, 4: micro-scaled formats).
    `fast_passes`: passes of a faster mode of the same format that some kernels reach.
    """

    passes: float
    rows_per_pe: Count = 1
    fast_passes: float | None = None

    def __post_init__(self) -> None:
        """Refuse products that take no time."""
        check_above_zero(self, "passes", "fast_passes")


class Throttle(Record):
    """When a tensor engine runs at `slow_share` of its rate: until it has worked for a `window`,
    and again once it was busy for less than `busy_share` of the last one.
    """

    slow_share: Ratio
    busy_share: Ratio
    window_s: Seconds


class TensorEngine(Record):
    """A systolic array that multiplies a stationary tile with a moving one.

    One product costs max(min(`moving_min`, stationary columns), moving columns) cycles per pass.
    A stationary tile loads `load_rows_per_cycle` rows a cycle, behind the running product.
    Rows or columns cut into `slices` of a smaller size run small products side by side.
    """

    rows: Count
    columns: Count
    clock_hz: Hertz
    moving_min: Count
    moving_max: Count
    load_rows_per_cycle: Count
    formats: dict[str, TensorRate]
    accumulates_into: tuple[str, ...] = ("fp32",)
    slices: tuple[Count, ...] = ()
    input_elements_per_cycle: dict[str, Count] = field(default_factory=dict)
    output_elements_per_cycle: Count | None = None
    throttle: Throttle | None = None

    def __post_init__(self) -> None:
        """Refuse rates of what is not a number format."""
        check_formats(self, "formats")
        check_formats(self, "input_elements_per_cycle", known=(*FORMATS, SPARSE))

    def peak_flop_per_s(self, passes: float, rows_per_pe: int) -> float:
        """Return the peak of one core's array when it takes a format so, FLOP/s."""
        multiply_adds = self.rows * self.columns * rows_per_pe / passes
        return FLOP_PER_MULTIPLY_ADD * multiply_adds * self.clock_hz


class OnChipMemory(Record):
    """The state buffer: software-managed memory of `partitions` rows."""

    partitions: Count
    partition_bytes: Bytes
    bandwidth_per_interface_bytes_per_s: BytesPerS | None = None


class Accumulator(Record):
    """PSUM: banks in which the tensor engine accumulates in fp32."""

    partitions: Count
    banks: Count
    bank_per_partition_bytes: Bytes


class VectorEngine(Record):
    """A lane-wise engine: `lanes` elements a cycle; `elements_per_cycle` in its fast modes.

    An instruction takes at least `minimum_cycles`, and `access_overhead_cycles` on each tensor. One
    that reads two tensors takes `two_input_cycles_per_element`; without it the engine cannot. A
    reduction on the way takes `reduction_cycles` more, a mask by position `position_cycles` in all
    besides its elements.
    """

    clock_hz: Hertz
    lanes: Count
    minimum_cycles: int
    access_overhead_cycles: int
    two_input_cycles_per_element: float | None = None
    reduction_cycles: int = 0
    position_cycles: int = 0
    elements_per_cycle: dict[str, Count] = field(default_factory=dict)
    headline_fp32_per_core_flop_per_s: FlopPerS | None = None

    def __post_init__(self) -> None:
        """Refuse rates of what is not a number format."""
        check_formats(self, "elements_per_cycle")


class Dma(Record):
    """The DMA engines of one core.

    A transfer starts after `start_latency`; a descriptor (one row of a partition) costs
    `descriptor_overhead` and its bytes at `bandwidth_per_engine`; one that adds or transposes runs
    at `reduce_rate` or `transpose_rate` of that, at `transpose_rate_in_sbuf` within the state
    buffer (kernels use none without it). `largest_measured_per_core`: the most one core was seen
    to move, so a bound must not lie below it. GpSimd cores with a DMA engine of their own have
    `gpsimd_bandwidth_per_core_one_way`.
    """

    engines_per_core: Count
    queues_per_engine: Count
    bandwidth_per_engine_bytes_per_s: BytesPerS
    start_latency_s: Seconds
    descriptor_overhead_s: Seconds
    descriptor_generation_s: Seconds | None = None
    largest_measured_per_core_bytes_per_s: BytesPerS | None = None
    headline_per_chip_bytes_per_s: BytesPerS | None = None
    host_engines_per_chip: Count | None = None
    compute_packet_bytes: Bytes | None = None
    collective_packet_bytes: Bytes | None = None
    reduce_rate: Ratio | None = None
    transpose_rate: Ratio | None = None
    transpose_rate_in_sbuf: Ratio | None = None
    gpsimd_bandwidth_per_core_one_way_bytes_per_s: BytesPerS | None = None

    def __post_init__(self) -> None:
        """Refuse transfers that are never done."""
        check_above_zero(self, "reduce_rate", "transpose_rate", "transpose_rate_in_sbuf")


class SharedPort(Record):
    """Engines of a core that cannot use one of its memories at the same time."""

    engines: tuple[Literal["tensor", "vector", "scalar", "gpsimd"], ...]
    memory: Literal["sbuf", "psum"]


class NeuronCores(Record):
    """The cores of a Trainium chip; `logical_sizes` are the legal LNC values.

    `counter_clock`: the clock in whose cycles profiles of the vendor count. `program_start`: what a
    program takes besides its instructions, which a kernel timed by itself is.
    """

    generation: str
    count: Count
    logical_sizes: tuple[Count, ...]
    logical_default: Count
    collective_cores_per_chip: Count
    tensor: TensorEngine
    sbuf: OnChipMemory
    psum: Accumulator
    vector: VectorEngine
    scalar: VectorEngine
    gpsimd: VectorEngine
    dma: Dma
    shared_ports: tuple[SharedPort, ...] = ()
    counter_clock_hz: Hertz | None = None
    program_start_s: Seconds | None = None

    @property
    def clock_hz(self) -> float:
        """The clock of the tensor engine, Hz."""
        return self.tensor.clock_hz

    @property
    def formats(self) -> tuple[str, ...]:
        """The number formats that the tensor engine takes."""
        return tuple(self.tensor.formats)

    @property
    def fast_formats(self) -> tuple[str, ...]:
        """Formats with a mode of fewer passes."""
        return tuple(name for name, rate in self.tensor.formats.items() if rate.fast_passes)

    @property
    def separate_cores(self) -> int:
        """Every core runs products of its own."""
        return self.count

    @property
    def has_kernels(self) -> bool:
        """The software chooses how a product is cut up."""
        return True

    def padded_depth(self, depth: FloatArray) -> FloatArray:
        """The model of an array pads what it must itself."""
        return depth

    def cores_per_rank(self, logical_size: int | None) -> int:
        """Return the cores of a logical core, which is one rank."""
        return logical_size or self.logical_default

    def peak_flop_per_s(self, number_format: str) -> float:
        """Return the dense peak of all cores together, FLOP/s."""
        rate = self.tensor.formats[number_format]
        return self.count * self.tensor.peak_flop_per_s(rate.passes, rate.rows_per_pe)

    def rate_keys(self, number_format: str) -> tuple[str, ...]:
        """Return the array, its clock, how it takes the format, and how many there are."""
        array = tuple(f"cores.tensor.{key}" for key in ("rows", "columns", "clock"))
        return (*array, f"cores.tensor.formats.{number_format}", "cores.count")


class GpuTile(Record):
    """An output tile a multiprocessor works on, with its rate relative to the best tile."""

    rows: Count
    columns: Count
    relative_rate: Ratio

    def __post_init__(self) -> None:
        """Refuse a tile that is never done."""
        check_above_zero(self, "relative_rate")


class Multiprocessors(Record):
    """The streaming multiprocessors of a GPU with their tensor cores."""

    count: Count
    clock_hz: Hertz
    cache_per_chip_bytes: Bytes
    cache_bandwidth_per_chip_bytes_per_s: BytesPerS
    launch_latency_s: Seconds
    contraction_step: Count
    rates_per_chip_flop_per_s: dict[str, FlopPerS]
    tiles: tuple[GpuTile, ...]

    def __post_init__(self) -> None:
        """Refuse rates of what is not a number format."""
        check_formats(self, "rates_per_chip_flop_per_s")

    @property
    def formats(self) -> tuple[str, ...]:
        """The number formats that the tensor cores take."""
        return tuple(self.rates_per_chip_flop_per_s)

    @property
    def fast_formats(self) -> tuple[str, ...]:
        """No format has a second mode."""
        return ()

    @property
    def separate_cores(self) -> int:
        """The hardware spreads a product over all multiprocessors."""
        return 1

    @property
    def logical_sizes(self) -> tuple[int, ...]:
        """A device is one rank."""
        return ()

    @property
    def has_kernels(self) -> bool:
        """The library chooses how a product is cut up."""
        return False

    def padded_depth(self, depth: FloatArray) -> FloatArray:
        """The main loop of a kernel goes in steps."""
        step = self.contraction_step
        return -(-depth // step) * step

    def cores_per_rank(self, logical_size: int | None) -> int:
        """Return 1: a device is one rank."""
        return 1

    def peak_flop_per_s(self, number_format: str) -> float:
        """Return the dense peak of the chip as stated, FLOP/s."""
        return self.rates_per_chip_flop_per_s[number_format]

    def rate_keys(self, number_format: str) -> tuple[str, ...]:
        """Return the key of the stated rate."""
        return (f"multiprocessors.rates_per_chip.{number_format}",)


UnitKind: TypeAlias = NeuronCores | Multiprocessors
"""Every kind there is; `match` on it where a kind has a rule or a price of its own."""
