"""Errors of predicted times and memory, of the predicted fit, and of the order of layouts.

Layouts are ranked by time per token and rank, so that rows of different batches compare; a
configuration has the median of its rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from statistics import fmean, median
from typing import TypeAlias, get_args

from trnbench.evidence.comparison import Comparison, Contrast, RowClass
from trnbench.facts.records import Record, replace

_Known: TypeAlias = tuple[Comparison, float, bool | None, float | None]
"""A row whose figure is known on both sides, with the figure's error, whether its interval holds
the measurement, and half of the interval over the prediction."""

DIFFERENT = 0.05
"""Measured times closer than this are equal within the rounding of publications."""
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
    rests_on: Mapping[str, Errors]
    """Errors by what a predicted step rests on, the strongest first; `memory_rests_on`: of memory.
    """
    memory_rests_on: Mapping[str, Errors]
    stacks: Mapping[str, Errors]
    platforms: Mapping[str, Errors]
    families: Mapping[str, Errors]
    ranking: Ranking | None
    memory: Mapping[str, Errors]
    naive_memory: Mapping[str, Errors]
    """Errors of the median memory of a machine's other rows."""
    fit: Mapping[str, FitScore]
    instructions: Mapping[str, Errors]
    """Errors of the sizes of compiled graphs."""


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
    "marked check": lambda row: row.use == "check",
    "training graphs": lambda row: row.family == "training",
    "inference graphs": lambda row: row.family == "inference",
    "nothing assumed": lambda row: not row.assumed,
}


def summarise(rows: Sequence[Comparison]) -> Summary:
    """The statistics of all rows together and of groups of them."""
    times, memory = _known(rows, _time), _known(rows, _memory)
    return Summary(
        rows=len(rows),
        predicted=len(times),
        errors=_by_group(times),
        naive=_by_group(_known(naive_baseline(rows), _time)),
        rests_on=_by_class(times),
        memory_rests_on=_by_class(memory),
        stacks=_by(times, lambda row: row.stack),
        platforms=_by(times, lambda row: row.platform),
        families=_by(times, lambda row: row.family),
        ranking=ranking(rows),
        memory=_by_group(memory),
        naive_memory=_by_group(_known(naive_memory(rows), _memory)),
        fit={
            name: score
            for name, belongs in _GROUPS.items()
            if (score := fit_score_of(filter(belongs, rows))) is not None
        },
        instructions=_by_group(_known(rows, lambda row: row.instructions)),
    )


def errors_of(rows: Iterable[Comparison]) -> Errors | None:
    return _errors(_known(rows, _time))


def memory_errors_of(rows: Iterable[Comparison]) -> Errors | None:
    return _errors(_known(rows, _memory))


def by_class(rows: Iterable[Comparison], *, memory: bool = False) -> dict[str, Errors]:
    """Errors of steps, or of their memory, by what predictions rest on, the strongest first."""
    return _by_class(_known(rows, _memory if memory else _time))


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


def _known(
    rows: Iterable[Comparison], figure: Callable[[Comparison], Contrast | None]
) -> list[_Known]:
    """Rows whose figure is both measured and predicted, with its error and interval."""
    return [
        (row, error, one.covered, one.half_width)
        for row in rows
        if (one := figure(row)) is not None and (error := one.error) is not None
    ]


def _time(row: Comparison) -> Contrast:
    return row.time


def _memory(row: Comparison) -> Contrast | None:
    return row.memory if row.ran else None


def _errors(known: Sequence[_Known]) -> Errors | None:
    if not known:
        return None
    errors = [error for _, error, _, _ in known]
    sizes = [abs(error) for error in errors]
    covered = [held for _, _, held, _ in known if held is not None]
    widths = [width for _, _, _, width in known if width is not None]
    return Errors(
        rows=len(known),
        mape=fmean(sizes),
        median=median(sizes),
        largest=max(sizes),
        bias=fmean(errors),
        near=fmean(size <= NEAR for size in sizes),
        coverage=fmean(covered) if covered else None,
        half_width=median(widths) if widths else None,
    )


def _by_group(known: Sequence[_Known]) -> dict[str, Errors]:
    found = {
        name: _errors([one for one in known if belongs(one[0])])
        for name, belongs in _GROUPS.items()
    }
    return {name: one for name, one in found.items() if one is not None}


