"""Compute units of a chip: tables of a chip's file, and the interface for the engines.

`cores` are NeuronCores (a systolic array with its memories and DMA engines per core),
`multiprocessors` those of a GPU. Both answer the same questions, so callers need not know the kind;
where a kind has a rule or a price of its own, a `match` on `Chip.unit` ends in `unhandled`, which
names the missing kind.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Literal, TypeAlias

from trnbench.errors import did_you_mean
from trnbench.facts.catalog.quantity import Bytes, BytesPerS, Count, FlopPerS, Hertz, Ratio, Seconds
from trnbench.facts.numbers.formats import FORMATS
from trnbench.facts.records import Record, field
from trnbench.facts.units import FLOP_PER_MULTIPLY_ADD

if TYPE_CHECKING:
    from trnbench.facts.arrays import FloatArray

SPARSE = "sparse"
"""Key for any format under a sparsity pattern."""


def check_formats(record: object, *names: str, known: Collection[str] = FORMATS) -> None:
    """Refuse tables of a record with keys that are not number formats."""
    for name in names:
        for key in getattr(record, name):
            if key in known:
                continue
            raise ValueError(f"{name}: unknown number format {key!r}{did_you_mean(key, known)}")


def check_above_zero(record: object, *names: str) -> None:
    for name in names:
        if getattr(record, name) == 0:
            raise ValueError(f"`{name}` must be above 0")


class TensorRate(Record):
    """Rate of the tensor engine in a format."""

    passes: float
    """Passes of the moving data for one product."""
    rows_per_pe: Count = 1
    """Contraction elements per processing element (2: double-row FP8, 4: micro-scaled formats)."""
    fast_passes: float | None = None
    """Passes in a faster mode of the same format, which some kernels reach."""

    def __post_init__(self) -> None:
        check_above_zero(self, "passes", "fast_passes")


class Throttle(Record):
    """Start-up throttling: a tensor engine runs slowly for a window of work."""

    slow_share: Ratio
    """Share of the full rate until then."""
    busy_share: Ratio
    """Busy share of the last window below which the throttle returns."""
    window_s: Seconds


class TensorEngine(Record):
    """A systolic array that multiplies a stationary tile by a moving one.

    A product costs max(min(`moving_min`, stationary columns), moving columns) cycles per pass. A
    stationary tile loads `load_rows_per_cycle` rows a cycle, behind the running product.
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
    """Sizes of row or column slices, which run small products side by side."""
    input_elements_per_cycle: dict[str, Count] = field(default_factory=dict)
    output_elements_per_cycle: Count | None = None
    throttle: Throttle | None = None

    def __post_init__(self) -> None:
        check_formats(self, "formats")
        check_formats(self, "input_elements_per_cycle", known=(*FORMATS, SPARSE))

    def peak_flop_per_s(self, passes: float, rows_per_pe: int) -> float:
        """Peak of one core's array in a format with these passes and rows, FLOP/s."""
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
    """A lane-wise engine: one element per lane and cycle."""

    clock_hz: Hertz
    lanes: Count
    minimum_cycles: int
    """Least cycles of an instruction."""
    access_overhead_cycles: int
    """Cycles per tensor accessed."""
    two_input_cycles_per_element: float | None = None
    """Cycles per element with two input tensors; None: unsupported."""
    reduction_cycles: int = 0
    """Extra cycles of an instruction with a reduction."""
    position_cycles: int = 0
    """Total overhead cycles of a mask by position, besides its elements."""
    elements_per_cycle: dict[str, Count] = field(default_factory=dict)
    """Elements per lane and cycle in fast modes, by format."""
    headline_fp32_per_core_flop_per_s: FlopPerS | None = None

    def __post_init__(self) -> None:
        check_formats(self, "elements_per_cycle")


class Dma(Record):
    """The DMA engines of one core.

    A transfer starts after `start_latency_s`; each descriptor (one row of a partition) costs
    `descriptor_overhead_s` plus its bytes at the engine's bandwidth.
    """

    engines_per_core: Count
    queues_per_engine: Count
    bandwidth_per_engine_bytes_per_s: BytesPerS
    start_latency_s: Seconds
    descriptor_overhead_s: Seconds
    descriptor_generation_s: Seconds | None = None
    largest_measured_per_core_bytes_per_s: BytesPerS | None = None
    """Fastest measured transfer of one core: a lower limit for modelled bounds."""
    headline_per_chip_bytes_per_s: BytesPerS | None = None
    host_engines_per_chip: Count | None = None
    compute_packet_bytes: Bytes | None = None
    collective_packet_bytes: Bytes | None = None
    reduce_rate: Ratio | None = None
    """Bandwidth share of transfers that add; `transpose_rate`: of those that transpose."""
    transpose_rate: Ratio | None = None
    transpose_rate_in_sbuf: Ratio | None = None
    """Bandwidth share of transposes within the state buffer; None: unused by kernels."""
    gpsimd_bandwidth_per_core_one_way_bytes_per_s: BytesPerS | None = None
    """Bandwidth of the GpSimd cores' own DMA engine, where present."""

    def __post_init__(self) -> None:
        check_above_zero(self, "reduce_rate", "transpose_rate", "transpose_rate_in_sbuf")


class SharedPort(Record):
    """Engines of a core that cannot access one of its memories simultaneously."""

    engines: tuple[Literal["tensor", "vector", "scalar", "gpsimd"], ...]
    memory: Literal["sbuf", "psum"]


