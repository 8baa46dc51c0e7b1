"""A training step played as events: from the prices of its stages to the schedule emulator.

Both engines read the same prices, and their seconds go by the same names, so that they stand side
by side. What a price list says about a whole stage is spread evenly over the stage's chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trnbench.analytic.step.blocks import Purpose
from trnbench.analytic.step.stage_prices import StagePrices
from trnbench.analytic.step.time import STEP_CATEGORIES, StepCategory, StepPrices
from trnbench.arrays import FloatArray
from trnbench.emulate.schedule.disturbance import Jitter, Straggler
from trnbench.emulate.schedule.play import PlayedSchedule, play
from trnbench.emulate.schedule.timeline import Timeline, timeline
from trnbench.emulate.schedule.times import (
    EndingTimes,
    OverlapRules,
    Sends,
    Shares,
    SlotCollective,
    StageTimes,
)
from trnbench.program.schedule import slot_order
from trnbench.program.slot_times import SlotTimes

REAL, SILENT = 0, 1
"""A step is played twice side by side, the second time with messages that take no time."""

_COMPUTE: tuple[StepCategory, ...] = ("matrix", "attention", "element-wise", "fixed")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlayedStep:
    """A step as it ran. `by_category`: seconds that add up to `time_s`, named as in `StepTime`.

    Categories inside the pipeline are those of the slowest stage; its compute is divided as in the
    closed form. `pipeline` is by how much messages between stages delay the last slot, `bubble`
    what the slowest stage would idle without them. `played` is the account of every stage, and
    `timeline` its events, if asked for; neither knows of what a stack costs once a step.
    """

    by_category: Mapping[StepCategory, float]
    slowest_stage: int
    slots: int
    played: PlayedSchedule
    timeline: Timeline | None

    @property
    def time_s(self) -> float:
        """The whole step, s."""
        return sum(self.by_category.values())


def played_step(
    prices: StepPrices,
    *,
    jitter_seed: int | None = None,
    stragglers: tuple[Straggler, ...] = (),
    with_timeline: bool = False,
) -> PlayedStep:
    """Return the played step of a scalar program that is legal and that the platform can run.

    Compute takes what the slowest node is expected to take; with a seed, what the slowest of drawn
    nodes takes. The optimizer always takes what is expected.
    """
    program = prices.program
    stages = tuple(price for price in prices.stages() for _ in range(price.stages))
    order = slot_order(
        program.layout.schedule,
        pp=len(stages),
        vpp=stages[0].chunks,
        micro_batches=int(program.micro_batches),
    )
    jitter = None if jitter_seed is None else _jitter(prices, jitter_seed)
    times = stage_times(stages, typical=jitter is not None)
    rules = overlap_rules(prices, stages)
    both = play(order, times, rules, jitter=jitter, stragglers=stragglers)
    played = both.at(REAL)
    slowest = int(np.argmax(played.compute_s + played.collectives_s))
    silent_s = float(both.at(SILENT).pipeline_s)
    return PlayedStep(
        by_category=_by_category(prices, stages[slowest], played, slowest, silent_s),
        slowest_stage=slowest,
        slots=order.kind.size,
        played=played,
        timeline=(
            timeline(order, times, rules, at=(REAL,), jitter=jitter, stragglers=stragglers)
            if with_timeline
            else None
        ),
    )


def stage_times(stages: Sequence[StagePrices], *, typical: bool = False) -> StageTimes:
    """Return the times of a pipeline's stages; `typical` ones are not those of the slowest node.

    A leading axis holds them with real and with silent messages.
    """
    chunks = stages[0].chunks
    messages = np.array([1.0, 0.0])[:, None, None]
    send_s = messages * _column(stage.send_s for stage in stages)
    lanes = tuple(stage.send_lane for stage in stages)

    def chunk(seconds: Iterable[float]) -> FloatArray:
        return _column(seconds) / chunks

    return StageTimes(
        compute=_slot_times(
            [stage.compute for stage in stages],
            parts=[chunks * (stage.slowdown if typical else 1.0) for stage in stages],
        ),
        collectives=tuple(
            SlotCollective(
                name=exchanges[0].purpose,
                lane=exchanges[0].lane,
                times=_slot_times(
                    [exchange.whole for exchange in exchanges], parts=[chunks] * len(stages)
                ),
            )
            for exchanges in zip(*(stage.exchanges for stage in stages), strict=True)
        ),
        sends=Sends(
            forward_s=send_s,
            backward_s=send_s,
            latency_s=messages * _column(stage.latency_s for stage in stages),
            forward_lane=lanes,
            backward_lane=lanes,
        ),
        ending=EndingTimes(
            gradients_s=chunk(stage.gradients_s for stage in stages),
            sums_s=chunk(stage.sums_s for stage in stages),
            optimizer_s=chunk(stage.optimizer_s for stage in stages),
            parameters_s=chunk(stage.parameters_s for stage in stages),
        ),
    )


def overlap_rules(prices: StepPrices, stages: Sequence[StagePrices]) -> OverlapRules:
    """Return which work may overlap; exchanges inside slots hide as much as the prices say."""
    overlaps = prices.efficiency.stack.overlaps
    return OverlapRules(
        sends=float(overlaps.pipeline),
        gradients=float(overlaps.data),
        parameters=float(overlaps.data),
        # Gradients are clipped by a norm over all of them.
        optimizer_waits_for_all=True,
        collectives={
            exchanges[0].purpose: Shares(
                forward=_hidden((e.whole.forward_s, e.exposed.forward_s) for e in exchanges),
                backward=_hidden((e.whole.backward_s, e.exposed.backward_s) for e in exchanges),
                weight=_hidden((e.whole.weight_s, e.exposed.weight_s) for e in exchanges),
            )
            for exchanges in zip(*(stage.exchanges for stage in stages), strict=True)
        },
    )


def _column(values: Iterable[float]) -> FloatArray:
    """Return one value a stage as an array [stage, 1]."""
    return np.array([*values], dtype=np.float64)[:, None]


def _slot_times(
    slots: Sequence[SlotTimes[float]], *, parts: Sequence[float]
) -> SlotTimes[FloatArray]:
    """Return a part of the stages' times."""
    divided = _column(parts)
    return SlotTimes(
        forward_s=_column(slot.forward_s for slot in slots) / divided,
        backward_s=_column(slot.backward_s for slot in slots) / divided,
        weight_s=_column(slot.weight_s for slot in slots) / divided,
    )


