"""Slots in plain numbers are slots in waves, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trnbench.engines.emulate.schedule.one_by_one import one_by_one
from trnbench.engines.emulate.schedule.sweep import SlotRuns, SlotSeconds, sweep
from trnbench.facts.records import fields, replace
from trnbench.facts.workload.layout import Schedule
from trnbench.program.schedule import slot_order
from trnbench.program.schedule_waves import messages, waves
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


def same(a: SlotRuns, b: SlotRuns) -> None:
    for field in fields(SlotRuns):
        one, other = getattr(a, field.name), getattr(b, field.name)
        if field.name == "lane_end_s":
            assert one.keys() == other.keys()
            one, other = [*one.values()], [*other.values()]
        np.testing.assert_array_equal(one, other, err_msg=field.name)


@settings(deadline=None, max_examples=60)
@given(
    schedule=st.sampled_from(SCHEDULES),
    pp=st.integers(2, 7),
    groups=st.integers(1, 4),
    layouts=st.integers(1, 3),
    seed=st.integers(0, 2**16),
)
def test_what_waves_say_is_said_one_by_one(schedule, pp, groups, layouts, seed):
    vpp = 2 if schedule == "interleaved" else 1
    order = slot_order(schedule, pp=pp, vpp=vpp, micro_batches=groups * pp)
    sender = messages(order).sender
    in_waves = waves(order, sender)
    busy = scattered(order, layouts, seed)
    alone = replace(busy, lane_s={}, send_s=busy.send_s / 4, held=np.zeros((1, 1, 1)))
    assert not alone.queues
    assert not alone.holds
    for slots in (busy, replace(busy, held=0 * busy.held), replace(busy, lane_s={}), alone):
        same(one_by_one(sender, slots), sweep(in_waves, sender, slots))


def test_slots_that_wait_for_each_other_are_no_order():
    order = slot_order("gpipe", pp=2, micro_batches=1)
    sender = messages(order).sender.copy()
    sender[0, 0] = 3  # The first forward waits for the last backward.
    with pytest.raises(AssertionError, match="waits for itself"):
        one_by_one(sender, scattered(order, 1, 0))
