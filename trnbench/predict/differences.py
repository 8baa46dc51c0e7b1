"""Differences between a played step and its closed form, by category."""

from __future__ import annotations

from collections.abc import Mapping

from trnbench.facts.records import Record
from trnbench.machine.costs.instructions import WAITING
from trnbench.program.slots import STEP_CATEGORIES, StepCategory

ROUNDING = 1e-9
"""Share of a time that may be left by rounding."""
WORTH_A_WORD, OF_STEP = 0.05, 0.001
"""A category is reported if its times differ by more than the first share of the longer one and by
more than the second share of the step."""


class Difference(Record):
    """A category in which the engines differ, in seconds."""

    category: StepCategory
    closed_s: float
    played_s: float
    quantity: str
    """Busy part, or waiting, that differs most."""
    closed_quantity_s: float
    played_quantity_s: float


Busy = Mapping[StepCategory, Mapping[str, float]]


def differences(
    closed_s: Mapping[StepCategory, float],
    played_s: Mapping[StepCategory, float],
    closed_busy: Busy,
    played_busy: Busy,
) -> tuple[Difference, ...]:
    """Categories in which a played step differs, each with the quantity that differs most."""
    step_s = sum(closed_s.values())
    differing = []
    for name in STEP_CATEGORIES:
        a, b = closed_s.get(name, 0.0), played_s.get(name, 0.0)
        if abs(b - a) <= max(WORTH_A_WORD * max(a, b), OF_STEP * step_s):
            continue
        quantity, first, second = _most(a, b, closed_busy.get(name, {}), played_busy.get(name, {}))
        differing.append(
            Difference(
                category=name,
                closed_s=a,
                played_s=b,
                quantity=quantity,
                closed_quantity_s=first,
                played_quantity_s=second,
            )
        )
    return tuple(differing)


def _most(
    closed_s: float, played_s: float, closed: Mapping[str, float], played: Mapping[str, float]
) -> tuple[str, float, float]:
    """Quantity that differs most among those of both engines: a busy part, or waiting."""
    pairs = {name: (closed[name], played[name]) for name in closed if name in played}
    first, second = (
        max((pair[engine] for pair in pairs.values()), default=0.0) for engine in (0, 1)
    )
    pairs[WAITING] = _beyond(closed_s, first), _beyond(played_s, second)
    name = max(pairs, key=lambda one: abs(pairs[one][1] - pairs[one][0]))
    return name, *pairs[name]


def _beyond(whole_s: float, busiest_s: float) -> float:
    # Waiting: time beyond the busiest part.
    rest_s = whole_s - busiest_s
    return rest_s if rest_s > ROUNDING * whole_s else 0.0
