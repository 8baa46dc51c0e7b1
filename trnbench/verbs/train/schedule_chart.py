"""A played pipeline schedule as a figure: a lane a stage, and lanes of its communication."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from trnbench.engines.emulate.schedule.timeline import SlotEvent, Timeline, Track
from trnbench.facts.units import Dimension, scale_for, show, unit_scale
from trnbench.show.charts.record import ChartAxis, Colour, GanttChart, GanttLane, Span, SpanKind
from trnbench.show.trace import TraceSpan, trace

MOST_ROWS = 32
LANES: tuple[Track, ...] = ("links", "network", "gradients")


OTHER = "other"
SLOTS = ("forward", "backward", "weight")
_KINDS: Mapping[str, tuple[str, str, Colour, str]] = {
    "forward": ("F", "-", "cyan", "forward"),
    "backward": ("B", "=", "yellow", "backward"),
    "weight": ("W", "~", "green", "weight gradients"),
    "optimizer": ("O", "o", "white", "optimizer"),
    "send-forward": (">", ">", "cyan", "message forward"),
    "send-backward": ("<", "<", "yellow", "message back"),
    "gradients": ("g", "g", "magenta", "gradients reduced"),
    "sums": ("s", "s", "magenta", "sums over other ranks"),
    "parameters": ("p", "p", "blue", "parameters gathered"),
    "tensor": ("t", "t", "green", "tensor-parallel exchange"),
    "context": ("c", "c", "green", "context-parallel exchange"),
    "expert": ("e", "e", "green", "expert exchange"),
    "data": ("d", "d", "green", "parameters and gradients"),
    OTHER: ("x", "x", "green", "other exchange"),
}
KINDS = {
    name: SpanKind(letter=letter, fill=fill, colour=colour, legend=legend, solid=letter in "FBWO")
    for name, (letter, fill, colour, legend) in _KINDS.items()
}


def schedule_figure(
    timeline: Timeline,
    *,
    lanes: bool = False,
    rows: int = MOST_ROWS,
    window_s: tuple[float, float] | None = None,
) -> GanttChart:
    """The figure of a played step, with at most about `rows` lanes.

    `lanes` adds, under each stage, a lane for each kind of communication that it uses. `window_s`:
    only from one time to another.
    """
    step_s, pp = float(timeline.played.step_s), timeline.order.pp
    start_s, end_s = window_s or (0.0, step_s)
    events = [one for one in timeline.events if one.end_s > start_s and one.start_s < end_s]
    used = [lane for lane in LANES if lanes and any(one.track == lane for one in events)]
    stages = _drawn_stages(pp, max(rows // (1 + len(used)), 2))
    whole = window_s is None
    return GanttChart(
        title="pipeline schedule of a step",
        caption="simulated slot by slot; bubble: share of the step that a stage waits; in the "
        "table: the slowest's",
        axis=_axis(end_s),
        start=start_s,
        end=end_s,
        lanes=tuple(_lanes(timeline, events, stages, used)),
        kinds=KINDS,
        slot=float(np.mean(timeline.end_s - timeline.start_s)) if whole and events else 0.0,
        ramp=_ramp_s(timeline) if whole and events else 0.0,
        behind="bubble",
        legend=_legend(timeline, lanes),
        missing=f"{len(stages)} of {pp} stages are drawn" if len(stages) < pp else "",
    )


def _axis(longest_s: float) -> ChartAxis:
    """Seconds at most, so that ticks stand at round numbers."""
    scales = unit_scale("s", Dimension.SECONDS), scale_for(longest_s, Dimension.SECONDS)
    unit = min(scales, key=lambda scale: scale.factor)
    return ChartAxis(title="time", dimension=Dimension.SECONDS, unit=unit)


def _ramp_s(timeline: Timeline) -> float:
    """Time of the stages to fill, or to drain, whichever is longer."""
    fill_s = float(timeline.start_s[:, 0].max())
    drain_s = float(timeline.played.step_s) - float(timeline.end_s[:, -1].min())
    return max(fill_s, drain_s)


def _drawn_stages(pp: int, most: int) -> list[int]:
    """The stages that are drawn, the first and the last always among them."""
    return sorted({round(i * (pp - 1) / max(min(pp, most) - 1, 1)) for i in range(min(pp, most))})


def _lanes(
    timeline: Timeline, events: Sequence[SlotEvent], stages: Sequence[int], used: Sequence[Track]
) -> Iterator[GanttLane]:
    vpp = timeline.order.vpp
    shares = timeline.played.bubble_s / (float(timeline.played.step_s) or 1.0)
    for stage in stages:
        mine = [event for event in events if event.stage == stage]
        end_s = float(timeline.end_s[stage, -1])
        yield GanttLane(
            name=f"stage {stage}",
            spans=tuple(_computed(mine, end_s, vpp)),
            least=0.5,
            behind=f"{100 * shares[stage]:.0f} %",
        )
        for lane in used:
            moved = (event for event in mine if event.track == lane)
            yield GanttLane(name=f"  {lane}", spans=tuple(_span(one, vpp) for one in moved))


def _computed(events: Sequence[SlotEvent], end_s: float, vpp: int) -> Iterator[Span]:
    """The slots of a stage, then its communication at the end of the step."""
    for event in events:
        if event.track == "compute":
            yield _span(event, vpp)
    for event in events:
        if event.track == "gradients" and event.end_s > end_s:
            yield Span(max(event.start_s, end_s), event.end_s, _kind(event))


def _span(event: SlotEvent, vpp: int) -> Span:
    labels: tuple[str, ...] = ()
    if event.name in SLOTS and event.micro_batch is not None:
        batch = str(event.micro_batch)
        labels = (f"{batch}.{event.chunk}", batch) if vpp > 1 else (batch,)
    return Span(event.start_s, event.end_s, _kind(event), labels)


def _kind(event: SlotEvent) -> str:
    return event.name if event.name in KINDS else OTHER


def _legend(timeline: Timeline, lanes: bool) -> tuple[str, ...]:
    batch = "B3.1: micro-batch 3, chunk 1" if timeline.order.vpp > 1 else "B3: micro-batch 3"
    return (batch, "blank: waiting", *(["lanes: where anything moves"] if lanes else []))


MOST_EVENTS = 200_000
"""Events a trace file holds at most: about 35 MB, which viewers still open."""


def schedule_trace(timeline: Timeline, *, most: int = MOST_EVENTS) -> tuple[bytes, str | None]:
    """Trace file of a timeline, and in words which part it holds; None where that is all.

    Of too many events it has some stages, or only their beginning.
    """
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
    holds = f"{', '.join(parts)} (at most {most:,} events)" if parts else None
    return trace(list(_trace_spans(events))), holds


def _trace_spans(events: Iterable[SlotEvent]) -> Iterator[TraceSpan]:
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
