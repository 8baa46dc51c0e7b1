r"""The time of a training step in closed form, by category, for whole grids of layouts.

Model. The slowest pipeline stage runs all micro-batches: compute at the speed of the slowest node,
and what its exchanges do not hide behind compute. To that come the pipeline's bubble and the
messages that hold it up (`pipeline`), the end of the step (`step_ending`), what the device waits
for its host (`host`), and fixed costs. What a stack costs per micro-batch is spent half in the
forward, half in the backward slot.

    StepProgram  Platform  TrainingEfficiency
          \         |         /
           compute  |  exchanges         seconds of each operation, over the axes it depends on
                 \  |  /
                 blocks                  per block and slot: compute, exposed and hidden exchanges
                    |
                 stages                  sums over a stage's blocks; the slowest stage of a layout
                 /     \
          pipeline     ending            work + bubble + sends;  sums, update, gathering, exposed
                 \     /
                 StepTime                seconds by category, which add up to the step

One step of a pipeline of three stages, the middle one the slowest:

    stage 0  [F][F]    [B][B]                    [sums][update][gather]
    stage 1     [F  ][F  ][B    ][B    ]         [sums][update][gather]
    stage 2          [F][B][F][B]                [sums][update][gather]
             |-- pipeline_time ----|             |-- ending -----|

Work is what stage 1 does; the bubble is its waits at both ends; sends are messages on its way. All
stages wait for the longest sums, since gradients are clipped by a norm over all of them.

Everything that can be priced for a whole grid is priced once (`step_prices`), over the few axes it
depends on; a layout's time is picked out of that and added up (`StepPrices.time`). The same code
serves one layout, a grid of a million, and rows of samples, which are one more axis at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, cached_property

import numpy as np

from trnbench.engines.analytic.step.blocks import (
    NOTHING,
    BlockCost,
    BlockPrices,
    Once,
    block_prices,
    total,
    weighted,
)
from trnbench.engines.analytic.step.compute import Products, compute_time
from trnbench.engines.analytic.step.exchanges import Exchanges, along
from trnbench.engines.analytic.step.host import (
    HostPrices,
    host_prices,
    launched_update_s,
    slot_factor,
)
from trnbench.engines.analytic.step.pipeline import PipelineTime, PipelineWork, pipeline_time
from trnbench.engines.analytic.step.stages import (
    OverlapWindow,
    SlowestStage,
    StagePlan,
    StepEnding,
    ending,
    slot_times,
    slowest_stage,
    stage_plans,
    stage_slots,
    updated_on_host,
)
from trnbench.facts.arrays import FloatArray, spread
from trnbench.facts.calibration.chip_efficiency import Numbers
from trnbench.facts.calibration.training_stack import TrainingEfficiency
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.records import Record, replace
from trnbench.program.block import Block
from trnbench.program.ops import Elementwise
from trnbench.program.optimizer import is_on_host, link_bytes
from trnbench.program.points import Pick, Points
from trnbench.program.reasons import Reason
from trnbench.program.schedule import splits_backward
from trnbench.program.slots import PARTS, PURPOSES, SLOTS, ComputePart, Slot, StepCategory
from trnbench.program.step import StepProgram, stages_alike
from trnbench.program.tensor import ONE, array

_DIRECTIONS = 2  # A micro-batch passes a stage forward and backward


class StepTime(Record, eq=False):
    """Seconds of a step, over layouts, then over samples if any; NaN where nothing can run.

    The total is wanted of every layout, its parts of few: each is worked out when it is asked for.
    """

    categories: Mapping[StepCategory, FloatArray]
    """Of `by_category`, over the axes that each depends on."""
    find_hidden: Callable[[], Mapping[StepCategory, FloatArray]]
    find_device_s: Callable[[], FloatArray]
    ended_s: FloatArray
    over: Pick
    """Broadcasts seconds to all layouts."""

    def of(self, pick: Pick) -> StepTime:
        """The values that `pick` takes, without what they were worked out from."""
        hidden = {name: pick(seconds) for name, seconds in self.hidden.items()}
        device_s = pick(self.device_s_per_microbatch)
        return StepTime(
            categories={name: pick(seconds) for name, seconds in self.by_category.items()},
            find_hidden=lambda: hidden,
            find_device_s=lambda: device_s,
            ended_s=pick(self.optimizer_s),
            over=np.asarray,
        )

    @cached_property
    def time_s(self) -> FloatArray:
        return self.over(np.asarray(sum(self.categories.values(), start=NOTHING)))

    @cached_property
    def by_category(self) -> Mapping[StepCategory, FloatArray]:
        """Adds up to the step; categories inside the pipeline are those of its slowest stage.
        `data` keeps gradients and weights of ranks equal."""
        return {name: self.over(seconds) for name, seconds in self.categories.items()}

    @cached_property
    def hidden(self) -> Mapping[StepCategory, FloatArray]:
        """Behind compute, not part of the total."""
        return {name: self.over(seconds) for name, seconds in self.find_hidden().items()}

    @cached_property
    def device_s_per_microbatch(self) -> FloatArray:
        """By the device's own clock: one micro-batch on the slowest stage, forward, again and
        backward, with exposed exchanges; without messages between stages, bubble, host and
        stack."""
        return self.over(self.find_device_s())

    @cached_property
    def optimizer_s(self) -> FloatArray:
        """From the last slot's end to the step's: the update, and exposed exchanges of gradients
        and weights."""
        return self.over(self.ended_s)


class _Run(Record, eq=False):
    """The step of some layouts, before it is split into categories."""

    slowdown: FloatArray
    launch_s: Mapping[Slot, FloatArray]
    costs: Mapping[str, BlockCost]
    window: OverlapWindow
    micro_batches: FloatArray
    slowest: SlowestStage
    pipeline: PipelineTime
    ending: StepEnding
    host_once_s: FloatArray


class HostRates(Record, eq=False):
    """Rates of a rank at its host: the link to its memory, and that memory's bandwidth."""

    link_bytes_per_s: Numbers
    memory_bytes_per_s: Numbers
    stages_together: FloatArray  # Stages of a pipeline that share a host


