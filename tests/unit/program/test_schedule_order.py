"""Slot orders: complete, causal, free of deadlock, and as the schedules are published."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.steps import chunks_held
from trnbench.errors import InputError
from trnbench.facts.workload.layout import Schedule
from trnbench.program.schedule import (
    CHUNKS_NEED_INTERLEAVED,
    GROUPS_OF_STAGES,
    NONE,
    SCHEDULE_NEEDS_STAGES,
    SlotKind,
    SlotOrder,
    broken_rules,
    forwards_ahead,
    in_flight,
    messages,
    schedule_reasons,
    slot_order,
    waves,
)


@st.composite
def orders(draw: st.DrawFn) -> SlotOrder:
    schedule: Schedule = draw(st.sampled_from(get_args(Schedule)))
    pp = draw(st.integers(1 if schedule in ("gpipe", "1f1b") else 2, 9))
    interleaved = schedule == "interleaved"
    vpp = draw(st.integers(2, 4)) if interleaved else 1
    micro_batches = draw(st.integers(1, 5)) * pp if interleaved else draw(st.integers(1, 25))
    return slot_order(schedule, pp=pp, vpp=vpp, micro_batches=micro_batches)


def written(order: SlotOrder, stage: int) -> str:
    letters = "FBW"
    return " ".join(
        f"{letters[kind]}{batch}" + ("abcd"[chunk] if order.vpp > 1 else "")
        for kind, batch, chunk in zip(
            order.kind[stage], order.micro_batch[stage], order.chunk[stage], strict=True
        )
    )


def test_gpipe_runs_all_forwards_first():
    order = slot_order("gpipe", pp=2, micro_batches=3)
    assert written(order, 0) == written(order, 1) == "F0 F1 F2 B0 B1 B2"


def test_1f1b_runs_ahead_by_the_stages_behind():
    order = slot_order("1f1b", pp=3, micro_batches=4)
    assert written(order, 0) == "F0 F1 F2 B0 F3 B1 B2 B3"
    assert written(order, 1) == "F0 F1 B0 F2 B1 F3 B2 B3"
    assert written(order, 2) == "F0 B0 F1 B1 F2 B2 F3 B3"


def test_interleaved_takes_micro_batches_in_groups_of_pp():
    # Warm-up of stage 0: 2 (2 - 0 - 1) + (2 - 1) 2 = 4 forwards; of stage 1: 0 + 2.
    order = slot_order("interleaved", pp=2, vpp=2, micro_batches=4)
    assert written(order, 0) == ("F0a F1a F0b F1b F2a B0b F3a B1b F2b B0a F3b B1a B2b B3b B2a B3a")
    assert written(order, 1) == ("F0a F1a F0b B0b F1b B1b F2a B0a F3a B1a F2b B2b F3b B3b B2a B3a")


def test_one_group_of_micro_batches_runs_all_forwards_first():
    order = slot_order("interleaved", pp=2, vpp=2, micro_batches=2)
    assert written(order, 1) == "F0a F1a F0b F1b B0b B1b B0a B1a"


def test_zb_h1_keeps_weight_gradients_for_the_drain():
    order = slot_order("zb-h1", pp=3, micro_batches=4)
    assert written(order, 0) == "F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3"
    assert written(order, 1) == "F0 F1 B0 F2 B1 W0 F3 B2 W1 B3 W2 W3"
    assert written(order, 2) == "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3"


def test_warm_up_is_that_of_the_nxd_scheduler():
    # min(2 (PP - rank - 1) + (V - 1) PP, total): 2 * 3 + 2 * 4 = 14, 12, 10, 8 of 24 slots.
    ahead = forwards_ahead("interleaved", pp=4, vpp=3, micro_batches=8, stage=np.arange(4))
    assert ahead.tolist() == [14, 12, 10, 8]
    one_group = forwards_ahead("interleaved", pp=4, vpp=3, micro_batches=4, stage=np.arange(4))
    assert one_group.tolist() == [12] * 4


@settings(deadline=None, max_examples=60)
@given(orders())
def test_every_slot_once_and_forward_before_backward_before_weights(order):
    at = np.full((order.pp, 3, order.vpp, order.micro_batches), NONE)
    stage, slot = np.indices(order.kind.shape)
    at[stage, order.kind, order.chunk, order.micro_batch] = slot
    kinds = 3 if order.splits_backward else 2
    assert order.kind.size == order.pp * kinds * order.vpp * order.micro_batches
    assert (at[:, :kinds] >= 0).all()
    assert (np.diff(at[:, :kinds], axis=1) > 0).all()


@settings(deadline=None, max_examples=60)
@given(orders())
def test_waves_keep_the_order_and_let_messages_arrive_first(order):
    sent = messages(order)
    swept = waves(order, sent.sender)
    assert (np.diff(swept.wave, axis=1) > 0).all()
    waiting = sent.sender != NONE
    assert (swept.wave.ravel()[sent.sender[waiting]] < swept.wave[waiting]).all()
    stage = np.broadcast_to(np.arange(order.pp), swept.slot.shape)
    busy = swept.slot != NONE
    assert busy.sum() == order.kind.size
    assert (swept.wave[stage[busy], swept.slot[busy]] == np.nonzero(busy)[0]).all()


@settings(deadline=None, max_examples=60)
@given(orders())
def test_every_message_sent_is_awaited_once_where_it_goes(order):
    sent = messages(order)
    receiver, sender = sent.receiver.ravel(), sent.sender.ravel()
    awaited = sender[sender != NONE]
    assert np.array_equal(np.sort(awaited), np.nonzero(receiver != NONE)[0])
    waiting_stage = np.nonzero(sender != NONE)[0] // order.slots_per_stage
    assert np.array_equal(receiver[awaited], waiting_stage)
    # Between any two neighbouring parts of the model, one each way for each micro-batch.
    parts = order.pp * order.vpp if order.pp > 1 else 1
    assert len(awaited) == 2 * (parts - 1) * order.micro_batches


@settings(deadline=None, max_examples=60)
@given(orders())
def test_micro_batches_in_flight_are_those_counted_in_the_order(order):
    held = in_flight(
        order.schedule,
        pp=order.pp,
        vpp=order.vpp,
        micro_batches=order.micro_batches,
        stage=np.arange(order.pp),
    )
    for until, expected in (
        (SlotKind.BACKWARD, held.until_backward),
        (order.weight_kind, held.until_weight),
    ):
        counted = chunks_held(order, until=until)
        assert counted.min() >= 0
        assert (counted.sum(axis=-1).max(axis=1) / order.vpp).tolist() == expected.tolist()


def test_memory_of_the_schedules_on_four_stages():
    def peak(schedule, vpp=1):
        held = in_flight(schedule, pp=4, vpp=vpp, micro_batches=16, stage=np.arange(4))
        return held.until_weight.tolist()

    assert peak("gpipe") == [16, 16, 16, 16]
    assert peak("1f1b") == [4, 3, 2, 1]
    assert peak("zb-h1") == [4, 4, 4, 4]  # the worst stage holds what 1F1B's worst holds
    assert peak("interleaved", 2) == [11 / 2, 9 / 2, 7 / 2, 5 / 2]  # (warm-up + 1) half stages


def test_in_flight_broadcasts_over_a_grid():
    pp, micro_batches = np.array([[2], [8]]), np.array([1, 4, 64])
    held = in_flight("1f1b", pp=pp, vpp=1, micro_batches=micro_batches, stage=0)
    assert held.until_backward.tolist() == [[1, 2, 2], [1, 4, 8]]


def test_reasons_name_the_nearest_legal_values():
    def reasons(schedule, pp, vpp, micro_batches):
        return schedule_reasons(schedule, pp=pp, vpp=vpp, micro_batches=micro_batches)

    assert reasons("1f1b", 4, 1, 3) == reasons("zb-h1", 4, 1, 3) == ()
    assert "try 8 or 12" in reasons("interleaved", 4, 2, 10)[0]
    assert reasons("interleaved", 4, 2, 3)[0].endswith("try 4")
    assert "try vpp=1" in reasons("1f1b", 4, 2, 8)[0]
    assert "pp of 2 or more" in reasons("zb-h1", 1, 1, 8)[0]
    assert "try vpp=2" in reasons("interleaved", 4, 1, 8)[0]


def test_broken_rules_over_a_grid_agree_with_the_reasons():
    pp, vpp = np.array([1, 2, 4])[:, None], np.array([1, 2])
    broken = broken_rules("interleaved", pp=pp, vpp=vpp, micro_batches=6)
    assert broken[GROUPS_OF_STAGES].tolist() == [[False], [False], [True]]
    assert broken[SCHEDULE_NEEDS_STAGES].tolist() == [[True], [False], [False]]
    assert not broken[CHUNKS_NEED_INTERLEAVED].any()
    any_broken = np.logical_or.reduce(np.broadcast_arrays(*broken.values()))
    for i, p in enumerate((1, 2, 4)):
        for j, v in enumerate((1, 2)):
            told = schedule_reasons("interleaved", pp=p, vpp=v, micro_batches=6)
            assert bool(told) == any_broken[i, j]


def test_an_illegal_order_is_refused():
    with pytest.raises(InputError, match="groups of pp=4"):
        slot_order("interleaved", pp=4, vpp=2, micro_batches=6)
