"""A step beside the same step in another layout: which terms make up the difference, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from trnbench.facts.records import replace
from trnbench.facts.units import Dimension, scale_for, show, significant
from trnbench.facts.workload.layout import KNOBS, RANK_DEGREES
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.predict.search.plain import NEARLY
from trnbench.predict.search.result import ClusterResult, Found
from trnbench.predict.setup import TrainSetup
from trnbench.predict.step import predict
from trnbench.show.row import Row
from trnbench.show.text_table import Style
from trnbench.verbs.train.answer import OtherLayout, TrainAnswer

PartBeside: TypeAlias = tuple[str, float, float]
"""A part of two totals, with both: seconds of a step, or bytes of a rank."""
MOST_TERMS = 2
WORTH = 0.004
"""A term is named if it differs by more than this share of the step."""
TINY = 1e-4
"""Terms and differences below this share of the whole are none."""
MODES = ("recompute", "zero", "micro_batch")
"""Knobs that tell apart layouts of the same degrees."""
SHARE = f"{100 * (NEARLY - 1):.0f} %"


def time_beside(one: TrainAnswer, other: TrainAnswer) -> list[PartBeside]:
    """Exposed seconds of two steps by category, the largest difference first."""
    if one.step is None or other.step is None:
        return []
    return _beside(one.step.exposed_s, other.step.exposed_s)


def memory_beside(one: TrainAnswer, other: TrainAnswer) -> list[PartBeside]:
    """Bytes per rank of two steps by category, the largest difference first."""
    if one.memory is None or other.memory is None:
        return []
    held = (one.memory.by_category, other.memory.by_category)
    return _beside(*({str(name): size for name, size in each.items()} for each in held))


def _beside(one: Mapping[str, float], other: Mapping[str, float]) -> list[PartBeside]:
    parts = [(name, one.get(name, 0.0), other.get(name, 0.0)) for name in {**one, **other}]
    return sorted(
        (part for part in parts if part[1] or part[2]), key=lambda part: -abs(part[2] - part[1])
    )


def with_others(setup: TrainSetup, answer: TrainAnswer, cluster: ClusterResult) -> TrainAnswer:
    """The answer with the usual layout beside it, and the simplest that is nearly as fast."""
    if answer.step is None or cluster.simplest is None:
        return answer
    simple = answer.preferred == "simple"
    other: dict[Literal["usual", "simplest", "fastest"], Found | None] = {"usual": cluster.usual}
    # Where the simplest is taken the fastest stands behind it.
    other["fastest" if simple else "simplest"] = (
        next(iter(cluster.ranked[1:2]), None) if simple else cluster.simplest
    )
    return replace(
        answer,
        beside={
            name: _found_beside(setup, answer, found)
            for name, found in other.items()
            if found is not None
        },
    )


def _found_beside(setup: TrainSetup, answer: TrainAnswer, found: Found) -> OtherLayout:
    layout, step = PartialLayout.of(found.layout), answer.step
    assert step is not None
    if layout == answer.layout:
        return OtherLayout(layout=layout, times=1.0)
    there = predict(setup, found.layout).step
    if there is None:
        return OtherLayout(layout=layout, times=found.step_time_s / step.step_time_s)
    more = {name: b - a for name, a, b in _beside(step.exposed_s, there.exposed_s)}
    return OtherLayout(layout=layout, times=there.step_time_s / step.step_time_s, more_s=more)


def why_lines(answer: TrainAnswer) -> list[str]:
    """Reasons for a layout that was chosen: against the usual one, and against simpler ones."""
    if answer.step is None or not answer.beside:
        return []
    lines = []
    usual = answer.beside.get("usual")
    # What was said may leave no room for a usual one.
    if usual is None and {"tp", "cp"} <= {*answer.chosen}:
        lines.append("no layout of the usual kind fits: tp up to 8, no context ranks, no chunks")
    elif usual is not None and usual.layout == answer.layout:
        lines.append("it is the usual layout: the fewest pipeline stages that fit")
    elif usual is not None:
        lines.append(f"{_named(usual, answer)}, as usual, would be {_slower(usual, answer)}")
    simplest, fastest = answer.beside.get("simplest"), answer.beside.get("fastest")
    if fastest is not None:
        lines.append(
            f"--prefer simple: {_named(fastest, answer)} would be the fastest, by "
            f"{_percent(1 - fastest.times)}"
        )
    elif simplest is None or simplest.layout == answer.layout:
        lines.append(f"no simpler layout is within {SHARE} of it")
    elif usual is not None and simplest.layout == usual.layout:
        lines.append(f"that is the simplest within {SHARE}; --prefer simple takes it")
    else:
        lines.append(
            f"simplest within {SHARE}: {_named(simplest, answer)}, "
            f"{_percent(simplest.times - 1)} slower; --prefer simple takes it"
        )
    return lines


def why_cells(answer: TrainAnswer) -> Row:
    """Layouts beside a chosen one as machines read them."""
    return {
        name: {"layout": one.layout.given, "relative_time": one.times, "more_s": dict(one.more_s)}
        for name, one in answer.beside.items()
    }


def _slower(one: OtherLayout, answer: TrainAnswer) -> str:
    """How much slower a layout is, and the terms that make up most of it."""
    assert answer.step is not None
    slower = one.times >= 1
    change = _percent(abs(one.times - 1))
    terms = [
        (name, seconds)
        for name, seconds in one.more_s.items()
        if (seconds > 0) == slower and abs(seconds) > WORTH * answer.step.step_time_s
    ]
    told = ", ".join(f"{name} {_signed(seconds)}" for name, seconds in terms[:MOST_TERMS])
    return f"{change} {'slower' if slower else 'faster'}{f': {told}' if told else ''}"


def _named(one: OtherLayout, answer: TrainAnswer) -> str:
    """A layout by its degrees, and by the modes in which it differs from the answer's."""
    layout, own = one.layout, answer.layout
    degrees = [name for name in RANK_DEGREES if name != "dp" and layout.degree(name) > 1]
    same = all(layout[name] == own[name] for name in RANK_DEGREES)
    modes = [name for name in MODES if layout[name] != own[name]]
    shown = [*degrees, *(modes if same or not degrees else modes[:1])]
    told = ", ".join(f"{KNOBS[name].title} {layout[name]}" for name in shown)
    return told or f"dp {layout['dp']} alone"


