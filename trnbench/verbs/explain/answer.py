"""Why measured steps take other than predicted: causes as rows, the steps beside them, in words."""

from __future__ import annotations

from collections.abc import Sequence

from trnbench.evidence.explain.change import in_words
from trnbench.evidence.explain.effects import Effect, StepFigure
from trnbench.evidence.explain.explanation import Explanation
from trnbench.evidence.explain.score import Suspect
from trnbench.evidence.readers.devices import DeviceSummary
from trnbench.facts.records import Record
from trnbench.predict.assumption import Assumption, merged
from trnbench.show.row import Row, cells


class Explained(Record, eq=False):
    """An explanation, and the rows that could not be used with the reason.

    `remarks` say what of files was read, `devices` what monitors and profilers say beside them.
    """

    explanation: Explanation
    unused: tuple[tuple[str, str], ...]
    remarks: tuple[str, ...] = ()
    devices: tuple[DeviceSummary, ...] = ()

    @property
    def assumed(self) -> tuple[Assumption, ...]:
        """What the rows do not say, each assumption once."""
        steps = {figure.step.id: figure.step for figure in self.explanation.figures}
        return merged({name: step.assumed for name, step in steps.items()})

    @property
    def says(self) -> str:
        """The outcome in a sentence."""
        found = self.explanation
        first = found.suspects[0] if found.suspects else None
        match found.verdict:
            case "as predicted":
                return "Nothing stands out: every measured figure lies inside its 80 % interval"
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
    """Return what a monitor or profiler says, with the seconds of a step that devices were busy.

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


def _named(effect: Effect) -> str:
    return f"{effect.cause.id}, {effect.cause.title} ({in_words(effect.way, effect.magnitude)})"