class StepPrices(Record, eq=False):
    """Prices of a program's steps, each computed once; made by `step_prices`.

    Arrays span the axes of the grid that they depend on, then samples where the efficiency has any.
    Seconds include the stack's factor, except those of `host`.
    """

    program: StepProgram
    platform: Platform
    efficiency: TrainingEfficiency
    exchanges: Exchanges
    reasons: tuple[str, ...]  # Why the chip cannot compute the program
    refused: tuple[Reason, ...]  # Exchanges that the stack cannot serve
    blocks: Mapping[str, BlockPrices]
    plans: tuple[StagePlan, ...]
    slowdown: FloatArray
    launch_s: FloatArray  # Per micro-batch and stage
    expert_overlap: FloatArray | None  # of tokens; None where the stack's holds
    host: HostPrices | None  # None where launching costs nothing
    send_s: FloatArray  # One message between stages
    closing_s: FloatArray  # The exchange that ends a step
    once_s: FloatArray  # Fixed seconds of every step
    host_rates: HostRates | None = None

    def time(self, points: Points | None = None) -> StepTime:
        """Seconds of all layouts, or of those at `points`, which must be wanted ones."""
        # Categories add up to `time_s`: the same run is split, not computed a second way.
        pick = self._picker(points)
        run = self._run(pick)
        micro_batches, slowest = run.micro_batches, run.slowest
        exposed = {
            purpose: micro_batches * slowest.exposed_s(run.costs, purpose) for purpose in PURPOSES
        }
        parts = {
            part: micro_batches * run.slowdown * self._part(pick, slowest, part) for part in PARTS
        }
        launched = micro_batches * sum(run.launch_s.values(), start=NOTHING)
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
            "generation": NOTHING,
            "host": micro_batches * total(slowest.host.values()) + run.host_once_s,
            "fixed": parts["fixed"] + launched + pick(self.once_s),
        }

        def hidden() -> Mapping[StepCategory, FloatArray]:
            found: dict[StepCategory, FloatArray] = {
                purpose: micro_batches * slowest.hidden_s(run.costs, purpose)
                for purpose in PURPOSES
            }
            found["data"] = found["data"] + run.ending.hidden_s
            return {**found, "pipeline": _hidden_sends(run, slowest)}

        def device_s() -> FloatArray:
            others = (*slowest.host.values(), *run.launch_s.values())
            return total(slowest.seconds.values()) - total(others)

        return StepTime(
            categories=found,
            find_hidden=hidden,
            find_device_s=device_s,
            ended_s=found["optimizer"] + run.ending.exposed_s + pick(self.closing_s),
            over=self._layouts(points),
        )

    def time_s(self, points: Points | None = None) -> FloatArray:
        """Seconds of the whole step of the same layouts: the total of `time`, computed faster."""
        pick = self._picker(points)
        run = self._run(pick)
        ended = run.ending.update_s + run.ending.exposed_s + pick(self.closing_s)
        once = pick(self.once_s) if self.host is None else run.host_once_s + pick(self.once_s)
        return self._layouts(points)(run.pipeline.time_s + ended + once)

    def played(self, program: StepProgram) -> StepPrices:
        """Prices of the same blocks in another schedule, or spread differently over stages."""
        if stages_alike(program.layout, self.program.layout):
            return replace(self, program=program)
        exchanges = self.exchanges.of(program)
        plans = stage_plans(program.stages, self.blocks, self._along)
        if self.host_rates is not None:
            plans = updated_on_host(plans, self.blocks, self.host_rates.stages_together)
        host = self.host
        if host is not None:
            update_s = launched_update_s(exchanges, [plan.blocks for plan in plans])
            host = replace(host, update_s=update_s)
        return replace(self, program=program, plans=plans, host=host)

    def updated_on_host(self, rates: HostRates) -> StepPrices:
        """Prices with the seconds of the host's updates at these rates."""

        def seconds(block: Block, read: Callable[[Elementwise], FloatArray]) -> FloatArray:
            return total(self._along(read(op)) for op in block.ops if is_on_host(op))

        def host_costs(block: Block) -> Mapping[Once, FloatArray]:
            return {
                "host link": seconds(block, link_bytes) / rates.link_bytes_per_s,
                "host memory": seconds(block, lambda op: op.bytes) / rates.memory_bytes_per_s,
            }

        of = self.program.blocks
        blocks = {
            kind: replace(block, once={**block.once, **host_costs(of[kind])})
            for kind, block in self.blocks.items()
        }
        plans = updated_on_host(self.plans, blocks, rates.stages_together)
        return replace(self, blocks=blocks, plans=plans, host_rates=rates)

    def over(self, seconds: FloatArray, points: Points | None = None) -> FloatArray:
        return self._layouts(points)(self._picker(points)(seconds))

    def slowest_blocks(self) -> Mapping[str, float]:
        slowest = self._run(lambda values: values).slowest
        return {kind: float(count) for kind, count in slowest.blocks.items()}

    def _along(self, values: FloatArray) -> FloatArray:
        return along(values, self.exchanges.samples)

    def _picker(self, points: Points | None) -> Pick:
        if points is None:
            return lambda values: values
        if self.exchanges.samples is None:
            return points.pick

        # With samples the last axis is no axis of the grid: layouts are rows of a flat table.
        def rows(values: FloatArray) -> FloatArray:
            if values.ndim <= 1:
                return values
            flat = values.reshape(-1, values.shape[-1])
            return flat if len(flat) == 1 else flat[points.places(values.shape[:-1])]

        return rows

    def _run(self, pick: Pick) -> _Run:
        grid, schedule = self.program.grid, self.program.layout.schedule
        interleaved = schedule == "interleaved"
        slowdown, overlaps = pick(self.slowdown), self.efficiency.stack.overlaps
        if self.expert_overlap is not None:
            overlaps = replace(overlaps, expert=pick(self.expert_overlap))
        costs = {kind: block.at(pick, slowdown, overlaps) for kind, block in self.blocks.items()}
        # Half of a micro-batch's launches go forward, half backward; the weight slot has none.
        launched = pick(self.launch_s) * slowdown / _DIRECTIONS
        launch_s: dict[Slot, FloatArray] = {"forward": launched, "backward": launched}
        slots = SLOTS if splits_backward(schedule) else SLOTS[:-1]
        lengths = {slot: {kind: c.seconds(slot) for kind, c in costs.items()} for slot in slots}
        host = self.host.at(pick) if self.host else None
        stages = stage_slots(self.plans, pick, lengths, launch_s, host)
        window = OverlapWindow(
            stages=pick(self._along(grid.pp)),
            # No other schedule has chunks.
            chunks=pick(self._along(grid.vpp)) if interleaved else ONE,
            send_s=pick(self.send_s),
            share=array(overlaps.data),
            interleaved=interleaved,
        )
        micro_batches = grid.micro_batches_of(lambda sizes: pick(self._along(sizes)))
        slowest = slowest_stage(stages)

        @cache
        def crossing() -> Mapping[str, FloatArray]:
            return {
                kind: total(pick(part) for part in block.crossing_s)
                for kind, block in self.blocks.items()
            }

        ended = ending(self.plans, stages, pick, slowdown, crossing, window)
        work = PipelineWork(
            slowest=slot_times(slowest.seconds),
            before=slot_times(slowest.before),
            after=slot_times(slowest.after),
            stages_after=window.stages - 1 - slowest.index,
            send_s=window.send_s,
            send_overlap=array(overlaps.pipeline),
        )
        return _Run(
            slowdown=slowdown,
            launch_s=launch_s,
            costs=costs,
            window=window,
            micro_batches=micro_batches,
            slowest=slowest,
            pipeline=pipeline_time(
                schedule,
                pp=window.stages,
                vpp=window.chunks,
                micro_batches=micro_batches,
                work=work,
            ),
            ending=ended,
            host_once_s=host.added_once(ended.update_s) if host else NOTHING,
        )

    def _part(self, pick: Pick, slowest: SlowestStage, part: ComputePart) -> FloatArray:
        of_kind = {kind: b.parts.get(part, NOTHING) for kind, b in self.blocks.items()}
        picked = {kind: s if s is NOTHING else pick(s) for kind, s in of_kind.items()}
        return weighted(slowest.blocks, picked)

    def _layouts(self, points: Points | None) -> Pick:
        """Function that broadcasts seconds to all layouts asked for, NaN elsewhere."""
        asked = self.exchanges.prices.wanted if points is None else np.array(True)
        everywhere, wanted = bool(asked.all()), self._along(array(asked)) > 0
        shape = self.program.shape if points is None else (len(points),)
        if self.exchanges.samples is not None:
            shape = (*shape, self.exchanges.samples)

        def over(seconds: FloatArray) -> FloatArray:
            # Layouts nobody asked for may have prices of others' groups: no answer is safer.
            known = seconds if everywhere else np.where(wanted, seconds, np.nan)
            return spread(known, shape)

        return over


