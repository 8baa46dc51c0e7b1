"""Assumed rates of a job's phases, with ranges: generation engines, and hosts that hold weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from trnbench.facts.calibration.chip_efficiency import Numbers
from trnbench.facts.calibration.hosts import JobRates
from trnbench.facts.catalog.schema import keys_of
from trnbench.facts.hardware.instance import Instance
from trnbench.facts.records import replace
from trnbench.facts.units import Dimension, show
from trnbench.predict.common_draws import CommonDraws
from trnbench.predict.ranges import Range
from trnbench.predict.sampling import SAMPLES
from trnbench.predict.setup import TrainSetup
from trnbench.program.job_phases import JobPhase


def range_of(rates: JobRates, name: str) -> Range:
    """A rate of the file with its range; the rate alone where the file gives no range."""
    value = getattr(rates, name)
    stated = rates.provenance.evidence.get(keys_of(JobRates)[name])
    ends = (value, value)
    if stated is not None and stated.low is not None and stated.high is not None:
        ends = (stated.low, stated.high)
    most = 1.0 if name.endswith(("share", "overlap")) else math.inf
    return Range(value=value, low=ends[0], high=ends[1], most=most)


def host_memory(rates: JobRates, instance: Instance) -> Range:
    """Bytes/s that processors of all hosts of an instance read and write in their memory."""
    return _times(range_of(rates, "host_memory_bytes_per_s"), instance.hosts)


def host_link(rates: JobRates, instance: Instance) -> Range:
    """Bytes/s from the host's memory to a chip."""
    stated = instance.host.link_per_chip_one_way_bytes_per_s
    if stated is None:
        return range_of(rates, "host_link_bytes_per_s")
    return _times(range_of(rates, "host_link_share"), stated)


def _times(rate: Range, factor: float) -> Range:
    low, likely, high = (factor * end for end in (rate.low, rate.value, rate.high))
    return Range(value=likely, low=low, high=high, most=factor * rate.most)


def host_warnings(setup: TrainSetup, phases: Sequence[JobPhase]) -> tuple[str, ...]:
    """Warning that idle models kept on the host do not fit in its memory."""
    instance = setup.platform.instance
    each = sum(float(np.max(phase.fetched_bytes)) for phase in phases)
    needed = each * setup.platform.ranks(setup.logical_size)
    held = instance.host.memory_bytes
    if held is None or needed <= held:
        return ()
    words = f"idle models need {show(needed, Dimension.BYTES)} of host memory, a copy a replica"
    return (f"{words}, and {instance.name} has {show(held, Dimension.BYTES)}",)


def host_states_refusal(
    instance: Instance, needed_bytes: float, *, activations: bool
) -> str | None:
    """Refusal of what is offloaded and does not fit on the host; None if it may fit."""
    held = instance.host.memory_bytes
    if held is None or needed_bytes <= held:
        return None
    what, way = "the optimizer", "more nodes with --zero 1, or --optimizer-offload none"
    if activations:
        what, way = "what layers keep", "--recompute full, or a shorter --sequence"
    return (
        f"{what} on the host needs {show(needed_bytes, Dimension.BYTES)} of its memory on a "
        f"node, and {instance.name} has {show(held, Dimension.BYTES)}; try {way}"
    )


def job_rates(rates: JobRates, instance: Instance, samples: int | None) -> JobRates:
    """Rates of an instance's phases, or samples of them.

    With `SAMPLES + 2` samples the first is the assumption itself, as in `sampling.sampled`.
    """
    ranges = {
        "engine": range_of(rates, "engine_share"),
        "host link": host_link(rates, instance),
        "host memory": host_memory(rates, instance),
        "offload overlap": range_of(rates, "offload_overlap"),
    }
    share, link, memory, overlap = (
        bounds.value if samples is None else _drawn(name, bounds, samples)
        for name, bounds in ranges.items()
    )
    return replace(
        rates,
        engine_share=share,
        host_link_bytes_per_s=link,
        host_memory_bytes_per_s=memory,
        offload_overlap=overlap,
    )


def _drawn(name: str, bounds: Range, samples: int) -> Numbers:
    # As samples of an efficiency, they end with the value at which a step is fastest.
    if samples == SAMPLES + 2:
        drawn = CommonDraws(count=SAMPLES).of(name, bounds)
        return np.array([bounds.value, *drawn, bounds.high])
    return np.append(CommonDraws(count=samples - 1).of(name, bounds), bounds.high)
