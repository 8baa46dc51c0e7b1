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
        device_memory_bytes=can.memory_bytes or host.memory_bytes() / can.devices,
        cache_bytes=host.cache_bytes() if can.shares_host else None,
        settings=kept_variables(os.environ),
        seed=seed,
        **host.driver(can.backend),
    )


def kernel_row(found: KernelTime) -> Cells:
    """The cells of a kernel, of whichever kind it is."""
    launched = found.kernel in ("program", "kernel")
    kind: MeasuredKind = "launch" if launched else "matrix" if found.flop else "stream"
    seconds = found.timing.median_s
    words = (found.kernel, found.format, found.shape.replace(" ", ""))
    return _filled(
        kind=kind,
        id="-".join(("measured", kind, *words)).replace(" ", "-"),
        kernel=found.kernel,
        shape=found.shape,
        dtype=found.format,
        latency_ms=seconds * 1e3,
        flop=found.flop or None,
        bytes=found.bytes or None,
        flop_per_s=found.flop / seconds if found.flop else None,
        bytes_per_s=found.bytes / seconds if found.bytes and not found.flop else None,
        check=found.check,
        **timing_cells(found.timing),
    )


def exchange_row(found: ExchangeTime) -> Cells:
    """The cells of a collective."""
    words = (found.op, str(found.ranks), f"{found.size_bytes:.0f}")
    return _filled(
        kind="collective",
        id="-".join(("measured", *words)),
        collective=found.op,
        dtype="fp32",
        ranks=found.ranks,
        size_bytes=found.size_bytes,
        time_us=found.timing.median_s * 1e6,
        algbw_bytes_per_s=found.algbw_bytes_per_s,
        busbw_bytes_per_s=found.busbw_bytes_per_s,
        check=found.check,
        **timing_cells(found.timing),
    )


def step_row(found: StepRun) -> Cells:
    """The cells of a training step: its model by shapes, its layout by knobs."""
    case, peak = found.case, found.peak_memory_bytes
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
        step_time_s=found.timing.median_s,
        memory_gb=peak / GIB if peak else None,
        compile_s=found.compile_s,
        flop=float(program.hardware_flop) / case.devices,
        compiled_flop=found.compiled_flop,
        first_loss=found.losses[0],
        last_loss=found.losses[-1],
        check=found.check,
        **cells_of(said),
        **timing_cells(found.timing),
    )


def timing_cells(timing: Timing) -> Mapping[str, float]:
    names = ("low_s", "high_s", "spread", "known_to", "repeats", "outliers", "processor_s")
    return {name: getattr(timing, name) for name in names}


def _filled(**cells: str | float | None) -> Cells:
    """Non-empty cells as text, numbers with all digits."""
    return {
        name: repr(cell) if isinstance(cell, float) else str(cell)
        for name, cell in cells.items()
        if cell not in (None, "")
    }
