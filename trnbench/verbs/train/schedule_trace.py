"""A played pipeline schedule as a trace file: a process a stage, a track for each stream.

Compute, links, network and gradients run at the same time, so each is a track of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from trnbench.engines.emulate.schedule.timeline import SlotEvent, Timeline, Track
from trnbench.facts.records import Record
from trnbench.facts.units import Dimension, show
from trnbench.show.trace import TraceSpan, trace

MOST_EVENTS = 200_000
"""Events a trace file holds at most: about 35 MB, which viewers still open."""


class ScheduleTrace(Record):
    """A trace file, and in words which part of the timeline it holds; None if all of it."""

    content: bytes
    holds: str | None


def schedule_trace(timeline: Timeline, *, most: int = MOST_EVENTS) -> ScheduleTrace:
    """Return the trace of a timeline; of too many events, some stages, or only their beginning."""
    if most < 1:
        raise ValueError("a trace needs room for at least one event")
    pp = timeline.order.pp
    busiest = max(Counter(event.stage for event in timeline.events).values(), default=1)
    kept = max(min(most // busiest, pp), 1)
    stages = {round(i * (pp - 1) / max(kept - 1, 1)) for i in range(kept)}
    events = [event for event in timeline.events if event.stage in stages]
    parts = [f"{kept} of {pp} stages"] if kept < pp else []
    if len(events) > most:
        until_s = sorted(event.start_s for event in events)[most]
        events = [event for event in events if event.start_s < until_s]
        parts.append(f"what starts before {show(until_s, Dimension.SECONDS)}")
    return ScheduleTrace(
        content=trace(list(_spans(events))),
        holds=f"{', '.join(parts)} (at most {most:,} events)" if parts else None,
    )


def _spans(events: Iterable[SlotEvent]) -> Iterator[TraceSpan]:
    """Yield the events as spans; those of a track never overlap, not even by rounding."""
    until_s: dict[tuple[int, Track], float] = {}
    for event in events:
        track = event.stage, event.track
        start_s = max(event.start_s, until_s.get(track, 0.0))
        until_s[track] = end_s = max(event.end_s, start_s)
        part = {"micro-batch": event.micro_batch, "chunk": event.chunk}
        arguments = {key: number for key, number in part.items() if number is not None}
        words = (event.name, *(f"{key} {number}" for key, number in arguments.items()))
        yield TraceSpan(
            process=f"stage {event.stage}",
            lane=event.track,
            name=" ".join(words),
            start_s=start_s,
            end_s=end_s,
            arguments=arguments,
        )
