"""The functional engine: a plan's messages carry real numbers, and every rank is checked.

All messages of a round read what the rounds before have left, as in the timed engine. Held are
whole and small, so sums are exact in any order and the result must match to the bit.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from trnbench.errors import InputError, unhandled
from trnbench.facts.arrays import BoolArray, IntArray
from trnbench.facts.records import Record
from trnbench.machine.message_plan.plan import MessagePlan, Moves

HeldData: TypeAlias = NDArray[np.int32]
_LARGEST_VALUE = 1000
_MOST_NUMBERS = 16_000_000
_MOST_PIECES = 64_000_000  # Together less than 1 GB


class DataCheck(Record):
    """Result of a check that every rank ended with exactly the right data."""

    passed: bool
    ranks: int
    elements: int
    wrong_elements: int


def check_data(plan: MessagePlan, elements: int, *, seed: int = 0) -> DataCheck:
    """Check of a plan with buffers of `elements` numbers at each rank.

    Elements are dealt to ranks as evenly as whole numbers allow; some segments may be empty.
    """
    if elements < 1:
        raise InputError(f"a data check needs at least 1 element, not {elements}")
    if elements > most_checked(plan):
        raise InputError(
            f"a data check of {plan.ranks} ranks with {elements} elements needs "
            f"{elements * _numbers(plan):,} numbers",
            hint=f"at most {_MOST_NUMBERS:,}; check fewer elements or ranks",
        )
    pieces = plan.segments if plan.items else plan.ranks * plan.segments
    if pieces > _MOST_PIECES:
        raise InputError(
            f"a data check of {plan.ranks} ranks moves {pieces:,} pieces",
            hint=f"at most {_MOST_PIECES:,}; check fewer ranks",
        )
    generator = np.random.default_rng(seed)
    bounds = _bounds(plan, elements)
    width = int(bounds[-1])
    given = generator.integers(1, _LARGEST_VALUE, (plan.ranks, width), dtype=np.int32)
    held, wanted, matters = _ends(plan, given, bounds)
    for phase in plan.phases:
        at = 0
        for _, times in phase.pattern.distinct_rounds:
            for _ in range(times):
                _carry(held, plan.moves(phase, at), bounds)
                at += 1
    wrong = (held != wanted) & matters
    return DataCheck(
        passed=not wrong.any(), ranks=plan.ranks, elements=elements, wrong_elements=int(wrong.sum())
    )


def most_checked(plan: MessagePlan) -> int:
    """Largest number of elements in a rank's buffer for a check; 0 for too many ranks."""
    return _MOST_NUMBERS // _numbers(plan)


def _numbers(plan: MessagePlan) -> int:
    if plan.pairs is not None:
        return max(plan.ranks * len(plan.pairs) * plan.channels, 1)
    return plan.ranks**2 if plan.items else plan.ranks


def _bounds(plan: MessagePlan, elements: int) -> IntArray:
    """Start of each segment; items of all-to-all each get a share of the buffer."""
    # Pairs that exchange nothing have no room.
    if not plan.items:
        return np.arange(plan.segments + 1) * elements // plan.segments
    if plan.pairs is not None:
        room = np.zeros(plan.blocks, dtype=np.int64)
        room[plan.pairs[:, 0] * plan.ranks + plan.pairs[:, 1]] = elements
        return np.concatenate([[0], np.cumsum(np.repeat(room, plan.channels))])
    one_rank = np.diff(np.arange(plan.ranks + 1) * elements // plan.ranks)
    return np.concatenate([[0], np.cumsum(np.tile(one_rank, plan.ranks))])


def _of_blocks(plan: MessagePlan, blocks: IntArray, bounds: IntArray) -> BoolArray:
    """[row, element]: True where an element belongs to the row's block."""
    start = bounds[blocks * plan.channels]
    stop = bounds[(blocks + 1) * plan.channels]
    element = np.arange(bounds[-1])
    return (element >= start[:, None]) & (element < stop[:, None])


def _item_masks(plan: MessagePlan, bounds: IntArray) -> tuple[BoolArray, BoolArray]:
    """Masks of the elements that each rank has at the start and must have at the end."""
    item = np.searchsorted(bounds, np.arange(bounds[-1]), side="right") - 1
    sender, goal = np.divmod(item // plan.channels, plan.ranks)
    rank = np.arange(plan.ranks)[:, None]
    if plan.pairs is not None:
        listed = np.zeros((plan.ranks, plan.ranks), dtype=bool)
        listed[plan.pairs[:, 0], plan.pairs[:, 1]] = True
        moved = listed[sender, goal]
        return (sender == rank) & moved, (goal == rank) & moved
    return sender == rank, goal == rank


def _ends(
    plan: MessagePlan, given: HeldData, bounds: IntArray
) -> tuple[HeldData, HeldData, BoolArray]:
    """Buffers at the start, zero where one holds nothing; at the end; the elements that matter."""
    everything = np.ones(given.shape, dtype=bool)

    def summed(numbers: HeldData) -> HeldData:
        return np.broadcast_to(numbers.sum(axis=0, dtype=np.int32), given.shape)

    match plan.op:
        case "all-reduce":
            return given.copy(), summed(given), everything
        case "reduce-scatter":
            return given.copy(), summed(given), _of_blocks(plan, plan.owner, bounds)
        case "all-gather":
            mine = _of_blocks(plan, plan.owner, bounds)
            return np.where(mine, given, 0), summed(given * mine), everything
        case "broadcast":
            roots = (plan.place == 0).all(axis=1)
            whole = np.broadcast_to(given[int(np.flatnonzero(roots)[0])], given.shape)
            return np.where(roots[:, None], given, 0), whole, everything
        case "all-to-all" | "permute" | "send-receive":
            held, wanted = _item_masks(plan, bounds)
            return np.where(held, given, 0), summed(given * held), wanted
        case _:
            unhandled(plan.op, "buffers to start and to end with")


def _carry(held: HeldData, moves: Moves, bounds: IntArray) -> None:
    """Apply one round: all reads first, then copies, then sums."""
    # One row of numbers a move, flattened: reading all before writing makes the round simultaneous.
    size = bounds[moves.segment + 1] - bounds[moves.segment]
    move = np.repeat(np.arange(len(size)), size)
    start = np.cumsum(size) - size
    element = np.arange(len(move)) - start[move] + bounds[moves.segment][move]
    value = held[moves.source[move], element]
    target = moves.target[move]
    adds = moves.reduces[move]
    held[target[~adds], element[~adds]] = value[~adds]
    np.add.at(held, (target[adds], element[adds]), value[adds])
