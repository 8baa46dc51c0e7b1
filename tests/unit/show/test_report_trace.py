"""Trace files: microseconds, a track for each lane, in order of appearance."""

from __future__ import annotations

import json

from trnbench.show.trace import TraceSpan, trace


def test_spans_become_complete_events_on_their_own_tracks():
    spans = [
        TraceSpan(process="chip", lane="tensor", name="multiply", start_s=1e-6, end_s=3e-6),
        TraceSpan(process="chip", lane="dma 0", name="load", start_s=0.0, end_s=2e-6),
        TraceSpan(
            process="chip",
            lane="tensor",
            name="multiply",
            start_s=3e-6,
            end_s=4e-6,
            arguments={"k": 1},
        ),
    ]
    document = json.loads(trace(spans))
    events = [event for event in document["traceEvents"] if event["ph"] == "X"]
    assert [(e["ts"], e["dur"], e["tid"]) for e in events] == [(1, 2, 1), (0, 2, 2), (3, 1, 1)]
    assert events[2]["args"] == {"k": 1}
    names = {
        e["tid"]: e["args"]["name"] for e in document["traceEvents"] if e["name"] == "thread_name"
    }
    assert names == {1: "tensor", 2: "dma 0"}
    assert trace(spans) == trace(spans)


def test_overlapping_spans_of_a_lane_go_to_tracks_of_their_own():
    spans = [
        TraceSpan(process="chip", lane="dma", name=name, start_s=start, end_s=end)
        for name, start, end in (("a", 0.0, 3.0), ("b", 1.0, 2.0), ("c", 2.0, 4.0), ("d", 3.0, 5.0))
    ]
    document = json.loads(trace(spans))
    tracks = {
        e["tid"]: e["args"]["name"] for e in document["traceEvents"] if e["name"] == "thread_name"
    }
    events = [event for event in document["traceEvents"] if event["ph"] == "X"]
    assert [(e["name"], tracks[e["tid"]]) for e in events] == [
        ("a", "dma"),
        ("b", "dma (2)"),
        ("c", "dma (2)"),
        ("d", "dma"),
    ]


def test_the_topology_drawing_wraps_round():
    from trnbench.show.drawing import grid

    assert grid((2, 2), str) == [
        "  ~   ~",
        "~ 0 - 1 ~",
        "  |   |",
        "~ 2 - 3 ~",
        "  ~   ~",
    ]
