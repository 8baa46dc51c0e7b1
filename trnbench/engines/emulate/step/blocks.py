"""A block's slots as played: compute, exchanges, and the part of exchanges that compute hides.

The stack's overlap o hides o * min(exchange, compute) of an exchange in its block's slot: all of
the shorter where o is 1. Compute that hid one exchange hides no other.
"""

from __future__ import annotations

from collections.abc import Mapping

from trnbench.engines.emulate.step.compute import BlockParts
from trnbench.engines.emulate.step.exchanges import PlayedExchanges
from trnbench.engines.emulate.step.rank import NO_RUN, BusyRun, in_turn
from trnbench.facts.records import Record
from trnbench.program.block import Block
from trnbench.program.ops import CollectiveOp
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


class WorkPace(Record):
    """Factors of a stack and a slow node on the seconds of instructions."""

    compute: float
    """Factor in micro-batches."""
    update: float
    """Factor in the optimizer."""


class BlockRun(Record):
    """An instance of a block on a rank."""

    compute: Mapping[Slot, BusyRun]
    parts: Mapping[ComputePart, BusyRun]
    """Compute by part, over all slots."""
    exchanges: Mapping[tuple[Purpose, Slot], BusyRun]
    hidden_s: Mapping[tuple[Purpose, Slot], float]
    """Seconds of exchanges behind compute."""
    update: BusyRun
    """Optimizer, once a step."""
    ending: Mapping[EndOfStep, BusyRun]
    """Exchanges at the end of a step."""

    def exposed_s(self, purpose: Purpose, slot: Slot) -> float:
        """Seconds of a purpose's exchanges in a slot that nothing hides."""
        key = purpose, slot
        return self.exchanges.get(key, NO_RUN).time_s - self.hidden_s.get(key, 0.0)

    def length_s(self, slot: Slot) -> float:
        """Length of a slot, s."""
        exposed = (self.exposed_s(purpose, of) for purpose, of in self.exchanges if of == slot)
        return self.compute.get(slot, NO_RUN).time_s + sum(exposed)


def block_run(
    block: Block,
    computed: BlockParts,
    exchanges: PlayedExchanges,
    pace: WorkPace,
    *,
    split: bool,
) -> BlockRun:
    """A block's run."""
    compute: dict[Slot, list[BusyRun]] = {}
    parts: dict[ComputePart, list[BusyRun]] = {}
    update: list[BusyRun] = []
    for (phase, category), run in computed.items():
        slot = slot_of(phase, split=split)
        if slot is None:
            update.append(run.times(pace.update))
            continue
        slower = run.times(pace.compute)
        compute.setdefault(slot, []).append(slower)
        parts.setdefault(PART_OF[category], []).append(slower)
    ending: dict[EndOfStep, list[BusyRun]] = {}
    exchanged: dict[tuple[Purpose, Slot], list[BusyRun]] = {}
    for op in sorted(block.collectives, key=_purpose):
        if not float(op.count):
            continue
        slot, run = slot_of(op.phase, split=split), exchanges.collective(op)
        if slot is None:
            ending.setdefault(ending_of(op), []).append(run)
        else:
            exchanged.setdefault((purpose_of(op.axis), slot), []).append(run)
    slots = {slot: in_turn(runs) for slot, runs in compute.items()}
    whole = {key: in_turn(runs) for key, runs in exchanged.items()}
    return BlockRun(
        compute=slots,
        parts={part: in_turn(runs) for part, runs in parts.items()},
        exchanges=whole,
        hidden_s=_hidden(slots, whole, exchanges),
        update=in_turn(update),
        ending={what: in_turn(runs) for what, runs in ending.items()},
    )


def _purpose(op: CollectiveOp) -> int:
    once = slot_of(op.phase, split=False) is None
    return len(PURPOSES) if once else PURPOSES.index(purpose_of(op.axis))


def _hidden(
    compute: Mapping[Slot, BusyRun],
    exchanged: Mapping[tuple[Purpose, Slot], BusyRun],
    exchanges: PlayedExchanges,
) -> Mapping[tuple[Purpose, Slot], float]:
    free_s = {slot: run.time_s for slot, run in compute.items()}
    hidden: dict[tuple[Purpose, Slot], float] = {}
    for (purpose, slot), run in exchanged.items():
        share = exchanges.overlap(purpose)
        hidden[purpose, slot] = share * min(run.time_s, free_s.get(slot, 0.0))
        if slot in free_s:
            free_s[slot] -= hidden[purpose, slot]
    return hidden
