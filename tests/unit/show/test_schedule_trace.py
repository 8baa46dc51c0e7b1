"""Trace files of played schedules: a process a stage, streams apart, bounded."""

from __future__ import annotations

import json
from collections import defaultdict

import pytest

from trnbench.engines.emulate.schedule.timeline import timeline
from trnbench.engines.emulate.schedule.times import (
    EndingTimes,
    OverlapRules,
    Sends,
    Shares,
    SlotCollective,
    StageTimes,
)
from trnbench.program.schedule import slot_order
from trnbench.program.slots import SlotTimes
from trnbench.verbs.train.schedule_chart import schedule_trace


def played(schedule="1f1b", pp=4, vpp=1, micro_batches=8):
    part = 0.1 / vpp  # not a number that doubles hold exactly
    times = StageTimes(
        compute=SlotTimes(forward_s=part, backward_s=part, weight_s=part),
        collectives=(
            SlotCollective(
                name="expert",
                lane="network",
                times=SlotTimes(forward_s=part / 3, backward_s=part / 3, weight_s=part / 7),
            ),
        ),
        sends=Sends(
            forward_s=part / 3,
            backward_s=part / 3,
            latency_s=0,
            forward_lane=("network",) * pp,
            backward_lane=("network",) * pp,
        ),
        ending=EndingTimes(gradients_s=part, optimizer_s=part, parameters_s=part),
    )
    shares = Shares(forward=0.9, backward=0.9, weight=0.9)
    rules = OverlapRules(
        sends=1,
        gradients=0.7,
        parameters=0.3,
        optimizer_waits_for_all=True,
        collectives={"expert": shares},
    )
    order = slot_order(schedule, pp=pp, vpp=vpp, micro_batches=micro_batches)
    return timeline(order, times, rules)


def read(content):
    """Return the process and track names by number, and the events."""
    document = json.loads(content)["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in document if e["name"] == "process_name"}
    tracks = {e["tid"]: e["args"]["name"] for e in document if e["name"] == "thread_name"}
    return processes, tracks, [e for e in document if e["ph"] == "X"]


@pytest.mark.parametrize(
    ("schedule", "vpp"), [("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("zb-h1", 1)]
)
def test_every_stream_has_one_track_of_its_own(schedule, vpp):
    seen = played(schedule, vpp=vpp)
    content, holds = schedule_trace(seen)
    processes, tracks, events = read(content)
    assert holds is None
    assert list(processes.values()) == [f"stage {stage}" for stage in range(4)]
    assert set(tracks.values()) == {"compute", "network", "gradients"}
    assert len(tracks) == 4 * 3
    assert len(events) == len(seen.events)
    ends: defaultdict[int, float] = defaultdict(float)
    for event in events:
        # Times are rounded to picoseconds.
        assert event["ts"] >= ends[event["tid"]] - 2e-6
        ends[event["tid"]] = event["ts"] + event["dur"]
    assert max(ends.values()) == pytest.approx(float(seen.played.step_s) * 1e6)


def test_names_tell_micro_batch_and_chunk():
    _, _, events = read(schedule_trace(played("interleaved", 2, 2, 4))[0])
    names = {event["name"] for event in events}
    assert "forward micro-batch 3 chunk 1" in names
    assert "send-backward micro-batch 0 chunk 1" in names
    assert "optimizer" in names
    chosen = next(event for event in events if event["name"] == "backward micro-batch 2 chunk 0")
    assert chosen["args"] == {"micro-batch": 2, "chunk": 0}


def test_too_many_events_leave_whole_stages_out():
    seen = played("1f1b", 8, 1, 16)
    busiest = max(sum(e.stage == stage for e in seen.events) for stage in range(8))
    content, holds = schedule_trace(seen, most=3 * busiest)
    processes, _, events = read(content)
    assert list(processes.values()) == ["stage 0", "stage 4", "stage 7"]
    assert len(events) <= 3 * busiest
    assert holds == f"3 of 8 stages (at most {3 * busiest:,} events)"


def test_too_many_events_of_one_stage_leave_its_end_out():
    content, holds = schedule_trace(played(), most=10)
    processes, _, events = read(content)
    assert list(processes.values()) == ["stage 0"]
    assert 0 < len(events) <= 10
    assert holds is not None
    assert holds.startswith("1 of 4 stages, what starts before ")


def test_same_timeline_same_bytes():
    assert schedule_trace(played()) == schedule_trace(played())
