"""Collectives as people and machines read them: sweep table, link loads, plot, trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trnbench.facts.records import replace
from trnbench.facts.units import Dimension, counted, show
from trnbench.show.charts.record import PointChart, Series, axis_of
from trnbench.show.charts.text import first_chart
from trnbench.show.drawing import loaded_torus
from trnbench.show.faster import faster_text
from trnbench.show.report import Report, columns, draw_rows
from trnbench.show.text_table import Style
from trnbench.show.trace import trace
from trnbench.verbs.collective.answer import CollectiveAnswer

MIB = 2**20
BUSIEST = 12
"""Links that the list of the busiest holds."""


def collective_report(
    answers: Sequence[CollectiveAnswer],
    inputs: Mapping[str, object],
    *,
    links: bool = False,
    plot: bool = False,
) -> Report:
    """Return the report of some collectives, a row each."""
    several = len({(a.op, a.instance, a.nodes) for a in answers}) > 1
    together = any(a.together_s for a in answers)
    busbw = busbw_chart(answers)
    return Report(
        verb="collective",
        inputs=inputs,
        rows=tuple(answer.row(links=links) for answer in answers),
        columns=(
            *(columns("op", "instance", "nodes") if several else ()),
            *columns("size_bytes"),
            *columns("elements", "dtype", "engine", spare=True),
            *columns("time_s", *(["together_s"] if together else [])),
            *columns("algbw_bytes_per_s", "busbw_bytes_per_s"),
            *columns("of_bound", spare=True),
            *columns("algorithm", *(["check"] if any(a.check for a in answers) else [])),
        ),
        summary={
            "busbw": "algbw x 2(r-1)/r for all-reduce, x (r-1)/r for all-gather, reduce-scatter "
            "and all-to-all, x 1 for the others; r: ranks of the group",
            "verdict": collective_verdict(answers),
            "feasible": sum(answer.feasible for answer in answers),
            "rows": len(answers),
        },
        people=lambda report, style: _draw(report, answers, links, plot, style),
        charts=(busbw,) if busbw.drawn else (),
    )


def collective_verdict(answers: Sequence[CollectiveAnswer]) -> str:
    """Sentence of the cluster that is faster at the largest size and at 1 MiB."""
    timed = [answer for answer in answers if answer.time_s and answer.engine == answers[0].engine]
    if not timed:
        return ""
    sizes = sorted({answer.size_bytes for answer in timed})
    small = MIB if MIB in sizes else sizes[0]
    ops = dict.fromkeys(answer.op for answer in timed)
    clusters = {(answer.instance, answer.nodes) for answer in timed}
    names = [instance for instance, _ in clusters]
    sentences = []
    for op in ops:
        for size in dict.fromkeys((sizes[-1], small)):
            of = f"{op} of " if len(ops) > 1 else ""
            what = f"{of}{show(size, Dimension.BYTES)}"
            for answer in timed:
                alone = names.count(answer.instance) == 1
                who = answer.instance if alone else f"{answer.instance}:{answer.nodes}"
                if (answer.op, answer.size_bytes) == (op, size):
                    sentences.append((who, what, answer.time_s or 0.0))
    return faster_text(sentences)


def collective_trace(answers: Sequence[CollectiveAnswer]) -> bytes:
    return trace([span for answer in answers for span in answer.spans])


def _draw(
    report: Report, answers: Sequence[CollectiveAnswer], links: bool, plot: bool, style: Style
) -> str:
    several = len({(a.op, a.instance, a.nodes, a.ranks, a.group_size) for a in answers}) > 1
    what = "several collectives" if several else _heading(answers[0])
    heading = f"{what}; GB/s are 1e9 bytes/s"
    # The clusters stand side by side at each size; machines read them as asked.
    order = sorted(range(len(answers)), key=lambda n: (answers[n].op, answers[n].size_bytes))
    table = replace(report, rows=tuple(report.rows[n] for n in order))
    blocks = [style.strong(heading), draw_rows(table, style)]
    notes = dict.fromkeys(note for answer in answers for note in _notes(answer))
    if notes:
        blocks.append(style.lines(notes))
    if sentence := collective_verdict(answers):
        blocks.append(style.strong(style.wrap(sentence)))
    if links:
        largest = {(a.op, a.instance, a.nodes): a for a in answers if a.links}
        blocks += [_link_block(answer, style) for answer in largest.values()]
    if plot:
        blocks.append(first_chart(report, style))
    return "\n\n".join(blocks)


def _heading(answer: CollectiveAnswer) -> str:
    where = f"{answer.op} on {counted(answer.nodes, 'node')} of {answer.instance}"
    if not answer.group_size:
        return where
    groups = counted(answer.ranks // answer.group_size, "group")
    return f"{where}: {groups} of {counted(answer.group_size, 'rank')}"


def _notes(answer: CollectiveAnswer) -> list[str]:
    notes = [f"no: {reason}" for reason in answer.reasons]
    notes += [f"warning: {warning}" for warning in answer.warnings]
    notes += [f"{answer.algorithm}, not {other}" for other in answer.passed_over]
    if answer.feasible:
        notes.append(f"{answer.instance}: calibration {answer.stack}, {answer.evidence.word}")
    return notes


def _link_block(answer: CollectiveAnswer, style: Style) -> str:
    size = show(answer.size_bytes, Dimension.BYTES)
    rows = (
        (link.name, link.level, f"{100 * link.busy:.1f}%", show(link.size_bytes, Dimension.BYTES))
        for link in answer.links[:BUSIEST]
    )
    table = style.table(("link", "level", ">busy", ">carried"), rows, "  ")
    heading = f"Busiest of {len(answer.links)} links, {answer.op} of {size} on {answer.instance}"
    drawn = [
        f"{torus.name}: share of the time each link is busy, the busier direction, %\n"
        + "\n".join(f"    {line}" for line in loaded_torus(torus.shape, torus.right, torus.below))
        for torus in answer.tori
    ]
    return "\n\n".join([style.strong(heading), table, *drawn])


def busbw_chart(
    answers: Sequence[CollectiveAnswer],
    asked: Sequence[str] = (),
    here: tuple[CollectiveAnswer, str] | None = None,
) -> PointChart:
    """Bus bandwidth over size: a line a cluster and engine, whatever algorithm each size takes.

    `asked` are the algorithms asked for, one an answer, where a chart has several. The line of
    `here`, an answer and its algorithm, is drawn boldly.
    """
    wanted = asked or [""] * len(answers)
    keys = ("op", "instance", "nodes", "engine")
    several = {key for key in keys if len({getattr(a, key) for a in answers}) > 1}

    def line_of(answer: CollectiveAnswer, algorithm: str) -> str:
        names = [answer.op] if "op" in several else []
        names.append(f"{answer.instance}:{answer.nodes}")
        names += [answer.engine] if "engine" in several else []
        return " ".join([*names, *([algorithm] if algorithm not in ("", "auto") else [])])

    lines: dict[str, list[tuple[float, float]]] = {}
    for answer, algorithm in zip(answers, wanted, strict=True):
        points = lines.setdefault(line_of(answer, algorithm), [])
        if answer.feasible and answer.busbw_bytes_per_s:
            points.append((answer.size_bytes, answer.busbw_bytes_per_s))
    strong = None if here is None else line_of(*here)
    series = [
        Series(label=label, points=tuple(points), joined=True, strong=label == strong)
        for label, points in lines.items()
    ]
    ops = dict.fromkeys(answer.op for answer in answers)
    refused = [line.label for line in series if not line.points]
    every = [point for line in series for point in line.points]
    return PointChart(
        title=f"bus bandwidth over size: {', '.join(ops)}",
        caption="GB/s are 1e9 bytes/s",
        x=axis_of("size", Dimension.BYTES, [x for x, _ in every], kind="binary"),
        y=axis_of("busbw", Dimension.BYTES_PER_S, [y for _, y in every]),
        series=tuple(series),
        missing=f"cannot run: {', '.join(refused)}" if refused else "",
    )
