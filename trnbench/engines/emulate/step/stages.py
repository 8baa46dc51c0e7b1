"""Times of a pipeline from played blocks: seconds of each chunk of each stage.

The layers of a stage are spread evenly over its chunks. Blocks in front of the first layer are part
of the first stage's first chunk, blocks behind the last layer of the last stage's last chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from trnbench.engines.emulate.schedule.times import (
    EndingTimes,
    OverlapRules,
    Sends,
    Shares,
    SlotCollective,
    StageTimes,
)
from trnbench.engines.emulate.step.blocks import BlockRun
from trnbench.engines.emulate.step.rank import NO_RUN
from trnbench.facts.arrays import FloatArray
from trnbench.facts.calibration.training_stack import Overlaps
from trnbench.facts.records import Record
from trnbench.program.blocks import layers_of
from trnbench.program.slots import PURPOSES, SLOTS, EndOfStep, Lane, Purpose, Slot, SlotTimes
from trnbench.program.stages import AGAIN
from trnbench.program.step import StepProgram

Key = TypeVar("Key")
BlockCounts = Mapping[str, float]
"""Instances of each kind of block on a chunk, or on a whole stage."""


class Overheads(Record):
    """Seconds of a stage besides its blocks."""

    launch_s: float
    """Cost of a micro-batch in the stack, half in each direction."""
    send_s: float
    """Seconds of a message to the next stage for its bytes."""
    latency_s: float
    """Seconds of the same message without its bytes."""
    send_lane: Lane
    closing_s: float
    """The exchange that ends the step."""
    waited: Sequence[Mapping[Slot, float]]
    """Waits of each stage's device for its host in a micro-batch, by slot."""
    host_updates_s: Sequence[float] = ()
    """Wait of each stage for an optimizer on the host, if that is there."""


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


def stage_times(
    stages: Sequence[Sequence[BlockCounts]],
    blocks: Mapping[str, BlockRun],
    lanes: Mapping[Purpose, Lane],
    beside: Overheads,
) -> StageTimes:
    """Times of every chunk [message, stage, chunk].

    The leading axis holds the step with its messages, then one whose messages take no time.
    """
    chunks = len(stages[0])
    # The second play shows what messages cost: the difference of the two, ends of slots compared.
    messages = np.array([1.0, 0.0])[:, None, None]
    lane = (beside.send_lane,) * len(stages)
    send_s = messages * np.full((len(stages), 1), beside.send_s)
    per_slot = beside.launch_s / 2 / chunks
    launched: Mapping[Slot, float] = {"forward": per_slot, "backward": per_slot}

    def compute(slot: Slot) -> FloatArray:
        waited = np.array([of.get(slot, 0.0) / chunks for of in beside.waited])[:, None]
        own = _table(stages, blocks, lambda block: block.compute.get(slot, NO_RUN).time_s)
        return np.asarray(own + waited + launched.get(slot, 0.0))

    def exchanged(purpose: Purpose) -> Callable[[Slot], FloatArray]:
        return lambda slot: _table(
            stages, blocks, lambda block: block.exchanges.get((purpose, slot), NO_RUN).time_s
        )

    def once(ending: EndOfStep) -> FloatArray:
        return _table(stages, blocks, lambda block: block.ending.get(ending, NO_RUN).time_s)

    return StageTimes(
        compute=_slots(compute),
        collectives=tuple(
            SlotCollective(name=purpose, lane=lanes[purpose], times=_slots(exchanged(purpose)))
            for purpose in PURPOSES
            if purpose in lanes
        ),
        sends=Sends(
            forward_s=send_s,
            backward_s=send_s,
            latency_s=messages * np.full((len(stages), 1), beside.latency_s),
            forward_lane=lane,
            backward_lane=lane,
        ),
        ending=EndingTimes(
            gradients_s=once("reduce"),
            sums_s=once("sums") + beside.closing_s / chunks,
            optimizer_s=_table(stages, blocks, lambda block: block.update.time_s)
            + (np.array(beside.host_updates_s)[:, None] / chunks if beside.host_updates_s else 0.0),
            parameters_s=once("gather"),
        ),
    )


def overlap_rules(
    stages: Sequence[Sequence[BlockCounts]],
    blocks: Mapping[str, BlockRun],
    lanes: Mapping[Purpose, Lane],
    overlaps: Overlaps,
    traffic: Mapping[Purpose, float],
) -> OverlapRules:
    """Overlaps of a step: exchanges inside slots, up to the part that their blocks hide.

    `traffic`: share of each purpose's exchanges that holds up the reduction of gradients.
    """

    def hidden(purpose: Purpose) -> Callable[[Slot], FloatArray]:
        def share(slot: Slot) -> FloatArray:
            key = purpose, slot
            whole = _table(stages, blocks, lambda block: block.exchanges.get(key, NO_RUN).time_s)
            part = _table(stages, blocks, lambda block: block.hidden_s.get(key, 0.0))
            return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)

        return share

    return OverlapRules(
        sends=float(overlaps.pipeline),
        gradients=float(overlaps.data),
        parameters=float(overlaps.data),
        # Gradients are clipped by a norm over all of them.
        optimizer_waits_for_all=True,
        collectives={purpose: _shares(hidden(purpose)) for purpose in PURPOSES if purpose in lanes},
        gradient_traffic={str(purpose): share for purpose, share in traffic.items()},
    )


def _table(
    stages: Sequence[Sequence[BlockCounts]],
    blocks: Mapping[str, BlockRun],
    read: Callable[[BlockRun], float],
) -> FloatArray:
    """A number of blocks added up for each chunk [stage, chunk]."""
    of_kind = {kind: read(block) for kind, block in blocks.items()}
    return np.array(
        [
            [sum(count * of_kind[kind] for kind, count in chunk.items()) for chunk in stage]
            for stage in stages
        ]
    )


def _slots(read: Callable[[Slot], FloatArray]) -> SlotTimes[FloatArray]:
    forward, backward, weight = (read(slot) for slot in SLOTS)
    return SlotTimes(forward_s=forward, backward_s=backward, weight_s=weight)


def _shares(read: Callable[[Slot], FloatArray]) -> Shares:
    forward, backward, weight = (np.clip(read(slot), 0.0, 1.0) for slot in SLOTS)
    return Shares(forward=forward, backward=backward, weight=weight)