def _hidden_sends(run: _Run, slowest: SlowestStage) -> FloatArray:
    # The first and the last stage have one neighbour each, all others two.
    window = run.window
    neighbours = 1.0 * (slowest.index > 0) + (slowest.index < window.stages - 1)
    sent_s = run.micro_batches * window.chunks * neighbours * window.send_s
    return np.maximum(sent_s - run.pipeline.sends_s, 0)


def step_prices(
    program: StepProgram, platform: Platform, exchanges: Exchanges, products: Products
) -> StepPrices:
    """Prices of a program's steps, for the layouts whose exchanges are requested.

    The efficiency is that of the exchanges, which may belong to another program on the same grid;
    `products` are operations priced before on the same chip.
    """
    exchanges, efficiency = exchanges.of(program), exchanges.efficiency
    stack, samples = efficiency.stack, exchanges.samples
    computing = efficiency.compute
    compute = compute_time(
        program,
        platform.chip,
        computing,
        logical_size=exchanges.prices.logical_size,
        chip_ranks=exchanges.prices.node_ranks,
        known=products,
    )
    unsampled = samples if computing.samples is None else None
    collectives = (op for block in program.blocks.values() for op in block.collectives)
    exchanged = exchanges.seconds_of((*collectives, *program.closing))
    blocks = {
        kind: block_prices(
            block,
            compute.blocks[kind].times(
                efficiency.whole_factor, lambda values: along(values, unsampled)
            ),
            exchanged.__getitem__,
            exchanges.crosses,
            split=splits_backward(program.layout.schedule),
        )
        for kind, block in program.blocks.items()
    }
    piped = along(array(program.grid.pp > 1), samples)
    launch_s = efficiency.whole_factor * (stack.micro_batch_s + piped * stack.piped_micro_batch_s)
    plans = stage_plans(program.stages, blocks, lambda values: along(values, samples))
    closing = (exchanged[op] for op in program.closing)
    host, once_s = host_prices(exchanges, [plan.blocks for plan in plans]), stack.step_s
    if not program.trains:
        # Half of a micro-batch's launches are for the backward; the step's seconds are training's.
        launch_s, once_s = launch_s / _DIRECTIONS, 0.0
        host = host and replace(host, graph_s=host.graph_s / _DIRECTIONS)
    return StepPrices(
        program=program,
        platform=platform,
        efficiency=efficiency,
        exchanges=exchanges,
        reasons=compute.reasons,
        blocks=blocks,
        plans=plans,
        slowdown=exchanges.slowest_node(),
        launch_s=launch_s * slot_factor(stack.host, along(program.grid.vpp, samples)),
        expert_overlap=exchanges.expert_overlap(),
        host=host,
        send_s=exchanges.message_s(),
        closing_s=np.asarray(sum(closing, start=NOTHING)),
        once_s=array(efficiency.whole_factor * once_s),
        refused=tuple(exchanges.refused),
    )
