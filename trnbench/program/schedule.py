"""Order of work on each pipeline stage: forward, backward and weights of its micro-batches.

An order is fixed before anything runs and knows no durations: the emulator plays it, the executor
follows it, the memory model counts the micro-batches in flight. Every stage has the same number of
slots. Messages cut an order into waves: a wave has at most one slot of each stage, and what a slot
waits for was sent in an earlier wave. So start times of all stages follow wave by wave, whatever
the durations. A schedule is written down as its waves; the order on a stage follows from them.

    gpipe         all forwards, then all backwards
    1f1b          pp - stage - 1 forwards ahead, then one forward, one backward in turn
    interleaved   1f1b over vpp chunks of layers a stage, micro-batches in groups of pp
    zb-h1         1f1b with the weight gradients apart: stage s holds them back by s micro-batches,
                  so that the drain, too, has work (Qi et al., Zero Bubble Pipeline Parallelism)

For pp = 3 and 4 micro-batches, 1f1b is (capitals forward, small letters backward)

    stage 0   A . B . C a D b . c . d
    stage 1   . A . B a C b D c . d .
    stage 2   . . A a B b C c D d . .
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from trnbench.errors import InputError, unhandled
from trnbench.facts.arrays import BoolArray, FloatArray, IntArray, uneven
from trnbench.facts.records import Record
from trnbench.facts.workload.layout import Schedule

WholeNumbers: TypeAlias = int | IntArray | FloatArray
"""Whole numbers; arrays of them are quicker as floats."""
NONE = -1


class SlotKind(IntEnum):
    """Work of a slot; BACKWARD includes weight gradients unless the order splits them."""

    FORWARD = 0
    BACKWARD = 1
    WEIGHT = 2


class SlotOrder(Record, eq=False):
    """Static order of work on every stage; arrays are [stage, slot]."""

    schedule: Schedule
    pp: int
    vpp: int
    micro_batches: int
    kind: IntArray
    micro_batch: IntArray
    chunk: IntArray  # chunk c of stage s is part c * pp + s of the model
    wave: IntArray  # Waves are counted from 0

    @property
    def slots_per_stage(self) -> int:
        return int(self.kind.shape[1])

    @property
    def splits_backward(self) -> bool:
        """True when weight gradients have slots of their own."""
        return splits_backward(self.schedule)

    @property
    def weight_kind(self) -> SlotKind:
        """Kind of slot that completes a micro-batch's weight gradients."""
        return SlotKind.WEIGHT if self.splits_backward else SlotKind.BACKWARD


def splits_backward(schedule: Schedule) -> bool:
    """True when a schedule gives weight gradients slots of their own."""
    return schedule == "zb-h1"


def slot_order(schedule: Schedule, *, pp: int, vpp: int = 1, micro_batches: int) -> SlotOrder:
    """Order of slots under a schedule; degrees it cannot run with are an input error."""
    reasons = schedule_reasons(schedule, pp=pp, vpp=vpp, micro_batches=micro_batches)
    if reasons:
        raise InputError("; ".join(reasons))
    index = np.arange(micro_batches * vpp)
    # Interleaved: a group of pp micro-batches goes through chunk after chunk, then the next group.
    in_group = index % (pp * vpp)
    micro_batch = index // (pp * vpp) * pp + in_group % pp if vpp > 1 else index
    chunk = in_group // pp if vpp > 1 else np.zeros_like(index)
    parts = _part_waves(schedule, pp, vpp, micro_batches)
    # On every stage, what runs in each wave if anything: read in turn, that is the order.
    runs = np.full((pp, int(parts[-1].max()) + 1), NONE)
    for number, wave in enumerate(parts):
        runs[np.arange(pp)[:, None], wave] = index + number * index.size
    busy = runs != NONE
    which = runs[busy].reshape(pp, -1)
    backwards = [vpp - 1 - chunk] * (len(parts) - 1)
    arrays = {
        "kind": np.repeat(np.arange(len(parts)), index.size)[which],
        "micro_batch": np.tile(micro_batch, len(parts))[which],
        "chunk": np.concatenate([chunk, *backwards])[which],
        "wave": np.nonzero(busy)[1].reshape(pp, -1),
    }
    for array in arrays.values():
        array.flags.writeable = False
    return SlotOrder(schedule=schedule, pp=pp, vpp=vpp, micro_batches=micro_batches, **arrays)


def _part_waves(schedule: Schedule, pp: int, vpp: int, micro_batches: int) -> tuple[IntArray, ...]:
    """Waves [stage, i] of forwards, of backwards, and of weight gradients where they have slots."""
    count = micro_batches * vpp
    index, stage = np.arange(count), np.arange(pp)[:, None]
    if splits_backward(schedule):
        # Backward i, weights i - s, forward i + pp - s in turn on stage s, every three waves.
        behind = 3 * (index + pp)
        return 3 * index + stage, behind - 2 * (stage + 1), behind + stage - 1
    # Fewer micro-batches than stages run in the waves that the first of many would have.
    ahead = forwards_ahead(
        schedule, pp=pp, vpp=vpp, micro_batches=max(micro_batches, pp), stage=stage
    )
    if ahead[-1, 0] >= count:  # the last stage, too, runs all forwards first
        return index + stage, index + count + 2 * (pp - 1) - stage
    # Slots alternate once the forwards ahead are done: forward i, then backward i - ahead.
    backward = 2 * index + ahead + pp
    return np.maximum(index + stage, backward - 2 * ahead - 1), backward


