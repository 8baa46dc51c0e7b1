"""Which algorithm a stack uses for a group and a size: its table, or the one the user asks for.

The first rule wins whose conditions hold and whose algorithm the group allows; rules passed over
say why.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trnbench.arrays import FloatArray, IntArray
from trnbench.errors import InputError, UnknownNameError
from trnbench.mapping.message_plan.algorithm import ALGORITHMS, Algorithm, Refusal
from trnbench.mapping.message_plan.members import Members, members_of
from trnbench.mapping.message_plan.placed import Placed, place_members
from trnbench.mapping.placement import Groups, Placement
from trnbench.spec.collective_efficiency import CollectiveStack, Rule, Tuning
from trnbench.workload.operation import Op


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Selected:
    """An algorithm in place, for sizes from `from_bytes` up to below `below_bytes`.

    `passed_over`: rules that came first and why they could not be used.
    """

    from_bytes: float
    below_bytes: float
    algorithm: Algorithm
    tuning_name: str
    tuning: Tuning
    placed: Placed
    passed_over: tuple[str, ...]


def select(
    stack: CollectiveStack,
    placement: Placement,
    op: Op,
    groups: Groups,
    *,
    algorithm: Algorithm | None = None,
    tuning: str | None = None,
    pairs: IntArray | None = None,
    symmetric: bool = True,
) -> tuple[Selected, ...] | Refusal:
    """Return the algorithms by size (rising), or why none can run.

    `algorithm` and `tuning` overrule the stack's table; an algorithm asked for keeps the tunings
    and pieces that the table gives it.
    """
    members = members_of(placement, groups, symmetric=symmetric)
    return select_for(stack, members, op, algorithm=algorithm, tuning=tuning, pairs=pairs)


def select_for(
    stack: CollectiveStack,
    members: Members,
    op: Op,
    *,
    algorithm: Algorithm | None = None,
    tuning: str | None = None,
    pairs: IntArray | None = None,
) -> tuple[Selected, ...] | Refusal:
    """Return the algorithms by size for groups that are ready to be placed."""
    nodes, ranks = members.first_nodes, members.ranks
    placements: dict[Algorithm, Placed | Refusal] = {}

    def placed(wanted: Algorithm) -> Placed | Refusal:
        if wanted not in placements:
            placements[wanted] = place_members(members, op, wanted, pairs=pairs)
        return placements[wanted]

    fitting = [rule for rule in stack.rules if rule.fits(op, nodes, ranks)]
    if algorithm is not None:
        fitting = [rule for rule in fitting if _plays(rule, algorithm)]
    limits = sorted({rule.limit_bytes(nodes) for rule in fitting} | {math.inf})
    chosen: list[Selected] = []
    start = 0.0
    for limit in limits:
        found_here = (
            _first(stack, fitting, nodes, start, limit, placed, tuning)
            if algorithm is None
            else _asked_for(stack, fitting, nodes, start, limit, placed, tuning, algorithm)
        )
        if isinstance(found_here, Refusal):
            return found_here
        last = chosen[-1] if chosen else None
        if last and (last.algorithm, last.tuning_name) == (
            found_here.algorithm,
            found_here.tuning_name,
        ):
            chosen[-1] = _selected(
                last.from_bytes,
                limit,
                last.algorithm,
                last.tuning_name,
                stack,
                last.placed,
                last.passed_over,
            )
        else:
            chosen.append(found_here)
        start = limit
    return tuple(chosen)


def selected_for(selected: Sequence[Selected], size_bytes: FloatArray) -> IntArray:
    """Return for each size the index of the choice that covers it."""
    starts = np.array([choice.from_bytes for choice in selected])
    return np.searchsorted(starts, size_bytes, side="right") - 1


def chunks_of(tuning: Tuning, phases: int, size_bytes: FloatArray) -> FloatArray:
    """Return into how many chunks a collective of these sizes is cut; 1 where nothing overlaps."""
    if phases < 2:
        return np.ones_like(size_bytes)
    return np.clip(np.ceil(size_bytes / tuning.chunk_bytes), 1.0, float(tuning.chunks))


def algorithm_named(text: str) -> Algorithm:
    """Return the algorithm a text names: "ring", "hierarchical" or "hierarchical:ring:tree"."""
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


def _asked_for(
    stack: CollectiveStack,
    rules: Sequence[Rule],
    nodes: int,
    start: float,
    limit: float,
    placed: Callable[[Algorithm], Placed | Refusal],
    tuning: str | None,
    algorithm: Algorithm,
) -> Selected | Refusal:
    tabled = [rule.tuning for rule in rules if rule.limit_bytes(nodes) >= limit]
    name = tuning or next(iter(tabled), stack.tuning_for(algorithm.name))
    wanted = replace(algorithm, pieces=stack.tuning(name).pieces)
    found = placed(wanted)
    if isinstance(found, Refusal):
        return found
    return _selected(start, limit, wanted, name, stack, found, ())


def _first(
    stack: CollectiveStack,
    rules: Sequence[Rule],
    nodes: int,
    start: float,
    limit: float,
    placed: Callable[[Algorithm], Placed | Refusal],
    tuning: str | None,
) -> Selected | Refusal:
    passed: list[str] = []
    for rule in rules:
        if rule.limit_bytes(nodes) < limit:
            continue
        name = tuning or rule.tuning
        wanted = Algorithm(
            name=rule.algorithm,
            inner=rule.inner,
            outer=rule.outer,
            pieces=stack.tuning(name).pieces,
        )
        found = placed(wanted)
        if isinstance(found, Refusal):
            why = f"{wanted.label}: {found.reason}"
            passed += [why] if why not in passed else []
        else:
            return _selected(start, limit, wanted, name, stack, found, tuple(passed))
    reasons = "; ".join(passed) or "no rule covers this group"
    return Refusal(reason=f"{stack.name} has no algorithm for it ({reasons})")


def _selected(
    start: float,
    limit: float,
    algorithm: Algorithm,
    tuning: str,
    stack: CollectiveStack,
    placed: Placed,
    passed: tuple[str, ...],
) -> Selected:
    return Selected(
        from_bytes=start,
        below_bytes=limit,
        algorithm=algorithm,
        tuning_name=tuning,
        tuning=stack.tuning(tuning),
        placed=placed,
        passed_over=passed,
    )
