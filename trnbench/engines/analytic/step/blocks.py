"""Seconds of one instance of a block, in each slot of a micro-batch and at the end of a step.

Model. A slot (forward, backward, weight gradients) computes, and exchanges with other ranks. An
overlap o hides o * min(exchange, compute) of an exchange: all of the shorter where o is 1. Compute
that hid one exchange hides no other. Schedules that do not split the backward run weight gradients
in the backward slot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Literal, TypeAlias, TypeVar

import numpy as np

from trnbench.engines.analytic.step.compute import BlockSeconds
from trnbench.facts.arrays import FloatArray, some
from trnbench.facts.calibration.training_stack import Overlaps
from trnbench.facts.records import Record
from trnbench.program.block import Block
from trnbench.program.ops import CollectiveOp
from trnbench.program.points import Pick
from trnbench.program.slots import (
    PART_OF,
    PURPOSES,
    ComputePart,
    EndOfStep,
    Purpose,
    Slot,
    ending_of,
    purpose_of,
    slot_of,
)

Key = TypeVar("Key")
Once: TypeAlias = EndOfStep | Literal["update", "host link", "host memory"]
"""What a block costs once a step: exchanges, the optimizer on the device, or on the host the
transfers over the link to its memory and the traffic of that memory.
"""
NOTHING: FloatArray = np.zeros(())


class BlockPrices(Record, eq=False):
    """Seconds of one instance of a block, nothing hidden, over the axes each depends on."""

    compute: Mapping[Slot, FloatArray]
    parts: Mapping[ComputePart, FloatArray]  # Compute by category, all slots together
    exchanges: Mapping[tuple[Purpose, Slot], FloatArray]
    once: Mapping[Once, FloatArray]
    find_crossing_s: Callable[[], Sequence[FloatArray]]

    @cached_property
    def crossing_s(self) -> Sequence[FloatArray]:
        """Exchanges between nodes in the slot that computes weight gradients, in parts."""
        # These matter only where gradients are summed at the end.
        return self.find_crossing_s()

    def at(self, pick: Pick, slowdown: FloatArray, overlaps: Overlaps) -> BlockCost:
        """Costs of the layouts that `pick` takes, with compute slower by `slowdown`."""
        compute = {slot: pick(seconds) * slowdown for slot, seconds in self.compute.items()}
        picked = ((key, pick(seconds)) for key, seconds in self.exchanges.items())
        exchanges = {key: seconds for key, seconds in picked if some(seconds)}
        # Exchanges take their cover in the order of PURPOSES.
        hidden: dict[tuple[Purpose, Slot], FloatArray] = {}
        unused = dict(compute)
        for (purpose, slot), seconds in exchanges.items():
            share = getattr(overlaps, purpose)
            if some(share):
                uncovered = unused.get(slot, NOTHING)
                hidden[purpose, slot] = share * np.minimum(seconds, uncovered)
                unused[slot] = uncovered - hidden[purpose, slot]
        return BlockCost(compute=compute, exchanges=exchanges, hidden=hidden, unused=unused)


class BlockCost(Record, eq=False):
    """Seconds of one instance of a block by slot: compute, exchanges, hidden part of exchanges."""

    compute: Mapping[Slot, FloatArray]
    exchanges: Mapping[tuple[Purpose, Slot], FloatArray]
    hidden: Mapping[tuple[Purpose, Slot], FloatArray]
    unused: Mapping[Slot, FloatArray]  # Compute that hides nothing

    def exposed(self, purpose: Purpose, slot: Slot) -> FloatArray:
        """Exposed seconds of a purpose's exchanges in a slot."""
        seconds = self.exchanges.get((purpose, slot), NOTHING)
        if (purpose, slot) in self.hidden:
            return np.asarray(seconds - self.hidden[purpose, slot])
        return seconds

    def exposed_in_all(self, purpose: Purpose) -> FloatArray:
        return total(self.exposed(*key) for key in self.exchanges if key[0] == purpose)

    def hidden_in_all(self, purpose: Purpose) -> FloatArray:
        return total(seconds for key, seconds in self.hidden.items() if key[0] == purpose)

    def seconds(self, slot: Slot) -> FloatArray:
        """Seconds of a slot: its exchanges, and compute that runs beside none of them."""
        exchanges = (seconds for (_, of), seconds in self.exchanges.items() if of == slot)
        return np.asarray(sum(exchanges, start=self.unused.get(slot, NOTHING)))


def _some(seconds: dict[Key, FloatArray]) -> dict[Key, FloatArray]:
    return {key: value for key, value in seconds.items() if some(value)}


def plus(so_far: FloatArray, seconds: FloatArray) -> FloatArray:
    return seconds if so_far is NOTHING else so_far + seconds


def repeated(count: FloatArray, seconds: FloatArray) -> FloatArray:
    return seconds if count.size == 1 and count.item() == 1 else count * seconds


def total(terms: Iterable[FloatArray]) -> FloatArray:
    each = list(terms)
    return np.asarray(sum(each[1:], start=each[0])) if each else NOTHING


def weighted(counts: Mapping[str, FloatArray], seconds: Mapping[str, FloatArray]) -> FloatArray:
    return total(
        repeated(count, seconds[kind])
        for kind, count in counts.items()
        if seconds[kind] is not NOTHING
    )


def block_prices(
    block: Block,
    computed: BlockSeconds,
    exchanged: Callable[[CollectiveOp], FloatArray],
    crosses: Callable[[CollectiveOp], FloatArray],
    *,
    split: bool,
) -> BlockPrices:
    """Prices of a block from its compute and the seconds of each exchange.

    `crosses`: 1 where an exchange runs between nodes, 0 where inside them.
    """
    last = slot_of("B_weight", split=split)
    compute: dict[Slot, FloatArray] = {}
    parts: dict[ComputePart, FloatArray] = {}
    exchanges: dict[tuple[Purpose, Slot], FloatArray] = {}
    once: dict[Once, FloatArray] = {}
    for (phase, category), seconds in computed.parts.items():
        slot, part = slot_of(phase, split=split), PART_OF[category]
        if slot is None:
            once["update"] = plus(once.get("update", NOTHING), seconds)
            continue
        compute[slot] = plus(compute.get(slot, NOTHING), seconds)
        parts[part] = plus(parts.get(part, NOTHING), seconds)
    for op in block.collectives:
        seconds, slot = exchanged(op), slot_of(op.phase, split=split)
        if slot is None:
            ending = ending_of(op)
            once[ending] = plus(once.get(ending, NOTHING), seconds)
            continue
        key = purpose_of(op.axis), slot
        exchanges[key] = plus(exchanges.get(key, NOTHING), seconds)

    def crossing_s() -> Sequence[FloatArray]:
        # Added up where they span the same axes: all of them together may span many more.
        parts: dict[tuple[int, ...], FloatArray] = {}
        for op in block.collectives:
            if slot_of(op.phase, split=split) == last and some(between := crosses(op)):
                seconds = exchanged(op) * between
                parts[seconds.shape] = plus(parts.get(seconds.shape, NOTHING), seconds)
        return [part for part in parts.values() if some(part)]

    return BlockPrices(
        compute=_some(compute),
        parts=_some(parts),
        exchanges=_some(dict(sorted(exchanges.items(), key=lambda it: PURPOSES.index(it[0][0])))),
        once=once,
        find_crossing_s=crossing_s,
    )
