"""Parts and bounds of steps that only tests ask for."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trnbench.arrays import BoolArray, FloatArray, IntArray
from trnbench.execute.arithmetic import Numbers
from trnbench.execute.trainer import Trainer, WeightName
from trnbench.program.matrix import MatrixProduct
from trnbench.program.points import Points
from trnbench.program.schedule import SlotKind, SlotOrder


def points_where(mask: BoolArray) -> Points:
    """Return the layouts of a grid where a mask over all of it holds."""
    return Points(shape=mask.shape, index=tuple(np.nonzero(mask)))


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
