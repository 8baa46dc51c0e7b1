"""Errors of predicted times and memory, and of the predicted fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import TypeVar

import numpy as np

from trnbench.evidence.comparison import Comparison, Contrast
from trnbench.evidence.ranking import Ranking, ranking
from trnbench.facts.records import Record, replace

S = TypeVar("S")

NEAR = 0.10
"""Bound of errors that count as near."""


class Errors(Record):
    """Error statistics of some rows; absolute relative errors unless noted."""

    rows: int
    mape: float
    """Mean absolute error."""
    median: float
    largest: float
    bias: float
    """Mean signed error."""
    near: float
    """Share of errors up to 10 %."""
    coverage: float | None
    """Share of measurements inside their interval."""
    half_width: float | None
    """Median of half the interval over the prediction."""


class FitScore(Record):
    """Classification of layouts as fitting in memory; None without such rows."""

    ran: int
    """Rows that ran; `crashed`: rows that did not."""
    crashed: int
    precision: float | None
    """Share of predicted fits that ran."""
    recall: float | None
    """Share of runs that were predicted to fit."""
    specificity: float | None
    """Share of crashes that were predicted not to fit."""
    balanced_accuracy: float | None
    """Mean of recall and specificity; 0.5 for a constant answer."""


class Summary(Record):
    """Statistics of some rows, by group, stack, machine and family."""

    rows: int
    predicted: int
    errors: Mapping[str, Errors]
    naive: Mapping[str, Errors]
    """Errors of a constant utilisation per machine."""
    stacks: Mapping[str, Errors]
    platforms: Mapping[str, Errors]
    families: Mapping[str, Errors]
    ranking: Ranking | None
    memory: Mapping[str, Errors]
    naive_memory: Mapping[str, Errors]
    """Errors of the median memory of a machine's other rows."""
    fit: Mapping[str, FitScore]


_GROUPS: Mapping[str, Callable[[Comparison], bool]] = {
    "all": lambda row: True,
    "fitted": lambda row: row.fitted,
    "unseen": lambda row: not row.fitted,
    "unseen, within stack": lambda row: not row.fitted and row.within_stack,
    "unseen, cross stack": lambda row: (
        not row.fitted and row.stack is not None and not row.within_stack
    ),
    "marked fit": lambda row: row.use == "fit",
    "marked more": lambda row: row.use == "more",
    "nothing assumed": lambda row: not row.assumed,
}


def summarise(rows: Sequence[Comparison]) -> Summary:
    """The statistics of all rows together and of groups of them."""
    naive = naive_baseline(rows)
    return Summary(
        rows=len(rows),
        predicted=sum(row.error is not None for row in rows),
        errors=_by_group(rows, errors_of),
        naive=_by_group(naive, errors_of),
        stacks=_by(rows, lambda row: row.stack),
        platforms=_by(rows, lambda row: row.platform),
        families=_by(rows, lambda row: row.family),
        ranking=ranking(rows),
        memory=_by_group(rows, memory_errors_of),
        naive_memory=_by_group(naive_memory(rows), memory_errors_of),
        fit=_by_group(rows, fit_score_of),
    )


def errors_of(rows: Iterable[Comparison]) -> Errors | None:
    return _errors(row.time for row in rows)


def memory_errors_of(rows: Iterable[Comparison]) -> Errors | None:
    """Memory errors of rows that ran; None without any."""
    return _errors(row.memory for row in rows if row.ran)


def fit_score_of(rows: Iterable[Comparison]) -> FitScore | None:
    """Score of predicted fits against runs and crashes; None without either."""
    called = {True: [0, 0], False: [0, 0]}
    for row in rows:
        if row.called_fitting is not None and row.outcome is not None:
            called[row.ran][row.called_fitting] += 1
    ran, crashed = sum(called[True]), sum(called[False])
    if not ran + crashed:
        return None
    fitting = called[True][True] + called[False][True]
    recall = called[True][True] / ran if ran else None
    specificity = called[False][False] / crashed if crashed else None
    both = recall is not None and specificity is not None
    return FitScore(
        ran=ran,
        crashed=crashed,
        precision=called[True][True] / fitting if fitting else None,
        recall=recall,
        specificity=specificity,
        balanced_accuracy=((recall or 0.0) + (specificity or 0.0)) / 2 if both else None,
    )