def _hidden(seconds: Iterable[tuple[float, float]]) -> FloatArray:
    """Return the share that hides, from the whole and what of it is exposed."""
    return _column(
        min(max(1 - exposed / whole, 0.0), 1.0) if whole > 0 else 0.0 for whole, exposed in seconds
    )


def _jitter(prices: StepPrices, seed: int) -> Jitter:
    """Return the scatter of the nodes that a stage's ranks stand on; replicas share the stage."""
    grid, per_node = prices.program.grid, prices.exchanges.prices.ranks_per_node
    ranks = int(grid.ranks_per_stage)
    return Jitter(
        slot_sigma=0.0,
        step_sigma=float(prices.efficiency.stack.node_scatter),
        ranks_per_stage=-(-ranks // per_node),
        replicas=1,
        stages_together=max(per_node // ranks, 1),
        seed=seed,
    )


def _by_category(
    prices: StepPrices, stage: StagePrices, played: PlayedSchedule, slowest: int, silent_s: float
) -> Mapping[StepCategory, float]:
    """Return the seconds of a played step, its slowest stage standing for the pipeline."""
    closed = {name: float(seconds) for name, seconds in prices.time().by_category.items()}
    closed["fixed"] -= stage.step_s
    found = dict.fromkeys(STEP_CATEGORIES, 0.0)
    compute_s, exchanged_s = float(played.compute_s[slowest]), float(played.collectives_s[slowest])
    exposed = _exposed(stage)
    for name, seconds in closed.items():
        if name in _COMPUTE:
            found[name] = compute_s * seconds / sum(closed[part] for part in _COMPUTE)
    for purpose, seconds in exposed.items():
        if seconds:
            found[purpose] = exchanged_s * seconds / sum(exposed.values())
    pipeline_s = float(played.pipeline_s)
    found["pipeline"] = pipeline_s - silent_s
    found["bubble"] = silent_s - compute_s - exchanged_s
    found["optimizer"] = float(played.optimizer_s.max())
    found["data"] += float(played.step_s) - pipeline_s - found["optimizer"]
    found["fixed"] += stage.step_s
    return found


def _exposed(stage: StagePrices) -> Mapping[Purpose, float]:
    """Return the exposed seconds of each purpose's exchanges in a micro-batch."""
    return {
        exchange.purpose: exchange.exposed.forward_s
        + exchange.exposed.backward_s
        + exchange.exposed.weight_s
        for exchange in stage.exchanges
    }
