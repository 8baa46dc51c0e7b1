"""Measurements as rows of the file that `trnbench measure` writes."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping

from trnbench import __version__
from trnbench.evidence.columns import MeasuredKind, cells_of
from trnbench.evidence.measure import host
from trnbench.evidence.measure.chains import layout_of_case, model_of
from trnbench.evidence.measure.collectives import ExchangeTime
from trnbench.evidence.measure.device import Capabilities, kept_variables
from trnbench.evidence.measure.kernels import KernelTime
from trnbench.evidence.measure.loops import Timing
from trnbench.evidence.measure.training import StepRun
from trnbench.program.step import training_step

Cells = dict[str, str]
"""A row: non-empty cells by column."""
FRAMEWORK = "trnbench measure"
"""Framework name in rows of measured steps."""
GIB = 1024**3


def provenance(can: Capabilities, *, instance: str, seed: int) -> Cells:
    """Cells shared by all rows of a session: device, software, date."""
    today = datetime.datetime.now(tz=datetime.UTC).date()
    return _filled(
        source=f"trnbench {__version__} measure",
        date=today.isoformat(),
        instance=instance,
        nodes=1,
        ranks=can.devices,
        lnc=can.logical_size,
        device=can.kind if can.backend != "cpu" else host.processor_name(),
        backend=can.backend,
        chip=can.chip,
        software=host.software(),
        cores=host.processors(),
        device_memory_bytes=can.memory_bytes or _told_memory(can),
        cache_bytes=host.cache_bytes() if can.shares_host else None,
        settings=kept_variables(os.environ),
        seed=seed,
        **host.driver(can.backend),
    )


def _told_memory(can: Capabilities) -> float:
    """Memory of a device where JAX reports none, bytes."""
    told = host.neuron_memory_bytes(can.logical_size) if can.backend == "neuron" else None
    return told or host.memory_bytes() / can.devices


def kernel_row(kernel: KernelTime) -> Cells:
    """The cells of a kernel, of whichever kind it is."""
    launched = kernel.kernel in ("program", "kernel")
    kind: MeasuredKind = "launch" if launched else "matrix" if kernel.flop else "stream"
    seconds = kernel.timing.seconds
    words = (kernel.kernel, kernel.format, kernel.shape.replace(" ", ""))
    return _filled(
        kind=kind,
        id="-".join(("measured", kind, *words)).replace(" ", "-"),
        kernel=kernel.kernel,
        shape=kernel.shape,
        dtype=kernel.format,
        latency_ms=seconds * 1e3,
        flop=kernel.flop or None,
        bytes=kernel.bytes or None,
        flop_per_s=kernel.flop / seconds if kernel.flop else None,
        bytes_per_s=kernel.bytes / seconds if kernel.bytes and not kernel.flop else None,
        check=kernel.check,
        **timing_cells(kernel.timing),
    )


def exchange_row(exchange: ExchangeTime) -> Cells:
    """The cells of a collective."""
    words = (exchange.op, str(exchange.ranks), f"{exchange.size_bytes:.0f}")
    return _filled(
        kind="collective",
        id="-".join(("measured", *words)),
        collective=exchange.op,
        dtype="fp32",
        ranks=exchange.ranks,
        size_bytes=exchange.size_bytes,
        time_us=exchange.timing.seconds * 1e6,
        algbw_bytes_per_s=exchange.algbw_bytes_per_s,
        busbw_bytes_per_s=exchange.busbw_bytes_per_s,
        check=exchange.check,
        **timing_cells(exchange.timing),
    )


def step_row(step: StepRun) -> Cells:
    """The cells of a training step: its model by shapes, its layout by knobs."""
    case, peak = step.case, step.peak_memory_bytes
    layout = layout_of_case(case)
    knobs = ("tp", "pp", "dp", "micro_batch", "global_batch", "sequence", "zero", "recompute")
    said = {name: getattr(layout, name) for name in (*knobs, "attention", "precision")}
    program = training_step(model_of(case), layout)
    return _filled(
        kind="train",
        id=f"measured-train-{case.shape.replace(' ', '')}-{case.precision}",
        model="measured-decoder",
        layers=case.layers,
        hidden=case.hidden,
        heads=case.heads,
        kv_heads=case.heads,
        ffn=case.ffn,
        mlp="swiglu",
        vocab=case.vocab,
        tied=0,
        shape=case.shape,
        ranks=case.devices,
        framework=FRAMEWORK,
        outcome="measured",
        step_time_s=step.timing.seconds,
        memory_gb=peak / GIB if peak else None,
        compile_s=step.compile_s,
        flop=float(program.hardware_flop) / case.devices,
        compiled_flop=step.compiled_flop,
        first_loss=step.losses[0],
        last_loss=step.losses[-1],
        check=step.check,
        **cells_of(said),
        **timing_cells(step.timing),
    )


def timing_cells(timing: Timing) -> Mapping[str, float | str]:
    names = ("low_s", "high_s", "spread", "known_to", "repeats", "outliers", "processor_s")
    return {**{name: getattr(timing, name) for name in names}, **timing.state}


def _filled(**cells: str | float | None) -> Cells:
    """Non-empty cells as text, numbers with all digits."""
    return {
        name: repr(cell) if isinstance(cell, float) else str(cell)
        for name, cell in cells.items()
        if cell not in (None, "")
    }
