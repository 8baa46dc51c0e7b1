"""The time of a training step in closed form, by category, for whole grids of layouts.

Model. The slowest pipeline stage runs all micro-batches: compute at the speed of the slowest node,
and what its exchanges do not hide behind compute. To that come the pipeline's bubble and the
messages that hold it up (`pipeline`), the end of the step (`step_ending`), and fixed costs. What a
stack costs per micro-batch is spent half in the forward, half in the backward slot.

Everything that can be priced for a whole grid is priced once, over the few axes it depends on; a
layout's time is picked out of that and added up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from trnbench.analytic.step.blocks import (
    NOTHING,
    PARTS,
    PURPOSES,
    BlockCost,
    BlockPrices,
    ComputePart,
    Slot,
    block_prices,
)
from trnbench.analytic.step.collectives import Engines
from trnbench.analytic.step.compute import ComputeTime, compute_time
from trnbench.analytic.step.ending import OverlapWindow, StepEnding, ending
from trnbench.analytic.step.exchanges import Exchanges, along, exchanges_of
from trnbench.analytic.step.pipeline import PipelineTime, PipelineWork, pipeline_time
from trnbench.analytic.step.stage_prices import (
    StagePrices,
    compute_prices,
    exchange_prices,
)
from trnbench.analytic.step.stages import (
    SlowestStage,
    StagePlan,
    StageSlots,
    slot_times,
    slowest_node,
    slowest_stage,
    stage_plans,
    stage_slots,
    weighted,
)
from trnbench.arrays import BoolArray, FloatArray
from trnbench.calibration.collective_stack import CollectiveStack
from trnbench.calibration.training_stack import TrainingEfficiency
from trnbench.hardware.instance import Platform
from trnbench.program.legality import Reason
from trnbench.program.points import Pick, Points
from trnbench.program.schedule import splits_backward
from trnbench.program.step import StepProgram
from trnbench.program.tensor import array

StepCategory = Literal[
    "matrix",
    "attention",
    "element-wise",
    "tensor",
    "context",
    "expert",
    "pipeline",
    "bubble",
    "data",
    "optimizer",
    "fixed",
]
STEP_CATEGORIES: tuple[StepCategory, ...] = get_args(StepCategory)

_DIRECTIONS = 2
"""A micro-batch passes a stage forward and backward."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepTime:
    """Seconds of a step for the layouts asked for; arrays over them, then over samples if any.

    `by_category` adds up to the step; categories inside the pipeline are those of its slowest
    stage. `data` is what keeps gradients and weights of ranks alike. `hidden`: communication that
    overlaps with compute, no part of the total. Not a number: no such layout, or nobody can run it.
    """

    by_category: Mapping[StepCategory, FloatArray]
    hidden: Mapping[StepCategory, FloatArray]

    @property
    def time_s(self) -> FloatArray:
        """The whole step, s."""
        return np.asarray(sum(self.by_category.values(), start=NOTHING))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Slots:
    """The slots of some layouts: costs of blocks and seconds of stages."""

    slowdown: FloatArray
    launch_s: Mapping[Slot, FloatArray]
    costs: Mapping[str, BlockCost]
    stages: tuple[StageSlots, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Degrees:
    """What the pipelines of some layouts are: stages, chunks, micro-batches, message."""

    pp: FloatArray
    vpp: FloatArray
    micro_batches: FloatArray
    send_s: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Run:
    """The step of some layouts, before it is split into categories."""

    slots: _Slots
    degrees: _Degrees
    slowest: SlowestStage
    pipeline: PipelineTime
    ending: StepEnding


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepPrices:
    """Everything of a program's steps that is priced once; made by `step_prices`.

    `reasons`: why the chip cannot compute it; `refused`: exchanges that the stack cannot serve.
    Arrays span the axes of the grid that they depend on, then one of samples where the efficiency
    has any. Seconds include the stack's factor: `launch_s` per micro-batch and stage, `send_s` of a
    message, `closing_s` of the exchange that ends a step, `once_s` whatever the step does.
    """

    program: StepProgram
    platform: Platform
    efficiency: TrainingEfficiency
    exchanges: Exchanges
    reasons: tuple[str, ...]
    refused: tuple[Reason, ...]
    blocks: Mapping[str, BlockPrices]
    plans: tuple[StagePlan, ...]
    slowdown: FloatArray
    launch_s: FloatArray
    send_s: FloatArray
    closing_s: FloatArray
    once_s: FloatArray

    def time(self, points: Points | None = None) -> StepTime:
        """Return the time of all layouts, or of those at `points`, which must be wanted ones."""
        pick = self._picker(points)
        run = self._run(pick)
        micro_batches, slots, slowest = run.degrees.micro_batches, run.slots, run.slowest
        exposed = {
            purpose: micro_batches * slowest.exposed_s(slots.costs, purpose) for purpose in PURPOSES
        }
        parts = {
            part: micro_batches * slots.slowdown * self._part(pick, slowest, part) for part in PARTS
        }
        launched = micro_batches * sum(slots.launch_s.values(), start=NOTHING)
        found: dict[StepCategory, FloatArray] = {
            "matrix": parts["matrix"],
            "attention": parts["attention"],
            "element-wise": parts["element-wise"],
            "tensor": exposed["tensor"],
            "context": exposed["context"],
            "expert": exposed["expert"],
            "pipeline": run.pipeline.sends_s,
            "bubble": run.pipeline.bubble_s,
            "data": exposed["data"] + run.ending.exposed_s + pick(self.closing_s),
            "optimizer": run.ending.update_s,
            "fixed": parts["fixed"] + launched + pick(self.once_s),
        }
        hidden: dict[StepCategory, FloatArray] = {
            purpose: micro_batches * slowest.hidden_s(slots.costs, purpose) for purpose in PURPOSES
        }
        hidden["data"] = hidden["data"] + run.ending.hidden_s
        hidden["pipeline"] = _hidden_sends(run.degrees, slowest, run.pipeline)
        over = self._layouts(points)
        return StepTime(
            by_category={name: over(seconds) for name, seconds in found.items()},
            hidden={name: over(seconds) for name, seconds in hidden.items()},
        )

    def time_s(self, points: Points | None = None) -> FloatArray:
        """Return the whole step of the same layouts, s: the total of `time`, in less time."""
        pick = self._picker(points)
        run = self._run(pick)
        ended = run.ending.update_s + run.ending.exposed_s + pick(self.closing_s)
        return self._layouts(points)(run.pipeline.time_s + ended + pick(self.once_s))

    def stages(self) -> tuple[StagePrices, ...]:
        """Return the prices of each class of stages of a scalar program, without samples."""
        slots = self._slots(lambda values: values)
        lanes = self.exchanges.lanes()
        latency_s = float(self.exchanges.latency_s())
        return tuple(
            StagePrices(
                role=plan.role,
                index=int(plan.index),
                stages=int(plan.stages),
                chunks=int(self.program.grid.vpp),
                slowdown=float(slots.slowdown),
                compute=compute_prices(stage, slots.costs, slots.launch_s),
                exchanges=exchange_prices(stage, slots.costs, lanes),
                send_s=float(self.send_s) - latency_s,
                latency_s=latency_s,
                send_lane=self.exchanges.lane("pp"),
                gradients_s=float(plan.reduce_s),
                sums_s=float(plan.sums_s + self.closing_s),
                optimizer_s=float(plan.update_s * slots.slowdown),
                parameters_s=float(plan.gather_s),
                step_s=float(self.once_s),
            )
            for plan, stage in zip(self.plans, slots.stages, strict=True)
            if plan.stages > 0
        )

    def _along(self, values: FloatArray) -> FloatArray:
        return along(values, self.exchanges.samples)

    def _picker(self, points: Points | None) -> Pick:
        """Return the function that takes these layouts' numbers out of an array over the grid."""
        if points is None:
            return lambda values: values
        if self.exchanges.samples is None:
            return points.pick

        def rows(values: FloatArray) -> FloatArray:
            if values.ndim <= 1:
                return values
            flat = values.reshape(-1, values.shape[-1])
            return flat if len(flat) == 1 else flat[points.places(values.shape[:-1])]

        return rows

    def _run(self, pick: Pick) -> _Run:
        slots, degrees = self._slots(pick), self._degrees(pick)
        slowest = slowest_stage(slots.stages)
        crossing = {
            kind: s if (s := block.crossing_s) is NOTHING else pick(s)
            for kind, block in self.blocks.items()
        }
        return _Run(
            slots=slots,
            degrees=degrees,
            slowest=slowest,
            pipeline=self._pipeline(degrees, slowest),
            ending=ending(
                self.plans, slots.stages, pick, slots.slowdown, crossing, self._window(degrees)
            ),
        )

    def _slots(self, pick: Pick) -> _Slots:
        slowdown, overlaps = pick(self.slowdown), self.efficiency.stack.overlaps
        costs = {kind: block.at(pick, slowdown, overlaps) for kind, block in self.blocks.items()}
        launched = pick(self.launch_s) * slowdown / _DIRECTIONS
        launch_s: dict[Slot, FloatArray] = {"forward": launched, "backward": launched}
        slots: tuple[Slot, ...] = ("forward", "backward")
        if splits_backward(self.program.layout.schedule):
            slots = (*slots, "weight")
        lengths = {slot: {kind: c.seconds(slot) for kind, c in costs.items()} for slot in slots}
        stages = stage_slots(self.plans, pick, lengths, launch_s)
        return _Slots(slowdown=slowdown, launch_s=launch_s, costs=costs, stages=stages)

    def _degrees(self, pick: Pick) -> _Degrees:
        grid = self.program.grid
        return _Degrees(
            pp=pick(self._along(grid.pp)),
            vpp=pick(self._along(grid.vpp)),
            micro_batches=pick(self._along(self.program.micro_batches)),
            send_s=pick(self.send_s),
        )

    def _pipeline(self, degrees: _Degrees, slowest: SlowestStage) -> PipelineTime:
        work = PipelineWork(
            slowest=slot_times(slowest.seconds),
            before=slot_times(slowest.before),
            after=slot_times(slowest.after),
            stages_after=degrees.pp - 1 - slowest.index,
            send_s=degrees.send_s,
            send_overlap=array(self.efficiency.stack.overlaps.pipeline),
        )
        return pipeline_time(
            self.program.layout.schedule,
            pp=degrees.pp,
            vpp=degrees.vpp,
            micro_batches=degrees.micro_batches,
            work=work,
        )

    def _window(self, degrees: _Degrees) -> OverlapWindow:
        return OverlapWindow(
            stages=degrees.pp,
            chunks=degrees.vpp,
            send_s=degrees.send_s,
            share=array(self.efficiency.stack.overlaps.data),
            interleaved=self.program.layout.schedule == "interleaved",
        )

    def _part(self, pick: Pick, slowest: SlowestStage, part: ComputePart) -> FloatArray:
        """Return a part of the slowest stage's compute of one micro-batch, on a typical node."""
        of_kind = {kind: b.parts.get(part, NOTHING) for kind, b in self.blocks.items()}
        picked = {kind: s if s is NOTHING else pick(s) for kind, s in of_kind.items()}
        return weighted(slowest.blocks, picked)

    def _layouts(self, points: Points | None) -> Pick:
        """Return the function that broadcasts seconds to all layouts asked for, NaN elsewhere."""
        asked = self.exchanges.prices.wanted if points is None else np.array(True)
        everywhere, wanted = bool(asked.all()), self._along(array(asked)) > 0
        shape = self.program.shape if points is None else (len(points),)
        if self.exchanges.samples is not None:
            shape = (*shape, self.exchanges.samples)

        def over(seconds: FloatArray) -> FloatArray:
            known = seconds if everywhere else np.where(wanted, seconds, np.nan)
            return np.broadcast_to(known, shape)

        return over


def _hidden_sends(degrees: _Degrees, slowest: SlowestStage, piped: PipelineTime) -> FloatArray:
    """Return the seconds of the slowest stage's messages that compute hides."""
    neighbours = 1.0 * (slowest.index > 0) + (slowest.index < degrees.pp - 1)
    sent_s = degrees.micro_batches * degrees.vpp * neighbours * degrees.send_s
    return np.maximum(sent_s - piped.sends_s, 0)


def step_prices(
    program: StepProgram,
    platform: Platform,
    efficiency: TrainingEfficiency,
    collectives: CollectiveStack,
    *,
    logical_size: int | None = None,
    wanted: BoolArray | None = None,
    engines: Engines | None = None,
    exchanges: Exchanges | None = None,
    compute: ComputeTime | None = None,
) -> StepPrices:
    """Return the prices of a program's steps, for the layouts `wanted` (unasked: the legal ones).

    `engines` remembers groups that were placed, for programs on the same platform and stack;
    `exchanges` are those of a program on the same grid, whose prices hold for this one too;
    `compute` is what `compute_time` returns for this program, where it is there already.
    """
    stack = efficiency.stack
    if exchanges is None:
        exchanges = exchanges_of(
            program,
            platform,
            efficiency,
            collectives,
            logical_size=logical_size,
            wanted=wanted,
            engines=engines,
        )
    else:
        exchanges = exchanges.of(program)
    samples = exchanges.samples
    if compute is None:
        compute = compute_time(
            program, platform.chip, efficiency.compute, logical_size=logical_size
        )
    unsampled = efficiency.samples if efficiency.compute.samples is None else None
    blocks = {
        kind: block_prices(
            block,
            compute.blocks[kind].times(stack.whole_factor, lambda values: along(values, unsampled)),
            exchanges.seconds,
            exchanges.crosses,
            split=splits_backward(program.layout.schedule),
        )
        for kind, block in program.blocks.items()
    }
    nodes = np.ceil(program.grid.ranks("world") / exchanges.prices.ranks_per_node)
    piped = along(array(program.grid.pp > 1), samples)
    closing = (exchanges.seconds(op) for op in program.closing)
    return StepPrices(
        program=program,
        platform=platform,
        efficiency=efficiency,
        exchanges=exchanges,
        reasons=compute.reasons,
        blocks=blocks,
        plans=stage_plans(program.stages, blocks, lambda values: along(values, samples)),
        slowdown=slowest_node(stack.node_scatter, along(nodes, samples)),
        launch_s=stack.whole_factor * (stack.micro_batch_s + piped * stack.piped_micro_batch_s),
        send_s=exchanges.message_s(),
        closing_s=np.asarray(sum(closing, start=NOTHING)),
        once_s=array(stack.whole_factor * stack.step_s),
        refused=tuple(exchanges.refused),
    )