def _by(
    known: Sequence[_Known], key: Callable[[Comparison], str | None], names: Iterable[str] = ()
) -> dict[str, Errors]:
    """Errors by key: in the order of these names, else sorted."""
    groups: dict[str, list[_Known]] = {}
    for one in known:
        if (name := key(one[0])) is not None:
            groups.setdefault(name, []).append(one)
    found = {name: _errors(groups.get(name, ())) for name in names or sorted(groups)}
    return {name: errors for name, errors in found.items() if errors is not None}


def _by_class(known: Sequence[_Known]) -> dict[str, Errors]:
    return _by(known, lambda row: row.rests_on, get_args(RowClass))


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


def stranger_baseline(rows: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """Steps predicted by a utilisation that has seen neither them nor their software.

    It is the median over other software, each by the median of its steps, on chips of the kind.
    """
    known = [row for row in rows if row.error is not None and row.ideal_s and row.measured_s]
    shares: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in known:
        shares[row.set, row.software].append((row.ideal_s or 0.0) / (row.measured_s or 1.0))
    medians = {place: median(of) for place, of in shares.items()}
    others = {
        (kind, software): [
            one for (of, other), one in medians.items() if of == kind and other != software
        ]
        for kind, software in medians
    }
    return tuple(
        replace(row, predicted_s=(row.ideal_s or 0.0) / median(told), low_s=None, high_s=None)
        for row in known
        if (told := others[row.set, row.software])
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
        names = [rows[i].configuration or "" for i in places]
        counted = [(name, values[i]) for name, i in zip(names, places, strict=True) if used[i]]
        middles: dict[str, float | None] = {}
        for name, i in zip(names, places, strict=True):
            if name not in middles:
                # Leave the own configuration out, as the model's unseen rows are.
                others = [value for other, value in counted if other != name]
                middles[name] = median(others) if others else None
            found[i] = middles[name]
    return found


class GroupRanking(Record):
    """Order of the layouts of one question: see `Ranking`."""

    question: str
    layouts: int
    pairs: int
    tau: float
    regret: float
    chosen: str
    """Layout predicted fastest; `best`: layout measured fastest."""
    best: str


class Ranking(Record):
    """Agreement on the order of layouts of one model on equally many nodes of one machine."""

    groups: int
    """Number of comparable groups of layouts."""
    pairs: int
    """Pairs of layouts whose measured times differ by more than 5 %."""
    tau: float
    """Kendall's tau over these pairs."""
    regret: float
    """Mean slowdown of the layout predicted fastest over the fastest of its group."""
    largest_regret: float
    by_group: tuple[GroupRanking, ...]


def ranking(rows: Iterable[Comparison]) -> Ranking | None:
    """The agreement in the order of layouts; None where no two of them compare."""
    groups: dict[str, dict[str, list[Comparison]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.error is not None and row.question and row.configuration and row.tokens:
            groups[row.question][row.configuration].append(row)
    found = [
        one for question, layouts in groups.items() if (one := _group_ranking(question, layouts))
    ]
    if not found:
        return None
    pairs = sum(one.pairs for one in found)
    return Ranking(
        groups=len(found),
        pairs=pairs,
        tau=sum(one.tau * one.pairs for one in found) / pairs,
        regret=fmean(one.regret for one in found),
        largest_regret=max(one.regret for one in found),
        by_group=tuple(sorted(found, key=lambda one: -one.layouts)),
    )


def _group_ranking(question: str, layouts: Mapping[str, list[Comparison]]) -> GroupRanking | None:
    """Agreement on the layouts of one question; None if all times are equal."""
    times = [
        (
            median(_time_per_token(row, row.measured_s) for row in alike),
            median(_time_per_token(row, row.predicted_s) for row in alike),
            alike[0].layout or "",
        )
        for alike in layouts.values()
    ]
    signs = [
        _sign(a[0] - b[0]) * _sign(a[1] - b[1])
        for a, b in combinations(times, 2)
        # Ties within rounding say nothing on the order.
        if abs(a[0] - b[0]) > DIFFERENT * min(a[0], b[0])
    ]
    if not signs:
        return None
    chosen, best = min(times, key=lambda one: one[1]), min(times, key=lambda one: one[0])
    return GroupRanking(
        question=question,
        layouts=len(times),
        pairs=len(signs),
        tau=fmean(signs),
        regret=chosen[0] / best[0] - 1,
        chosen=chosen[2],
        best=best[2],
    )


def _time_per_token(row: Comparison, time_s: float | None) -> float:
    return (time_s or 0.0) * (row.ranks or 1) / (row.tokens or 1.0)


def _sign(number: float) -> int:
    return (number > 0) - (number < 0)
