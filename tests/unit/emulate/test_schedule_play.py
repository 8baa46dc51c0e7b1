"""Played schedules against timelines worked out by hand and against a plain player."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest

from trnbench.engines.emulate.schedule.play import play
from trnbench.engines.emulate.schedule.timeline import timeline
from trnbench.engines.emulate.schedule.times import (
    EndingTimes,
    Jitter,
    OverlapRules,
    Sends,
    Shares,
    SlotCollective,
    StageTimes,
    Straggler,
    slowdown,
)
from trnbench.errors import InputError
from trnbench.facts.workload.layout import Schedule
from trnbench.program.schedule import NONE, SlotKind, messages, slot_order
from trnbench.program.slots import Lane, SlotTimes

SCHEDULES: tuple[Schedule, ...] = ("gpipe", "1f1b", "interleaved", "zb-h1")
PURPOSES: tuple[tuple[str, Lane], ...] = (
    ("tensor", "links"),
    ("context", "links"),
    ("expert", "network"),
)
NO_ENDING = EndingTimes(gradients_s=0, optimizer_s=0, parameters_s=0)


def stage_times(
    pp, forward=1.0, backward=1.0, weight=1.0, *, send=0.0, latency=0.0, lanes=None, **more
):
    forward_lane, backward_lane = lanes or (("network",) * pp, ("network",) * pp)
    return StageTimes(
        compute=SlotTimes(forward_s=forward, backward_s=backward, weight_s=weight),
        sends=Sends(
            forward_s=send,
            backward_s=send,
            latency_s=latency,
            forward_lane=forward_lane,
            backward_lane=backward_lane,
        ),
        ending=more.pop("ending", NO_ENDING),
        **more,
    )


def rules(sends=1.0, gradients=0.0, parameters=0.0, *, wait=False, **collectives):
    return OverlapRules(
        sends=sends,
        gradients=gradients,
        parameters=parameters,
        optimizer_waits_for_all=wait,
        collectives=collectives,
    )


def test_1f1b_on_two_stages_by_hand():
    # Forward 1, backward 1 + 1 in one slot.
    #   time     0    1    2    3    4    5    6    7    8    9    10   11   12
    #   stage 0  |F0  |F1  |.........|B0       |F2  |B1       |....|B2       |
    #   stage 1  |....|F0  |B0       |F1  |B1       |F2  |B2       |
    order = slot_order("1f1b", pp=2, micro_batches=3)
    seen = timeline(order, stage_times(2), rules())
    assert seen.start_s[0].tolist() == [0, 1, 4, 6, 7, 10]
    assert seen.start_s[1].tolist() == [1, 2, 4, 5, 7, 8]
    assert seen.played.step_s == 12
    assert seen.played.bubble_s.tolist() == [3, 3]
    assert seen.played.compute_s.tolist() == [9, 9]


def test_zb_h1_on_three_stages_by_hand():
    # Forward, backward and weights 1 each.
    #   time     0   1   2   3   4   5   6   7   8   9   10  11
    #   stage 0  |F0 |F1 |F2 |.......|B0 |W0 |B1 |W1 |B2 |W2 |
    #   stage 1  |...|F0 |F1 |...|B0 |F2 |B1 |W0 |B2 |W1 |W2 |
    #   stage 2  |.......|F0 |B0 |F1 |B1 |F2 |B2 |W0 |W1 |W2 |
    order = slot_order("zb-h1", pp=3, micro_batches=3)
    seen = timeline(order, stage_times(3), rules())
    assert seen.start_s[0].tolist() == [0, 1, 2, 5, 6, 7, 8, 9, 10]
    assert seen.start_s[1].tolist() == [1, 2, 4, 5, 6, 7, 8, 9, 10]
    assert seen.start_s[2].tolist() == [2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert seen.played.step_s == 11
    assert seen.played.bubble_s.tolist() == [2, 2, 2]  # (3 - 1)(1 + 1 - 1)


def test_sends_by_hand_beside_compute_and_in_its_way():
    # GPipe, 2 stages, 2 micro-batches; forward 2, backward 4; a message 1 on the lane, 0.5 beyond.
    #   overlapped  stage 0  F0 0-2, F1 2-4, then B0 13-17 and B1 17-21, each 1.5 after stage 1's
    #               stage 1  F0 3.5-5.5, F1 5.5-7.5, B0 7.5-11.5, B1 11.5-15.5
    #   not at all  a sender waits 1.5 for each message
    #               stage 0  F0 0-2 (3.5), F1 3.5-5.5 (7), B0 14.5-18.5, B1 20-24
    #               stage 1  F0 3.5-5.5, F1 7-9, B0 9-13 (14.5), B1 14.5-18.5 (20)
    order = slot_order("gpipe", pp=2, micro_batches=2)
    times = stage_times(2, 2, 2, 2, send=1, latency=0.5)
    beside = timeline(order, times, rules(sends=1))
    assert beside.start_s.tolist() == [[0, 2, 13, 17], [3.5, 5.5, 7.5, 11.5]]
    assert beside.played.step_s == 21
    assert beside.played.sends_s.tolist() == [0, 0]
    waits = timeline(order, times, rules(sends=0))
    assert waits.start_s.tolist() == [[0, 3.5, 14.5, 20], [3.5, 7, 9, 14.5]]
    assert waits.played.step_s == 24
    assert waits.played.sends_s.tolist() == [3, 3]


def test_messages_queue_for_their_lane():
    # Forward 1, message 2: F0 0-1 sent 1-3, F1 1-2 sent 3-5. Stage 1: F0 3-4, F1 5-6, B0 6-8.
    order = slot_order("gpipe", pp=2, micro_batches=2)
    one_lane = timeline(order, stage_times(2, send=2), rules())
    assert one_lane.start_s[1].tolist() == [3, 5, 6, 8]
    sent = [(e.start_s, e.end_s) for e in one_lane.events if e.name == "send-forward"]
    assert sent == [(1, 3), (3, 5)]


def test_messages_on_different_lanes_do_not_queue():
    # The middle stage of three, one micro-batch each way at the same time: forward message of F1
    # and backward message of B0 of 1F1B. F0 0-1, 5-6, 10-11; message 4.
    #   stage 1: F0 5-6 sent 6-10, F1 (sent 5-9 by stage 0) 9-10 sent 10-14
    #   stage 2: F0 10-11, B0 11-12 sent 12-16, F1 14-15 ...; stage 1: B0 16-17 sent 17-21
    #   F2: stage 0 sends it 9-13: stage 1 runs it at 17-18, sent 18-22 with a lane of its own,
    #   21-25 behind the backward message.
    order = slot_order("1f1b", pp=3, micro_batches=3)
    pick = SlotKind.FORWARD, 2
    middle = 1, [*zip(order.kind[1], order.micro_batch[1], strict=True)].index(pick)
    arrival = {}
    for name, lanes in (
        ("apart", (("network",) * 3, ("links",) * 3)),
        ("together", (("network",) * 3, ("network",) * 3)),
    ):
        times = stage_times(3, 1, 1, 0, send=4, lanes=lanes)
        seen = timeline(order, times, rules())
        assert seen.start_s[middle] == 17
        arrival[name] = next(
            event.end_s
            for event in seen.events
            if (event.stage, event.name, event.micro_batch) == (1, "send-forward", 2)
        )
    assert arrival == {"apart": 22, "together": 25}


def test_collectives_in_slots_are_partly_hidden_and_share_the_lane():
    # Forward 2 with 1 of collectives, half hidden: 2.5. Backward 4 with 3, a third hidden: 6.
    order = slot_order("gpipe", pp=1, micro_batches=2)
    tensor = SlotCollective(
        name="tensor", lane="links", times=SlotTimes(forward_s=1, backward_s=2, weight_s=1)
    )
    shares = Shares(forward=0.5, backward=1 / 3, weight=0)
    times = stage_times(1, 2, 2, 2, collectives=(tensor,))
    played = play(order, times, rules(tensor=shares))
    assert float(played.step_s) == pytest.approx(17)
    assert played.collectives_s.tolist() == pytest.approx([5])
    # A collective longer than the compute that hides it takes its own time: 5 > 2 + 0.
    longer = SlotCollective(
        name="tensor", lane="links", times=SlotTimes(forward_s=5, backward_s=0, weight_s=0)
    )
    hidden = rules(tensor=Shares(forward=1, backward=1, weight=1))
    played = play(order, stage_times(1, 2, 2, 2, collectives=(longer,)), hidden)
    assert float(played.step_s) == 2 * 5 + 2 * 4


def test_shares_may_differ_between_stages():
    # Forward 1 and an exchange of 1: all of it hides on the first stage, nothing on the second.
    order = slot_order("gpipe", pp=2, micro_batches=1)
    tensor = SlotCollective(
        name="tensor", lane="links", times=SlotTimes(forward_s=1, backward_s=0, weight_s=0)
    )
    shares = Shares(forward=np.array([[1.0], [0.0]]), backward=0, weight=0)
    played = play(order, stage_times(2, collectives=(tensor,)), rules(tensor=shares))
    assert played.collectives_s.tolist() == [0, 1]
    shares = Shares(forward=np.ones((3, 1)), backward=0, weight=0)
    with pytest.raises(InputError, match="shares must broadcast"):
        play(order, stage_times(2, collectives=(tensor,)), rules(tensor=shares))


def test_collectives_wait_for_the_message_before_them_on_the_lane():
    # F0 0-1 (collective 0-1), sent 1-4; F1 starts at 1, its collective 4-5, so it ends at 5.
    order = slot_order("gpipe", pp=2, micro_batches=2)
    expert = SlotCollective(
        name="expert", lane="network", times=SlotTimes(forward_s=1, backward_s=0, weight_s=0)
    )
    hidden = rules(expert=Shares(forward=1, backward=1, weight=1))
    seen = timeline(order, stage_times(2, send=3, collectives=(expert,)), hidden)
    assert seen.end_s[0, :2].tolist() == [1, 5]
    assert [
        (e.name, e.start_s, e.end_s) for e in seen.events if e.stage == 0 and e.track == "network"
    ] == [("expert", 0, 1), ("send-forward", 1, 4), ("expert", 4, 5), ("send-forward", 5, 8)]


@pytest.mark.parametrize(
    ("share", "exposed_s"),
    [
        (1.0, 1.0),  # from the last backward's start at 4 on: 4-7, 1 past the end at 6
        (0.0, 3.0),
        (1 / 3, 2.0),  # 1 hidden, 2 after the last slot
    ],
)
def test_gradients_overlap_with_the_last_backward_only(share, exposed_s):
    # One stage, two micro-batches, forward 1, backward 1 + 1: F0 0-1, F1 1-2, B0 2-4, B1 4-6.
    order = slot_order("gpipe", pp=1, micro_batches=2)
    ending = EndingTimes(gradients_s=3, optimizer_s=0.5, parameters_s=0)
    played = play(order, stage_times(1, ending=ending), rules(gradients=share))
    assert played.gradients_s.tolist() == pytest.approx([exposed_s])
    assert float(played.step_s) == pytest.approx(6 + exposed_s + 0.5)


def test_parameters_have_until_the_end_of_the_first_forward():
    # Of 4 s, 3 may overlap, 1 fits (the first forward ends at 1): 2 + 1 are left.
    order = slot_order("gpipe", pp=1, micro_batches=2)
    ending = EndingTimes(gradients_s=0, optimizer_s=0, parameters_s=4)
    played = play(order, stage_times(1, ending=ending), rules(parameters=0.75))
    assert played.parameters_s.tolist() == [3]


def test_gradients_yield_to_messages_on_the_network():
    # Stage 1, one micro-batch: F 3-4, B 4-6, message 6-8. Gradients of 3 from 4 on: until 7 with
    # the network to themselves, until 9 with the message in between.
    order = slot_order("1f1b", pp=2, micro_batches=1)
    ending = EndingTimes(gradients_s=np.array([[0.0], [3.0]]), optimizer_s=0, parameters_s=0)
    for lane, exposed_s in (("links", 1), ("network", 3)):
        times = stage_times(2, send=2, lanes=((lane,) * 2, (lane,) * 2), ending=ending)
        assert play(order, times, rules(gradients=1)).gradients_s.tolist() == [0, exposed_s]


def test_chunks_finished_early_reduce_their_gradients_early():
    # The second chunk's gradients are there long before the step's end, the first chunk's at it.
    order = slot_order("interleaved", pp=2, vpp=2, micro_batches=8)
    early = EndingTimes(gradients_s=np.array([[0.0, 4.0]]), optimizer_s=0, parameters_s=0)
    late = EndingTimes(gradients_s=np.array([[4.0, 0.0]]), optimizer_s=0, parameters_s=0)
    first = play(order, stage_times(2, ending=early), rules(gradients=1))
    assert first.gradients_s.tolist() == [0, 0]
    assert play(order, stage_times(2, ending=late), rules(gradients=1)).gradients_s.min() > 0


def test_sums_follow_the_reduction_and_nothing_hides_them():
    # One stage: slots until 6, gradients of 1 hidden before that, sums 6-8, update 8-9.
    order = slot_order("gpipe", pp=1, micro_batches=2)
    ending = EndingTimes(gradients_s=1, sums_s=2, optimizer_s=1, parameters_s=0)
    seen = timeline(order, stage_times(1, ending=ending), rules(gradients=1))
    assert seen.played.gradients_s.tolist() == [2]
    assert float(seen.played.step_s) == 9
    last = [(e.track, e.name, e.start_s, e.end_s) for e in seen.events if e.start_s >= 6]
    assert last == [("compute", "optimizer", 8, 9), ("gradients", "sums", 6, 8)]


def test_the_optimizer_may_wait_for_all_stages():
    # Slots end at 6 and 5; gradients 0 and 4, optimizer 3 and 1: apart max(9, 10), together 9 + 3.
    order = slot_order("gpipe", pp=2, micro_batches=1)
    ending = EndingTimes(
        gradients_s=np.array([[0.0], [4.0]]), optimizer_s=np.array([[3.0], [1.0]]), parameters_s=0
    )
    times = stage_times(2, ending=ending)
    assert float(play(order, times, rules()).step_s) == 9
    assert float(play(order, times, rules(wait=True)).step_s) == 8 + 3


def plain_player(order, forward, backward, weight, send, latency, overlap):
    """Slots one by one as they become possible, with one lane a stage; [stage][slot] ends."""
    sender = messages(order).sender
    receiver = messages(order).receiver
    end: dict[int, float] = {}
    arrival: dict[int, float] = {}
    free, lane_free = [0.0] * order.pp, [0.0] * order.pp
    following = [0] * order.pp
    while any(n < order.slots_per_stage for n in following):
        for stage in range(order.pp):
            slot = following[stage]
            if slot == order.slots_per_stage:
                continue
            awaited = sender[stage, slot]
            if awaited != NONE and awaited not in arrival:
                continue
            following[stage] += 1
            kind, chunk = order.kind[stage, slot], order.chunk[stage, slot]
            length = (forward, backward, weight)[kind][stage, chunk]
            if kind == SlotKind.BACKWARD and not order.splits_backward:
                length = length + weight[stage, chunk]
            number = stage * order.slots_per_stage + slot
            end[number] = max(free[stage], arrival.get(awaited, 0.0)) + length
            free[stage] = end[number]
            if receiver[stage, slot] != NONE:
                lane_free[stage] = max(end[number], lane_free[stage]) + send[stage, chunk]
                arrival[number] = lane_free[stage] + latency[stage, chunk]
                free[stage] += (1 - overlap) * (arrival[number] - end[number])
    return np.array([end[number] for number in sorted(end)]).reshape(order.kind.shape)


@pytest.mark.parametrize("seed", range(12))
def test_sweep_agrees_with_a_plain_player(seed):
    random = np.random.default_rng(seed)
    schedule = SCHEDULES[seed % 4]
    pp, vpp = int(random.integers(2, 7)), 3 if schedule == "interleaved" else 1
    order = slot_order(schedule, pp=pp, vpp=vpp, micro_batches=pp * int(random.integers(1, 5)))
    forward, backward, weight, send, latency = random.uniform(0, 1, (5, pp, vpp))
    overlap = (1.0, 0.4, 0.0)[seed % 3]
    times = stage_times(pp, forward, backward, weight, send=send, latency=latency)
    seen = timeline(order, times, rules(sends=overlap))
    expected = plain_player(order, forward, backward, weight, send, latency, overlap)
    np.testing.assert_allclose(seen.end_s, expected, rtol=1e-12)


def busy_case(seed):
    random = np.random.default_rng(seed)
    schedule = SCHEDULES[seed % 4]
    pp, vpp = 4, 2 if schedule == "interleaved" else 1
    order = slot_order(schedule, pp=pp, vpp=vpp, micro_batches=8)
    collectives = tuple(
        SlotCollective(
            name=name,
            lane=lane,
            times=SlotTimes(
                forward_s=random.uniform(0, 0.5, (pp, vpp)), backward_s=0.3, weight_s=0.1
            ),
        )
        for name, lane in PURPOSES
    )
    compute = random.uniform(0.5, 1, (3, pp, vpp))
    times = stage_times(
        pp,
        *compute,
        send=random.uniform(0, 0.6, (pp, vpp)),
        latency=0.05,
        lanes=(("links", "network") * 2, ("network", "links") * 2),
        collectives=collectives,
        ending=EndingTimes(gradients_s=2, optimizer_s=0.5, parameters_s=1),
    )
    shares = Shares(forward=0.3, backward=0.6, weight=1)
    overlap = rules(0.7, 0.8, 0.5, wait=True, tensor=shares, context=shares, expert=shares)
    return order, times, overlap


@pytest.mark.parametrize("seed", range(4))
def test_no_track_overlaps_itself_and_every_slot_and_message_is_there(seed):
    order, times, overlap = busy_case(seed)
    seen = timeline(order, times, overlap)
    tracks = defaultdict(list)
    names: defaultdict[str, int] = defaultdict(int)
    for event in seen.events:
        tracks[event.stage, event.track].append(event)
        names[event.name] += 1
    for events in tracks.values():
        for before, after in pairwise(events):
            assert after.start_s >= before.end_s - 1e-9
    each_way = (order.pp * order.vpp - 1) * order.micro_batches
    assert names["send-forward"] == names["send-backward"] == each_way
    slots = order.pp * order.vpp * order.micro_batches
    assert names["forward"] == names["backward"] == slots
    assert names["weight"] == (slots if order.splits_backward else 0)
    assert names["tensor"] == names["expert"] == order.kind.size
    assert names["optimizer"] == order.pp
    assert max(event.end_s for event in seen.events) == pytest.approx(float(seen.played.step_s))


@pytest.mark.parametrize("seed", range(4))
def test_every_second_of_every_stage_is_accounted_for(seed):
    order, times, overlap = busy_case(seed)
    played = play(order, times, overlap)
    total = played.compute_s + played.optimizer_s + played.exposed_s + played.bubble_s
    np.testing.assert_allclose(total, float(played.step_s))
    assert played.bubble_s.min() > -1e-9
    assert played.exposed_s.min() > 0
    assert float(played.pipeline_s) < float(played.step_s)


def test_a_batch_is_the_layouts_one_by_one():
    order = slot_order("1f1b", pp=4, micro_batches=300)
    random = np.random.default_rng(7)
    forward = random.uniform(0.5, 1, (3, 70, 4, 1))  # more slots than are swept at once
    ending = EndingTimes(
        gradients_s=1, optimizer_s=random.uniform(0, 1, (70, 1, 1)), parameters_s=0
    )
    times = stage_times(4, forward, send=0.1, ending=ending)
    batch = play(order, times, rules(gradients=0.5))
    assert batch.step_s.shape == (3, 70)
    assert batch.bubble_s.shape == (3, 70, 4)
    for at in ((0, 0), (1, 33), (2, 69)):
        alone = timeline(order, times, rules(gradients=0.5), at=at).played
        assert float(alone.step_s) == batch.step_s[at]
        np.testing.assert_allclose(alone.bubble_s, batch.bubble_s[at], rtol=1e-12)


def test_same_input_same_output_and_seeds_matter():
    order, times, overlap = busy_case(1)

    def step(seed):
        jitter = Jitter(sigma=0.02, ranks_per_stage=128, seed=seed)
        return float(play(order, times, overlap, jitter=jitter).step_s)

    assert step(1) == step(1)
    assert step(1) != step(2)
    assert step(1) > float(play(order, times, overlap).step_s)


def test_jitter_of_nothing_changes_nothing():
    order, times, overlap = busy_case(2)
    jitter = Jitter(sigma=0, ranks_per_stage=64, seed=3)
    disturbed = play(order, times, overlap, jitter=jitter)
    assert float(disturbed.step_s) == float(play(order, times, overlap).step_s)


@pytest.mark.parametrize("count", [1, 4, 64])
def test_the_slowest_of_many_ranks_has_the_distribution_of_the_maximum(count):
    jitter = Jitter(sigma=1.0, ranks_per_stage=count, seed=5)
    drawn = np.log(slowdown(jitter, (), pp=40_000))
    brute = np.random.default_rng(6).standard_normal((40_000, count)).max(axis=1)
    # Standard errors are below 0.006 and 0.005.
    assert drawn.mean() == pytest.approx(brute.mean(), abs=0.03)
    assert drawn.std() == pytest.approx(brute.std(), abs=0.03)


def test_more_ranks_are_never_faster_and_a_hundred_thousand_are_finite():
    previous = np.zeros(4)
    for ranks in (1, 8, 100_000):
        factor = slowdown(Jitter(sigma=0.1, ranks_per_stage=ranks, seed=8), (), pp=4)
        assert np.isfinite(factor).all()
        assert (factor > previous).all()
        previous = factor


def test_stages_on_one_node_share_what_is_drawn_for_a_step():
    def factors(together):
        jitter = Jitter(sigma=0.1, ranks_per_stage=1, stages_together=together, seed=9)
        return slowdown(jitter, (), pp=5).tolist()

    apart, pairs = factors(1), factors(2)
    assert len(set(apart)) == 5
    assert pairs[0] == pairs[1] != pairs[2] == pairs[3] != pairs[4]


def test_a_straggler_holds_up_the_whole_pipeline():
    # A slow last stage runs 8 micro-batches of 4.5; 3 stages before it fill and drain, 3 each.
    order = slot_order("1f1b", pp=4, micro_batches=8)
    played = play(order, stage_times(4), rules(), stragglers=(Straggler(stage=3, factor=1.5),))
    assert float(played.step_s) == 3 * 3 + 8 * 4.5


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (lambda o, t, r: play(o, stage_times(3), r), "expected 4, one a stage, found 3"),
        (lambda o, t, r: play(o, stage_times(4, np.ones((5, 1))), r), "4 stages, 1 chunks"),
        (lambda o, t, r: play(o, stage_times(4, np.ones((4, 2))), r), "4 stages, 1 chunks"),
        (lambda o, t, r: play(o, stage_times(4, -1.0), r), "seconds of 0 or more"),
        (lambda o, t, r: play(o, stage_times(4, np.nan), r), "seconds of 0 or more"),
        (lambda o, t, r: timeline(o, t, r, at=(0,)), "no layout"),
        (lambda o, t, r: rules(sends=1.5), "a share from 0 to 1"),
        (lambda o, t, r: rules(tensor=Shares(forward=0, backward=-1, weight=0)), "of tensor"),
        (lambda o, t, r: play(o, t, r, stragglers=(Straggler(stage=4, factor=2),)), "stage 4"),
        (lambda o, t, r: Straggler(stage=0, factor=0), "positive factor"),
        (
            lambda o, t, r: Jitter(sigma=-1, ranks_per_stage=1, seed=0),
            "scatter of 0 or more",
        ),
        (
            lambda o, t, r: Jitter(sigma=0, ranks_per_stage=0, seed=0),
            "at least 1 rank",
        ),
    ],
)
def test_malformed_input_is_refused(broken, told):
    order = slot_order("1f1b", pp=4, micro_batches=4)
    with pytest.raises(InputError, match=told):
        broken(order, stage_times(4), rules())


def test_a_collective_without_a_rule_is_refused():
    order = slot_order("1f1b", pp=2, micro_batches=2)
    tensor = SlotCollective(
        name="tensor", lane="links", times=SlotTimes(forward_s=1, backward_s=1, weight_s=1)
    )
    with pytest.raises(InputError, match="no overlap rule for 'tensor'"):
        play(order, stage_times(2, collectives=(tensor,)), rules())


def test_gradients_wait_for_what_traffic_in_slots_holds_them_up():
    order = slot_order("1f1b", pp=1, micro_batches=2)

    def step_s(share: float) -> float:
        times = StageTimes(
            compute=SlotTimes(forward_s=1.0, backward_s=2.0, weight_s=0.0),
            collectives=(
                SlotCollective(
                    name="tensor",
                    lane="links",
                    times=SlotTimes(forward_s=0.5, backward_s=1.0, weight_s=0.0),
                ),
            ),
            sends=Sends(
                forward_s=0,
                backward_s=0,
                latency_s=0,
                forward_lane=("links",),
                backward_lane=("links",),
            ),
            ending=EndingTimes(gradients_s=3.0, optimizer_s=0, parameters_s=0),
        )
        rules = OverlapRules(
            sends=0,
            gradients=1,
            parameters=0,
            optimizer_waits_for_all=False,
            collectives={"tensor": Shares(forward=0, backward=0, weight=0)},
            gradient_traffic={"tensor": share},
        )
        return float(play(order, times, rules).step_s)

    # The last backward slot, 2 s and an exchange of 1 s, is as long as the 3 s of gradients.
    assert [step_s(share) for share in (0.0, 0.4, 1.0)] == pytest.approx([9.0, 9.4, 10.0])