class KernelLevel(Record):
    """Rates of products by kernels from one kind of software, as measured alone."""

    share: Ratio
    """Share of the tensor engine's rate, in formats of one pass."""
    several_pass_share: Ratio | None = None
    """The same in formats of several passes; None: `share`."""
    unhidden_per_core_bytes_per_s: BytesPerS | None = None
    """Rate of moving operands and result, which no multiplying hides; None: the kernel's schedule
    says what is hidden.
    """
    launch_s: Seconds = 0.0
    """Fixed cost of a call, host and program start."""
    scatter: float
    """Factor about the time, each way, within which four kernels of five lie."""
    fitted_rows: tuple[str, ...] = ()
    """Timed products behind the numbers."""

    def __post_init__(self) -> None:
        check_above_zero(self, "share", "several_pass_share", "unhidden_per_core_bytes_per_s")
        if not self.scatter >= 1:
            raise ValueError("`scatter` must be at least 1")


class NeuronCores(Record):
    """The cores of a Trainium chip."""

    generation: str
    count: Count
    logical_sizes: tuple[Count, ...]
    """Allowed values of LNC, the physical cores per logical core."""
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
    """Clock of the cycle counts in the vendor's profiles."""
    program_start_s: Seconds | None = None
    """Start of a program besides its instructions; part of every kernel timed alone."""
    busy_die_share: Ratio = 1.0
    """Share of its rate that a core keeps where more than half of the cores of its die work."""
    kernels: dict[str, KernelLevel] = field(default_factory=dict)
    """Levels of products by the software that their kernels come from."""

    def __post_init__(self) -> None:
        check_above_zero(self, "busy_die_share")

    @property
    def clock_hz(self) -> float:
        return self.tensor.clock_hz

    @property
    def formats(self) -> tuple[str, ...]:
        return tuple(self.tensor.formats)

    @property
    def fast_formats(self) -> tuple[str, ...]:
        return tuple(name for name, rate in self.tensor.formats.items() if rate.fast_passes)

    @property
    def separate_cores(self) -> int:
        """All cores: each runs products of its own."""
        return self.count

    @property
    def has_kernels(self) -> bool:
        """True: software chooses the tiling of a product."""
        return True

    def padded_depth(self, depth: FloatArray) -> FloatArray:
        """The depths unchanged: the array's model does its own padding."""
        return depth

    def cores_per_rank(self, logical_size: int | None) -> int:
        return logical_size or self.logical_default

    def peak_flop_per_s(self, number_format: str) -> float:
        """Dense peak of all cores together, FLOP/s."""
        rate = self.tensor.formats[number_format]
        return self.count * self.tensor.peak_flop_per_s(rate.passes, rate.rows_per_pe)

    def rate_keys(self, number_format: str) -> tuple[str, ...]:
        array = tuple(f"cores.tensor.{key}" for key in ("rows", "columns", "clock"))
        return (*array, f"cores.tensor.formats.{number_format}", "cores.count")


class GpuTile(Record):
    """An output tile of a multiprocessor, with its rate relative to the best tile."""

    rows: Count
    columns: Count
    relative_rate: Ratio

    def __post_init__(self) -> None:
        check_above_zero(self, "relative_rate")


class Multiprocessors(Record):
    """The streaming multiprocessors of a GPU with their tensor cores."""

    count: Count
    clock_hz: Hertz
    cache_per_chip_bytes: Bytes
    cache_bandwidth_per_chip_bytes_per_s: BytesPerS
    launch_latency_s: Seconds
    contraction_step: Count
    """Contraction elements per step of a kernel's main loop."""
    rates_per_chip_flop_per_s: dict[str, FlopPerS]
    tiles: tuple[GpuTile, ...]
    program_start_s: Seconds = 0.0
    """What a kernel timed alone takes besides: in a stream it hides behind the kernel before."""
    row_alignment_bytes: Bytes = 1.0
    """Rows of operands and results that are no multiple of this take slow kernels."""

    def __post_init__(self) -> None:
        check_formats(self, "rates_per_chip_flop_per_s")

    @property
    def formats(self) -> tuple[str, ...]:
        return tuple(self.rates_per_chip_flop_per_s)

    @property
    def fast_formats(self) -> tuple[str, ...]:
        return ()

    @property
    def separate_cores(self) -> int:
        """1: the hardware spreads a product over all multiprocessors."""
        return 1

    @property
    def logical_sizes(self) -> tuple[int, ...]:
        """Empty: a device is one rank."""
        return ()

    @property
    def has_kernels(self) -> bool:
        """False: the library chooses the tiling of a product."""
        return False

    def padded_depth(self, depth: FloatArray) -> FloatArray:
        """Depths rounded up to whole steps of a kernel's main loop."""
        step = self.contraction_step
        return -(-depth // step) * step

    def cores_per_rank(self, logical_size: int | None) -> int:
        return 1

    def peak_flop_per_s(self, number_format: str) -> float:
        """Dense peak of the chip as stated, FLOP/s."""
        return self.rates_per_chip_flop_per_s[number_format]

    def rate_keys(self, number_format: str) -> tuple[str, ...]:
        return (f"multiprocessors.rates_per_chip.{number_format}",)


ComputeUnit: TypeAlias = NeuronCores | Multiprocessors
"""All kinds; `match` on these where a kind has a rule or a price of its own."""
