"""Slots in waves are slots played one by one in plain numbers, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trnbench.engines.emulate.schedule.sweep import SlotSeconds, sweep
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import Schedule
from trnbench.program.schedule import NONE, messages, slot_order, waves
from trnbench.program.slots import LANES

SCHEDULES: tuple[Schedule, ...] = ("gpipe", "1f1b", "interleaved", "zb-h1")


def scattered(order, layouts, seed) -> SlotSeconds:
    """Return seconds without any pattern, of which some messages and collectives are absent."""
    random = np.random.default_rng(seed)
    shape = (*order.kind.shape, layouts)
    sends = (messages(order).receiver >= 0)[..., None]
    return SlotSeconds(
        length_s=random.uniform(0.5, 1, shape),
        lane_s={0: random.uniform(0, 2, shape) * (random.random(shape) < 0.5)},
        send_s=random.uniform(0, 1.5, shape) * sends,
        latency_s=random.uniform(0, 0.1, shape) * sends,
        held=np.where(sends, 0.3, 0.0),
        send_lane=random.integers(0, len(LANES), order.kind.shape),
        traffic_s=np.zeros((1, 1, 1)),
    )


def one_by_one(sender, slots: SlotSeconds, layout: int) -> list[dict[tuple[int, int], float]]:
    """Return start, end, freedom of the stage and sending of every slot of a layout."""
    pp, count, _ = slots.length_s.shape
    start, end, free, sent, arrives = (dict[tuple[int, int], float]() for _ in range(5))
    lane_free = {(stage, lane): 0.0 for stage in range(pp) for lane in range(len(LANES))}
    held = np.broadcast_to(slots.held, slots.length_s.shape)
    todo = [(stage, 0) for stage in range(pp)]
    while todo:
        stage, slot = at = todo.pop(0)
        awaited = divmod(int(sender[at]), count)
        if sender[at] != NONE and awaited not in arrives:
            todo.append(at)
            continue
        message = arrives[awaited] if sender[at] != NONE else 0.0
        start[at] = begin = max(message, free.get((stage, slot - 1), 0.0))
        done = begin + slots.length_s[at][layout]
        for lane, taken in slots.lane_s.items():
            if taken[at][layout] > 0:
                until = max(begin, lane_free[stage, lane]) + taken[at][layout]
                done = max(done, until)
        send, lane = slots.send_s[at][layout], int(slots.send_lane[at])
        leaves = max(done, lane_free[stage, lane])
        arrives[at] = leaves + (send + slots.latency_s[at][layout])
        lane_free[stage, lane] = sent[at] = leaves + send
        end[at], free[at] = done, (arrives[at] - done) * held[at][layout] + done
        if slot + 1 < count:
            todo.append((stage, slot + 1))
    return [start, end, free, sent]


@settings(deadline=None, max_examples=60)
@given(
    schedule=st.sampled_from(SCHEDULES),
    pp=st.integers(2, 7),
    groups=st.integers(1, 4),
    layouts=st.integers(1, 3),
    seed=st.integers(0, 2**16),
)
def test_waves_say_what_slots_one_by_one_do(schedule, pp, groups, layouts, seed):
    vpp = 2 if schedule == "interleaved" else 1
    order = slot_order(schedule, pp=pp, vpp=vpp, micro_batches=groups * pp)
    sender = messages(order).sender
    in_waves = waves(order, sender)
    busy = scattered(order, layouts, seed)
    alone = replace(busy, lane_s={}, send_s=busy.send_s / 4, held=np.zeros((1, 1, 1)))
    assert not alone.queues
    assert not alone.holds
    for slots in (busy, replace(busy, held=0 * busy.held), replace(busy, lane_s={}), alone):
        found = sweep(in_waves, sender, slots)
        swept = (found.start_s, found.end_s, found.free_s, found.sent_s)
        for layout in range(layouts):
            for waved, plain in zip(swept, one_by_one(sender, slots, layout), strict=True):
                assert {at: waved[at][layout] for at in plain} == plain


def test_slots_that_wait_for_each_other_are_no_order():
    order = slot_order("gpipe", pp=2, micro_batches=1)
    sender = messages(order).sender.copy()
    sender[0, 0] = 3  # The first forward waits for the last backward.
    with pytest.raises(AssertionError, match="waits for itself"):
        waves(order, sender)
