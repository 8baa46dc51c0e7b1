"""Parts and bounds of steps that only tests ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trnbench.engines.analytic.step import time
from trnbench.engines.analytic.step.blocks import weighted
from trnbench.engines.analytic.step.compute import Products
from trnbench.engines.analytic.step.engines import Engines
from trnbench.engines.analytic.step.exchanges import exchanges_of
from trnbench.engines.analytic.step.time import StepPrices
from trnbench.engines.execute.arithmetic import Numbers
from trnbench.engines.execute.trainer import Trainer, WeightName
from trnbench.facts.arrays import BoolArray, FloatArray, IntArray
from trnbench.facts.calibration.collective_stack import CollectiveStack
from trnbench.facts.calibration.training_stack import TrainingEfficiency
from trnbench.facts.hardware.instance import Platform
from trnbench.program.matrix import MatrixProduct
from trnbench.program.points import Points
from trnbench.program.schedule import SlotKind, SlotOrder
from trnbench.program.slots import PURPOSES, SLOTS
from trnbench.program.step import StepProgram


def points_where(mask: BoolArray) -> Points:
    """Return the layouts of a grid where a mask over all of it holds."""
    return Points(shape=mask.shape, index=tuple(np.nonzero(mask)))


def step_prices(
    program: StepProgram,
    platform: Platform,
    efficiency: TrainingEfficiency,
    collectives: CollectiveStack,
    *,
    wanted: BoolArray | None = None,
    engines: Engines | None = None,
) -> StepPrices:
    """Return the prices of one program's steps, by exchanges and products of its own."""
    exchanges = exchanges_of(
        program, platform, efficiency, collectives, wanted=wanted, engines=engines
    )
    return time.step_prices(program, platform, exchanges, Products())


def chunks_held(order: SlotOrder, *, until: SlotKind) -> IntArray:
    """Return the micro-batches held [stage, slot, chunk] while each slot of an order runs.

    They are held from the start of their forward to the end of their `until` slot.
    """
    of_chunk = order.chunk[..., None] == np.arange(order.vpp)
    taken = np.cumsum(of_chunk & (order.kind == SlotKind.FORWARD)[..., None], axis=1)
    let_go = of_chunk & (order.kind == until)[..., None]
    held: IntArray = taken - np.cumsum(let_go, axis=1) + let_go
    return held


def operand_bytes(product: MatrixProduct) -> FloatArray:
    """Return the bytes of both operands and the result, each once: no less can be moved."""
    a = product.m * product.k * product.element_bytes_a
    b = product.k * product.n * product.element_bytes_b
    return product.batch * (a + b) + product.result_bytes


def take_weights(trainer: Trainer, weights: Mapping[WeightName, Numbers]) -> None:
    """Give every rank its part of new whole weights; the optimizer keeps its state."""
    for block, state in trainer.states():
        spans = state.shape.spans
        parts = [weights[name, block.layer].reshape(-1) for name in spans]
        flat = np.concatenate(parts).astype(trainer.arithmetic.dtype)
        stored = trainer.arithmetic.store(flat, trainer.program.recipe.weights)
        state.restore({**state.whole(), "weights": stored, "master": flat})


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePrices:
    """One class of stages in closed form: seconds by slot (forward, backward, weights)."""

    role: str
    index: int
    compute: tuple[float, ...]
    exchanges: dict[str, tuple[float, ...]]
    exposed: dict[str, tuple[float, ...]]
    gradients_s: float
    sums_s: float
    parameters_s: float


def stages_of(prices: StepPrices) -> tuple[StagePrices, ...]:
    """Return the prices of each class of stages of a scalar program, for examples by hand."""
    overlaps, half_s = prices.efficiency.stack.overlaps, prices.launch_s * prices.slowdown / 2
    costs = {kind: b.at(np.asarray, prices.slowdown, overlaps) for kind, b in prices.blocks.items()}

    def slots(plan, read, extra=(0.0, 0.0, 0.0)):
        found = (
            weighted(plan.blocks, {kind: np.asarray(read(c, s)) for kind, c in costs.items()})
            for s in SLOTS
        )
        return tuple(float(of + more) for of, more in zip(found, extra, strict=True))

    def by_purpose(plan, read):
        of = {p: slots(plan, lambda cost, slot, p=p: read(cost, p, slot)) for p in PURPOSES}
        return {purpose: seconds for purpose, seconds in of.items() if any(seconds)}

    return tuple(
        StagePrices(
            role=plan.role,
            index=int(plan.index),
            compute=slots(plan, lambda c, s: c.compute.get(s, 0.0), (half_s, half_s, 0.0)),
            exchanges=by_purpose(plan, lambda c, p, s: c.exchanges.get((p, s), 0.0)),
            exposed=by_purpose(plan, lambda c, p, s: c.exposed(p, s)),
            gradients_s=float(plan.once["reduce"]),
            sums_s=float(plan.once["sums"] + prices.closing_s),
            parameters_s=float(plan.once["gather"]),
        )
        for plan in prices.plans
        if plan.stages > 0
    )