def _errors(figures: Iterable[Contrast]) -> Errors | None:
    known = [(one, error) for one in figures if (error := one.error) is not None]
    if not known:
        return None
    sizes = [abs(error) for _, error in known]
    covered = [held for one, _ in known if (held := one.covered) is not None]
    widths = [width for one, _ in known if (width := one.half_width) is not None]
    return Errors(
        rows=len(known),
        mape=fmean(sizes),
        median=median(sizes),
        largest=max(sizes),
        bias=fmean(error for _, error in known),
        near=fmean(size <= NEAR for size in sizes),
        coverage=fmean(covered) if covered else None,
        half_width=median(widths) if widths else None,
    )


def _by_group(
    rows: Sequence[Comparison], score: Callable[[Iterable[Comparison]], S | None]
) -> dict[str, S]:
    found = {name: score(filter(belongs, rows)) for name, belongs in _GROUPS.items()}
    return {name: one for name, one in found.items() if one is not None}


def _by(rows: Sequence[Comparison], key: Callable[[Comparison], str | None]) -> dict[str, Errors]:
    names = sorted({name for row in rows if (name := key(row)) is not None})
    found = {name: errors_of(row for row in rows if key(row) == name) for name in names}
    return {name: errors for name, errors in found.items() if errors is not None}


def naive_baseline(rows: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """Rows predicted by a constant utilisation per machine.

    The utilisation is the median of the machine's rows marked `fit`, or else of all its rows,
    always without rows of the predicted configuration.
    """
    known = [row for row in rows if row.error is not None and row.ideal_s and row.platform]
    marked = {row.platform for row in known if row.use == "fit"}
    used = [row.use == "fit" or row.platform not in marked for row in known]
    ratios = [(row.ideal_s or 0.0) / (row.measured_s or 1.0) for row in known]
    machines = [row.platform or "" for row in known]
    return tuple(
        replace(row, predicted_s=(row.ideal_s or 0.0) / ratio, low_s=None, high_s=None)
        for row, ratio in zip(known, _medians_of_others(machines, known, ratios, used), strict=True)
        if ratio is not None
    )


def naive_memory(rows: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """Rows predicted by the median memory of a machine's other configurations."""
    known = [row for row in rows if row.ran and row.memory.error is not None and row.platform]
    sizes = [row.memory_measured_bytes or 0.0 for row in known]
    machines = [f"{row.platform} {row.memory_of}" for row in known]
    all_rows = [True] * len(known)
    return tuple(
        replace(row, memory_predicted_bytes=size, memory_low_bytes=None, memory_high_bytes=None)
        for row, size in zip(
            known, _medians_of_others(machines, known, sizes, all_rows), strict=True
        )
        if size is not None
    )


def _medians_of_others(
    machines: Sequence[str],
    rows: Sequence[Comparison],
    values: Sequence[float],
    used: Sequence[bool],
) -> list[float | None]:
    """For each row, the median over its machine's rows of other configurations."""
    places_of: dict[str, list[int]] = {}
    for i, machine in enumerate(machines):
        places_of.setdefault(machine, []).append(i)
    found: list[float | None] = [None] * len(rows)
    for places in places_of.values():
        names = np.array([rows[i].configuration or "" for i in places])
        counted = np.array([used[i] for i in places])
        numbers = np.array([values[i] for i in places])
        for name in np.unique(names):
            # Leave the own configuration out, as the model's unseen rows are.
            others = numbers[counted & (names != name)]
            if len(others):
                middle = float(np.median(others))
                for i, same in zip(places, names == name, strict=True):
                    if same:
                        found[i] = middle
    return found
