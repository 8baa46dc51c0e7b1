"""A sweep over sizes: seconds, bandwidths, algorithm and lower bound for each size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trnbench.engines.analytic.collective.profile import profile
from trnbench.engines.analytic.collective.time import closed_form, collective_time
from trnbench.errors import InputError
from trnbench.facts.arrays import FloatArray, distinct
from trnbench.facts.records import Record
from trnbench.machine.fabric_bounds import lower_bound
from trnbench.machine.message_plan.select import Selected, selected_for
from trnbench.program.collective import bus_factor

_COLLECTIVE = ("time_s", "latency_s", "launch_s", "chunks")  # of a `Breakdown`


class Sweep(Record, eq=False):
    """Predicted times of one collective; every array and tuple has one entry per size."""

    size_bytes: FloatArray
    time_s: FloatArray
    latency_s: FloatArray
    launch_s: FloatArray
    algbw_bytes_per_s: FloatArray  # Size over time; NaN where nothing takes time
    busbw_bytes_per_s: FloatArray  # Algorithm bandwidth times the bus factor of the operation
    chunks: FloatArray
    bound_s: FloatArray  # Seconds that no algorithm can beat
    algorithm: tuple[str, ...]
    tuning: tuple[str, ...]
    bound_by: tuple[str, ...]  # The resource that sets the predicted time


def swept_times_s(selected: Sequence[Selected], size_bytes: FloatArray) -> FloatArray:
    """Seconds of a sweep without bounds and causes, which would double the work."""
    chosen = selected_for(selected, size_bytes)
    times_s = np.zeros_like(size_bytes)
    for number in distinct(chosen).tolist():
        choice, where = selected[number], chosen == number
        form = closed_form(profile(choice.placed), choice.tuning)
        times_s[where] = form.time_s(size_bytes[where])
    return times_s


def sweep(selected: Sequence[Selected], size_bytes: FloatArray) -> Sweep:
    """Seconds for an array of sizes, each with the algorithm selected for that size."""
    sizes = np.atleast_1d(np.asarray(size_bytes, dtype=float))
    if not selected or not (sizes > 0).all():
        raise InputError("sizes of a sweep must be positive")
    chosen = selected_for(selected, sizes)
    columns = {name: np.zeros_like(sizes) for name in (*_COLLECTIVE, "bound_s")}
    labels = [""] * len(sizes)
    tunings, bound_by = labels.copy(), labels.copy()
    for number, choice in enumerate(selected):
        where = np.flatnonzero(chosen == number)
        if not len(where):
            continue
        times = collective_time(profile(choice.placed), choice.tuning, sizes[where])
        for name in _COLLECTIVE:
            columns[name][where] = getattr(times, name)
        columns["bound_s"][where] = lower_bound(choice.placed).s_per_byte * sizes[where]
        for at, name in zip(where, times.bound_by, strict=True):
            labels[at], tunings[at] = choice.algorithm.label, choice.tuning_name
            bound_by[at] = name
    placed = selected[0].placed
    factor = bus_factor(placed.op, placed.ranks)
    # A rank by itself takes no time, so it has no bandwidth.
    time_s = columns["time_s"]
    speed = np.divide(sizes, time_s, out=np.full_like(sizes, np.nan), where=time_s > 0)
    return Sweep(
        size_bytes=sizes,
        algbw_bytes_per_s=speed,
        busbw_bytes_per_s=speed * factor,
        algorithm=tuple(labels),
        tuning=tuple(tunings),
        bound_by=tuple(bound_by),
        **columns,
    )
