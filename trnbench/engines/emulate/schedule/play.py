"""A pipeline schedule played: seconds of a step, and every stage's use of that time."""

from __future__ import annotations

import numpy as np

from trnbench.engines.emulate.schedule.disturbance import Jitter, Straggler, slowdown
from trnbench.engines.emulate.schedule.ending import EndingRuns, ending_runs
from trnbench.engines.emulate.schedule.one_by_one import WORTHWHILE, one_by_one
from trnbench.engines.emulate.schedule.prepare import (
    Tables,
    batch_shape,
    slot_compute,
    slot_seconds,
    tables,
)
from trnbench.engines.emulate.schedule.sweep import SlotRuns, SlotSeconds, sweep
from trnbench.engines.emulate.schedule.times import OverlapRules, StageTimes
from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import Record, fields
from trnbench.program.schedule import SlotOrder
from trnbench.program.schedule_waves import SlotMessages, Waves, messages, waves

SLOTS_AT_ONCE = 1 << 18
"""Slots of all layouts swept together: few enough for the caches, many enough for numpy."""


class PlayedSchedule(Record, eq=False):
    """A step as it ran; seconds by stage add up to the step on every stage."""

    step_s: FloatArray
    """By layout, as the next."""
    pipeline_s: FloatArray
    """Seconds to the end of the last slot."""
    compute_s: FloatArray
    """[..., stage], as all that follow."""
    collectives_s: FloatArray
    """Waits for collectives inside slots."""
    sends_s: FloatArray
    """Waits for sends."""
    gradients_s: FloatArray
    """Waits for gradients and sums."""
    optimizer_s: FloatArray
    parameters_s: FloatArray
    """Gathering of weights."""
    bubble_s: FloatArray
    """The rest, waits for other stages at the end of the step included."""

    @property
    def exposed_s(self) -> FloatArray:
        """Communication that nothing hides, seconds by stage."""
        return self.collectives_s + self.sends_s + self.gradients_s + self.parameters_s

    def at(self, index: int) -> PlayedSchedule:
        """Layout, or the layouts, at an index of the first axis."""
        return PlayedSchedule(
            **{field.name: getattr(self, field.name)[index] for field in fields(self)}
        )

    def reshaped(self, shape: tuple[int, ...]) -> PlayedSchedule:
        """Same with the layouts, which come last, as leading axes of this shape."""
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        return PlayedSchedule(
            **{name: array.T.reshape((*shape, *array.shape[:-1])) for name, array in arrays.items()}
        )


class ScheduleRun(Record, eq=False):
    """All that happened in a part of a batch."""

    slots: SlotSeconds
    compute_s: FloatArray
    slot_runs: SlotRuns
    ending: EndingRuns


def play(
    order: SlotOrder,
    times: StageTimes,
    rules: OverlapRules,
    *,
    jitter: Jitter | None = None,
    stragglers: tuple[Straggler, ...] = (),
) -> PlayedSchedule:
    """Step of every layout of a batch; all see the same jitter."""
    shape = batch_shape(order, times)
    table = tables(order, times, rules, shape)
    graph = graph_of(order, table.layouts)
    factor = slowdown(jitter, stragglers, pp=order.pp)
    at_once = max(1, SLOTS_AT_ONCE // order.kind.size)
    parts = []
    for first in range(0, table.layouts, at_once):
        part = table.part(slice(first, first + at_once))
        parts.append(account(run(order, graph, times, rules, part, factor)))
    return _joined(parts).reshaped(shape)


def graph_of(order: SlotOrder, layouts: int) -> tuple[SlotMessages, Waves | None]:
    """Dependencies between slots, and the waves where this many layouts are swept in waves."""
    sent = messages(order)
    # Waves pay only for wide arrays; for few numbers the calls of numpy take longer than the sums.
    few = order.pp * layouts <= WORTHWHILE
    return sent, None if few else waves(order, sent.sender)


def run(
    order: SlotOrder,
    graph: tuple[SlotMessages, Waves | None],
    times: StageTimes,
    rules: OverlapRules,
    table: Tables,
    factor: FloatArray,
) -> ScheduleRun:
    """Every slot's and every stage's times for some layouts."""
    sent, in_waves = graph
    compute_s = slot_compute(order, table, factor)
    slots = slot_seconds(order, sent.receiver, times, rules, table, compute_s)
    sender = sent.sender
    slot_runs = sweep(in_waves, sender, slots) if in_waves else one_by_one(sender, slots)
    return ScheduleRun(
        slots=slots,
        compute_s=compute_s,
        slot_runs=slot_runs,
        ending=ending_runs(order, table, rules, slots, slot_runs),
    )


def account(part: ScheduleRun) -> PlayedSchedule:
    """Each stage's seconds by use; the layout axis comes last."""
    runs, ending = part.slot_runs, part.ending
    compute = part.compute_s.sum(axis=1)
    collectives = (runs.end_s - runs.start_s).sum(axis=1) - compute
    sends = (runs.free_s - runs.end_s).sum(axis=1)
    sums = ending.optimizer_start_s - ending.sums_start_s
    gradients = ending.gradients_end_s - ending.slots_end_s + sums
    optimizer = ending.optimizer_end_s - ending.optimizer_start_s
    parameters = ending.parameters_end_s - ending.optimizer_end_s
    step = ending.parameters_end_s.max(axis=0)
    # The bubble is the rest, so that every stage's seconds add up to the step.
    return PlayedSchedule(
        step_s=step,
        pipeline_s=ending.slots_end_s.max(axis=0),
        compute_s=compute,
        collectives_s=collectives,
        sends_s=sends,
        gradients_s=gradients,
        optimizer_s=optimizer,
        parameters_s=parameters,
        bubble_s=step - compute - collectives - sends - gradients - optimizer - parameters,
    )


def _joined(parts: list[PlayedSchedule]) -> PlayedSchedule:
    """Parts of a batch as one."""
    if len(parts) == 1:
        return parts[0]
    return PlayedSchedule(
        **{
            field.name: np.concatenate([getattr(part, field.name) for part in parts], axis=-1)
            for field in fields(PlayedSchedule)
        }
    )
