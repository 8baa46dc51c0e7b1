"""A matrix product played on the engines of a NeuronCore: time, utilisation, stalls, events."""

from __future__ import annotations

from collections.abc import Mapping

from trnbench.engines.emulate.tensor_engine.machine import Core, TraceEvent
from trnbench.engines.emulate.tensor_engine.plan import FS_PER_S, KernelPlan
from trnbench.engines.emulate.tensor_engine.steady import play_all
from trnbench.errors import InputError, unhandled
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.compute_unit import Multiprocessors, NeuronCores
from trnbench.facts.records import Record, field
from trnbench.machine.costs.instructions import instructions_of
from trnbench.machine.tiling import DEFAULT_KERNEL, Cores, Kernel, Precision
from trnbench.machine.tiling.legality import format_reasons, rate_of, shape_reasons
from trnbench.machine.tiling.schedule import core_count, core_reasons, schedule_of, split_over
from trnbench.program.matrix import MatrixProduct

OUTPUT_ROOM = "output room"
"""The one stall that is not the tensor engine's: copies out of PSUM that wait for room in SBUF."""


class MatrixRun(Record):
    """Result of a product on a rank's busiest core; NaN and empty for an impossible product."""

    chip: str
    kernel: Kernel
    cores: int
    reasons: tuple[str, ...]
    time_s: float = float("nan")
    cycles: float = float("nan")
    multiplies: int = 0
    utilization: Mapping[str, float] = field(default_factory=dict)
    """Busy share of the time, by engine, DMA engine and triggering queue."""
    stalls_s: Mapping[str, float] = field(default_factory=dict)
    """Waits of the tensor engine by cause, and of copies for room in SBUF."""
    read_bytes: float = 0.0  # Bytes of this core, as those written
    written_bytes: float = 0.0
    events: tuple[TraceEvent, ...] = ()

    @property
    def feasible(self) -> bool:
        return not self.reasons


def run_matrix(
    product: MatrixProduct,
    chip: Chip,
    *,
    cores: Cores = 1,
    kernel: Kernel = DEFAULT_KERNEL,
    precision: Precision = "native",
    trace: bool = False,
    shorten: bool = True,
) -> MatrixRun:
    """Run of one product, every instruction of its kernel played.

    Repetitions are skipped exactly unless `shorten` is False; a `trace` holds every instruction, so
    nothing is skipped for it.
    """
    if product.shape != ():
        raise InputError(f"the emulator plays one product, found sizes of shape {product.shape}")
    count = core_count(cores, chip)
    reasons = format_reasons(product, chip, precision) + core_reasons(count, chip)
    match chip.unit:
        case Multiprocessors():
            reasons += (f"{chip.name} has no NeuronCores to emulate; use the analytic engine",)
            return MatrixRun(chip=chip.name, kernel=kernel, cores=0, reasons=reasons)
        case NeuronCores() as unit:
            if reasons:
                return MatrixRun(chip=chip.name, kernel=kernel, cores=0, reasons=reasons)
        case unknown:
            unhandled(unknown, "machine that plays its instructions")
    rate = rate_of(product, unit, precision)
    costs = instructions_of(chip, unit, rate)
    split = split_over(product, count, unit)
    schedule = schedule_of(split.share, unit, rate, kernel)
    reasons = shape_reasons(product, schedule.fits, kernel)
    if reasons:
        return MatrixRun(chip=chip.name, kernel=kernel, cores=0, reasons=reasons)
    core = Core(
        KernelPlan(schedule, costs),
        schedule,
        costs,
        banks=unit.psum.banks,
        dma_engines=unit.dma.engines_per_core,
        events=[] if trace else None,
    )
    play_all(core, shorten=shorten and not trace)
    return _result(core, chip.name, kernel, int(split.cores), unit)


def _result(core: Core, chip: str, kernel: Kernel, cores: int, unit: NeuronCores) -> MatrixRun:
    total = core.last_store_end
    tally = core.tally
    busy = {
        "tensor": tally.tensor_fs,
        "vector": tally.vector_fs,
        "scalar": tally.scalar_fs,
        "load queue": tally.load_trigger_fs,
        "store queue": tally.store_trigger_fs,
    }
    # A transfer on n engines keeps the first n of them busy.
    for engine in range(unit.dma.engines_per_core):
        busy[f"dma {engine}"] = sum(core.dma_fs_by_engines[engine + 1 :])
    stalls = {
        "loads": tally.loads_stall_fs,
        "PSUM bank": tally.psum_stall_fs,
        "weights": tally.weights_stall_fs,
        "drain": total - core.multiply_end,
        OUTPUT_ROOM: tally.output_wait_fs,
    }
    return MatrixRun(
        chip=chip,
        kernel=kernel,
        cores=cores,
        reasons=(),
        time_s=total / FS_PER_S,
        cycles=total / FS_PER_S * unit.tensor.clock_hz,
        multiplies=tally.multiplies,
        utilization={name: value / total for name, value in busy.items()},
        stalls_s={name: value / FS_PER_S for name, value in stalls.items()},
        read_bytes=tally.read_bytes,
        written_bytes=tally.written_bytes,
        events=tuple(core.events or ()),
    )
