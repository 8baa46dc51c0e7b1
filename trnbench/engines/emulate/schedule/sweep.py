"""Start and end of every slot: a longest-path sweep, wave by wave, over all stages and layouts.

A slot starts when its stage is free and its message has arrived. A slot ends when its compute and
the exposed share of its collectives are done, and not before its collectives have had their lane.
Its message then waits for the lane, occupies the lane, travels; the share of that which the stack
does not overlap holds up the sender.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

import numpy as np
from numpy.typing import ArrayLike

from trnbench.engines.emulate.schedule.times import OverlapRules, StageTimes, seconds
from trnbench.errors import InputError
from trnbench.facts.arrays import FloatArray, IntArray
from trnbench.facts.records import Record
from trnbench.program.schedule import NONE, SlotKind, SlotOrder, Waves
from trnbench.program.slots import LANES, Lane, SlotTimes


class SlotSeconds(Record, eq=False):
    """Seconds of every slot [stage, slot, layout], and the lane of its message."""

    length_s: FloatArray  # Compute and exposed collectives
    lane_s: dict[int, FloatArray]  # of collectives, by lane; only lanes that have any
    send_s: FloatArray  # message on the lane, 0 without one; `latency_s` follows
    latency_s: FloatArray
    held: FloatArray  # [stage, slot, 1]: share of send and latency that holds up the sender
    send_lane: IntArray  # [stage, slot]: index into LANES
    traffic_s: FloatArray  # Part of the slot that holds up gradients reduced beside it

    @property
    def holds(self) -> bool:
        return bool(self.held.any())

    @property
    def queues(self) -> bool:
        """True when any slot or message may wait for a lane.

        Messages that take no longer than any slot have left the lane before the next one comes.
        """
        return bool(self.lane_s) or bool(self.send_s.max() > self.length_s.min())


class SlotRuns(Record, eq=False):
    """Times of every slot [stage, slot, layout], seconds from the start of the step."""

    start_s: FloatArray
    end_s: FloatArray
    free_s: FloatArray  # The stage can start its next slot
    sent_s: FloatArray  # The message has left the lane
    lane_end_s: dict[int, FloatArray]  # By lane: the slot's collectives there are done


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

    # A row holds what is to be added until its wave, then the sum.
    start, end = np.empty((number, *row)), by_wave(slots.length_s)
    # The row after the last wave takes messages that no slot awaits.
    arrival = np.zeros((number + 1, *row))
    arrival[:number] = by_wave(slots.send_s + slots.latency_s)
    arrivals = arrival.reshape(-1, *row[1:])
    holds, queues = slots.holds, slots.queues
    free = np.empty_like(end) if holds else end
    held = by_wave(slots.held) if holds else repeat(None, number)
    lane_free = np.zeros((len(LANES), *row))
    if queues:
        send_s, sent = by_wave(slots.send_s), np.empty_like(end)
        lane_rows = lane_free.reshape(-1, *row[1:])
        lane_place = np.append(slots.send_lane.ravel(), 0)[at] * pp + np.arange(pp)
    # Slots without collectives on a lane never wait there.
    lane_s = {
        lane: by_wave(np.where(taken > 0, taken, -np.inf), idle=-np.inf)
        for lane, taken in slots.lane_s.items()
    }
    lane_end = {lane: np.empty_like(end) for lane in lane_s}
    lanes = tuple((lane_free[lane], lane_s[lane], lane_end[lane]) for lane in lane_s)
    stage_free = np.zeros(row)
    add, maximum = np.add, np.maximum
    rows = zip(
        *(start, end, arrival[:number], held),
        _message_places(waves, sender, at, nothing=number * pp),
        strict=True,
    )
    # One pass over rows and results written in place: numpy's cost per call is all that counts.
    for wave, (starts, ends, arrives, share, awaited) in enumerate(rows):
        maximum(arrivals[awaited], stage_free, out=starts)
        add(starts, ends, ends)
        for lane_until, taken, done in lanes:
            maximum(starts, lane_until, out=done[wave])
            add(done[wave], taken[wave], out=done[wave])
            maximum(ends, done[wave], out=ends)
        if queues:
            sents, place = sent[wave], lane_place[wave]
            maximum(ends, lane_rows[place], out=sents)
            # Arrival adds latency to the send; the lane is free again after the send alone.
            add(sents, arrives, arrives)
            add(sents, send_s[wave], sents)
            lane_rows[place] = sents
        else:
            add(ends, arrives, arrives)
        stage_free = ends
        if holds:
            stage_free = free[wave]
            np.subtract(arrives, ends, out=stage_free)
            np.multiply(stage_free, share, out=stage_free)
            add(stage_free, ends, out=stage_free)
    # Results are ordered by wave; callers need them by slot.
    back = (waves.wave, np.arange(pp)[:, None])

    def by_slot(array: FloatArray) -> FloatArray:
        return np.asarray(array.reshape(number, pp, layouts)[back])

    end_s = by_slot(end)
    return SlotRuns(
        start_s=by_slot(start),
        end_s=end_s,
        free_s=by_slot(free) if holds else end_s,
        sent_s=by_slot(sent) if queues else end_s + slots.send_s,
        lane_end_s={lane: by_slot(array) for lane, array in lane_end.items()},
    )


def _message_places(waves: Waves, sender: IntArray, at: IntArray, *, nothing: int) -> IntArray:
    """For each wave and stage the place of the awaited message among all arrivals."""
    pp = len(sender)
    place = waves.wave * pp + np.arange(pp)[:, None]
    awaited = np.where(sender == NONE, nothing, place.ravel()[sender])
    return np.append(awaited.ravel(), nothing)[at]


class Tables(Record, eq=False):
    """All times as arrays that the slots are read from; the last axis counts layouts."""

    compute_s: FloatArray  # [kind, stage, chunk, layout]
    collective_s: tuple[FloatArray, ...]  # likewise, of each of `StageTimes.collectives`
    exposed_s: tuple[FloatArray, ...]  # Their seconds that compute does not hide, likewise
    send_s: FloatArray  # [kind, stage, chunk, layout]
    latency_s: FloatArray  # [stage, chunk, layout]
    gradients_s: FloatArray  # [stage, chunk, layout]
    sums_s: FloatArray  # [stage, layout]
    optimizer_s: FloatArray  # [stage, layout]
    parameters_s: FloatArray  # [stage, chunk, layout]


def batch_shape(order: SlotOrder, times: StageTimes) -> tuple[int, ...]:
    """Leading axes of the times; shapes that do not fit the order are an error."""
    expected = (order.pp, order.vpp)
    arrays = tuple(_arrays(times))
    try:
        shape = np.broadcast_shapes(expected, *{array.shape for _, array in arrays})
    except ValueError:
        shape = ()
    if shape[-2:] != expected:
        found = ", ".join(f"{name} {array.shape}" for name, array in arrays if array.ndim)
        raise InputError(
            f"stage times: expected arrays over [..., {order.pp} stages, {order.vpp} chunks]; "
            f"found {found}"
        )
    sends = times.sends
    for what, lanes in (("forward", sends.forward_lane), ("backward", sends.backward_lane)):
        if len(lanes) != order.pp:
            raise InputError(f"{what} lanes: expected {order.pp}, one a stage, found {len(lanes)}")
    return shape[:-2]


def tables(
    order: SlotOrder, times: StageTimes, rules: OverlapRules, batch: tuple[int, ...]
) -> Tables:
    """Times of a step for every layout of a batch of this shape."""
    shape = (*batch, order.pp, order.vpp)

    def laid_out(*values: ArrayLike) -> FloatArray:
        whole = np.empty((len(values), *shape))
        for row, value in zip(whole, values, strict=True):
            row[...] = value
        # Layouts come last: the sweep then adds whole rows of them per stage and slot.
        layouts_last = whole.reshape(len(values), -1, *shape[-2:]).transpose(0, 2, 3, 1)
        return np.ascontiguousarray(layouts_last)

    def by_kind(what: str, slot: SlotTimes[ArrayLike]) -> FloatArray:
        backward, weight = seconds(what, slot.backward_s), seconds(what, slot.weight_s)
        if not order.splits_backward:
            backward, weight = backward + weight, np.zeros(1)
        return laid_out(seconds(what, slot.forward_s), backward, weight)

    def by_share(name: str) -> FloatArray:
        found = rules.shares_of(name)
        try:
            return laid_out(found.forward, found.backward, found.weight)
        except ValueError:
            shares = (found.forward, found.backward, found.weight)
            sizes = ", ".join(str(np.shape(share)) for share in shares)
            raise InputError(
                f"overlap of {name}: shares must broadcast to {shape}, found {sizes}"
            ) from None

    collectives = [by_kind(one.name, one.times) for one in times.collectives]
    shares = [by_share(one.name) for one in times.collectives]
    sends, ending = times.sends, times.ending
    latency_s, gradients_s, sums_s, optimizer_s, parameters_s = laid_out(
        seconds("latency", sends.latency_s),
        seconds("gradients", ending.gradients_s),
        seconds("sums", ending.sums_s),
        seconds("optimizer", ending.optimizer_s),
        seconds("parameters", ending.parameters_s),
    )
    return Tables(
        compute_s=by_kind("compute", times.compute),
        collective_s=tuple(collectives),
        exposed_s=tuple(
            (1 - share) * taken for share, taken in zip(shares, collectives, strict=True)
        ),
        send_s=laid_out(seconds("sends", sends.forward_s), seconds("sends", sends.backward_s), 0.0),
        latency_s=latency_s,
        gradients_s=gradients_s,
        sums_s=sums_s.sum(axis=1),
        optimizer_s=optimizer_s.sum(axis=1),
        parameters_s=parameters_s,
    )


def slot_compute(order: SlotOrder, table: Tables, slowdown: FloatArray) -> FloatArray:
    return per_slot(order, table.compute_s) * slowdown[:, None, None]


def slot_seconds(
    order: SlotOrder,
    receiver: IntArray,
    times: StageTimes,
    rules: OverlapRules,
    table: Tables,
    compute_s: FloatArray,
) -> SlotSeconds:
    """Everything the sweep needs to know about every slot."""
    length_s = compute_s
    lane_s: dict[int, FloatArray] = {}
    traffic_s: FloatArray = np.zeros((1, 1, 1))
    for one, taken, exposed in zip(
        times.collectives, table.collective_s, table.exposed_s, strict=True
    ):
        length_s = length_s + per_slot(order, exposed)
        lane = LANES.index(one.lane)
        in_slots = per_slot(order, taken)
        lane_s[lane] = lane_s.get(lane, 0.0) + in_slots
        traffic_s = traffic_s + rules.holds_up(one.name, one.lane) * in_slots
    sends = (receiver >= 0)[..., None]
    latency_s = table.latency_s[_stages(order), order.chunk]
    send_s = np.where(sends, per_slot(order, table.send_s), 0.0)
    forward, backward = _indices(times.sends.forward_lane), _indices(times.sends.backward_lane)
    forward_slot = order.kind == SlotKind.FORWARD
    send_lane = np.where(forward_slot, forward[:, None], backward[:, None])
    # Messages between nodes occupy the adapters that the reduction of gradients needs.
    crossing_s = np.where((send_lane == LANES.index("network"))[..., None], send_s, 0.0)
    return SlotSeconds(
        length_s=length_s,
        # A lane without traffic costs the sweep a pass over all slots for nothing.
        lane_s={lane: taken for lane, taken in lane_s.items() if taken.any()},
        send_s=send_s,
        latency_s=np.where(sends, latency_s, 0.0),
        held=np.where(sends, 1 - rules.sends, 0.0),
        send_lane=send_lane,
        traffic_s=crossing_s + traffic_s,
    )


def per_slot(order: SlotOrder, table: FloatArray) -> FloatArray:
    """A table [kind, stage, chunk, layout] read for every slot [stage, slot, layout]."""
    return np.asarray(table[order.kind, _stages(order), order.chunk])


def _stages(order: SlotOrder) -> IntArray:
    return np.arange(order.pp)[:, None]


def _indices(lanes: tuple[Lane, ...]) -> IntArray:
    return np.array([LANES.index(lane) for lane in lanes], dtype=np.int64)


def _arrays(times: StageTimes) -> Iterator[tuple[str, FloatArray]]:
    slots = [("compute", times.compute)] + [(one.name, one.times) for one in times.collectives]
    for name, slot in slots:
        yield name, np.asarray(slot.forward_s)
        yield name, np.asarray(slot.backward_s)
        yield name, np.asarray(slot.weight_s)
    yield "forward sends", np.asarray(times.sends.forward_s)
    yield "backward sends", np.asarray(times.sends.backward_s)
    yield "latency", np.asarray(times.sends.latency_s)
    yield "gradients", np.asarray(times.ending.gradients_s)
    yield "sums", np.asarray(times.ending.sums_s)
    yield "optimizer", np.asarray(times.ending.optimizer_s)
    yield "parameters", np.asarray(times.ending.parameters_s)
