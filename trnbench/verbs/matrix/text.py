"""Matrix products as people and machines read them: table, roofline, trace, bare array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trnbench.engines.analytic.matrix.systolic import ArrayConventions, ArrayTime
from trnbench.engines.analytic.matrix.time import roofline
from trnbench.engines.emulate.tensor_engine.matrix import OUTPUT_ROOM
from trnbench.facts.units import Dimension, counted, show, significant
from trnbench.facts.workload.library import Product
from trnbench.show.charts.record import ChartAxis, PointChart, Series, axis_of
from trnbench.show.charts.text import first_chart
from trnbench.show.faster import faster_text
from trnbench.show.report import Report, columns, draw_rows
from trnbench.show.row import Row, cells
from trnbench.show.text_table import Style
from trnbench.show.trace import TraceSpan, trace
from trnbench.verbs.matrix.run import MatrixAnswer

AGREE = 0.1
"""Engines that are further apart than this on a product do not agree on it."""


def matrix_report(
    answers: Sequence[MatrixAnswer], inputs: Mapping[str, object], *, plot: bool = False
) -> Report:
    """Return the report of some products, a row each; `plot` adds rooflines for people."""
    checked = any(answer.numbers for answer in answers)
    reached = any(answer.sheet_s is not None for answer in answers)
    roofs = roofline_chart(answers)
    last = ("rms_relative_error", "bound_use", "check") if checked else ()
    return Report(
        verb="matrix",
        inputs=inputs,
        rows=tuple(answer.row() for answer in answers),
        columns=(
            *columns("shape", "chip", "dtype"),
            *columns("kernels"),
            *columns("engine", "cores", spare=True),
            *columns("time_s", "flop_per_s", "utilization"),
            *(columns("sheet_flop_per_s") if reached else ()),
            *columns("bytes", spare=True),
            *columns("binds"),
            *(columns(*last) if checked else columns("evidence", spare=True)),
        ),
        summary={
            "utilization_of": "tensor-unit peak of the format, without the vendor's headline",
            "feasible": sum(answer.feasible for answer in answers),
            "rows": len(answers),
        },
        notes=(
            *dict.fromkeys(note for answer in answers for note in _notes(answer)),
            *_engines_apart(answers),
        ),
        people=lambda report, style: _draw(report, tuple(answers), plot, style),
        charts=(roofs,) if roofs.drawn else (),
    )


def matrix_verdict(answers: Sequence[MatrixAnswer]) -> str:
    """Sentence of the chip, or cores of it, that is faster at the first and the last product."""
    timed = [one for one in answers if one.feasible and one.engine == answers[0].engine]
    what = [f"{one.shape} {one.number_format}" for one in timed]
    wanted = {*what[:1], *what[-1:]}
    who = [
        one.chip if one.kernel is None else f"{one.chip} ({counted(one.cores, 'core')})"
        for one in timed
    ]
    told = zip(who, what, (one.time_s for one in timed), strict=True)
    return faster_text((one for one in told if one[1] in wanted), named=True)


def matrix_trace(answers: Sequence[MatrixAnswer]) -> bytes:
    """Return the Perfetto trace of what was played, a track an engine."""
    return trace(
        [
            TraceSpan(
                process=f"{answer.chip} core 0, {answer.kernel}",
                lane=event.engine,
                name=event.name,
                start_s=event.start_s,
                end_s=event.end_s,
            )
            for answer in answers
            for event in answer.events
        ]
    )


def systolic_report(
    products: Sequence[Product], times: Sequence[ArrayTime], conventions: ArrayConventions
) -> Report:
    """Return the report of some products on an array, a row each."""
    return Report(
        verb="matrix-array",
        inputs=cells(conventions, "rows columns dataflow overlap count_from_zero"),
        rows=tuple(_array_row(p, time) for p, time in zip(products, times, strict=True)),
        columns=(
            *columns("shape", "folds", "cycles_per_fold", "cycles"),
            *columns("utilization", "mapping_efficiency", "compute_utilization"),
        ),
        notes=(
            "nothing overlaps: each fold loads, streams and drains; cycles are counted from 0, as "
            "SCALE-Sim does",
        ),
    )


def _array_row(product: Product, time: ArrayTime) -> Row:
    return {
        "shape": f"{product.m}x{product.k}x{product.n}",
        **cells(product, "m k n batch"),
        "folds": int(time.folds),
        "cycles_per_fold": int(time.cycles_per_fold),
        "cycles": int(time.cycles),
        "utilization": float(time.overall_utilization),
        "mapping_efficiency": float(time.mapping_efficiency),
        "compute_utilization": float(time.compute_utilization),
    }


def _notes(answer: MatrixAnswer) -> list[str]:
    notes = [f"no: {reason}" for reason in answer.reasons]
    if answer.kernels is None and answer.feasible:
        notes.append(
            f"{answer.chip}: as kernels timed alone reach it; by data sheet: the same tiles and "
            "waves at peak rates"
        )
    return notes


def _engines_apart(answers: Sequence[MatrixAnswer]) -> list[str]:
    """Return where the two engines disagree on a product, or how closely they agree on all."""
    by_engine = {
        (answer.product, answer.chip, answer.number_format, answer.engine): answer
        for answer in answers
        if answer.feasible
    }
    pairs = [
        (answer, by_engine[played])
        for answer in answers
        if answer.feasible
        and answer.engine == "analytic"
        and (played := (answer.product, answer.chip, answer.number_format, "emulate")) in by_engine
    ]
    apart = [closed.time_s / played.time_s - 1 for closed, played in pairs]
    notes = [
        f"the engines do not agree on {closed.shape} {closed.number_format} on {closed.chip}: the "
        f"closed form takes {show(closed.time_s, Dimension.SECONDS)} ({closed.binds} binds), "
        f"{100 * by:+.0f} % of the simulated {show(played.time_s, Dimension.SECONDS)}. There the "
        f"tensor engine waits for {_longest(played)}"
        for (closed, played), by in zip(pairs, apart, strict=True)
        if abs(by) > AGREE
    ]
    if pairs and not notes:
        notes = [f"the engines agree within {100 * max(map(abs, apart)):.1f} %"]
    return notes


def _longest(played: MatrixAnswer) -> str:
    cause, time_s = max(played.stalls_s.items(), key=lambda stall: stall[1])
    return f"{cause} {significant(100 * time_s / played.time_s, 3)}%"


def _draw(report: Report, answers: tuple[MatrixAnswer, ...], plot: bool, style: Style) -> str:
    blocks = [draw_rows(report, style)]
    blocks += ["\n".join(report.notes)] if report.notes else []
    blocks += [_stalls(answer) for answer in answers if answer.stalls_s and answer.feasible]
    if told := matrix_verdict(answers):
        blocks.append(style.strong(style.wrap(told)))
    if plot:
        blocks.append(first_chart(report, style))
    return "\n\n".join(blocks)


def _stalls(answer: MatrixAnswer) -> str:
    product = answer.product
    waits = [
        f"{cause} {significant(100 * time_s / answer.time_s, 3)}%"
        for cause, time_s in answer.stalls_s.items()
        if time_s > 0 and cause != OUTPUT_ROOM
    ]
    busy = [
        f"{name} {significant(100 * share, 3)}%"
        for name, share in answer.engine_utilization.items()
        if not name.startswith("dma ") and share > 0
    ]
    dma = [share for name, share in answer.engine_utilization.items() if name.startswith("dma ")]
    if dma:
        busy.append(f"dma engines {significant(100 * sum(dma) / len(dma), 3)}% on average")
    shape = f"{product.m}x{product.k}x{product.n} {answer.number_format} on {answer.chip}"
    waiting = ", ".join(waits) or "nothing"
    lines = [f"{shape}: busy {', '.join(busy)}", f"  tensor engine waits for: {waiting}"]
    room_s = answer.stalls_s.get(OUTPUT_ROOM, 0.0)
    if room_s > 0:
        share = significant(100 * room_s / answer.time_s, 3)
        lines.append(f"  copies out of PSUM wait for room in SBUF: {share}%")
    return "\n".join(lines)


def roofline_chart(answers: Sequence[MatrixAnswer], here: MatrixAnswer | None = None) -> PointChart:
    """Rate over intensity: products under the roof of their chip in their format."""
    feasible = [answer for answer in answers if answer.feasible]
    series = []
    under = None if here is None else (here.chip, here.number_format)
    for hue, kind in enumerate(dict.fromkeys((a.chip, a.number_format) for a in feasible)):
        mine = [a for a in feasible if (a.chip, a.number_format) == kind]
        peak, fed = mine[0].peak_flop_per_s, mine[0].memory_bytes_per_s
        ridge = peak / fed
        reached = [ridge, *(a.intensity_flop_per_byte for a in mine)]
        ends = (min(reached) / 2, ridge, max(reached) * 2)
        series.append(
            Series(
                label=f"{' '.join(kind)}, ridge at {significant(ridge, 3)} FLOP/byte",
                points=tuple((x, float(roofline(x, peak, fed))) for x in ends),
                joined=True,
                marked=False,
                hue=hue,
            )
        )
        for engine in dict.fromkeys(a.engine for a in mine):
            points = [(a.intensity_flop_per_byte, a.flop_per_s) for a in mine if a.engine == engine]
            label = f"{' '.join(kind)}, {engine}"
            strong = under == kind
            series.append(Series(label=label, points=tuple(points), strong=strong, hue=hue))
    if here is not None and here.feasible:
        at = (here.intensity_flop_per_byte, here.flop_per_s)
        series.append(Series(label=f"{here.shape} on {here.chip}", points=(at,)))
    rates = [y for one in series for _, y in one.points]
    return PointChart(
        title="rate over intensity: points under the roofs of their chips",
        caption="a roof is the lower of the tensor units' peak and what memory feeds",
        x=ChartAxis(title="FLOP per byte of memory traffic", kind="log"),
        y=axis_of("rate", Dimension.FLOP_PER_S, rates),
        series=tuple(series),
    )
