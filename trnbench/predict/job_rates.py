"""Assumed rates of a job's phases, with ranges: generation engines, and hosts that hold weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trnbench.engines.analytic.step.job_time import (
    ENGINE_SHARE,
    HOST_LINK_BYTES_PER_S,
    HOST_MEMORY_BYTES_PER_S,
    JobRates,
)
from trnbench.facts.calibration.chip_efficiency import Numbers
from trnbench.facts.hardware.instance import Instance
from trnbench.facts.units import Dimension, show
from trnbench.predict.common_draws import CommonDraws
from trnbench.predict.ranges import Range
from trnbench.predict.sampling import SAMPLES
from trnbench.predict.setup import TrainSetup
from trnbench.program.job_phases import JobPhase

ENGINE = Range(value=ENGINE_SHARE, low=0.4, high=0.8)
"""Share of memory bandwidth and peak that generation engines reach: an assumption."""
HOST_LINK = Range(value=HOST_LINK_BYTES_PER_S, low=8e9, high=55e9)
"""Bytes/s from host memory to a chip: an assumption, from 8 lanes of PCIe 4 to 16 of PCIe 5."""
HOST_SHARE = (0.5, 0.8, 0.95)
"""Share reached of a link that a file states: an assumption, lowest, likely and highest."""


HOST_MEMORY = Range(value=HOST_MEMORY_BYTES_PER_S, low=150e9, high=500e9)
"""Bytes/s that a host's processors reach of its memory: an assumption, stated in no data file."""


def host_memory(instance: Instance) -> Range:
    """Bytes/s that processors of all hosts of an instance read and write in their memory."""
    return Range(
        value=instance.hosts * HOST_MEMORY.value,
        low=instance.hosts * HOST_MEMORY.low,
        high=instance.hosts * HOST_MEMORY.high,
    )


def host_link(instance: Instance) -> Range:
    """Bytes/s from the host's memory to a chip."""
    stated = instance.host.link_per_chip_one_way_bytes_per_s
    if stated is None:
        return HOST_LINK
    low, likely, high = (share * stated for share in HOST_SHARE)
    return Range(value=likely, low=low, high=high)


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


def host_states_refusal(instance: Instance, needed_bytes: float) -> str | None:
    """Refusal of an optimizer that does not fit on the host; None if it may fit."""
    held = instance.host.memory_bytes
    if held is None or needed_bytes <= held:
        return None
    return (
        f"the optimizer on the host needs {show(needed_bytes, Dimension.BYTES)} of its memory on a "
        f"node, and {instance.name} has {show(held, Dimension.BYTES)}; try more nodes with "
        "--zero 1, or --optimizer-offload none"
    )


def job_rates(instance: Instance, samples: int | None) -> JobRates:
    """Rates of a job's phases, or samples of them.

    With `SAMPLES + 1` samples the first is the assumption itself, as in `sampling.sampled`.
    """
    link, memory = host_link(instance), host_memory(instance)
    if samples is None:
        return JobRates(
            engine_share=ENGINE.value,
            host_link_bytes_per_s=link.value,
            host_memory_bytes_per_s=memory.value,
        )
    return JobRates(
        engine_share=_drawn("engine", ENGINE, samples),
        host_link_bytes_per_s=_drawn("host link", link, samples),
        host_memory_bytes_per_s=_drawn("host memory", memory, samples),
    )


def _drawn(name: str, known: Range, samples: int) -> Numbers:
    drawn = CommonDraws(count=samples).of(name, known)
    return np.concatenate([[known.value], drawn[1:]]) if samples == SAMPLES + 1 else drawn
