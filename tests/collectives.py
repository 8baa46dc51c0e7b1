"""Plans of one collective, and collectives of any groups, as tests ask for them."""

from __future__ import annotations

from trnbench.facts.arrays import IntArray
from trnbench.facts.calibration.collective_stack import CollectiveStack
from trnbench.facts.workload.choices import Op
from trnbench.machine.message_plan.algorithm import Algorithm, Refusal
from trnbench.machine.message_plan.build import outline, plan_of
from trnbench.machine.message_plan.members import members_of
from trnbench.machine.message_plan.placed import Placed, place_members
from trnbench.machine.message_plan.plan import MessagePlan
from trnbench.machine.message_plan.select import Selected, select_for
from trnbench.machine.placement import Groups, Placement, grid_of


def build_plan(
    placement: Placement,
    op: Op,
    group: IntArray,
    algorithm: Algorithm,
    pairs: IntArray | None = None,
) -> MessagePlan | Refusal:
    """Return the plan of one collective among the ranks `group`, or why there is none.

    `pairs` are (from, to) numbers within the group, for permute and send-receive; left out, each
    rank sends to the next.
    """
    found = outline(placement, op, grid_of(placement, group), algorithm, pairs)
    return found if isinstance(found, Refusal) else plan_of(found)


def place_collective(
    placement: Placement,
    op: Op,
    groups: Groups,
    algorithm: Algorithm,
    *,
    pairs: IntArray | None = None,
    symmetric: bool = True,
) -> Placed | Refusal:
    """Return a collective run by all `groups` at once (lists of ranks of equal length).

    `symmetric` allows one node to stand for all where they do the same.
    """
    members = members_of(placement, groups, symmetric=symmetric)
    return place_members(members, op, algorithm, pairs=pairs)


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
    """Algorithms by size (rising), or a refusal if none can run.

    `algorithm` and `tuning` overrule the stack's table; an algorithm asked for keeps the tunings
    and pieces that the table gives it.
    """
    members = members_of(placement, groups, symmetric=symmetric)
    return select_for(stack, members, op, algorithm=algorithm, tuning=tuning, pairs=pairs)
