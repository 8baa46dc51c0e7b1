"""From played blocks to the stages of a pipeline, and back: seconds of a step by category.

The layers of a stage are spread evenly over its chunks. Blocks in front of the first layer are part
of the first stage's first chunk, blocks behind the last layer of the last stage's last chunk.

Exchanges. The stack's overlap o hides o * min(exchange, compute) of an exchange in its block's
slot: all of the shorter where o is 1. Compute that hid one exchange hides no other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from trnbench.engines.emulate.schedule.play import PlayedSchedule
from trnbench.engines.emulate.schedule.times import (
    EndingTimes,
    OverlapRules,
    Sends,
    Shares,
    SlotCollective,
    StageTimes,
)
from trnbench.engines.emulate.step.compute import BlockParts
from trnbench.engines.emulate.step.exchanges import PlayedExchanges
from trnbench.engines.emulate.step.rank import NO_RUN, BusyRun, in_turn
from trnbench.facts.arrays import FloatArray
from trnbench.facts.calibration.training_stack import Overlaps
from trnbench.facts.records import Record
from trnbench.program.block import Block
from trnbench.program.blocks import layers_of
from trnbench.program.ops import CollectiveOp
from trnbench.program.slots import (
    ENDINGS,
    PART_OF,
    PARTS,
    PURPOSES,
    SLOTS,
    STEP_CATEGORIES,
    ComputePart,
    EndOfStep,
    Lane,
    Purpose,
    Slot,
    SlotTimes,
    StepCategory,
    ending_of,
    purpose_of,
    slot_of,
)
from trnbench.program.stages import AGAIN
from trnbench.program.step import StepProgram


class BlockRun(Record):
    """An instance of a block on a rank."""

    compute: Mapping[Slot, BusyRun]
    parts: Mapping[ComputePart, BusyRun]  # Compute by part, over all slots
    exchanges: Mapping[tuple[Purpose, Slot], BusyRun]
    hidden_s: Mapping[tuple[Purpose, Slot], float]  # Seconds of exchanges behind compute
    update: BusyRun  # Optimizer, once a step
    ending: Mapping[EndOfStep, BusyRun]  # Exchanges at the end of a step

    def exposed_s(self, purpose: Purpose, slot: Slot) -> float:
        key = purpose, slot
        return self.exchanges.get(key, NO_RUN).time_s - self.hidden_s.get(key, 0.0)

    def length_s(self, slot: Slot) -> float:
        exposed = (self.exposed_s(purpose, of) for purpose, of in self.exchanges if of == slot)
        return self.compute.get(slot, NO_RUN).time_s + sum(exposed)


def block_run(
    block: Block,
    computed: BlockParts,
    exchanges: PlayedExchanges,
    factors: tuple[float, float],
    *,
    split: bool,
) -> BlockRun:
    """A block's run; `factors` on seconds of micro-batches, and of the optimizer."""
    compute: dict[Slot, list[BusyRun]] = {}
    parts: dict[ComputePart, list[BusyRun]] = {}
    update: list[BusyRun] = []
    for (phase, category), run in computed.items():
        slot = slot_of(phase, split=split)
        if slot is None:
            update.append(run.times(factors[1]))
            continue
        slower = run.times(factors[0])
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


BlockCounts = Mapping[str, float]  # Instances of each kind of block on a chunk, or on a whole stage


def chunk_counts(program: StepProgram) -> tuple[tuple[BlockCounts, ...], ...]:
    """Instances of each kind of block on each chunk of each stage."""
    chunks = int(program.grid.vpp)
    layers = layers_of(program.model, program.grid)
    led = layers.dense and "dense" not in layers.kinds
    dense = {"dense", f"dense{AGAIN}"} if led else set[str]()
    in_front = layers.with_beside({*layers.first, *dense})
    behind = layers.with_beside((*layers.last, *layers.depths))
    # Stages alike are one record with a multiplicity; a schedule needs each of them by itself.
    stages: list[tuple[BlockCounts, ...]] = []
    for stage in program.stages:
        if stage.chunks:
            drawn = ({k: float(n) for k, n in chunk.items() if n} for chunk in stage.chunks)
            stages += [tuple(drawn)] * int(stage.multiplicity)
            continue
        counts = {kind: float(count) for kind, count in stage.blocks.items() if float(count)}
        chunked: list[dict[str, float]] = [{} for _ in range(chunks)]
        for kind, count in counts.items():
            if kind in in_front:
                chunked[0][kind] = count
            elif kind in behind:
                chunked[-1][kind] = count
            else:
                for chunk in chunked:
                    chunk[kind] = count / chunks
        stages += [tuple(chunked)] * int(stage.multiplicity)
    return tuple(stages)


