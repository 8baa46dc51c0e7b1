"""Played events as a trace file that Perfetto and chrome://tracing open.

The Trace Event Format counts in microseconds and wants the events of a track to nest, so every
lane (an engine, a queue, a link) is a track of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from trnbench.facts.records import Record, field, replace

MICROSECOND_S = 1e-6
DECIMALS = 6  # a picosecond: below that is the noise of floating point


class TraceSpan(Record):
    """Something that took a lane from `start_s` to `end_s`."""

    process: str
    lane: str
    name: str
    start_s: float
    end_s: float
    arguments: Mapping[str, object] = field(default_factory=dict)


def trace(spans: Sequence[TraceSpan]) -> bytes:
    """Return the trace file of some spans; processes and lanes keep their order of appearance.

    Spans that overlap on one lane are moved to further tracks of it, "lane (2)" and so on.
    """
    spans = _apart(spans)
    processes = {name: i for i, name in enumerate(dict.fromkeys(s.process for s in spans), 1)}
    lanes = {key: i for i, key in enumerate(dict.fromkeys((s.process, s.lane) for s in spans), 1)}
    names = [
        {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
        for name, pid in processes.items()
    ]
    for (process, lane), tid in lanes.items():
        track = {"ph": "M", "pid": processes[process], "tid": tid}
        names.append({**track, "name": "thread_name", "args": {"name": lane}})
        names.append({**track, "name": "thread_sort_index", "args": {"sort_index": tid}})
    events = [
        {
            "ph": "X",
            "name": span.name,
            "pid": processes[span.process],
            "tid": lanes[span.process, span.lane],
            "ts": round(span.start_s / MICROSECOND_S, DECIMALS),
            "dur": round((span.end_s - span.start_s) / MICROSECOND_S, DECIMALS),
            **({"args": dict(span.arguments)} if span.arguments else {}),
        }
        for span in spans
    ]
    document = {"displayTimeUnit": "ns", "traceEvents": names + events}
    return (json.dumps(document, separators=(",", ":"), allow_nan=False) + "\n").encode()


def _apart(spans: Sequence[TraceSpan]) -> list[TraceSpan]:
    free: dict[tuple[str, str], list[float]] = {}
    moved = list(spans)
    for i in sorted(range(len(spans)), key=lambda i: spans[i].start_s):
        span = spans[i]
        tracks = free.setdefault((span.process, span.lane), [])
        track = next((t for t, end_s in enumerate(tracks) if end_s <= span.start_s), len(tracks))
        tracks[track : track + 1] = [span.end_s]
        if track:
            moved[i] = replace(span, lane=f"{span.lane} ({track + 1})")
    return moved
