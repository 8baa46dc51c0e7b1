"""A pipeline schedule played: its end, the seconds of a step, and their use by every stage.

End of the step. Gradients of a chunk exist from the start of its last weight-gradient slot on (they
are reduced piece by piece). The share that may overlap is reduced from then on, chunk after chunk,
with the links and network that traffic inside slots leaves free. The rest follows the stage's last
slot, and sums over other ranks follow that. Of the parameters, the share that may overlap has until
the end of the chunk's first forward in the next step; the excess, and the rest, follow the
optimizer.
"""

from __future__ import annotations

import numpy as np

from trnbench.engines.emulate.schedule.sweep import (
    SlotRuns,
    SlotSeconds,
    Tables,
    batch_shape,
    slot_compute,
    slot_seconds,
    sweep,
    tables,
)
from trnbench.engines.emulate.schedule.times import (
    Jitter,
    OverlapRules,
    StageTimes,
    Straggler,
    slowdown,
)
from trnbench.facts.arrays import FloatArray, IntArray
from trnbench.facts.records import Record, fields
from trnbench.program.schedule import SlotKind, SlotMessages, SlotOrder, messages, waves


class EndingRuns(Record, eq=False):
    """Time at which each stage [stage, layout] got through the end of the step."""

    slots_end_s: FloatArray
    gradients_start_s: FloatArray
    gradients_end_s: FloatArray
    sums_start_s: FloatArray
    optimizer_start_s: FloatArray
    optimizer_end_s: FloatArray
    parameters_end_s: FloatArray


def ending_runs(
    order: SlotOrder, table: Tables, rules: OverlapRules, slots: SlotSeconds, runs: SlotRuns
) -> EndingRuns:
    """Runs of all that follows the slots."""
    slots_end = runs.free_s[:, -1]
    last = _chunk_slots(order, order.weight_kind, nth=-1)
    stage = np.arange(order.pp)[:, None]
    there_from = runs.start_s[stage, last]
    early = rules.gradients * table.gradients_s
    # The network works without a pause from some chunk's start on: the largest sum decides.
    by_time = np.argsort(last, axis=1)
    in_turn = early[stage, by_time]
    still_to_reduce = np.cumsum(in_turn[:, ::-1], axis=1)[:, ::-1]
    from_each = np.cumsum(slots.traffic_s[:, ::-1], axis=1)[:, ::-1]
    traffic = from_each[stage, last]
    starts = (there_from + traffic)[stage, by_time]
    any_early = early.any(axis=1)
    early_end = np.where(any_early, (starts + still_to_reduce).max(axis=1), slots_end)
    # What may not overlap follows the last slot, or the early part if that takes longer.
    late = (1 - rules.gradients) * table.gradients_s.sum(axis=1)
    gradients_end = np.maximum(slots_end, early_end) + late
    gradients_start = np.where(any_early, there_from.min(axis=1), gradients_end - late)
    ready = gradients_end
    if rules.optimizer_waits_for_all:
        ready = np.broadcast_to(ready.max(axis=0), ready.shape)
    optimizer_start = ready + table.sums_s
    optimizer_end = optimizer_start + table.optimizer_s
    return EndingRuns(
        slots_end_s=slots_end,
        gradients_start_s=gradients_start,
        gradients_end_s=gradients_end,
        sums_start_s=ready,
        optimizer_start_s=optimizer_start,
        optimizer_end_s=optimizer_end,
        parameters_end_s=optimizer_end + _parameters_exposed(order, table, rules, runs),
    )


def _parameters_exposed(
    order: SlotOrder, table: Tables, rules: OverlapRules, runs: SlotRuns
) -> FloatArray:
    """Seconds of gathering that neither overlap nor fit before the first use."""
    first = _chunk_slots(order, SlotKind.FORWARD, nth=0)
    used_by = runs.end_s[np.arange(order.pp)[:, None], first]
    gathered_by = np.cumsum(rules.parameters * table.parameters_s, axis=1)
    too_late = np.maximum(gathered_by - used_by, 0.0).max(axis=1)
    return np.asarray(too_late + (1 - rules.parameters) * table.parameters_s.sum(axis=1))


def _chunk_slots(order: SlotOrder, kind: SlotKind, *, nth: int) -> IntArray:
    """First or last slot of a kind for every chunk [stage, chunk]."""
    chunk = np.arange(order.vpp)[:, None, None]
    hit = (order.kind == kind) & (order.chunk == chunk)
    found = hit.argmax(axis=-1) if nth == 0 else hit.shape[-1] - 1 - hit[..., ::-1].argmax(axis=-1)
    return np.asarray(found.T)


class PlayedSchedule(Record, eq=False):
    """A step as it ran; seconds by stage add up to the step on every stage."""

    step_s: FloatArray  # By layout, as the next
    pipeline_s: FloatArray  # Seconds to the end of the last slot
    compute_s: FloatArray  # [..., stage], as all that follow
    collectives_s: FloatArray  # Waits for collectives inside slots
    sends_s: FloatArray  # Waits for sends
    gradients_s: FloatArray  # Waits for gradients and sums
    optimizer_s: FloatArray
    parameters_s: FloatArray  # Gathering of weights
    bubble_s: FloatArray  # The rest, waits for other stages at the end of the step included

    @property
    def exposed_s(self) -> FloatArray:
        return self.collectives_s + self.sends_s + self.gradients_s + self.parameters_s

    def at(self, index: int) -> PlayedSchedule:
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
    """Events of a batch of layouts."""

    sent: SlotMessages
    table: Tables
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
    part = run(order, times, rules, slowdown(jitter, stragglers, pp=order.pp))
    return account(part).reshaped(batch_shape(order, times))


def run(
    order: SlotOrder, times: StageTimes, rules: OverlapRules, factor: FloatArray
) -> ScheduleRun:
    """Every slot's and every stage's times; `factor` slows the compute of each stage."""
    table = tables(order, times, rules, batch_shape(order, times))
    sent = messages(order)
    compute_s = slot_compute(order, table, factor)
    slots = slot_seconds(order, sent.receiver, times, rules, table, compute_s)
    slot_runs = sweep(waves(order, sent.sender), sent.sender, slots)
    return ScheduleRun(
        sent=sent,
        table=table,
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
