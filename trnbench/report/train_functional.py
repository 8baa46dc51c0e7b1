"""A run with real numbers as people and machines read it: losses, modelled cost, accounting."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from trnbench.analytic.memory import CATEGORIES
from trnbench.emulate.functional.accounting import Line
from trnbench.report.plot import Axis, Series, log_plot
from trnbench.report.report import Column, Report, Row
from trnbench.report.text_table import Style, TextTable, counted, draw, wrap
from trnbench.report.train_answer import TrainAnswer
from trnbench.units import Dimension, show, significant

FEW_STEPS = 10
"""Rows people see of a longer run; machines get all."""
AGREEMENT = 0.02
"""By how much the memory model may miss what was measured."""

NOTES = {
    "loss": "mean cross entropy of a token in nats, before the step's update",
    "modelled_time_s": "of all steps so far on the instance, from the closed-form step time",
    "traffic": "bytes sent by all ranks; a collective goes round the ring of its group",
    "memory": "bytes of a rank in the formats of the recipe, not of this machine; the model adds "
    "up the peak of each category, which need not come at one time: it agrees where it lies "
    "between the two, give or take 2 %",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatFlop:
    """Operations of all steps over all ranks on operands of a format."""

    number_format: str
    flop: int
    program_flop: float

    @property
    def agrees(self) -> bool:
        """Whether both figures are the same."""
        return self.flop == self.program_flop


@dataclass(frozen=True, slots=True, kw_only=True)
class StageHeld:
    """What a rank of one class of stages held at most, measured and as the memory model says.

    `peaks_bytes` adds up the peak of each category, as the model does; `peak_bytes` is what was
    there at one time.
    """

    role: str
    by_category: Mapping[str, float]
    model_by_category: Mapping[str, float]
    peak_bytes: float

    @property
    def peaks_bytes(self) -> float:
        """The peaks of all categories."""
        return sum(self.by_category.values())

    @property
    def model_bytes(self) -> float:
        """What the memory model says."""
        return sum(self.model_by_category.values())

    @property
    def agrees(self) -> bool:
        """Whether the model lies between what was there at one time and the peaks added up."""
        above = self.peak_bytes <= self.model_bytes * (1 + AGREEMENT)
        return above and self.peaks_bytes >= self.model_bytes * (1 - AGREEMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionalRun:
    """Some training steps with real numbers; `reasons` tell why there are none.

    `answer` is the modelled step on the instance; `resumed` counts the steps that a checkpoint
    brought, `measured` those that this run carried out and measured. Without a published price
    `usd_per_hour` (of all instances) is None.
    """

    answer: TrainAnswer
    task: str
    seed: int
    losses: tuple[float, ...]
    tokens_per_step: int
    resumed: int = 0
    measured: int = 0
    usd_per_hour: float | None = None
    region: str | None = None
    traffic: tuple[Line, ...] = ()
    flop: tuple[FormatFlop, ...] = ()
    stages: tuple[StageHeld, ...] = ()
    busiest_link: tuple[int, int, float] | None = None
    notes: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    interrupted: bool = False

    @property
    def agrees(self) -> bool:
        """Whether all that was measured is what the program and the models say."""
        parts: tuple[Line | FormatFlop | StageHeld, ...] = (
            *self.traffic,
            *self.flop,
            *self.stages,
        )
        return all(part.agrees for part in parts)

    def rows(self) -> tuple[Row, ...]:
        """Return a row for each step."""
        step = self.answer.step
        return tuple(
            self._row(i + 1, loss, step.step_time_s if step else None)
            for i, loss in enumerate(self.losses)
        )

    def _row(self, number: int, loss: float, step_s: float | None) -> Row:
        time_s = None if step_s is None else number * step_s
        per_hour = self.usd_per_hour
        cost = None if time_s is None or per_hour is None else per_hour * time_s / 3600
        return {
            "step": number,
            "loss": loss,
            "tokens": number * self.tokens_per_step,
            "modelled_time_s": time_s,
            "modelled_cost_usd": cost,
        }


def functional_report(
    run: FunctionalRun, inputs: Mapping[str, object], *, plot: bool = True
) -> Report:
    """Return the report of a run, a row a step; for people with the curve of losses."""
    report = Report(
        verb="train",
        inputs=inputs,
        rows=run.rows(),
        columns=(
            Column(key="step", title="step"),
            Column(key="loss", title="loss", digits=6),
            Column(key="tokens", title="tokens"),
            Column(key="modelled_time_s", title="modelled time", dimension=Dimension.SECONDS),
            Column(key="modelled_cost_usd", title="modelled USD"),
        ),
        summary=_summary(run),
    )
    return replace(report, people=functools.partial(_draw, run, plot))


def _summary(run: FunctionalRun) -> dict[str, object]:
    source, target, sent = run.busiest_link or (None, None, None)
    return {
        "conventions": NOTES,
        "feasible": not run.reasons,
        "reasons": run.reasons,
        "notes": run.notes,
        "warnings": run.answer.warnings,
        "model": run.answer.model,
        "instance": run.answer.instance,
        "task": run.task,
        "setting": run.answer.setting.plain,
        "step_time_s": run.answer.step.step_time_s if run.answer.step else None,
        "usd_per_hour": run.usd_per_hour,
        "region": run.region,
        "resumed_steps": run.resumed,
        "measured_steps": run.measured,
        "interrupted": run.interrupted,
        "final_loss": run.losses[-1] if run.losses else None,
        "agrees": run.agrees,
        "traffic": [{**asdict(line), "agrees": line.agrees} for line in run.traffic],
        "flop": [{**asdict(line), "agrees": line.agrees} for line in run.flop],
        "memory": [
            {
                "stage": stage.role,
                "measured_bytes": stage.peaks_bytes,
                "model_bytes": stage.model_bytes,
                "measured_at_once_bytes": stage.peak_bytes,
                "measured": dict(stage.by_category),
                "model": dict(stage.model_by_category),
                "agrees": stage.agrees,
            }
            for stage in run.stages
        ],
        "busiest_link": {"from_rank": source, "to_rank": target, "sent_bytes": sent},
    }


def _draw(run: FunctionalRun, plot: bool, style: Style) -> str:
    answer = run.answer
    title = f"{answer.model} with real numbers, on {answer.nodes} x {answer.instance}"
    blocks = [style.strong(title)]
    if run.reasons:
        blocks.append("\n".join(wrap(f"no: {reason}", style.width, "") for reason in run.reasons))
        return "\n".join(blocks)
    blocks.append("\n".join(wrap(line, style.width, "") for line in _headline(run)))
    if plot and len(run.losses) > 1:
        blocks.append(_curve(run, style))
    blocks.append(_steps(run, style))
    if run.measured:
        blocks += [_traffic(run, style), _flop(run, style), _memory(run, style)]
    notes = [*(f"warning: {warning}" for warning in answer.warnings), *run.notes]
    if notes:
        blocks.append("\n".join(wrap(note, style.width, "") for note in notes))
    return "\n\n".join(blocks)


def _headline(run: FunctionalRun) -> list[str]:
    setting, last = run.answer.setting, run.rows()[-1]
    degrees = ("tp", "pp", "dp", "cp", "ep", "vpp")
    given = [f"{name} {getattr(setting, name)}" for name in degrees if getattr(setting, name) > 1]
    layout = ", ".join(given) or "one rank"
    lines = [
        f"{layout}; {setting.precision}, zero {setting.zero}, schedule {setting.schedule}; "
        f"{run.tokens_per_step:,} tokens a step ({run.task} text, seed {run.seed})",
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


def _curve(run: FunctionalRun, style: Style) -> str:
    points = tuple((float(i + 1), loss) for i, loss in enumerate(run.losses))
    return log_plot(
        [Series(label="loss", points=points)],
        Axis(title="step", text=lambda value: significant(value, 2)),
        Axis(title="loss", text=lambda value: f"{value:.4g}"),
        width=style.width,
    )


def _steps(run: FunctionalRun, style: Style) -> str:
    rows = run.rows()
    shown: Sequence[Row] = rows
    if len(rows) > FEW_STEPS:
        at = {round(i * (len(rows) - 1) / (FEW_STEPS - 1)) for i in range(FEW_STEPS)}
        shown = [rows[i] for i in sorted(at)]
    cells = [
        (
            f"{row['step']}",
            f"{row['loss']:.6f}",
            f"{row['tokens']:,}",
            _time(row["modelled_time_s"]),
            _usd(row["modelled_cost_usd"]),
        )
        for row in shown
    ]
    headings = ("step", "loss", "tokens", "modelled time", "modelled USD")
    return draw(TextTable(headings=headings, rows=tuple(cells), right=(True,) * 5), style)


def _time(value: object) -> str:
    return show(value, Dimension.SECONDS) if isinstance(value, float) else "-"


def _usd(value: object) -> str:
    return significant(value, 3) if isinstance(value, float) else "-"


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
    headings = ("exchange", "axis", "runs", "program", "sent", "program", "")
    right = (False, False, True, True, True, True, False)
    drawn = draw(TextTable(headings=headings, rows=tuple(cells), right=right), style)
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
    headings = ("products in", "carried out", "program", "")
    return draw(
        TextTable(headings=headings, rows=tuple(cells), right=(False, True, True, False)), style
    )


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
    headings = ("stage", "a rank holds", "measured", "model", "")
    right = (False, False, True, True, False)
    return draw(TextTable(headings=headings, rows=tuple(cells), right=right), style)


def _verdict(*, agrees: bool) -> str:
    return "agrees" if agrees else "DIFFERS"
