"""The timeline of one played layout: its slots, and typed events for charts and traces."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from trnbench.engines.emulate.schedule.disturbance import Jitter, Straggler, slowdown
from trnbench.engines.emulate.schedule.play import (
    PlayedSchedule,
    ScheduleRun,
    account,
    graph_of,
    run,
)
from trnbench.engines.emulate.schedule.prepare import Tables, batch_shape, per_slot, tables
from trnbench.engines.emulate.schedule.times import OverlapRules, StageTimes
from trnbench.errors import InputError
from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import Record
from trnbench.program.schedule import SlotKind, SlotOrder
from trnbench.program.schedule_waves import SlotMessages
from trnbench.program.slots import LANES

Track: TypeAlias = Literal["compute", "links", "network", "gradients"]

LEAST_SHARE = 1e-12
"""Events shorter than this share of the step are rounding."""


class SlotEvent(Record):
    """Something that happened on one track of a stage; events of a track never overlap.

    `name`: forward, backward, weight, optimizer; send-forward, send-backward or the name of a
    collective; gradients, sums, parameters. `micro_batch` and `chunk` are absent outside slots.
    """

    stage: int
    track: Track
    name: str
    start_s: float
    end_s: float
    micro_batch: int | None = None
    chunk: int | None = None


class Timeline(Record, eq=False):
    """One layout's step: its account, slot times [stage, slot], and events by stage, track, start.

    A slot's interval includes the communication that it waits for.
    """

    order: SlotOrder
    played: PlayedSchedule
    start_s: FloatArray
    end_s: FloatArray
    events: tuple[SlotEvent, ...]


def timeline(
    order: SlotOrder,
    times: StageTimes,
    rules: OverlapRules,
    *,
    at: tuple[int, ...] = (),
    jitter: Jitter | None = None,
    stragglers: tuple[Straggler, ...] = (),
) -> Timeline:
    """Timeline of the layout at this index of the batch; () when there is no batch."""
    shape = batch_shape(order, times)
    if len(at) != len(shape) or any(not 0 <= i < size for i, size in zip(at, shape, strict=True)):
        raise InputError(f"timeline: no layout {at} in a batch of shape {shape}")
    number = int(np.ravel_multi_index(at, shape)) if shape else 0
    table = tables(order, times, rules, shape).part(slice(number, number + 1))
    graph = graph_of(order, table.layouts)
    factor = slowdown(jitter, stragglers, pp=order.pp)
    part = run(order, graph, times, rules, table, factor)
    played = account(part)
    events = [
        *_slot_events(order, part),
        *_collective_events(order, times, table, part),
        *_send_events(order, graph[0], part),
        *_ending_events(part),
    ]
    least_s = LEAST_SHARE * float(played.step_s[0])
    tracks = ("compute", *LANES, "gradients")
    return Timeline(
        order=order,
        played=played.reshaped(()),
        start_s=part.slot_runs.start_s[..., 0],
        end_s=part.slot_runs.end_s[..., 0],
        events=tuple(
            sorted(
                (event for event in events if event.end_s - event.start_s > least_s),
                key=lambda event: (event.stage, tracks.index(event.track), event.start_s),
            )
        ),
    )


def _slot_events(order: SlotOrder, part: ScheduleRun) -> list[SlotEvent]:
    runs = part.slot_runs
    return _events_at(
        order,
        np.ones(order.kind.shape, dtype=np.bool_),
        "compute",
        runs.start_s[..., 0],
        runs.end_s[..., 0],
        tuple(kind.name.lower() for kind in SlotKind),
    )


def _collective_events(
    order: SlotOrder, times: StageTimes, table: Tables, part: ScheduleRun
) -> list[SlotEvent]:
    """Collectives inside slots: those on one lane of a slot follow one another."""
    # Slots know when a lane ends, not when each collective does: they follow one another up to it.
    events: list[SlotEvent] = []
    begin = {
        lane: part.slot_runs.lane_end_s[lane][..., 0] - taken[..., 0]
        for lane, taken in part.slots.lane_s.items()
    }
    for one, taken in zip(times.collectives, table.collective_s, strict=True):
        lane = LANES.index(one.lane)
        if lane not in begin:
            continue
        length = per_slot(order, taken)[..., 0]
        start = begin[lane]
        begin[lane] = start + length
        names = (one.name,) * len(SlotKind)
        events += _events_at(order, length > 0, one.lane, start, begin[lane], names)
    return events


def _send_events(order: SlotOrder, sent: SlotMessages, part: ScheduleRun) -> list[SlotEvent]:
    end = part.slot_runs.sent_s[..., 0]
    start = end - part.slots.send_s[..., 0]
    names = ("send-forward", "send-backward", "")
    events: list[SlotEvent] = []
    for index, lane in enumerate(LANES):
        there = (sent.receiver >= 0) & (part.slots.send_lane == index)
        events += _events_at(order, there, lane, start, end, names)
    return events


def _ending_events(part: ScheduleRun) -> list[SlotEvent]:
    ending = part.ending
    spans: tuple[tuple[Track, str, FloatArray, FloatArray], ...] = (
        ("gradients", "gradients", ending.gradients_start_s, ending.gradients_end_s),
        ("gradients", "sums", ending.sums_start_s, ending.optimizer_start_s),
        ("compute", "optimizer", ending.optimizer_start_s, ending.optimizer_end_s),
        ("gradients", "parameters", ending.optimizer_end_s, ending.parameters_end_s),
    )
    return [
        SlotEvent(stage=stage, track=track, name=name, start_s=begin, end_s=finish)
        for track, name, start, end in spans
        for stage, (begin, finish) in enumerate(
            zip(start[:, 0].tolist(), end[:, 0].tolist(), strict=True)
        )
    ]


def _events_at(
    order: SlotOrder,
    there: np.ndarray[tuple[int, ...], np.dtype[np.bool_]],
    track: Track,
    start: FloatArray,
    end: FloatArray,
    names: tuple[str, ...],
) -> list[SlotEvent]:
    """One event for each slot where `there`; `names` goes by the kind of slot."""
    stages = np.nonzero(there)[0].tolist()
    columns = (start, end, order.kind, order.micro_batch, order.chunk)
    rows = zip(stages, *(column[there].tolist() for column in columns), strict=True)
    return [
        SlotEvent(
            stage=stage,
            track=track,
            name=names[kind],
            start_s=begin,
            end_s=finish,
            micro_batch=micro_batch,
            chunk=chunk,
        )
        for stage, begin, finish, kind, micro_batch, chunk in rows
    ]
