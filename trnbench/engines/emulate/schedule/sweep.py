"""Start and end of every slot: a longest-path sweep, wave by wave, over all stages and layouts.

A slot starts when its stage is free and its message has arrived. A slot ends when its compute and
the exposed share of its collectives are done, and not before its collectives have had their lane.
Its message then waits for the lane, occupies the lane, travels; the share of that which the stack
does not overlap holds up the sender.
"""

from __future__ import annotations

from itertools import repeat

import numpy as np

from trnbench.facts.arrays import FloatArray, IntArray
from trnbench.facts.records import Record
from trnbench.program.schedule_waves import NONE, Waves
from trnbench.program.slots import LANES


class SlotSeconds(Record, eq=False):
    """Seconds of every slot [stage, slot, layout], and the lane of its message."""

    length_s: FloatArray
    """Compute and exposed collectives."""
    lane_s: dict[int, FloatArray]
    """Seconds that the slot's collectives occupy a lane, by lane; only lanes that have any."""
    send_s: FloatArray
    """Seconds of its message on the lane, 0 without a message; `latency_s` follows the lane."""
    latency_s: FloatArray
    held: FloatArray
    """[stage, slot, 1]: share of send and latency that holds up the sender."""
    send_lane: IntArray
    """[stage, slot]: index into LANES."""
    traffic_s: FloatArray
    """Part of the slot that holds up gradients reduced beside it."""

    @property
    def holds(self) -> bool:
        """True when any message holds up its sender."""
        return bool(self.held.any())

    @property
    def queues(self) -> bool:
        """True when any slot or message may wait for a lane.

        Messages that take no longer than any slot have left the lane before the next one comes.
        """
        return bool(self.lane_s) or bool(self.send_s.max() > self.length_s.min())

    @property
    def lane_waits(self) -> dict[int, FloatArray]:
        """`lane_s`, with -inf for slots without collectives on a lane: they never wait there."""
        return {lane: np.where(taken > 0, taken, -np.inf) for lane, taken in self.lane_s.items()}


class SlotRuns(Record, eq=False):
    """Times of every slot [stage, slot, layout], seconds from the start of the step."""

    start_s: FloatArray
    end_s: FloatArray
    free_s: FloatArray
    """The stage can start its next slot."""
    sent_s: FloatArray
    """The message has left the lane."""
    lane_end_s: dict[int, FloatArray]
    """By lane: the slot's collectives there are done."""


def sweep(waves: Waves, sender: IntArray, slots: SlotSeconds) -> SlotRuns:
    """Start and end of all slots."""
    pp, count, layouts = slots.length_s.shape
    number = len(waves.slot)
    # numpy is faster on rows of one axis, which is what a single layout needs.
    row = (pp, layouts) if layouts > 1 else (pp,)
    at = np.where(waves.slot == NONE, pp * count, waves.slot + np.arange(pp) * count)

    def by_wave(array: FloatArray, *, idle: float = 0.0) -> FloatArray:
        padded = np.empty((pp * count + 1, layouts))
        padded[:-1] = array.reshape(pp * count, -1)
        padded[-1] = idle
        return np.asarray(padded[at].reshape(number, *row))

    start, end = np.empty((number, *row)), np.empty((number, *row))
    # The row after the last wave takes messages that no slot awaits.
    arrival = np.zeros((number + 1, *row))
    arrivals = arrival.reshape(-1, *row[1:])
    holds, queues = slots.holds, slots.queues
    free = np.empty_like(end) if holds else end
    held = by_wave(slots.held) if holds else repeat(None, number)
    send_s, sent = by_wave(slots.send_s), np.empty_like(end)
    lane_free = np.zeros((len(LANES), *row))
    lane_rows = lane_free.reshape(-1, *row[1:])
    lane_place = np.append(slots.send_lane.ravel(), 0)[at] * pp + np.arange(pp)
    lane_s = {lane: by_wave(taken, idle=-np.inf) for lane, taken in slots.lane_waits.items()}
    lane_end = {lane: np.empty_like(end) for lane in lane_s}
    lanes = tuple((lane_free[lane], lane_s[lane], lane_end[lane]) for lane in lane_s)
    stage_free = np.zeros(row)
    add, maximum = np.add, np.maximum
    rows = zip(
        *(start, end, arrival[:number], free, by_wave(slots.length_s)),
        *(by_wave(slots.send_s + slots.latency_s), held),
        _message_places(waves, sender, at, nothing=number * pp),
        strict=True,
    )
    # One pass over rows and results written in place: numpy's cost per call is all that counts.
    for wave, (starts, ends, arrives, frees, length, delay, share, awaited) in enumerate(rows):
        maximum(arrivals[awaited], stage_free, out=starts)
        add(starts, length, ends)
        for lane_until, taken, done in lanes:
            maximum(starts, lane_until, out=done[wave])
            add(done[wave], taken[wave], out=done[wave])
            maximum(ends, done[wave], out=ends)
        if queues:
            sents, place = sent[wave], lane_place[wave]
            maximum(ends, lane_rows[place], out=sents)
            # Arrival adds latency to the send; the lane is free again after the send alone.
            add(sents, delay, arrives)
            add(sents, send_s[wave], sents)
            lane_rows[place] = sents
        else:
            add(ends, delay, arrives)
        if holds:
            np.subtract(arrives, ends, out=frees)
            np.multiply(frees, share, out=frees)
            add(frees, ends, out=frees)
        stage_free = frees
    if not queues:
        np.add(end, send_s, out=sent)
    # Results are ordered by wave; callers need them by slot.
    back = (waves.wave, np.arange(pp)[:, None])

    def by_slot(array: FloatArray) -> FloatArray:
        return np.asarray(array.reshape(number, pp, layouts)[back])

    return SlotRuns(
        start_s=by_slot(start),
        end_s=by_slot(end),
        free_s=by_slot(free),
        sent_s=by_slot(sent),
        lane_end_s={lane: by_slot(array) for lane, array in lane_end.items()},
    )


def _message_places(waves: Waves, sender: IntArray, at: IntArray, *, nothing: int) -> IntArray:
    """For each wave and stage the place of the awaited message among all arrivals."""
    pp = len(sender)
    place = waves.wave * pp + np.arange(pp)[:, None]
    awaited = np.where(sender == NONE, nothing, place.ravel()[sender])
    return np.append(awaited.ravel(), nothing)[at]
