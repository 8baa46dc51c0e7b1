"""Launches of a host for a block: passes through its layer, and exchanges with other ranks."""

from __future__ import annotations

from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import Record, replace
from trnbench.program.block import Block
from trnbench.program.slots import PASSES, Slot, is_whole, slot_of
from trnbench.program.tensor import array


class Launches(Record, eq=False):
    """Launches of one slot of a block."""

    passes: int  # through the whole layer
    exchanges: FloatArray  # collectives
    members: FloatArray  # ranks of these collectives, summed over them


_NONE = Launches(passes=0, exchanges=array(0), members=array(0))


def launches(block: Block, *, split: bool) -> dict[Slot, Launches]:
    """Launches of each slot of a block."""
    found: dict[Slot, Launches] = {}
    for phase in PASSES:
        slot = slot_of(phase, split=split)
        if slot is not None and is_whole(block, phase):
            one = found.get(slot, _NONE)
            found[slot] = replace(one, passes=one.passes + 1)
    for op in block.collectives:
        slot = slot_of(op.phase, split=split)
        if slot is not None:
            one = found.get(slot, _NONE)
            found[slot] = replace(
                one,
                exchanges=one.exchanges + op.count,
                members=one.members + op.count * op.ranks,
            )
    return found
