"""How far predictions lie from measurements: errors, rankings, intervals, and a naive baseline.

The error of a row is predicted / measured - 1. Layouts are ranked by time per token and chip, so
that rows on more chips or with another batch compare; a configuration has the median of its rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import fmean, median

from trnbench.evidence.comparison import Comparison

NEAR = 0.10
"""Errors up to this count as near."""
DIFFERENT = 0.05
"""Measured times closer than this are equal within the rounding of publications."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Error statistics of some rows.

    Of the absolute errors: `mape` is the mean, `median` and `largest` say themselves, `near` is the
    share up to 10 %. `bias` is the mean error with its sign. `coverage`: the share of measurements
    inside their interval; `half_width`: the median of half an interval over its prediction.
    """

    rows: int
    mape: float
    median: float
    largest: float
    bias: float
    near: float
    coverage: float | None
    half_width: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """How well layouts of one model on one machine are put in order.

    `tau`: Kendall's, over `pairs` of layouts whose measured times differ by more than 5 %, in
    `groups` of layouts that compare. `regret`: how much slower than the fastest measured layout of
    its group the one predicted to be fastest was, on average; `largest_regret` at worst.
    """

    groups: int
    pairs: int
    tau: float
    regret: float
    largest_regret: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Statistics of some rows: by whether they were fitted, by whose stack, by stack and machine.

    `naive` are the errors of a constant utilisation per machine, over the same groups of rows.
    """

    rows: int
    predicted: int
    errors: Mapping[str, Errors]
    naive: Mapping[str, Errors]
    stacks: Mapping[str, Errors]
    platforms: Mapping[str, Errors]
    families: Mapping[str, Errors]
    ranking: Ranking | None


_GROUPS: Mapping[str, Callable[[Comparison], bool]] = {
    "all": lambda row: True,
    "fitted": lambda row: row.fitted,
    "unseen": lambda row: not row.fitted,
    "unseen, within stack": lambda row: not row.fitted and row.within_stack,
    "unseen, cross stack": lambda row: not row.fitted and _crosses(row),
    "marked fit": lambda row: row.use == "fit",
    "marked more": lambda row: row.use == "more",
    "nothing assumed": lambda row: not row.assumed,
}


def _crosses(row: Comparison) -> bool:
    return row.stack is not None and not row.within_stack


def summarise(rows: Sequence[Comparison]) -> Summary:
    """Return the statistics of all rows together and of groups of them."""
    naive = naive_baseline(rows)
    return Summary(
        rows=len(rows),
        predicted=sum(row.error is not None for row in rows),
        errors=_by_group(rows),
        naive=_by_group(naive),
        stacks=_by(rows, lambda row: row.stack),
        platforms=_by(rows, lambda row: row.platform),
        families=_by(rows, lambda row: row.family),
        ranking=ranking(rows),
    )


def errors_of(rows: Iterable[Comparison]) -> Errors | None:
    """Return the error statistics of the rows that have a prediction; None where none has."""
    known = [(row, row.error) for row in rows if row.error is not None]
    if not known:
        return None
    sizes = [abs(error) for _, error in known]
    covered = [row.covered for row, _ in known if row.covered is not None]
    widths = [_half_width(row) for row, _ in known if row.covered is not None]
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


def ranking(rows: Iterable[Comparison]) -> Ranking | None:
    """Return the agreement in the order of layouts; None where no two of them compare."""
    groups: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.error is not None and row.question and row.configuration and row.tokens:
            share = (row.ranks or 1) / row.tokens
            times = ((row.measured_s or 0.0) * share, (row.predicted_s or 0.0) * share)
            groups[row.question][row.configuration].append(times)
    order, regrets, compared = 0, [], []
    for layouts in groups.values():
        times_of = [
            (median(m for m, _ in times), median(p for _, p in times)) for times in layouts.values()
        ]
        signs = [
            _sign(a[0] - b[0]) * _sign(a[1] - b[1])
            for a, b in combinations(times_of, 2)
            if abs(a[0] - b[0]) > DIFFERENT * min(a[0], b[0])
        ]
        if signs:
            compared += signs
            order += 1
            chosen = min(times_of, key=lambda pair: pair[1])
            regrets.append(chosen[0] / min(measured for measured, _ in times_of) - 1)
    if not compared:
        return None
    return Ranking(
        groups=order,
        pairs=len(compared),
        tau=fmean(compared),
        regret=fmean(regrets),
        largest_regret=max(regrets),
    )


def naive_baseline(rows: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """Return the rows as a constant utilisation per machine predicts them.

    It is the median of the machine's rows marked `fit`, or of all its rows where none is, never
    with rows of the configuration that is predicted.
    """
    known = [row for row in rows if row.error is not None and row.ideal_s and row.platform]
    marked = {row.platform for row in known if row.use == "fit"}
    found = []
    for row in known:
        others = [
            other.ideal_s / other.measured_s
            for other in known
            if other.platform == row.platform
            and other.configuration != row.configuration
            and (other.use == "fit" or row.platform not in marked)
            and other.ideal_s
            and other.measured_s
        ]
        if others and row.ideal_s:
            predicted = row.ideal_s / median(others)
            found.append(replace(row, predicted_s=predicted, low_s=None, high_s=None))
    return tuple(found)


def _by_group(rows: Sequence[Comparison]) -> dict[str, Errors]:
    found = {name: errors_of(filter(belongs, rows)) for name, belongs in _GROUPS.items()}
    return {name: errors for name, errors in found.items() if errors is not None}


def _by(rows: Sequence[Comparison], key: Callable[[Comparison], str | None]) -> dict[str, Errors]:
    names = sorted({name for row in rows if (name := key(row)) is not None})
    found = {name: errors_of(row for row in rows if key(row) == name) for name in names}
    return {name: errors for name, errors in found.items() if errors is not None}


def _half_width(row: Comparison) -> float:
    assert row.low_s is not None
    assert row.high_s is not None
    assert row.predicted_s is not None
    return (row.high_s - row.low_s) / 2 / row.predicted_s


def _sign(number: float) -> int:
    return (number > 0) - (number < 0)
