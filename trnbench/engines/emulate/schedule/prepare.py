"""Times per stage and chunk expanded to slots: the input of the sweep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from trnbench.engines.emulate.schedule.sweep import SlotSeconds
from trnbench.engines.emulate.schedule.times import OverlapRules, StageTimes, seconds
from trnbench.errors import InputError
from trnbench.facts.arrays import FloatArray, IntArray
from trnbench.facts.records import Record, fields
from trnbench.program.schedule import SlotKind, SlotOrder
from trnbench.program.slots import LANES, Lane, SlotTimes


class Tables(Record, eq=False):
    """All times as arrays that the slots are read from; the last axis counts layouts."""

    compute_s: FloatArray
    """[kind, stage, chunk, layout]."""
    collective_s: tuple[FloatArray, ...]
    """[kind, stage, chunk, layout] of each of `StageTimes.collectives`."""
    exposed_s: tuple[FloatArray, ...]
    """Their seconds that compute does not hide, likewise."""
    send_s: FloatArray
    """[kind, stage, chunk, layout]."""
    latency_s: FloatArray
    """[stage, chunk, layout]."""
    gradients_s: FloatArray
    """[stage, chunk, layout]."""
    sums_s: FloatArray
    """[stage, layout]."""
    optimizer_s: FloatArray
    """[stage, layout]."""
    parameters_s: FloatArray
    """[stage, chunk, layout]."""

    @property
    def layouts(self) -> int:
        """Layouts in the batch."""
        return int(self.compute_s.shape[-1])

    def part(self, layouts: slice) -> Tables:
        """Tables of some of the layouts."""

        def some(arrays: Any) -> Any:  # noqa: ANN401
            return tuple(map(some, arrays)) if isinstance(arrays, tuple) else arrays[..., layouts]

        return Tables(**{one.name: some(getattr(self, one.name)) for one in fields(self)})


def batch_shape(order: SlotOrder, times: StageTimes) -> tuple[int, ...]:
    """Leading axes of the times; shapes that do not fit the order are an error."""
    expected = (order.pp, order.vpp)
    arrays = tuple(_arrays(times))
    try:
        shape = np.broadcast_shapes(expected, *(array.shape for _, array in arrays))
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
    """Compute seconds of every slot [stage, slot, layout]."""
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
    send_lane = send_lanes(order, times)
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


def send_lanes(order: SlotOrder, times: StageTimes) -> IntArray:
    """For every slot [stage, slot] the lane its message would take."""
    forward, backward = _indices(times.sends.forward_lane), _indices(times.sends.backward_lane)
    forward_slot = order.kind == SlotKind.FORWARD
    return np.where(forward_slot, forward[:, None], backward[:, None])


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