def stage_counts(chunks: Sequence[BlockCounts]) -> BlockCounts:
    """Instances of each kind of block on all chunks of a stage."""
    return {
        kind: sum(chunk.get(kind, 0.0) for chunk in chunks)
        for kind in dict.fromkeys(kind for chunk in chunks for kind in chunk)
    }


class PlayedStages(Record, eq=False):
    """The stages of a pipeline: blocks of their chunks, and seconds beside these."""

    chunks: tuple[tuple[BlockCounts, ...], ...]
    blocks: Mapping[str, BlockRun]
    lanes: Mapping[Purpose, Lane]
    micro_batches: int
    launch_s: float  # Cost of a micro-batch in the stack, half in each direction
    once_s: float  # Cost of a step in the stack
    waited: tuple[Mapping[Slot, float], ...]  # s for the host in a micro-batch, by stage
    waited_once_s: float  # Seconds of waits for the host by the optimizer
    host_updates_s: Sequence[float]  # of each stage, for an optimizer on the host
    message: BusyRun  # to the next stage; `latency_s`: without its bytes
    latency_s: float
    send_lane: Lane
    closing: BusyRun  # The exchange that ends the step

    def table(self, read: Callable[[BlockRun], float]) -> FloatArray:
        """A number of blocks added up for each chunk [stage, chunk]."""
        of_kind = {kind: read(block) for kind, block in self.blocks.items()}
        return np.array(
            [
                [sum(count * of_kind[kind] for kind, count in chunk.items()) for chunk in stage]
                for stage in self.chunks
            ]
        )

    def blocks_of(self, stage: int) -> tuple[tuple[BlockRun, float], ...]:
        counts = stage_counts(self.chunks[stage])
        return tuple((self.blocks[kind], count) for kind, count in counts.items())


def stage_times(stages: PlayedStages) -> StageTimes:
    """Times of every chunk [message, stage, chunk].

    The leading axis holds the step with its messages, then one whose messages take no time.
    """
    count, chunks, updates_s = len(stages.chunks), len(stages.chunks[0]), stages.host_updates_s
    # The second play shows what messages cost: the difference of the two, ends of slots compared.
    messages = np.array([1.0, 0.0])[:, None, None]
    lane = (stages.send_lane,) * count
    send_s = messages * np.full((count, 1), stages.message.time_s - stages.latency_s)
    per_slot = stages.launch_s / 2 / chunks
    launched: Mapping[Slot, float] = {"forward": per_slot, "backward": per_slot}

    def compute(slot: Slot) -> FloatArray:
        waited = np.array([of.get(slot, 0.0) / chunks for of in stages.waited])[:, None]
        own = stages.table(lambda block: block.compute.get(slot, NO_RUN).time_s)
        return np.asarray(own + waited + launched.get(slot, 0.0))

    def exchanged(purpose: Purpose) -> Callable[[Slot], FloatArray]:
        return lambda slot: stages.table(
            lambda block: block.exchanges.get((purpose, slot), NO_RUN).time_s
        )

    def once(ending: EndOfStep) -> FloatArray:
        return stages.table(lambda block: block.ending.get(ending, NO_RUN).time_s)

    return StageTimes(
        compute=_slots(compute),
        collectives=tuple(
            SlotCollective(
                name=purpose, lane=stages.lanes[purpose], times=_slots(exchanged(purpose))
            )
            for purpose in PURPOSES
            if purpose in stages.lanes
        ),
        sends=Sends(
            forward_s=send_s,
            backward_s=send_s,
            latency_s=messages * np.full((count, 1), stages.latency_s),
            forward_lane=lane,
            backward_lane=lane,
        ),
        ending=EndingTimes(
            gradients_s=once("reduce"),
            sums_s=once("sums") + stages.closing.time_s / chunks,
            optimizer_s=stages.table(lambda block: block.update.time_s)
            + (np.array(updates_s)[:, None] / chunks if updates_s else 0.0),
            parameters_s=once("gather"),
        ),
    )


