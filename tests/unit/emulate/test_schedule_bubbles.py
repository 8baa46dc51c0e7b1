"""Idle time and memory of played schedules against what their authors publish."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.steps import chunks_held
from trnbench.engines.emulate.schedule.play import play
from trnbench.engines.emulate.schedule.times import EndingTimes, OverlapRules, Sends, StageTimes
from trnbench.program.schedule import SlotKind, slot_order
from trnbench.program.slots import Lane, SlotTimes

NETWORK: Lane = "network"
FREE = OverlapRules(
    sends=1, gradients=0, parameters=0, optimizer_waits_for_all=False, collectives={}
)


def played(schedule, pp, vpp, micro_batches, forward, backward, weight):
    """Play equal stages whose messages cost nothing; the times are those of a whole stage."""
    order = slot_order(schedule, pp=pp, vpp=vpp, micro_batches=micro_batches)
    times = StageTimes(
        compute=SlotTimes(
            forward_s=forward / vpp, backward_s=backward / vpp, weight_s=weight / vpp
        ),
        sends=Sends(
            forward_s=0,
            backward_s=0,
            latency_s=0,
            forward_lane=(NETWORK,) * pp,
            backward_lane=(NETWORK,) * pp,
        ),
        ending=EndingTimes(gradients_s=0, optimizer_s=0, parameters_s=0),
    )
    return play(order, times, FREE)


def held(schedule, pp, micro_batches, until):
    """Return the most micro-batches that any stage holds at once."""
    order = slot_order(schedule, pp=pp, micro_batches=micro_batches)
    return int(chunks_held(order, until=until).sum(axis=-1).max())


lengths = st.floats(1, 4)
shorter = st.floats(0.01, 1)


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 16), st.integers(1, 4), lengths, lengths, shorter)
def test_zb_h1_idles_stages_less_one_times_forward_and_backward_less_weights(
    pp, rounds, forward, backward, weight
):
    found = played("zb-h1", pp, 1, rounds * pp, forward, backward, weight)
    expected = (pp - 1) * (forward + backward - weight)
    np.testing.assert_allclose(found.bubble_s, expected, rtol=1e-9)


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 16), st.integers(1, 60), lengths, lengths, shorter)
def test_zb_h1_is_never_slower_than_1f1b_and_holds_no_more(
    pp, micro_batches, forward, backward, weight
):
    times = forward, backward, weight
    apart = played("zb-h1", pp, 1, micro_batches, *times)
    together = played("1f1b", pp, 1, micro_batches, *times)
    assert float(apart.step_s) <= float(together.step_s) * (1 + 1e-12)
    # Of 1F1B nothing is left once a backward is done; ZB-H1 keeps what its weight gradients need.
    assert held("zb-h1", pp, micro_batches, SlotKind.WEIGHT) == held(
        "1f1b", pp, micro_batches, SlotKind.BACKWARD
    )


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 16), st.integers(1, 60), lengths, lengths, shorter)
def test_gpipe_and_1f1b_idle_alike_and_1f1b_holds_a_pipeline_of_micro_batches(
    pp, micro_batches, forward, backward, weight
):
    for schedule in ("gpipe", "1f1b"):
        found = played(schedule, pp, 1, micro_batches, forward, backward, weight)
        share = found.bubble_s / found.step_s
        np.testing.assert_allclose(share, (pp - 1) / (micro_batches + pp - 1), atol=1e-12)
    assert held("gpipe", pp, micro_batches, SlotKind.BACKWARD) == micro_batches
    assert held("1f1b", pp, micro_batches, SlotKind.BACKWARD) == min(pp, micro_batches)


@pytest.mark.parametrize("vpp", [2, 3, 5])
@pytest.mark.parametrize("pp", [2, 4, 7])
def test_interleaving_divides_the_idle_time_by_the_chunks(pp, vpp):
    for groups in (1, 2, 5):
        found = played("interleaved", pp, vpp, groups * pp, 1.0, 1.5, 0.5)
        share = found.bubble_s / found.step_s
        np.testing.assert_allclose(share, (pp - 1) / (vpp * groups * pp + pp - 1))
