"""The played pipeline against its closed form, wherever that one's assumptions hold."""

from __future__ import annotations

import numpy as np
import pytest

from trnbench.engines.analytic.step.pipeline import PipelineWork, pipeline_time
from trnbench.engines.emulate.schedule.play import play
from trnbench.engines.emulate.schedule.times import EndingTimes, OverlapRules, Sends, StageTimes
from trnbench.facts.workload.layout import Schedule
from trnbench.program.schedule import slot_order
from trnbench.program.slots import Lane, SlotTimes

SCHEDULES: tuple[Schedule, ...] = ("gpipe", "1f1b", "interleaved", "zb-h1")
LAYOUTS = 200


def compared(seed, *, slow, where, fewest=1):
    """Return (closed form, played) seconds of a random layout with one slow stage."""
    random = np.random.default_rng(seed)
    schedule = SCHEDULES[seed % 4]
    network: Lane = "network"
    pp = int(random.integers(2, 17))
    vpp = int(random.integers(2, 5)) if schedule == "interleaved" else 1
    most = 8 * pp
    micro_batches = int(random.integers(max(2, fewest * pp), most + 1))
    if schedule == "interleaved":
        micro_batches = max(fewest, micro_batches // pp, 2) * pp
    backward = random.uniform(0.8, 2.5)
    weight = min(random.uniform(0.3, 1), backward)
    passes = np.array([1.0, backward, weight])
    send = random.uniform(0, 0.08) * passes.min() / vpp
    overlap = float(random.choice([0.0, 0.5, 1.0, random.uniform()]))
    factor = 1 + slow * random.uniform(0, 0.3)
    slowest = pp - 1 if where == "last" else int(random.integers(pp))
    stages = np.ones((pp, 1))
    stages[slowest] = factor

    def passed(count):
        forward, back, weights = count * passes
        return SlotTimes(forward_s=forward, backward_s=back, weight_s=weights)

    closed = pipeline_time(
        schedule,
        pp=pp,
        vpp=vpp,
        micro_batches=micro_batches,
        work=PipelineWork(
            slowest=passed(factor),
            before=passed(slowest),
            after=passed(pp - 1 - slowest),
            stages_after=np.array(float(pp - 1 - slowest)),
            send_s=np.array(send),
            send_overlap=np.array(overlap),
        ),
    )
    forward, back, weights = (stages * part / vpp for part in passes)
    played = play(
        slot_order(schedule, pp=pp, vpp=vpp, micro_batches=micro_batches),
        StageTimes(
            compute=SlotTimes(forward_s=forward, backward_s=back, weight_s=weights),
            sends=Sends(
                forward_s=0.7 * send,
                backward_s=0.7 * send,
                latency_s=0.3 * send,
                forward_lane=(network,) * pp,
                backward_lane=(network,) * pp,
            ),
            ending=EndingTimes(gradients_s=0, optimizer_s=0, parameters_s=0),
        ),
        OverlapRules(
            sends=overlap,
            gradients=0,
            parameters=0,
            optimizer_waits_for_all=False,
            collectives={},
        ),
    )
    return float(closed.time_s), float(played.pipeline_s)


def test_two_hundred_layouts_of_equal_stages():
    for seed in range(LAYOUTS):
        closed_s, played_s = compared(seed, slow=0, where="any")
        assert closed_s == pytest.approx(played_s, rel=0.01), seed


def test_two_hundred_layouts_with_a_slow_last_stage():
    for seed in range(LAYOUTS):
        closed_s, played_s = compared(seed, slow=1, where="last")
        assert closed_s == pytest.approx(played_s, rel=0.01), seed


def test_a_slow_stage_anywhere_in_a_long_step():
    for seed in range(LAYOUTS):
        closed_s, played_s = compared(seed, slow=1, where="any", fewest=4)
        interleaved = SCHEDULES[seed % 4] == "interleaved"
        assert closed_s == pytest.approx(played_s, rel=0.07 if interleaved else 0.01), seed
