"""Training steps as people and machines read them: headline, layout, where time and memory go."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from trnbench.facts.units import Dimension, counted, show, significant
from trnbench.facts.workload.choices import PAIRED
from trnbench.facts.workload.layout import DEGREES, KNOBS, RANK_DEGREES
from trnbench.facts.workload.partial_layout import shown_degrees
from trnbench.predict.assumption import Assumption, merged
from trnbench.predict.prediction import StepFigures
from trnbench.predict.settled import TAKEN
from trnbench.show.charts.record import AnyChart
from trnbench.show.report import Column, Report, columns, draw_rows
from trnbench.show.text_table import Style
from trnbench.verbs.quotes.notes import assumed_block
from trnbench.verbs.quotes.verdict import MOST_WORDS, words_of
from trnbench.verbs.train.answer import TrainAnswer
from trnbench.verbs.train.beside import versus_block, why_cells, why_lines
from trnbench.verbs.train.tables import memory_table, phases_table, step_scale, time_table

CHOSEN, ASSUMED = "*", "+"
"""Marks behind a setting that a search chose, and one that took its default."""

MFU = (
    "model FLOP (causal attention, nothing computed twice) over the tensor units' peak in the "
    "format of the products"
)
HFU = "with recompute and padding"
OF_FROZEN = "a job with adapters needs no gradients of frozen weights"
CONVENTIONS = {
    "mfu": f"{MFU}; {OF_FROZEN}; mfu_headline: over the vendor's headline rate; hfu: {HFU}",
    "low_, high_": "ends of an 80 % interval",
    "exposed_*_s": "add up to step_time_s; hidden_*_s overlap with compute",
    "memory_bytes": "of a rank of the worst pipeline stage; available is the capacity less the "
    "platform's reserve",
}

PURE_BF16 = ("precision", "bf16")
_PURE = " (pure bf16: no master copy; mixed: bf16-master)"
_LINES: Mapping[str, Sequence[str]] = {
    "degrees": RANK_DEGREES,
    "batch": [name for name in DEGREES if name not in RANK_DEGREES],
    "mode": [name for name in KNOBS if name not in DEGREES],
}


def train_report(
    answers: Sequence[TrainAnswer], inputs: Mapping[str, object], *, plot: bool = False
) -> Report:
    """Return the report of some training steps, a row each."""
    return Report(
        verb="train",
        inputs=inputs,
        rows=tuple(answer.row() for answer in answers),
        columns=_columns(answers),
        summary={
            "verdict": train_verdict(answers),
            "conventions": CONVENTIONS,
            "chosen": [_chosen(answer) for answer in answers],
            "feasible": sum(answer.feasible for answer in answers),
            "rows": len(answers),
            "assumed": [one.plain for one in _assumed(answers)],
        },
        notes=tuple(
            dict.fromkeys(
                f"{_machines(one)}: {line}" if len(answers) > 1 else line
                for one in answers
                for line in why_lines(one)
            )
        ),
        people=lambda report, style: _draw(report, tuple(answers), plot, style),
        charts=_charts(answers),
    )


def train_verdict(answers: Sequence[TrainAnswer]) -> str:
    """Sentences on the fastest case: its step, its speed beside the next, whether all fit."""
    cases = [one for one in answers if one.engine == answers[0].engine]
    able = [(one, one.step) for one in cases if one.feasible and one.step is not None]
    if not able:
        why = f": {cases[0].reasons[0]}" if cases[0].reasons else ""
        no = f"No: {cases[0].model} does not run on {_machines(cases[0])}"
        return f"{no}{why}." if words_of(f"{no}{why}") <= MOST_WORDS else f"{no} as asked."
    pace = [one.per_s(step.step_time_s) for one, step in able]
    by_pace = sorted(range(len(able)), key=lambda place: -pace[place])
    best, step = able[by_pace[0]]
    told = f"{_machines(best)} takes {show(step.step_time_s, Dimension.SECONDS, digits=3)} per step"
    if best.memory is not None:
        used, free = (
            show(size, Dimension.BYTES, digits=3)
            for size in (best.memory.total_bytes, best.memory.available_bytes)
        )
        told += f" at {100 * step.mfu:.0f} % MFU and needs {used} of {free} per rank"
    sentences = [told]
    if len(able) > 1 and len({one.model for one, _ in able}) == 1:
        times, other = pace[by_pace[0]] / pace[by_pace[1]], able[by_pace[1]][0]
        sentences.append(f"It is {significant(times, 3)}x as fast as {_machines(other)}")
    if len(able) < len(cases):
        sentences.append(f"{len(cases) - len(able)} of {counted(len(cases), 'case')} cannot run")
    return " ".join(f"{one}." for one in sentences)


def _machines(answer: TrainAnswer) -> str:
    return f"{answer.nodes:,} x {answer.instance}"


def _charts(answers: Sequence[TrainAnswer]) -> tuple[AnyChart, ...]:
    from trnbench.verbs.quotes.charts import cluster_label, memory_bars, step_bars

    engines = {answer.engine for answer in answers}
    labels = [
        (one.label or cluster_label(one)) + (f" {one.engine}" if len(engines) > 1 else "")
        for one in answers
    ]
    bars = (step_bars(answers, labels=labels), memory_bars(answers, labels=labels))
    charts: list[AnyChart] = [one for one in bars if not one.empty]
    played = next((one.timeline for one in answers if one.timeline is not None), None)
    if played is not None:
        from trnbench.verbs.train.schedule_chart import schedule_figure

        figure = schedule_figure(played)
        charts = charts if figure.empty else [figure, *charts]
    return tuple(charts)


def _assumed(answers: Sequence[TrainAnswer]) -> tuple[Assumption, ...]:
    return merged({one.label or _where(one): one.assumptions for one in answers})


def _differ(answers: Sequence[TrainAnswer], name: str) -> bool:
    return len({answer.layout[name] for answer in answers}) > 1


def _columns(answers: Sequence[TrainAnswer]) -> tuple[Column, ...]:
    labelled = any(answer.label for answer in answers)
    one_model = len({answer.model for answer in answers}) == 1
    degrees = shown_degrees([answer.layout for answer in answers])
    modes = (*_LINES["batch"], *_LINES["mode"])
    several = len({answer.engine for answer in answers}) > 1
    differ = [name for name in modes if _differ(answers, name)]
    return (
        *(columns("case") if labelled else columns("model", spare=one_model)),
        *columns("instance", "nodes", spare=labelled),
        *columns(*degrees, *differ, spare=True),
        *(columns("engine") if several else ()),
        *columns("step_time_s"),
        *columns("low_step_time_s", "high_step_time_s", spare=True),
        *columns("tokens_per_s"),
        *columns("sequences_per_s", spare=True),
        *columns("mfu", "memory_bytes"),
        *columns("memory_available_bytes", spare=True),
        *columns("feasible"),
    )


def _chosen(answer: TrainAnswer) -> dict[str, object]:
    plain = answer.layout.plain
    searched = answer.searched
    return {
        "case": answer.label or f"{answer.model} on {answer.instance}:{answer.nodes}",
        "engine": answer.engine,
        "chosen": {name: plain[name] for name in answer.chosen},
        "defaults": {name: plain[name] for name in answer.assumed},
        "beside": why_cells(answer),
        "legal_layouts": searched.legal if searched else None,
        "feasible_layouts": searched.feasible if searched else None,
    }


def _draw(report: Report, answers: tuple[TrainAnswer, ...], plot: bool, style: Style) -> str:
    # Every case is answered by the same engines in turn.
    cases: list[list[TrainAnswer]] = []
    for answer in answers:
        if answer.engine == answers[0].engine:
            cases.append([])
        cases[-1].append(answer)
    if len(cases) == 1:
        return "\n\n".join(_case(cases[0], plot, style))
    models = list(dict.fromkeys(answer.model for answer in answers))
    what = models[0] if len(models) == 1 else f"{len(models)} models"
    suite = report.inputs.get("suite")
    heading = f"{f'suite {suite}: ' if suite else ''}{what}, {counted(len(cases), 'case')}"
    notes = dict.fromkeys(note for case in cases for note in _notes_of_case(case))
    return "\n\n".join(
        [
            "\n".join([style.strong(heading), *_shared(answers, style)]),
            draw_rows(report, style),
            *_versus(cases, style, bool(report.inputs.get("vs"))),
            assumed_block(_assumed(answers), style),
            style.lines(notes),
        ]
    )


def _versus(cases: Sequence[Sequence[TrainAnswer]], style: Style, asked: bool) -> list[str]:
    """Differences of each two cases in turn."""
    if not asked:
        return []
    pairs = zip(cases[::2], cases[1::2], strict=True)
    return [versus_block(one[0], other[0], style) for one, other in pairs]


def _shared(answers: Sequence[TrainAnswer], style: Style) -> list[str]:
    """Return the settings that all cases share, and which were chosen."""
    first = answers[0]
    parts = [
        f"{KNOBS[name].title} {_value(first.layout[name])}{_mark(first, name)}"
        for name in (*_LINES["batch"], *_LINES["mode"])
        if not _differ(answers, name) and any(_matters(answer, name) for answer in answers)
    ]
    chosen = dict.fromkeys(name for answer in answers for name in answer.chosen)
    assumed = {name for answer in answers for name in answer.assumed}
    lines = [f"all: {', '.join(parts)}"] if parts else []
    if chosen:
        lines.append(
            f"{CHOSEN} chosen, {TAKEN[first.preferred]}: {', '.join(chosen)}".replace("_", " ")
        )
    if assumed:
        lines.append(f"{ASSUMED} default")
    return [style.wrap(line) for line in lines]


def _notes_of_case(case: Sequence[TrainAnswer]) -> list[str]:
    first = case[0]
    name = first.label or f"{first.model} on {_where(first)}"
    notes = [f"{name}: no: {reason}" for reason in first.reasons]
    notes += [f"{name}: warning: {warning}" for warning in first.warnings]
    notes += [f"{name}: {note}" for answer in case for note in answer.notes]
    return [*notes, f"{first.instance}: {_calibration(first)}"]


def _case(case: Sequence[TrainAnswer], plot: bool, style: Style) -> list[str]:
    """Return the blocks of one case: its answers differ in the engine only."""
    first = case[0]
    blocks = [headline_of(case, style), layout_of_answer(first, style)]
    if first.step is not None:
        blocks.append(time_table(case, style))
    if first.phases:
        blocks.append(phases_table(first, style))
    elif first.memory is not None:
        blocks.append(memory_table(first.memory, style))
    if plot and first.feasible:
        blocks.append(_gantt(case, style))
    told = dict.fromkeys(note for answer in case for note in answer.notes)
    notes = [*(f"warning: {warning}" for warning in first.warnings), *told]
    if first.step is not None:
        frozen = f"; {OF_FROZEN}" if first.layout["adapter_rank"] else ""
        notes.append(f"MFU: {MFU}{frozen}; HFU: {HFU}.")
    notes.append(f"{_calibration(first)}.")
    blocks += [style.lines(notes), assumed_block(first.assumptions, style)]
    return [block for block in blocks if block]


def _where(answer: TrainAnswer) -> str:
    return f"{counted(answer.nodes, 'node')} of {answer.instance}"


def _calibration(answer: TrainAnswer) -> str:
    how = {
        "measured": "fitted to measured steps of these chips",
        "transferred": "carried over: fitted to no step of this instance and kind of model",
        "assumed": "assumed: fitted to no measured step",
    }
    basis = how.get(answer.basis, answer.basis)
    past = f"; beyond its rows: {', '.join(answer.beyond_rows)}" if answer.beyond_rows else ""
    return f"stack {answer.software}, {basis}{past}; weakest evidence: {answer.evidence.word}"


def headline_of(case: Sequence[TrainAnswer], style: Style) -> str:
    """Return the time and memory of a step in a few lines, or the reasons against it."""
    first = case[0]
    cluster = f"{counted(first.chips, 'chip')}, {counted(first.ranks, 'rank')}"
    title = style.strong(f"{first.model} on {_where(first)} ({cluster})")
    if not first.feasible:
        reasons = [style.wrap(f"no: {reason}") for reason in first.reasons]
        return "\n".join([title, *reasons])
    if len(case) == 1 and first.step is not None:
        return "\n".join([title, *(style.wrap(f) for f in _figures(first, first.step))])
    engines = [
        style.wrap(f"{answer.engine}: {'; '.join(_figures(answer, answer.step))}")
        for answer in case
        if answer.step is not None
    ]
    return "\n".join([title, *engines])


def _figures(answer: TrainAnswer, step: StepFigures) -> list[str]:
    row = answer.row()
    scale = step_scale(step.step_time_s)

    def seconds(value: float) -> str:
        return show(value, Dimension.SECONDS, digits=3, scale=scale)

    def share(value: float) -> str:
        return f"{significant(100 * value, 3)} %"

    def span(name: str, text: Callable[[float], str]) -> str:
        low, high = row[f"low_{name}"], row[f"high_{name}"]
        return f"({text(low)} to {text(high)})"  # type: ignore[arg-type]

    time = show(step.step_time_s, Dimension.SECONDS, scale=scale)
    tokens = row["tokens_per_s"]
    samples = "pairs" if answer.layout["job"] in PAIRED else "sequences"
    rates = [f"{significant(answer.per_s(step.step_time_s))} {samples}/s"]
    if isinstance(tokens, float):
        ends = span("tokens_per_s", lambda value: show(value, Dimension.COUNT, digits=3))
        rates.insert(0, f"{tokens:,.0f} tokens/s {ends}")
    headline = f", {share(step.mfu_headline)} of headline" if step.mfu_headline else ""
    return [
        f"{time} per step {span('step_time_s', seconds)}, 80 % interval",
        ", ".join(rates),
        f"MFU {share(step.mfu)} {span('mfu', share)}{headline}; HFU {share(step.hfu)}",
    ]


def layout_of_answer(answer: TrainAnswer, style: Style) -> str:
    """Return the layout in a few lines, with what was chosen and what took its default."""
    lines = []
    for heading, names in _LINES.items():
        parts = [
            f"{KNOBS[name].title} {_value(answer.layout[name])}{_mark(answer, name)}"
            f"{_PURE if (name, answer.layout[name]) == PURE_BF16 else ''}"
            for name in names
            if _matters(answer, name)
        ]
        if heading == "degrees" and answer.logical_size is not None:
            parts.append(f"logical core size {answer.logical_size}")
        if parts:
            wrapped = style.wrap(", ".join(parts), " " * 9)
            lines.append(f"{heading:<9}{wrapped.lstrip()}")
    searched = answer.searched
    if searched is not None and answer.chosen:
        fitting = counted(searched.feasible, "layout")
        which = "simplest nearly as fast" if answer.preferred == "simple" else "fastest"
        of = f"{which} of {fitting} that fit in memory, of {searched.legal:,} valid"
        lines.append(f"{'':9}{CHOSEN} chosen: {of}")
        indent = " " * 11
        lines += [f"{indent}{style.wrap(one, indent).lstrip()}" for one in why_lines(answer)]
    elif searched is not None and searched.legal:
        nearest = f"none of {counted(searched.legal, 'valid layout')} fits; this is nearest"
        lines.append(f"{'':9}{nearest}")
    if answer.assumed:
        lines.append(f"{'':9}{ASSUMED} default")
    return "\n".join(lines)


def _matters(answer: TrainAnswer, name: str) -> bool:
    """Return whether a knob is worth a word: it has a value, and that changes what is done."""
    knob, layout = KNOBS[name], answer.layout
    if layout[name] is None:
        return False
    if name == "job" or knob.of_jobs:
        return layout[name] != knob.default
    if answer.tokens_per_sample is None and knob.part == "layers" and name not in RANK_DEGREES:
        return bool(knob.searched and layout[name] != knob.default)
    return knob.searched or not knob.acts_with or any(layout.degree(d) > 1 for d in knob.acts_with)


def _mark(answer: TrainAnswer, name: str) -> str:
    if name in answer.chosen:
        return CHOSEN
    return ASSUMED if name in answer.assumed else ""


def _value(value: object) -> str:
    match value:
        case bool():
            return "on" if value else "off"
        case int():
            return f"{value:,}"
        case float():
            return significant(value)
        case _:
            return str(value)


def _gantt(case: Sequence[TrainAnswer], style: Style) -> str:
    from trnbench.show.charts.text import chart_text
    from trnbench.verbs.train.schedule_chart import schedule_figure

    played = next((answer.timeline for answer in case if answer.timeline is not None), None)
    return "" if played is None else chart_text(schedule_figure(played), style)
