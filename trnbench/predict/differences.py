"""Where a played step differs from its closed form, and in what."""

from __future__ import annotations

from collections.abc import Mapping

from trnbench.facts.records import Record
from trnbench.machine.costs.busy import WAITING
from trnbench.program.slots import STEP_CATEGORIES, StepCategory

ROUNDING = 1e-9
WORTH_A_WORD, OF_STEP = 0.05, 0.001
"""A category is told of whose seconds differ by more than this part of them, if that is more than
this part of the step."""


class Difference(Record):
    """A category that engines differ in, and the quantity in which they differ most; seconds."""

    category: StepCategory
    closed_s: float
    played_s: float
    quantity: str
    closed_quantity_s: float
    played_quantity_s: float


Busy = Mapping[StepCategory, Mapping[str, float]]


def differences(
    closed_s: Mapping[StepCategory, float],
    played_s: Mapping[StepCategory, float],
    closed_busy: Busy,
    played_busy: Busy,
) -> tuple[Difference, ...]:
    """Return the categories in which a played step differs, with what differs most in each."""
    step_s = sum(closed_s.values())
    found = []
    for name in STEP_CATEGORIES:
        a, b = closed_s.get(name, 0.0), played_s.get(name, 0.0)
        if abs(b - a) <= max(WORTH_A_WORD * max(a, b), OF_STEP * step_s):
            continue
        quantity, first, second = _most(a, b, closed_busy.get(name, {}), played_busy.get(name, {}))
        found.append(
            Difference(
                category=name,
                closed_s=a,
                played_s=b,
                quantity=quantity,
                closed_quantity_s=first,
                played_quantity_s=second,
            )
        )
    return tuple(found)


def _most(
    closed_s: float, played_s: float, closed: Mapping[str, float], played: Mapping[str, float]
) -> tuple[str, float, float]:
    """Return the quantity that both know and differ in most: a busy part, or waiting."""
    known = {name: (closed[name], played[name]) for name in closed if name in played}
    first, second = (
        max((pair[engine] for pair in known.values()), default=0.0) for engine in (0, 1)
    )
    known[WAITING] = _beyond(closed_s, first), _beyond(played_s, second)
    name = max(known, key=lambda one: abs(known[one][1] - known[one][0]))
    return name, *known[name]


def _beyond(whole_s: float, busiest_s: float) -> float:
    """Return what a time has beside its busiest part, without what rounding leaves."""
    rest_s = whole_s - busiest_s
    return rest_s if rest_s > ROUNDING * whole_s else 0.0