def overlap_rules(
    stages: PlayedStages, overlaps: Overlaps, traffic: Mapping[Purpose, float]
) -> OverlapRules:
    """Overlaps of a step: exchanges inside slots, up to the part that their blocks hide.

    `traffic`: share of each purpose's exchanges that holds up the reduction of gradients.
    """

    def hidden(purpose: Purpose, slot: Slot) -> FloatArray:
        key = purpose, slot
        whole = stages.table(lambda block: block.exchanges.get(key, NO_RUN).time_s)
        part = stages.table(lambda block: block.hidden_s.get(key, 0.0))
        share = np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
        return np.clip(share, 0.0, 1.0)

    def shares(purpose: Purpose) -> Shares:
        forward, backward, weight = (hidden(purpose, slot) for slot in SLOTS)
        return Shares(forward=forward, backward=backward, weight=weight)

    return OverlapRules(
        sends=float(overlaps.pipeline),
        gradients=float(overlaps.data),
        parameters=float(overlaps.data),
        # Gradients are clipped by a norm over all of them.
        optimizer_waits_for_all=True,
        collectives={purpose: shares(purpose) for purpose in PURPOSES if purpose in stages.lanes},
        gradient_traffic={str(purpose): share for purpose, share in traffic.items()},
    )


def _slots(read: Callable[[Slot], FloatArray]) -> SlotTimes[FloatArray]:
    forward, backward, weight = (read(slot) for slot in SLOTS)
    return SlotTimes(forward_s=forward, backward_s=backward, weight_s=weight)


def by_category(
    stages: PlayedStages, slowest: int, played: PlayedSchedule, silent_s: float
) -> Mapping[StepCategory, float]:
    """Seconds of a played step, its slowest stage standing for the pipeline.

    `silent_s`: when the last slot ends where messages take no time.
    """
    blocks = stages.blocks_of(slowest)
    found: dict[StepCategory, float] = dict.fromkeys(STEP_CATEGORIES, 0.0)
    shares: dict[StepCategory, float] = {"host": sum(stages.waited[slowest].values())}
    for part in PARTS:
        shares[part] = sum(count * block.parts.get(part, NO_RUN).time_s for block, count in blocks)
    shares["fixed"] += stages.launch_s
    exposed = {
        purpose: sum(
            count * block.exposed_s(purpose, slot) for block, count in blocks for slot in SLOTS
        )
        for purpose in PURPOSES
    }
    compute_s, exchanged_s = float(played.compute_s[slowest]), float(played.collectives_s[slowest])
    for name, seconds in shares.items():
        found[name] = compute_s * seconds / sum(shares.values())
    for purpose, seconds in exposed.items():
        if seconds > 0:
            found[purpose] = exchanged_s * seconds / sum(exposed.values())
    pipeline_s = float(played.pipeline_s)
    found["pipeline"] = pipeline_s - silent_s
    found["bubble"] = silent_s - compute_s - exchanged_s
    found["optimizer"] = float(played.optimizer_s.max())
    found["data"] += float(played.step_s) - pipeline_s - found["optimizer"]
    found["fixed"] += stages.once_s
    found["host"] += stages.waited_once_s
    return found


def busy(stages: PlayedStages, slowest: int) -> Mapping[StepCategory, BusyRun]:
    """Busy seconds in each category over a step, on the slowest stage."""
    blocks, times = stages.blocks_of(slowest), float(stages.micro_batches)
    found: dict[StepCategory, BusyRun] = {}
    for part in PARTS:
        found[part] = in_turn(b.parts.get(part, NO_RUN).times(n * times) for b, n in blocks)
    for purpose in PURPOSES:
        found[purpose] = in_turn(
            block.exchanges.get((purpose, slot), NO_RUN).times(count * times)
            for block, count in blocks
            for slot in SLOTS
        )
    ends = [b.ending.get(what, NO_RUN).times(n) for b, n in blocks for what in ENDINGS]
    found["data"] = in_turn((found["data"], *ends, stages.closing))
    found["optimizer"] = in_turn(block.update.times(count) for block, count in blocks)
    found["pipeline"] = stages.message.times(times * len(stages.chunks[0]))
    return found
