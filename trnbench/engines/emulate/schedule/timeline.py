"""The timeline of one played layout: its slots, and typed events for charts and traces."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from trnbench.engines.emulate.schedule.play import PlayedSchedule, ScheduleRun, account, run
from trnbench.engines.emulate.schedule.sweep import batch_shape, per_slot
from trnbench.engines.emulate.schedule.times import (
    Jitter,
    OverlapRules,
    StageTimes,
    Straggler,
    slowdown,
)
from trnbench.errors import InputError
from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import Record
from trnbench.program.schedule import SlotKind, SlotOrder
from trnbench.program.slots import LANES

Track: TypeAlias = Literal["compute", "links", "network", "gradients"]

LEAST_SHARE = 1e-12  # Events shorter than this share of the step are rounding


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
    part = run(order, times, rules, slowdown(jitter, stragglers, pp=order.pp))
    events = [
        *_slot_events(order, part, number),
        *_collective_events(order, times, part, number),
        *_send_events(order, part, number),
        *_ending_events(part, number),
    ]
    played = account(part).reshaped(shape)
    for index in at:
        played = played.at(index)
    least_s = LEAST_SHARE * float(played.step_s)
    tracks = ("compute", *LANES, "gradients")
    return Timeline(
        order=order,
        played=played,
        start_s=part.slot_runs.start_s[..., number],
        end_s=part.slot_runs.end_s[..., number],
        events=tuple(
            sorted(
                (event for event in events if event.end_s - event.start_s > least_s),
                key=lambda event: (event.stage, tracks.index(event.track), event.start_s),
            )
        ),
    )


def _slot_events(order: SlotOrder, part: ScheduleRun, at: int) -> list[SlotEvent]:
    runs = part.slot_runs
    return _events_at(
        order,
        np.ones(order.kind.shape, dtype=np.bool_),
        "compute",
        runs.start_s[..., at],
        runs.end_s[..., at],
        tuple(kind.name.lower() for kind in SlotKind),
    )


def _collective_events(
    order: SlotOrder, times: StageTimes, part: ScheduleRun, at: int
) -> list[SlotEvent]:
    """Collectives inside slots: those on one lane of a slot follow one another."""
    # Slots know when a lane ends, not when each collective does: they follow one another up to it.
    events: list[SlotEvent] = []
    begin = {
        lane: part.slot_runs.lane_end_s[lane][..., at] - taken[..., at]
        for lane, taken in part.slots.lane_s.items()
    }
    for one, taken in zip(times.collectives, part.table.collective_s, strict=True):
        lane = LANES.index(one.lane)
        if lane not in begin:
            continue
        length = per_slot(order, taken)[..., at]
        start = begin[lane]
        begin[lane] = start + length
        names = (one.name,) * len(SlotKind)
        events += _events_at(order, length > 0, one.lane, start, begin[lane], names)
    return events


def _send_events(order: SlotOrder, part: ScheduleRun, at: int) -> list[SlotEvent]:
    end = part.slot_runs.sent_s[..., at]
    start = end - part.slots.send_s[..., at]
    names = ("send-forward", "send-backward", "")
    events: list[SlotEvent] = []
    for index, lane in enumerate(LANES):
        there = (part.sent.receiver >= 0) & (part.slots.send_lane == index)
        events += _events_at(order, there, lane, start, end, names)
    return events


def _ending_events(part: ScheduleRun, at: int) -> list[SlotEvent]:
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
            zip(start[:, at].tolist(), end[:, at].tolist(), strict=True)
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
