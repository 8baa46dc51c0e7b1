"""Messages that slots wait for, and the waves in which all stages advance together.

A wave has at most one slot of each stage, and every message a slot waits for was sent in an earlier
wave. So start times of all stages follow wave by wave, whatever the durations.
"""

from __future__ import annotations

import numpy as np

from trnbench.facts.arrays import IntArray
from trnbench.facts.records import Record
from trnbench.program.schedule import SlotKind, SlotOrder

NONE = -1


class SlotMessages(Record, eq=False):
    """Messages between stages, by the slot that waits and by the slot that sends.

    Slots are numbered stage * slots_per_stage + slot.
    """

    sender: IntArray  # [stage, slot]: slot whose message this one waits for, or NONE
    receiver: IntArray  # [stage, slot]: stage that this slot sends to, or NONE


class Waves(Record, eq=False):
    """Waves of slots, and the wave of each slot."""

    slot: IntArray  # [wave, stage]; NONE where the stage idles
    wave: IntArray  # [stage, slot]


def messages(order: SlotOrder) -> SlotMessages:
    """Messages between slots: activations go up the model, their gradients down."""
    pp, parts = order.pp, order.pp * order.vpp
    stage = np.arange(pp)[:, None]
    # One more part at each end of the model: what comes from there waits for nothing.
    at = np.full((len(SlotKind), parts + 2, order.micro_batches), NONE, dtype=np.int64)
    part = order.chunk * pp + stage + 1
    place = (order.kind * (parts + 2) + part) * order.micro_batches + order.micro_batch
    slots = at.ravel()
    slots[place] = np.arange(order.kind.size).reshape(order.kind.shape)
    at[:, [0, -1]] = NONE
    at[SlotKind.WEIGHT] = NONE
    # Forwards go one part up, backwards one down, weight gradients nowhere.
    step = np.array([1, -1, 0])[order.kind]
    sends = (step != 0) & (part + step >= 1) & (part + step <= parts) & (pp > 1)
    return SlotMessages(
        sender=slots[place - step * order.micro_batches],
        receiver=np.where(sends, (stage + step) % pp, NONE),
    )


def waves(order: SlotOrder, sender: IntArray) -> Waves:
    """Earliest wave of every slot: each stage takes its next slot as soon as it may."""
    pp, count = order.kind.shape
    # An imaginary slot at the end of each stage waits for itself, so a stage that is done stays so.
    never, nothing = pp * (count + 1), pp * (count + 1) + 1
    padded = np.full((pp, count + 1), never, dtype=np.int64)
    padded[:, :count] = np.where(sender == NONE, nothing, sender + sender // count)
    waits_for = padded.ravel()
    done = np.zeros(nothing + 1, dtype=np.int64)
    done[nothing] = 1
    # The next slot of each stage. A wave takes those whose sender is done; a stage that has to wait
    # tries the same slot again in the next wave.
    following = np.arange(pp) * (count + 1)
    tried: list[IntArray] = []
    while True:
        taken = done[waits_for[following]]
        # There are at least as many waves as a stage has slots: no need to look before.
        if len(tried) >= count and not taken.any():
            break
        tried.append(following)
        done[following] = taken
        following = following + taken
    if not bool(done[:never].reshape(pp, count + 1)[:, :count].all()):
        raise AssertionError(f"the {order.schedule} order waits for itself")
    number = len(tried)
    # A stage tries a slot until it is taken, so of a slot's waves the last one stays.
    wave = np.empty(never, dtype=np.int64)
    wave[np.array(tried)] = np.arange(number)[:, None]
    by_stage = wave.reshape(pp, count + 1)[:, :count]
    slot = np.full((number, pp), NONE, dtype=np.int64)
    slot[by_stage, np.arange(pp)[:, None]] = np.arange(count)
    return Waves(slot=slot, wave=by_stage)
