"""A run with real numbers as people and machines read it: losses, modelled cost, accounting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trnbench.engines.analytic.step.memory_parts import CATEGORIES
from trnbench.facts.records import asdict, replace
from trnbench.facts.units import Dimension, counted, show, significant
from trnbench.facts.workload.layout import RANK_DEGREES
from trnbench.show.charts.record import ChartAxis, PointChart, Series
from trnbench.show.charts.text import first_chart
from trnbench.show.report import Report, columns, draw_rows
from trnbench.show.row import Row, cells
from trnbench.show.text_table import Style
from trnbench.verbs.train.functional import FunctionalRun

FEW_STEPS = 10
"""Rows people see of a longer run; machines get all."""

NOTES = {
    "loss": "mean cross entropy of a token in nats, before the step's update",
    "modelled_time_s": "of all steps so far on the instance, from the closed-form step time",
    "traffic": "bytes sent by all ranks; a collective goes round the ring of its group",
    "memory": "bytes of a rank in the formats of the recipe, not of this machine. The model adds "
    "up the peak of each category, which need not coincide. It agrees if it is between the two, "
    "within 2 %",
}


def functional_report(
    run: FunctionalRun, inputs: Mapping[str, object], *, plot: bool = True
) -> Report:
    """Return the report of a run, a row a step; for people with the curve of losses."""
    return Report(
        verb="train",
        inputs=inputs,
        rows=run.rows(),
        columns=columns("step", "loss", "tokens", "modelled_time_s", "modelled_cost_usd"),
        summary=_summary(run),
        people=lambda report, style: _draw(report, run, plot, style),
        charts=(loss_chart({"": run.losses}),) if len(run.losses) > 1 else (),
    )


def _summary(run: FunctionalRun) -> dict[str, object]:
    source, target, sent = run.busiest_link or (None, None, None)
    return {
        "conventions": NOTES,
        "feasible": not run.reasons,
        **cells(run, "reasons notes warnings=answer.warnings model=answer.model"),
        **cells(run, "instance=answer.instance task setting=answer.layout.plain"),
        **cells(run, "step_time_s=answer.step.step_time_s usd_per_hour region"),
        **cells(run, "resumed_steps=resumed measured_steps=measured interrupted"),
        "final_loss": run.losses[-1] if run.losses else None,
        "agrees": run.agrees,
        "traffic": [{**asdict(line), "agrees": line.agrees} for line in run.traffic],
        "flop": [{**asdict(line), "agrees": line.agrees} for line in run.flop],
        "memory": [
            {
                **cells(stage, "stage=role measured_bytes=peaks_bytes model_bytes"),
                "measured_at_once_bytes": stage.peak_bytes,
                "measured": dict(stage.by_category),
                "model": dict(stage.model_by_category),
                "agrees": stage.agrees,
            }
            for stage in run.stages
        ],
        "busiest_link": {"from_rank": source, "to_rank": target, "sent_bytes": sent},
    }


def _draw(report: Report, run: FunctionalRun, plot: bool, style: Style) -> str:
    answer = run.answer
    title = f"{answer.model} with real numbers, on {answer.nodes} x {answer.instance}"
    blocks = [style.strong(title)]
    if run.reasons:
        blocks.append(style.lines(f"no: {reason}" for reason in run.reasons))
        return "\n".join(blocks)
    blocks.append(style.lines(_headline(run)))
    if plot and len(run.losses) > 1:
        blocks.append(first_chart(report, style))
    blocks.append(_steps(report, style))
    if run.measured:
        blocks += [_traffic(run, style), _flop(run, style), _memory(run, style)]
    notes = [*(f"warning: {warning}" for warning in answer.warnings), *run.notes]
    if notes:
        blocks.append(style.lines(notes))
    return "\n\n".join(blocks)


def _headline(run: FunctionalRun) -> list[str]:
    layout, last = run.answer.layout, run.rows()[-1]
    spread = [f"{name} {layout[name]}" for name in RANK_DEGREES if layout.degree(name) > 1]
    lines = [
        f"{', '.join(spread) or 'one rank'}; {layout['precision']}, zero {layout['zero']}, "
        f"schedule {layout['schedule']}; "
        f"{run.tokens_per_step:,} tokens per step ({run.task} text, seed {run.seed})",
        f"loss {run.losses[0]:.4f} -> {run.losses[-1]:.4f} in {counted(len(run.losses), 'step')}",
    ]
    time_s, cost = last["modelled_time_s"], last["modelled_cost_usd"]
    if isinstance(time_s, float):
        price = "no published price"
        if isinstance(cost, float):
            price = f"{significant(cost)} USD on demand in {run.region}"
        lines.append(f"on the instance: {show(time_s, Dimension.SECONDS)} (modelled), {price}")
    if run.resumed:
        lines.append(f"{counted(run.resumed, 'step')} came from a checkpoint")
    return lines


def loss_chart(losses: Mapping[str, Sequence[float]], of: str = "") -> PointChart:
    """Losses over steps, a line each name; `of` says in the caption what they are means of."""
    return PointChart(
        title="loss by step",
        caption=f"cross entropy per token, nats{of}",
        x=ChartAxis(title="step"),
        y=ChartAxis(title="loss"),
        series=tuple(
            Series(
                label=name,
                points=tuple((float(step), float(loss)) for step, loss in enumerate(curve, 1)),
                joined=True,
                marked=False,
            )
            for name, curve in losses.items()
        ),
    )


def _steps(report: Report, style: Style) -> str:
    rows = report.rows
    shown: Sequence[Row] = rows
    if len(rows) > FEW_STEPS:
        at = {round(i * (len(rows) - 1) / (FEW_STEPS - 1)) for i in range(FEW_STEPS)}
        shown = [rows[i] for i in sorted(at)]
    return draw_rows(replace(report, rows=tuple(shown)), style)


def _traffic(run: FunctionalRun, style: Style) -> str:
    cells = [
        (
            line.operation,
            line.axis,
            f"{line.runs:,}",
            f"{line.program_runs:,}",
            show(line.sent_bytes, Dimension.BYTES),
            show(line.program_bytes, Dimension.BYTES),
            _verdict(agrees=line.agrees),
        )
        for line in run.traffic
    ]
    headings = ("exchange", "axis", ">runs", ">program", ">sent", ">program", "")
    drawn = style.table(headings, cells)
    if run.busiest_link is None:
        return drawn
    source, target, sent = run.busiest_link
    busiest = f"busiest link: rank {source} to {target}, {show(sent, Dimension.BYTES)}"
    return f"{drawn}\n{busiest}"


def _flop(run: FunctionalRun, style: Style) -> str:
    cells = [
        (
            line.number_format,
            show(float(line.flop), Dimension.FLOP),
            show(line.program_flop, Dimension.FLOP),
            _verdict(agrees=line.agrees),
        )
        for line in run.flop
    ]
    return style.table(("products in", ">carried out", ">program", ""), cells)


def _memory(run: FunctionalRun, style: Style) -> str:
    cells = []
    for stage in run.stages:
        for name in CATEGORIES:
            pair = stage.by_category.get(name, 0.0), stage.model_by_category.get(name, 0.0)
            if any(pair):
                cells.append((stage.role, name, *(show(n, Dimension.BYTES) for n in pair), ""))
        pair = stage.peaks_bytes, stage.model_bytes
        sizes = (show(n, Dimension.BYTES) for n in pair)
        cells.append((stage.role, "all peaks", *sizes, _verdict(agrees=stage.agrees)))
        cells.append((stage.role, "at one time", show(stage.peak_bytes, Dimension.BYTES), "", ""))
    return style.table(("stage", "a rank holds", ">measured", ">model", ""), cells)


def _verdict(*, agrees: bool) -> str:
    return "agrees" if agrees else "DIFFERS"
