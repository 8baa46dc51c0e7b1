"""Why layouts are refused: where in a grid, in which words, and which reason comes first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import isqrt
from typing import TypeAlias

import numpy as np

from trnbench.facts.arrays import BoolArray, FloatArray, some, uneven
from trnbench.facts.records import Record

Scalars: TypeAlias = Mapping[str, int]

FEW = 3


EVERYWHERE: BoolArray = np.ones((), dtype=np.bool_)
"""Mask of all layouts."""


class Reason(Record, eq=False, kw_only=False):
    """Rule that layouts of a grid break."""

    rule: str
    broken: BoolArray  # True for layouts that break the rule
    message: str | Callable[[Scalars], str]  # for all such layouts, or for one

    def words(self, at: Scalars) -> str:
        return self.message if isinstance(self.message, str) else self.message(at)


_OF_TP = (
    *("heads", "tensor parallel", "kv heads", "MLP columns", "expert columns"),
    "heads of context ranks",
)
"""Rules that a tensor-parallel degree breaks, the most telling first."""
_OF_RANKS = ("ranks", "ranks of a job")


def first_causes(found: Iterable[Reason]) -> tuple[Reason, ...]:
    """Broken rules, causes first, without those that only follow from another.

    A tensor-parallel degree that does not divide breaks several rules, and leaves ranks over.
    """
    broken = [reason for reason in found if some(reason.broken)]
    of_tp = sorted(
        (reason for reason in broken if reason.rule in _OF_TP),
        key=lambda reason: _OF_TP.index(reason.rule),
    )
    follow = (*_OF_TP, *_OF_RANKS) if of_tp else ()
    return (*of_tp[:1], *(reason for reason in broken if reason.rule not in follow))


def legal(found: tuple[Reason, ...], shape: tuple[int, ...]) -> BoolArray:
    """Mask of the layouts that break no rule."""
    mask = np.ones(shape, dtype=np.bool_)
    for reason in found:
        mask &= ~reason.broken
    return mask


def divisors_near(number: int, value: int) -> str:
    """Divisors of a number nearest to a value, nearest first, as text."""
    small = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    divisors = [*{*small, *(number // d for d in small)}]
    divisors.sort(key=lambda d: (abs(d - value), d))
    return ", ".join(str(d) for d in divisors[:FEW] if d != value)


def divides(rule: str, degree: FloatArray, name: str, number: int, what: str) -> Reason:
    """Rule that a degree must divide a number of `what`."""

    def words(at: Scalars) -> str:
        value = at[name] if name in at else int(degree)
        near = divisors_near(number, value)
        return f"{name}={value} does not divide {number} {what}; try {near}"

    return Reason(rule, uneven(number, degree), words)
