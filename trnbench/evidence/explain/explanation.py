"""Joint explanation of measured steps: predictions, and the likeliest causes of gaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from trnbench.evidence.explain.causes import CauseList
from trnbench.evidence.explain.effects import Pricer
from trnbench.evidence.explain.experiment import TellingRun, telling_run
from trnbench.evidence.explain.observed import RunCompared, StepFigure
from trnbench.evidence.explain.score import Suspect, scored
from trnbench.facts.records import Record

GapVerdict = Literal[
    "as predicted", "one cause", "two causes", "in part", "several fit", "unexplained"
]
"""Verdict on the gaps.

No gap; one cause, or two together; one that leaves much of the gap; several equally good; or none.
"""

_ODDS = 3.0
"""Probability ratio below which causes count as equally good."""
_EXPLAINED = 0.4
"""Least share of the gap removed by an explanation."""
_RULED_OUT = 0.05
"""Probability of no cause below which it is ruled out, even inside the intervals."""


class Explanation(Record, eq=False):
    """Measured figures, causes of their gaps by likelihood, and the verdict."""

    measured: RunCompared
    nothing: float
    """Probability that no cause is at work."""
    suspects: tuple[Suspect, ...]
    verdict: GapVerdict
    tied: tuple[Suspect, ...]
    """Equally good causes; `telling`: the run that would separate them."""
    telling: TellingRun | None


def explained(pricer: Pricer, causes: CauseList, measured: RunCompared) -> Explanation:
    """Explanation of all measured figures together, by the causes of the table."""
    figures = measured.figures
    causes = causes.told(max(figure.step.recompilations for figure in figures))
    nothing, suspects = scored(causes, figures, pricer.effects(causes, figures))
    tied = _tied(suspects)
    verdict = _verdict(figures, nothing, suspects, tied)
    tied = tied if verdict == "several fit" else ()
    steps = tuple(dict.fromkeys(figure.step for figure in figures))
    return Explanation(
        measured=measured,
        nothing=nothing,
        suspects=suspects,
        verdict=verdict,
        tied=tied,
        telling=telling_run(pricer, steps, [one.best for one in tied]) if tied else None,
    )


def _tied(suspects: Sequence[Suspect]) -> tuple[Suspect, ...]:
    """The likeliest cause and nearly as likely alternatives."""
    if not suspects:
        return ()
    first = suspects[0]
    beside = first.beside and first.beside.cause.id
    return tuple(
        one
        for one in suspects
        if one.probability * _ODDS >= first.probability and one.cause.id != beside
    )


def _verdict(
    figures: Sequence[StepFigure],
    nothing: float,
    suspects: Sequence[Suspect],
    tied: Sequence[Suspect],
) -> GapVerdict:
    if not suspects:
        return "as predicted" if all(figure.inside for figure in figures) else "unexplained"
    if all(figure.inside for figure in figures) and nothing > _RULED_OUT:
        return "as predicted"
    if len(tied) > 1:
        return "several fit" if suspects[0].explained >= _EXPLAINED else "unexplained"
    if suspects[0].explained < _EXPLAINED:
        return "in part"
    return "one cause" if suspects[0].beside is None else "two causes"
