"""How well predictions put layouts in order.

Layouts are ranked by time per token and rank, so that rows with another batch compare; a
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
    """The order of the layouts of one question: see `Ranking`.

    `chosen` was predicted to be fastest and `best` was, in the words of their layouts.
    """

    question: str
    layouts: int
    pairs: int
    tau: float
    regret: float
    chosen: str
    best: str


class Ranking(Record):
    """How well layouts of one model on as many nodes of one machine are put in order.

    `tau`: Kendall's, over `pairs` of layouts whose measured times differ by more than 5 %, in
    `groups` of layouts that compare. `regret`: how much slower than the fastest measured layout of
    its group the one predicted to be fastest was, on average; `largest_regret` at worst.
    """

    groups: int
    pairs: int
    tau: float
    regret: float
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
    """Return how well the layouts of one question are ordered; None where none differ."""
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