def forwards_ahead(
    schedule: Schedule,
    *,
    pp: WholeNumbers,
    vpp: WholeNumbers,
    micro_batches: WholeNumbers,
    stage: WholeNumbers,
) -> NDArray[Any]:
    """Forward slots a stage runs before it starts to alternate; arrays broadcast.

    An interleaved pipeline with one group of micro-batches (as many as stages) runs all forwards
    first, as the NxD and Megatron schedulers do.
    """
    # A stage's first backward has gone through all stages behind it; meanwhile the stage runs one
    # forward for each of these.
    total = _forwards(vpp, micro_batches)
    after = np.subtract(pp, stage) - 1
    match schedule:
        case "gpipe":
            ahead = total + 0 * after  # also of the common shape
        case "1f1b":
            ahead = after
        case "zb-h1":
            ahead = after + 1
        case "interleaved":
            # As Megatron-LM counts: a group of pp forwards for every chunk but the last, and two
            # for each stage behind.
            one_group = np.equal(micro_batches, pp)
            ahead = np.where(one_group, total, 2 * after + np.subtract(vpp, 1) * pp)
        case _:
            unhandled(schedule, "number of forward slots ahead")
    return np.asarray(np.minimum(ahead, total))


def _forwards(vpp: WholeNumbers, micro_batches: WholeNumbers) -> NDArray[Any]:
    """Forward slots of a stage in all."""
    # Most schedules have one chunk, for which large arrays need not be multiplied.
    one = np.ndim(vpp) == 0 and vpp == 1
    return np.asarray(micro_batches if one else np.multiply(micro_batches, vpp))


class InFlight(Record, eq=False):
    """Peak micro-batches that a stage holds, in whole stages: a chunk counts 1 / vpp.

    Both counts begin at the forward slot, and differ only where the schedule splits the backward.
    """

    until_backward: FloatArray  # to the end of the backward slot
    until_weight: FloatArray  # to the end of the weight gradients


def in_flight(
    schedule: Schedule,
    *,
    pp: WholeNumbers,
    vpp: WholeNumbers,
    micro_batches: WholeNumbers,
    stage: WholeNumbers,
) -> InFlight:
    """Peak micro-batches that legal schedules hold on a stage (counted from 0)."""
    total = _forwards(vpp, micro_batches)
    ahead = forwards_ahead(schedule, pp=pp, vpp=vpp, micro_batches=micro_batches, stage=stage)
    # Stage s holds weights back by s micro-batches and has pp - s in flight: pp in all on each.
    if splits_backward(schedule):
        until_weight = np.minimum(total, pp) + 0 * ahead
        return InFlight(until_backward=ahead / vpp, until_weight=until_weight / vpp)
    # One more forward runs before the first backward ends.
    held = np.asarray(np.minimum(ahead + 1, total), dtype=np.float64)
    held = held if total is micro_batches else held / vpp
    return InFlight(until_backward=held, until_weight=held)


Degrees: TypeAlias = int | IntArray | FloatArray

CHUNKS_NEED_INTERLEAVED = "chunks need the interleaved schedule"
INTERLEAVED_NEEDS_CHUNKS = "interleaved needs 2 chunks"
SCHEDULE_NEEDS_STAGES = "schedule needs 2 stages"
GROUPS_OF_STAGES = "micro-batches come in groups of pp"


def broken_rules(
    schedule: Schedule, *, pp: Degrees, vpp: Degrees, micro_batches: Degrees
) -> Mapping[str, BoolArray]:
    """Rule -> where degrees break it, over the degrees that it is about."""
    interleaved = schedule == "interleaved"
    rules: dict[str, BoolArray] = {CHUNKS_NEED_INTERLEAVED: np.greater(vpp, 1) & (not interleaved)}
    if interleaved:
        rules[INTERLEAVED_NEEDS_CHUNKS] = np.less(vpp, 2)
        rules[GROUPS_OF_STAGES] = uneven(micro_batches, pp)
    if schedule in ("interleaved", "zb-h1"):
        rules[SCHEDULE_NEEDS_STAGES] = np.less(pp, 2)
    return rules


def schedule_reasons(
    schedule: Schedule, *, pp: int, vpp: int, micro_batches: int
) -> tuple[str, ...]:
    """Reasons that the schedule cannot run with these degrees; empty if it can."""
    broken = broken_rules(schedule, pp=pp, vpp=vpp, micro_batches=micro_batches)
    texts = {
        CHUNKS_NEED_INTERLEAVED: f"vpp={vpp} needs schedule=interleaved, not {schedule}; try vpp=1",
        INTERLEAVED_NEEDS_CHUNKS: f"interleaved needs vpp of 2 or more, not {vpp}; "
        "try vpp=2, or schedule=1f1b",
        SCHEDULE_NEEDS_STAGES: f"{schedule} needs pp of 2 or more, not {pp}; "
        "try pp=2, or schedule=1f1b",
        GROUPS_OF_STAGES: f"interleaved needs micro-batches in groups of pp={pp}, "
        f"not {micro_batches}; try {_nearest_multiples(micro_batches, pp)}",
    }
    return tuple(texts[name] for name, array in broken.items() if bool(array))


def _nearest_multiples(count: int, step: int) -> str:
    below = count // step * step
    return f"{below} or {below + step}" if below else f"{step}"


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
    """Waves of an order; one in which a slot does not follow what it waits for is an error."""
    wave = order.wave
    awaited = np.append(wave.ravel(), NONE)[sender]  # NONE is the last place
    if (awaited >= wave).any() or (np.diff(wave, axis=1) <= 0).any():
        raise AssertionError(f"the {order.schedule} order waits for itself")
    slot = np.full((int(wave.max()) + 1, order.pp), NONE)
    slot[wave, np.arange(order.pp)[:, None]] = np.arange(order.slots_per_stage)
    return Waves(slot=slot, wave=wave)
