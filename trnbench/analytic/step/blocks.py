"""Seconds of one instance of a block in each slot of a micro-batch and at the end of a step.

Model. A slot (forward, backward, weight gradients) computes, and exchanges with other ranks. Of an
exchange, an overlap o hides o * min(exchange, compute): all of the shorter one where o is 1. What
one exchange hid behind, the next cannot hide behind again. Schedules that do not split the backward
run weight gradients in the backward slot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

import numpy as np

from trnbench.analytic.step.compute import BlockSeconds, ComputeCategory
from trnbench.arrays import FloatArray
from trnbench.calibration.training_stack import Overlaps
from trnbench.errors import GapError, unhandled
from trnbench.program.block import Block
from trnbench.program.ops import CollectiveOp, Phase
from trnbench.program.points import Pick

Slot = Literal["forward", "backward", "weight"]
Purpose = Literal["tensor", "context", "expert", "data"]
"""Why ranks exchange inside a block; `data` are weights and gradients kept in slices."""
ComputePart = Literal["matrix", "attention", "element-wise", "fixed"]
SLOTS: tuple[Slot, ...] = get_args(Slot)
PURPOSES: tuple[Purpose, ...] = get_args(Purpose)
PARTS: tuple[ComputePart, ...] = get_args(ComputePart)


_PART_OF: Mapping[ComputeCategory, ComputePart] = {
    "matrix": "matrix",
    "attention": "attention",
    "element-wise": "element-wise",
    "gather": "element-wise",
    "fixed": "fixed",
}
_PURPOSE_OF: Mapping[str, Purpose] = {
    "tp": "tensor",
    "kv_copies": "tensor",
    "cp": "context",
    "ep": "expert",
    "data": "data",
    "expert_data": "data",
}
_SUMMED = ("tp", "kv_copies", "tied")
"""Axes over which gradients are summed at the end of a step, whether or not there are replicas."""
Key = TypeVar("Key")
NOTHING: FloatArray = np.zeros(())


def purpose_of(axis: str) -> Purpose:
    """Return the purpose of exchanges along an axis inside a block."""
    if axis not in _PURPOSE_OF:
        raise GapError(axis, "purpose among the exchanges of a step")
    return _PURPOSE_OF[axis]


def slot_of(phase: Phase, *, split: bool) -> Slot | None:
    """Return the slot in which a phase runs; None for what runs once a step."""
    match phase:
        case "F":
            return "forward"
        case "recompute" | "B_input":
            return "backward"
        case "B_weight":
            return "weight" if split else "backward"
        case "optimizer":
            return None
        case _:
            unhandled(phase, "slot of a step")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockPrices:
    """Seconds of one instance of a block, nothing hidden, over the axes each depends on.

    `compute` by slot, `parts` of it over all slots; `exchanges` by purpose and slot. Once a step:
    `reduce_s` of gradients over replicas, `gather_s` of weights, `sums_s` of gradients over other
    ranks, `update_s` of the optimizer. `crossing_s`: those of the exchanges that run between nodes
    in the slot that computes weight gradients.
    """

    compute: Mapping[Slot, FloatArray]
    parts: Mapping[ComputePart, FloatArray]
    exchanges: Mapping[tuple[Purpose, Slot], FloatArray]
    reduce_s: FloatArray
    gather_s: FloatArray
    sums_s: FloatArray
    update_s: FloatArray
    crossing_s: FloatArray

    def at(self, pick: Pick, slowdown: FloatArray, overlaps: Overlaps) -> BlockCost:
        """Return the cost where compute takes `slowdown` times as long."""
        compute = {slot: pick(seconds) * slowdown for slot, seconds in self.compute.items()}
        exchanges = {key: pick(seconds) for key, seconds in self.exchanges.items()}
        hidden: dict[tuple[Purpose, Slot], FloatArray] = {}
        free = dict(compute)
        for (purpose, slot), seconds in exchanges.items():
            share = getattr(overlaps, purpose)
            if np.any(share):
                uncovered = free.get(slot, NOTHING)
                hidden[purpose, slot] = share * np.minimum(seconds, uncovered)
                free[slot] = uncovered - hidden[purpose, slot]
        return BlockCost(compute=compute, exchanges=exchanges, hidden=hidden)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockCost:
    """Seconds of one instance of a block by slot: compute, exchanges, hidden part of exchanges."""

    compute: Mapping[Slot, FloatArray]
    exchanges: Mapping[tuple[Purpose, Slot], FloatArray]
    hidden: Mapping[tuple[Purpose, Slot], FloatArray]

    def exposed(self, purpose: Purpose, slot: Slot) -> FloatArray:
        """Return the exposed seconds of a purpose's exchanges in a slot."""
        seconds = self.exchanges.get((purpose, slot), NOTHING)
        if (purpose, slot) in self.hidden:
            return np.asarray(seconds - self.hidden[purpose, slot])
        return seconds

    def exposed_in_all(self, purpose: Purpose) -> FloatArray:
        """Return the exposed seconds of a purpose's exchanges in all slots together."""
        return total(self.exposed(*key) for key in self.exchanges if key[0] == purpose)

    def hidden_in_all(self, purpose: Purpose) -> FloatArray:
        """Return the seconds of a purpose's exchanges that compute hides, all slots together."""
        return total(seconds for key, seconds in self.hidden.items() if key[0] == purpose)

    def seconds(self, slot: Slot) -> FloatArray:
        """Return the length of a slot, s."""
        exposed = (self.exposed(purpose, of) for purpose, of in self.exchanges if of == slot)
        return np.asarray(sum(exposed, start=self.compute.get(slot, NOTHING)))


