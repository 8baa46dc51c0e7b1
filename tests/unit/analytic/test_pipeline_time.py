"""The closed form of pipeline time: the published bubbles, limits, and arrays."""

from __future__ import annotations

import numpy as np
import pytest

from trnbench.engines.analytic.step.pipeline import PipelineWork, pipeline_time
from trnbench.engines.analytic.step.stages import StageSlots, slowest_stage
from trnbench.facts.arrays import FloatArray
from trnbench.program.slots import Slot, SlotTimes

FORWARD_S, BACKWARD_S, WEIGHT_S = 1.0, 1.5, 0.5


def equal_stages(pp, *, slowest=None, send_s=0.0, send_overlap=1.0):
    behind = 0 if slowest is None else pp - 1 - slowest

    def passed(count):
        return SlotTimes(
            forward_s=FORWARD_S * count, backward_s=BACKWARD_S * count, weight_s=WEIGHT_S * count
        )

    return PipelineWork(
        slowest=passed(1),
        before=passed(pp - 1 - behind),
        after=passed(behind),
        stages_after=np.asarray(behind, dtype=float),
        send_s=np.asarray(send_s, dtype=float),
        send_overlap=np.asarray(send_overlap),
    )


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_bubble_fraction_of_gpipe_and_1f1b(schedule):
    for pp in (1, 2, 4, 16):
        for micro_batches in (1, 3, 8, 64):
            time = pipeline_time(
                schedule, pp=pp, vpp=1, micro_batches=micro_batches, work=equal_stages(pp)
            )
            expected = (pp - 1) / (micro_batches + pp - 1)
            assert float(time.bubble_s / time.time_s) == pytest.approx(expected)


def test_bubble_fraction_of_interleaved():
    for pp, vpp, groups in ((2, 2, 1), (4, 3, 2), (16, 4, 8)):
        micro_batches = groups * pp
        time = pipeline_time(
            "interleaved", pp=pp, vpp=vpp, micro_batches=micro_batches, work=equal_stages(pp)
        )
        expected = (pp - 1) / (vpp * micro_batches + pp - 1)
        assert float(time.bubble_s / time.time_s) == pytest.approx(expected)


def test_idle_time_of_zb_h1():
    for pp, micro_batches in ((2, 2), (4, 16), (16, 64)):
        time = pipeline_time(
            "zb-h1", pp=pp, vpp=1, micro_batches=micro_batches, work=equal_stages(pp)
        )
        expected = (pp - 1) * (FORWARD_S + BACKWARD_S - WEIGHT_S)
        assert float(time.bubble_s) == pytest.approx(expected)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved", "zb-h1"])
def test_of_equal_stages_any_may_count_as_the_slowest(schedule):
    def time_s(slowest):
        vpp = 2 if schedule == "interleaved" else 1
        work = equal_stages(8, slowest=slowest)
        return float(pipeline_time(schedule, pp=8, vpp=vpp, micro_batches=32, work=work).time_s)

    assert [time_s(k) for k in range(8)] == pytest.approx([time_s(7)] * 8)


def test_one_stage_has_neither_bubble_nor_messages():
    work = equal_stages(1, send_s=5.0, send_overlap=0.0)
    time = pipeline_time("1f1b", pp=1, vpp=1, micro_batches=7, work=work)
    assert (float(time.time_s), float(time.bubble_s), float(time.sends_s)) == (21.0, 0.0, 0.0)


def test_sends_by_hand():
    # Two stages, GPipe, two micro-batches, message 1.5, stage of 6: 3 passes of 6, then a message
    # up and one down; held up, each stage waits for one more message of its own.
    two, none = np.array(2.0), np.array(0.0)
    work = PipelineWork(
        slowest=SlotTimes(forward_s=two, backward_s=two, weight_s=two),
        before=SlotTimes(forward_s=two, backward_s=two, weight_s=two),
        after=SlotTimes(forward_s=none, backward_s=none, weight_s=none),
        stages_after=none,
        send_s=np.array(1.5),
        send_overlap=np.array([1.0, 0.0]),
    )
    time = pipeline_time("gpipe", pp=2, vpp=1, micro_batches=2, work=work)
    assert time.time_s.tolist() == [18 + 3, 18 + 3 + 3]


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved", "zb-h1"])
def test_slower_messages_never_make_a_faster_step(schedule):
    for overlap in (0.0, 0.5, 1.0):
        work = equal_stages(8, send_s=np.linspace(0, 1, 50), send_overlap=overlap)
        vpp = 2 if schedule == "interleaved" else 1
        time = pipeline_time(schedule, pp=8, vpp=vpp, micro_batches=32, work=work)
        assert (np.diff(time.time_s) > 0).all()


def test_a_grid_is_its_points_one_by_one():
    pp = np.array([2, 4, 8])[:, None]
    micro_batches = np.array([1, 8, 50])
    work = equal_stages(pp, send_s=0.05, send_overlap=0.3)
    for schedule in ("gpipe", "1f1b", "zb-h1"):
        grid = pipeline_time(schedule, pp=pp, vpp=1, micro_batches=micro_batches, work=work)
        assert grid.time_s.shape == grid.bubble_s.shape == (3, 3)
        for i, p in enumerate((2, 4, 8)):
            for j, m in enumerate((1, 8, 50)):
                one = equal_stages(p, send_s=0.05, send_overlap=0.3)
                alone = pipeline_time(schedule, pp=p, vpp=1, micro_batches=m, work=one)
                assert grid.time_s[i, j] == float(alone.time_s)


def test_stages_that_differ_by_rounding_are_equal_and_the_first_counts():
    def stage(index, forward_s):
        seconds: dict[Slot, FloatArray] = {
            "forward": np.array(forward_s),
            "backward": np.array(2.0),
        }
        return StageSlots(
            index=np.array(float(index)),
            stages=np.array(1.0),
            blocks={},
            seconds=seconds,
            host=dict.fromkeys(seconds, np.array(0.0)),
            before={slot: index * value for slot, value in seconds.items()},
        )

    rounded = [stage(0, 0.3), stage(1, 0.1 + 0.2), stage(2, 0.3 * (1 + 1e-12))]
    assert float(slowest_stage(rounded).index) == 0
    assert float(slowest_stage([stage(0, 0.3), stage(1, 0.3001)]).index) == 1
