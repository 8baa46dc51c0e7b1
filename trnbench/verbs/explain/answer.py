"""Measured steps beside their predictions, and why they differ: rows, and words for people."""

from __future__ import annotations

from collections.abc import Sequence

from trnbench.evidence.explain.change import in_words
from trnbench.evidence.explain.effects import Effect
from trnbench.evidence.explain.explanation import Explanation
from trnbench.evidence.explain.observed import RunCompared, StepFigure
from trnbench.evidence.explain.score import Suspect
from trnbench.evidence.readers.devices import DeviceSummary
from trnbench.facts.units import Dimension, show
from trnbench.show.row import Row, cells
from trnbench.show.text_table import percent


def first_line(measured: RunCompared) -> str:
    """Outcome of the steps; of several, that of the step farthest from its prediction."""
    steps = measured.steps
    worst = _went(max(steps, key=lambda step: abs(step.gap)))
    if len(steps) == 1:
        return worst
    inside = sum(step.inside for step in steps)
    return f"{inside} of {len(steps)} steps as predicted; farthest off: {worst}"


def says(found: Explanation) -> str:
    """The outcome in a sentence."""
    first = found.suspects[0] if found.suspects else None
    match found.verdict:
        case "as predicted":
            return "Nothing unusual: every measured figure is inside its 80 % interval"
        case "unexplained":
            return "No cause in the table explains the gap"
        case "several fit":
            several = ", ".join(one.cause.id for one in found.tied)
            return f"{len(found.tied)} causes explain these steps about equally well: {several}"
        case "in part" if first is not None:
            return f"In part {_named(first.best)}; the rest of the gap has no cause here"
        case "one cause" if first is not None:
            return f"Most likely {_named(first.best)}"
        case _ if first is not None and first.beside is not None:
            return f"Most likely {_named(first.best)} together with {_named(first.beside)}"
    raise AssertionError(found.verdict)


def cause_row(suspect: Suspect, *, tied: bool) -> Row:
    """Return a cause: what fits best of it, how likely it is, what would show it, what helps.

    `tied`: whether the steps do not decide between it and others.
    """
    best = suspect.best
    return {
        **cells(suspect, "cause=cause.id title=cause.title"),
        "change": in_words(best.way, best.magnitude),
        "magnitude": best.magnitude if isinstance(best.magnitude, float) else None,
        **cells(suspect, "beside=beside.cause.id probability"),
        "tied": tied,
        **cells(suspect, "explained explained_alone=alone experiment=cause.experiment"),
        "remedy": suspect.cause.remedy,
    }


def device_row(found: DeviceSummary, steps: Sequence[StepFigure]) -> Row:
    """Return the readings of a monitor or profiler, with the busy seconds of a step.

    That is told by a busy share and by steps of one time alone.
    """
    times = [figure.measured for figure in steps if figure.quantity == "step"]
    busy = found.busy if found.run_s is None and len(times) == 1 else None
    return {
        "file": str(found.path),
        **cells(found, "tool samples devices errors busy_share=busy"),
        "busy_s": None if busy is None else busy * times[0],
        "idle_s": None if busy is None else (1 - busy) * times[0],
        **cells(found, "run_s memory_peak_bytes"),
        "shares": dict(found.shares),
    }


def figure_row(figure: StepFigure) -> Row:
    """Return a measured figure of a step beside its prediction: seconds, or bytes of memory."""
    before, unit = ("memory_", "bytes") if figure.quantity == "memory" else ("", "s")
    return {
        "id": figure.step.id,
        "figure": figure.quantity,
        f"{before}measured_{unit}": figure.measured,
        f"{before}predicted_{unit}": figure.predicted,
        f"{before}low_{unit}": figure.low,
        f"{before}high_{unit}": figure.high,
        "gap": figure.measured / figure.predicted - 1,
        "inside": figure.inside,
        "assumed": [one.text for one in figure.step.assumed],
        "doubt": figure.step.doubt,
    }


def step_row(step: StepFigure) -> Row:
    """Return a measured step beside its prediction, and how it went."""
    return {
        **cells(step, "id=step.id measured_s=measured predicted_s=predicted low_s=low high_s=high"),
        "difference": step.measured / step.predicted - 1,
        "verdict": step.went,
    }


def _went(step: StepFigure) -> str:
    measured, predicted, low, high = (
        show(value, Dimension.SECONDS, digits=4)
        for value in (step.measured, step.predicted, step.low, step.high)
    )
    setup = step.step.ran.setup
    where = f"{step.step.id}, {setup.model.name} on {setup.platform.instance.name}:{setup.nodes}"
    by = percent(abs(step.measured / step.predicted - 1))
    how = step.went if step.inside else f"{step.went} than predicted by {by}"
    return f"{where}: {how}: {measured} per step, expected {predicted} ({low} to {high})"


def _named(effect: Effect) -> str:
    return f"{effect.cause.id}, {effect.cause.title} ({in_words(effect.way, effect.magnitude)})"