def _some(seconds: dict[Key, FloatArray]) -> dict[Key, FloatArray]:
    """Return the seconds that are not 0 in every layout."""
    return {key: value for key, value in seconds.items() if _any(value)}


def _any(seconds: FloatArray) -> bool:
    """Return whether any layout has more than 0 seconds."""
    # The first layout mostly has some, which spares a pass over all of them.
    return bool(seconds.flat[0]) or bool(np.any(seconds))


def _with(so_far: FloatArray, seconds: FloatArray) -> FloatArray:
    """Return so_far + seconds; `NOTHING` is known to be 0 without looking at the array."""
    return seconds if so_far is NOTHING else so_far + seconds


def total(terms: Iterable[FloatArray]) -> FloatArray:
    """Return the sum of the terms, NOTHING if there are none."""
    found = list(terms)
    return np.asarray(sum(found[1:], start=found[0])) if found else NOTHING


def block_prices(
    block: Block,
    computed: BlockSeconds,
    exchanged: Callable[[CollectiveOp], FloatArray],
    crosses: Callable[[CollectiveOp], FloatArray],
    *,
    split: bool,
) -> BlockPrices:
    """Return the prices of a block from its compute, and each exchange's seconds.

    `crosses`: 1 where an exchange runs between nodes, 0 where inside them.
    """
    last = slot_of("B_weight", split=split)
    compute: dict[Slot, FloatArray] = {}
    parts: dict[ComputePart, FloatArray] = {}
    exchanges: dict[tuple[Purpose, Slot], FloatArray] = {}
    reduce_s, gather_s, sums_s, update_s = NOTHING, NOTHING, NOTHING, NOTHING
    crossing_s = NOTHING
    for (phase, category), seconds in computed.parts.items():
        slot, part = slot_of(phase, split=split), _PART_OF[category]
        if slot is None:
            update_s = _with(update_s, seconds)
            continue
        compute[slot] = _with(compute.get(slot, NOTHING), seconds)
        parts[part] = _with(parts.get(part, NOTHING), seconds)
    for op in block.collectives:
        seconds, slot = exchanged(op), slot_of(op.phase, split=split)
        if slot is not None:
            key = purpose_of(op.axis), slot
            exchanges[key] = _with(exchanges.get(key, NOTHING), seconds)
            if slot == last and np.any(between := crosses(op)):
                crossing_s = _with(crossing_s, seconds * between)
        elif op.axis in _SUMMED:
            sums_s = _with(sums_s, seconds)
        elif purpose_of(op.axis) != "data":
            raise GapError(op.axis, "exchange at the end of a step")
        elif op.op == "all-gather":
            gather_s = _with(gather_s, seconds)
        elif op.op in ("reduce-scatter", "all-reduce"):
            reduce_s = _with(reduce_s, seconds)
        else:
            raise GapError(op.op, "price at the end of a step")
    return BlockPrices(
        compute=_some(compute),
        parts=_some(parts),
        exchanges=_some(dict(sorted(exchanges.items(), key=lambda it: PURPOSES.index(it[0][0])))),
        reduce_s=reduce_s,
        gather_s=gather_s,
        sums_s=sums_s,
        update_s=update_s,
        crossing_s=crossing_s if _any(crossing_s) else NOTHING,
    )
