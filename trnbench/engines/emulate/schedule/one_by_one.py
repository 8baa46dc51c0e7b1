"""Start and end of every slot in plain numbers: the sweep for few stages and layouts.

Each stage takes slot after slot until one waits for a message that is not sent yet; then the next
stage goes on. The result equals that of `sweep` to the bit; there every wave is several calls of
numpy, which take longer than the sums of a few stages and layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, TypeAlias

import numpy as np

from trnbench.engines.emulate.schedule.sweep import SlotRuns, SlotSeconds
from trnbench.facts.arrays import FloatArray, IntArray
from trnbench.program.schedule_waves import NONE
from trnbench.program.slots import LANES

WORTHWHILE = 16
"""Stages times layouts up to which plain numbers are faster."""

Slots: TypeAlias = Iterator[tuple[Any, ...]]
"""The slots of a stage: number, number of the slot whose message it awaits, and seconds."""
Played: TypeAlias = list[Any]
"""Results of each slot by number, None until played; the last entry is for no slot."""
StageAtWork: TypeAlias = Generator[bool, None, None]
"""A stage at work, which stops where it has to wait."""


def one_by_one(sender: IntArray, slots: SlotSeconds) -> SlotRuns:
    """Runs of all slots."""
    # Slots that wait for nothing await the entry behind all slots, which is done from the start.
    awaited = np.where(sender == NONE, sender.size, sender)
    if slots.queues or slots.holds:
        return _with_lanes(awaited, slots)
    shape, size = slots.length_s.shape, sender.size
    delay, end = np.zeros((2, size + 1, shape[-1]))
    delay[:-1] = (slots.send_s + slots.latency_s).reshape(size, -1)
    under_way = delay[awaited]
    for layout in range(shape[-1]):
        columns = under_way[..., layout], slots.length_s[..., layout]
        ends = _played(awaited, columns, _compute, 0.0)
        end[:-1, layout] = np.fromiter(ends, np.float64, size)
    start = end[awaited] + under_way
    by_slot = end[:-1].reshape(shape)
    np.maximum(start[:, 1:], by_slot[:, :-1], out=start[:, 1:])
    return SlotRuns(
        start_s=start,
        end_s=by_slot,
        free_s=by_slot,
        sent_s=by_slot + slots.send_s,
        lane_end_s={},
    )


def _with_lanes(awaited: IntArray, slots: SlotSeconds) -> SlotRuns:
    """Runs of slots that may wait for lanes, or whose messages hold up their senders."""
    shape, nothing = slots.length_s.shape, np.array(-np.inf)
    columns = (
        *(slots.length_s, slots.send_s, slots.send_s + slots.latency_s, slots.held),
        slots.send_lane[..., None],
        *(slots.lane_waits.get(lane, nothing) for lane in range(len(LANES))),
    )
    every = [np.broadcast_to(column, shape) for column in columns]
    no_slot = (0.0,) * (5 + len(LANES))
    known = []
    for layout in range(shape[-1]):
        seconds = tuple(column[..., layout] for column in every)
        known.append(np.array(_played(awaited, seconds, _compute_and_send, no_slot)))
    start, end, free, sent, _, *lane_end = (
        np.stack(known, axis=-1).swapaxes(0, 1).reshape(-1, *shape)
    )
    return SlotRuns(
        start_s=start,
        end_s=end,
        free_s=free,
        sent_s=sent,
        lane_end_s={lane: lane_end[lane] for lane in slots.lane_s},
    )


def _played(
    awaited: IntArray,
    columns: tuple[FloatArray | IntArray, ...],
    work: Callable[[Slots, Played], StageAtWork],
    nothing: object,
) -> Played:
    """Times of every slot once all are played."""
    size, count = awaited.size, awaited.shape[1]
    played: Played = [None] * size + [nothing]
    by_stage = zip(*(column.tolist() for column in (awaited, *columns)), strict=True)
    stages = [
        work(zip(range(first, first + count), *rows, strict=True), played)
        for first, rows in zip(range(0, size, count), by_stage, strict=True)
    ]
    # Messages go both ways: up and down the stages in turn finds the most that need not wait.
    for _ in range(size):
        stages = [stage for stage in reversed(stages) if next(stage, False)]
        if not stages:
            return played[:-1]
    raise AssertionError("an order of slots waits for itself")


def _compute(slots: Slots, played: Played) -> StageAtWork:
    """Find when each slot ends where nothing queues and no message holds up its sender."""
    free = 0.0
    for number, awaited, under_way, length in slots:
        while (arrives := played[awaited]) is None:
            yield True
        arrives += under_way
        if arrives > free:
            free = arrives
        free += length
        played[number] = free


def _compute_and_send(slots: Slots, played: Played) -> StageAtWork:
    """Find of each slot its start and end, when its stage is free, its message sent and there.

    Behind these, when its collectives on each lane are done.
    """
    free = 0.0
    lane_free = [0.0] * len(LANES)
    for number, awaited, length, send, delay, held, send_lane, *taken in slots:
        while (message := played[awaited]) is None:
            yield True
        start = max(message[4], free)
        end = start + length
        lane_ends = []
        for until, seconds in zip(lane_free, taken, strict=True):
            done = max(start, until) + seconds
            lane_ends.append(done)
            if done > end:
                end = done
        # The same order of additions as in `sweep`: sums in another order differ in the last bit.
        leaves = max(end, lane_free[send_lane])
        arrives = leaves + delay
        lane_free[send_lane] = leaves + send
        free = (arrives - end) * held + end
        played[number] = (start, end, free, leaves + send, arrives, *lane_ends)
