"""Choice of an algorithm for a group and a size: by a stack's table, or the user's.

The first rule wins whose conditions hold and whose algorithm the group allows; rules passed over
name their refusal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from trnbench.errors import InputError, UnknownNameError
from trnbench.facts.arrays import FloatArray, IntArray
from trnbench.facts.calibration.collective_stack import CollectiveStack, Rule, Tuning
from trnbench.facts.records import Record, replace
from trnbench.facts.workload.choices import Op
from trnbench.machine.message_plan.algorithm import ALGORITHMS, Algorithm, Refusal
from trnbench.machine.message_plan.members import Members
from trnbench.machine.message_plan.placed import Placed, place_members


class Selected(Record, eq=False):
    """Algorithm in place, for sizes from `from_bytes` up to below `below_bytes`."""

    from_bytes: float
    below_bytes: float
    algorithm: Algorithm
    tuning_name: str
    tuning: Tuning
    placed: Placed
    passed_over: tuple[str, ...]  # rules that came first, with their refusals


def select_for(
    stack: CollectiveStack,
    members: Members,
    op: Op,
    *,
    algorithm: Algorithm | None = None,
    tuning: str | None = None,
    pairs: IntArray | None = None,
) -> tuple[Selected, ...] | Refusal:
    """Algorithms by size (rising) for groups in place as a table has them, or a refusal.

    `algorithm` and `tuning` overrule the stack's table; an algorithm asked for keeps the tunings
    and pieces that the table gives it.
    """
    # Rules overlap in size, so one algorithm is tried for several ranges: placed once.
    nodes, ranks = members.first_nodes, members.ranks
    placements: dict[Algorithm, Placed | Refusal] = {}

    def placed(wanted: Algorithm) -> Placed | Refusal:
        if wanted not in placements:
            placements[wanted] = place_members(members, op, wanted, pairs=pairs)
        return placements[wanted]

    fitting = [rule for rule in stack.rules if rule.fits(op, nodes, ranks)]
    if algorithm is not None:
        fitting = [rule for rule in fitting if _plays(rule, algorithm)]
    chosen: list[Selected] = []
    # Between the limits of two rules the same rules cover all sizes: one choice serves them.
    for limit in sorted({rule.limit_bytes(nodes) for rule in fitting} | {math.inf}):
        covering = [rule for rule in fitting if rule.limit_bytes(nodes) >= limit]
        passed: list[str] = []
        for candidate in _candidates(stack, covering, algorithm, tuning):
            wanted, name = candidate
            placed_plan = placed(wanted)
            if not isinstance(placed_plan, Refusal):
                break
            # The user's algorithm has no substitute: its refusal is the answer.
            if algorithm is not None:
                return placed_plan
            why = f"{wanted.label}: {placed_plan.reason}"
            passed += [why] if why not in passed else []
        else:
            reasons = "; ".join(passed) or "no rule covers this group"
            return Refusal(reason=f"{stack.name} has no algorithm for it ({reasons})")
        # Two ranges with one answer become one range.
        last = chosen[-1] if chosen else None
        if last and (last.algorithm, last.tuning_name) == (wanted, name):
            chosen[-1] = replace(last, below_bytes=limit)
            continue
        chosen.append(
            Selected(
                from_bytes=last.below_bytes if last else 0.0,
                below_bytes=limit,
                algorithm=wanted,
                tuning_name=name,
                tuning=stack.tuning(name),
                placed=placed_plan,
                passed_over=tuple(passed),
            )
        )
    return tuple(chosen)


def every_for(
    stack: CollectiveStack, members: Members, op: Op, *, pairs: IntArray | None = None
) -> tuple[Selected, ...] | Refusal:
    """Each algorithm that a table names for such groups and that can run, for all sizes."""
    rules = [rule for rule in stack.rules if rule.fits(op, members.first_nodes, members.ranks)]
    found, refused = [], []
    for wanted, name in dict.fromkeys(_candidates(stack, rules, None, None)):
        placed = place_members(members, op, wanted, pairs=pairs)
        if isinstance(placed, Refusal):
            refused.append(f"{wanted.label}: {placed.reason}")
            continue
        found.append(
            Selected(
                from_bytes=0.0,
                below_bytes=math.inf,
                algorithm=wanted,
                tuning_name=name,
                tuning=stack.tuning(name),
                placed=placed,
                passed_over=(),
            )
        )
    reasons = "; ".join(dict.fromkeys(refused)) or "no rule covers this group"
    return tuple(found) or Refusal(reason=f"{stack.name} has no algorithm for it ({reasons})")


def selected_for(selected: Sequence[Selected], size_bytes: FloatArray) -> IntArray:
    starts = np.array([choice.from_bytes for choice in selected])
    return np.searchsorted(starts, size_bytes, side="right") - 1


def algorithm_named(text: str) -> Algorithm:
    """Algorithm by text: "ring", "hierarchical" or "hierarchical:ring:tree"."""
    name, *parts = text.split(":")
    for part in (name, *parts):
        if part not in ALGORITHMS:
            raise UnknownNameError("collective algorithm", part, ALGORITHMS)
    if len(parts) > (2 if name == "hierarchical" else 0):
        raise InputError(
            f"cannot read the algorithm {text!r}",
            hint="only hierarchical takes parts, two at most: hierarchical:INNER:OUTER",
        )
    inner, outer = (*parts, None, None)[:2]
    return Algorithm(name=name, inner=inner, outer=outer)


def _plays(rule: Rule, algorithm: Algorithm) -> bool:
    wanted = (algorithm.name, algorithm.inner, algorithm.outer)
    return (rule.algorithm, rule.inner, rule.outer) == wanted


def _candidates(
    stack: CollectiveStack, rules: Sequence[Rule], algorithm: Algorithm | None, tuning: str | None
) -> list[tuple[Algorithm, str]]:
    """Algorithms to try in turn, each with its tuning: those of the rules, or the user's."""
    if algorithm is not None:
        tabled = next((rule.tuning for rule in rules), stack.tuning_for(algorithm.name))
        name = tuning or tabled
        return [(replace(algorithm, pieces=stack.tuning(name).pieces), name)]
    found = []
    for rule in rules:
        name = tuning or rule.tuning
        pieces = stack.tuning(name).pieces
        wanted = Algorithm(name=rule.algorithm, inner=rule.inner, outer=rule.outer, pieces=pieces)
        found.append((wanted, name))
    return found
