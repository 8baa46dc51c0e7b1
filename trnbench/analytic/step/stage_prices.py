"""The prices of one layout's pipeline stages, which the emulator of schedules plays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trnbench.analytic.step.blocks import (
    NOTHING,
    PURPOSES,
    SLOTS,
    BlockCost,
    Purpose,
    Slot,
)
from trnbench.analytic.step.stages import StageSlots, weighted
from trnbench.arrays import FloatArray
from trnbench.program.slot_times import Lane, SlotTimes
from trnbench.program.stages import StageRole


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangePrices:
    """Exchanges of one purpose on a stage: how long they take, and what of it nothing hides."""

    purpose: Purpose
    lane: Lane
    whole: SlotTimes[float]
    exposed: SlotTimes[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePrices:
    """One class of stages of one layout: `stages` equal ones from `index` on.

    `compute` and `exchanges` are those of one micro-batch on all the stage's `chunks` together;
    compute is that of the slowest node (`slowdown` times a typical one's) with the stack's costs
    per micro-batch. A message takes `send_s` of its lane, then `latency_s`. Once a step:
    `gradients_s` reduced over replicas, `sums_s` of gradients over other ranks and of their norm,
    `optimizer_s`, `parameters_s` gathered, and the stack's `step_s`.
    """

    role: StageRole
    index: int
    stages: int
    chunks: int
    slowdown: float
    compute: SlotTimes[float]
    exchanges: tuple[ExchangePrices, ...]
    send_s: float
    latency_s: float
    send_lane: Lane
    gradients_s: float
    sums_s: float
    optimizer_s: float
    parameters_s: float
    step_s: float


def compute_prices(
    stage: StageSlots, costs: Mapping[str, BlockCost], launch_s: Mapping[Slot, FloatArray]
) -> SlotTimes[float]:
    """Return the compute seconds of a stage by slot."""

    def seconds(slot: Slot) -> FloatArray:
        of_kind = {kind: cost.compute.get(slot, NOTHING) for kind, cost in costs.items()}
        return weighted(stage.blocks, of_kind) + launch_s.get(slot, NOTHING)

    return _slot_times({slot: seconds(slot) for slot in SLOTS})


def exchange_prices(
    stage: StageSlots, costs: Mapping[str, BlockCost], lanes: Mapping[Purpose, Lane]
) -> tuple[ExchangePrices, ...]:
    """Return the exchange seconds of a stage by slot, for the purposes that have a lane."""

    def whole(purpose: Purpose, slot: Slot) -> FloatArray:
        of_kind = {kind: c.exchanges.get((purpose, slot), NOTHING) for kind, c in costs.items()}
        return weighted(stage.blocks, of_kind)

    def exposed(purpose: Purpose, slot: Slot) -> FloatArray:
        of_kind = {kind: cost.exposed(purpose, slot) for kind, cost in costs.items()}
        return weighted(stage.blocks, of_kind)

    return tuple(
        ExchangePrices(
            purpose=purpose,
            lane=lanes[purpose],
            whole=_slot_times({slot: whole(purpose, slot) for slot in SLOTS}),
            exposed=_slot_times({slot: exposed(purpose, slot) for slot in SLOTS}),
        )
        for purpose in PURPOSES
        if purpose in lanes
    )


def _slot_times(seconds: Mapping[Slot, FloatArray]) -> SlotTimes[float]:
    return SlotTimes(
        forward_s=float(seconds["forward"]),
        backward_s=float(seconds["backward"]),
        weight_s=float(seconds["weight"]),
    )
