"""Choice of an algorithm for each size: by a stack's table, kept sound by what its algorithms cost.

Where a table changes so late that a larger message would take less time, the change moves down to
the size at which both take equally long. A stack whose table was made for other links takes the
fastest of its algorithms at each size: an upper bound of what a tuned library reaches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from trnbench.engines.analytic.collective.profile import PhaseMemo, profile
from trnbench.engines.analytic.collective.time import ClosedForm, closed_form
from trnbench.facts.arrays import FloatArray, IntArray
from trnbench.facts.calibration.collective_stack import CollectiveStack
from trnbench.facts.records import replace
from trnbench.facts.workload.choices import Op
from trnbench.machine.message_plan.algorithm import Algorithm, Refusal
from trnbench.machine.message_plan.members import Members
from trnbench.machine.message_plan.select import Selected, every_for, select_for

_SIZES = 2.0 ** np.arange(0.0, 45.0, 0.5)
"""Sizes, bytes, at which the fastest algorithm is looked for; between them by bisection."""
_AT_ONCE = 32
"""Parts of an interval of sizes, equal on a logarithmic scale, whose ends are priced at once."""
_LOOKS = 8  # Times that an interval is parted: to a billionth of the first

MessageClock = Callable[[Selected, FloatArray], FloatArray]
"""Seconds of an algorithm in place for an array of sizes in bytes."""


def chosen_for(
    stack: CollectiveStack,
    members: Members,
    op: Op,
    pairs: IntArray | None = None,
    *,
    algorithm: Algorithm | None = None,
) -> tuple[Selected, ...] | Refusal:
    """Algorithms by size (rising) for groups in place, or a refusal if none can run.

    An `algorithm` asked for serves all sizes that the stack's table leaves to it.
    """
    found = listed_for(stack, members, op, pairs, algorithm=algorithm)
    if isinstance(found, Refusal):
        return found
    return tuple(
        one for one, _ in chosen_with_forms(found, None, fastest=_by_time(stack, algorithm))
    )


def listed_for(
    stack: CollectiveStack,
    members: Members,
    op: Op,
    pairs: IntArray | None = None,
    *,
    algorithm: Algorithm | None = None,
) -> tuple[Selected, ...] | Refusal:
    """Algorithms by size as the stack's table has them; all of them where the fastest is taken."""
    if _by_time(stack, algorithm):
        return every_for(stack, members, op, pairs=pairs)
    return select_for(stack, members, op, algorithm=algorithm, pairs=pairs)


def _by_time(stack: CollectiveStack, algorithm: Algorithm | None) -> bool:
    return stack.choice == "fastest" and algorithm is None


def chosen_with_forms(
    found: tuple[Selected, ...], memo: PhaseMemo | None, *, fastest: bool
) -> tuple[tuple[Selected, ClosedForm | None], ...]:
    """The algorithms of `listed_for` made sound, or the fastest ones, by size (rising).

    Each stands beside its closed form; None for one that had no rival.
    """
    if len(found) == 1:
        return ((found[0], None),)
    forms = {
        number: closed_form(profile(one.placed, memo), one.tuning)
        for number, one in enumerate(found)
    }
    numbers = {(one.algorithm, one.tuning_name): number for number, one in enumerate(found)}

    def form(one: Selected) -> ClosedForm:
        return forms[numbers[one.algorithm, one.tuning_name]]

    def clock(one: Selected, size_bytes: FloatArray) -> FloatArray:
        return form(one).time_s(size_bytes)

    chosen = fastest_of(found, clock) if fastest else never_falling(found, clock)
    return tuple((one, form(one)) for one in chosen)


def never_falling(selected: Sequence[Selected], clock: MessageClock) -> tuple[Selected, ...]:
    """A table's ranges, each begun early enough that no larger size takes less time."""
    kept = [selected[0]]
    for choice in selected[1:]:
        start = choice.from_bytes
        while kept and _behind(kept[-1], choice, start, clock):
            low = kept[-1].from_bytes
            start = _crossing(kept[-1], choice, (low, start), clock)
            if start > low:
                break
            kept.pop()
        _append(kept, choice, start)
    return tuple(kept)


def fastest_of(selected: Sequence[Selected], clock: MessageClock) -> tuple[Selected, ...]:
    """Ranges of the fastest algorithm by size."""
    times_s = np.stack([clock(one, _SIZES) for one in selected])
    best = times_s.argmin(axis=0)
    kept = [replace(selected[int(best[0])], from_bytes=0.0, below_bytes=math.inf)]
    for number in np.flatnonzero(np.diff(best)) + 1:
        before, after = selected[int(best[number - 1])], selected[int(best[number])]
        _append(kept, after, _crossing(before, after, (_SIZES[number - 1], _SIZES[number]), clock))
    return tuple(kept)


def _append(kept: list[Selected], choice: Selected, start: float) -> None:
    if kept:
        kept[-1] = replace(kept[-1], below_bytes=start)
    kept.append(replace(choice, from_bytes=start if len(kept) else 0.0))


def _behind(first: Selected, second: Selected, size_bytes: float, clock: MessageClock) -> bool:
    """True when the second algorithm is faster at a size."""
    size = np.array([size_bytes])
    return bool(clock(second, size)[0] < clock(first, size)[0])


def _crossing(
    first: Selected, second: Selected, between: tuple[float, float], clock: MessageClock
) -> float:
    """Size in bytes from which on the second algorithm is faster; the lower end if always."""
    low, high = between
    low = max(low, 1.0)
    if _behind(first, second, low, clock):
        return between[0]
    at = np.empty(_AT_ONCE + 1)
    for _ in range(_LOOKS):
        at[0], at[-1], step = low, high, _AT_ONCE
        # All middles that bisection may come to in its next steps cost one look, not one each.
        while step > 1:
            at[step // 2 :: step] = np.sqrt(at[:-1:step] * at[step::step])
            step //= 2
        behind = (clock(second, at) < clock(first, at)).tolist()
        start, end = 0, _AT_ONCE
        while end - start > 1:
            middle = (start + end) // 2
            start, end = (start, middle) if behind[middle] else (middle, end)
        low, high = at[start], at[end]
    return float(high)