def _percent(share: float) -> str:
    return f"{significant(100 * share, 2 if share < 1 else 3)} %"


def _signed(seconds: float) -> str:
    sign = "+" if seconds > 0 else "-"
    return f"{sign}{show(abs(seconds), Dimension.SECONDS, digits=2)}"


def versus_block(one: TrainAnswer, other: TrainAnswer, style: Style) -> str:
    """The difference between two steps, term by term, and what it comes to."""
    if one.step is None or other.step is None:
        missing = one if one.step is None else other
        return style.wrap(f"no difference: {missing.label} does not run: {missing.reasons[0]}")
    times = other.step.step_time_s / one.step.step_time_s
    more = {name: b - a for name, a, b in time_beside(one, other)}
    beside = OtherLayout(layout=other.layout, times=times, more_s=more)
    blocks = [style.strong(style.wrap(f"{other.label}: {_slower(beside, one)}"))]
    memory = memory_beside(one, other)
    scale = scale_for(max((size for _, size, _ in memory), default=1.0), Dimension.BYTES)
    tables = (
        ("step time (s)", time_beside(one, other), 1.0),
        (f"memory per rank ({scale.unit})", memory, scale.factor),
    )
    for title, parts, unit in tables:
        total = ("all", sum(part[1] for part in parts), sum(part[2] for part in parts))
        least = TINY * total[1]
        told = (part for part in parts if max(part[1:]) > least)
        rows = [_difference(part, unit, least) for part in (total, *told)]
        headings = (title, ">A", ">B", ">B - A")
        blocks.append(style.table(headings, rows))
    blocks.append(style.faint(f"{one.label}; {other.label}"))
    return "\n\n".join(blocks)


def _difference(part: PartBeside, unit: float, least: float) -> tuple[str, ...]:
    more = part[2] - part[1]
    signed = f"{'+' * (more > 0)}{significant(more / unit, 3)}" if abs(more) > least else "0"
    return part[0], significant(part[1] / unit, 4), significant(part[2] / unit, 4), signed
