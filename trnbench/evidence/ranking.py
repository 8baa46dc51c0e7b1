"""Agreement of predicted and measured orders of layouts.

Layouts are ranked by time per token and rank, so that rows of different batches compare; a
configuration has the median of its rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import combinations
from statistics import fmean, median

from trnbench.evidence.comparison import Comparison
from trnbench.facts.records import Record

DIFFERENT = 0.05
"""Measured times closer than this are equal within the rounding of publications."""


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
