"""From an operation of a program to a function that computes it for all ranks of a stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from trnbench.arrays import BoolArray
from trnbench.errors import unhandled
from trnbench.execute.arithmetic import Numbers
from trnbench.execute.attention import FusedAttention
from trnbench.execute.exchange import Exchanger
from trnbench.execute.experts import d_dispatch, dispatch
from trnbench.execute.kernels import FUNCTIONS, Arrays, KernelSetting, shape_of
from trnbench.execute.products import plan_product, product
from trnbench.execute.traffic import Book
from trnbench.numerics.formats import format_named
from trnbench.program.ops import (
    AttentionOp,
    CollectiveOp,
    Elementwise,
    Gather,
    MatMul,
    Operation,
    Term,
)
from trnbench.program.tensor import Tensor

RunOperation: TypeAlias = Callable[[Arrays], Arrays]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """What operations of a stage are computed with, and written into."""

    setting: KernelSetting
    exchange: Exchanger
    book: Book


def runner(shop: Workshop, op: Operation) -> RunOperation:
    """Return the function from the arrays an operation reads to those it writes."""
    match op:
        case MatMul():
            return _Products(shop, op)
        case AttentionOp():
            return _attention(shop, op)
        case Gather():
            return _gather(shop, op)
        case CollectiveOp():
            return lambda arrays: [shop.exchange.run(op, arrays[0])]
        case Elementwise():
            function = FUNCTIONS[op.function]
            return lambda arrays: function(shop.setting, op, arrays)
        case _:
            unhandled(op, "arithmetic in the executor")


class _Products:
    """Products that run as one: those of one result add up in FP32 and are rounded once."""

    def __init__(self, shop: Workshop, op: MatMul) -> None:
        self._shop = shop
        self._format = op.format
        reads = {tensor: i for i, tensor in enumerate(op.reads)}
        writes = {tensor: i for i, tensor in enumerate(op.writes)}
        self._writes = len(writes)
        self._terms = [
            (term, plan_product(term), reads[term.left], reads[term.right], writes[term.out])
            for term in op.terms
        ]
        biases = {f"{term.right.name}.bias": writes[term.out] for term in op.terms}
        self._biases = [(reads[bias], biases[bias.name]) for bias in op.bias]

    def __call__(self, arrays: Arrays) -> Arrays:
        out: dict[int, Numbers] = {}
        arithmetic = self._shop.setting.arithmetic
        for term, plan, left_at, right_at, at in self._terms:
            left, left_format = self._operand(term, term.left, arrays[left_at])
            right, right_format = self._operand(term, term.right, arrays[right_at])
            made, flop = product(plan, left, right, arithmetic, (left_format, right_format))
            self._shop.book.computed(self._format, flop)
            out[at] = out[at] + made if at in out else made
        for bias_at, at in self._biases:
            bias = arrays[bias_at]
            lead = out[at].ndim - bias.ndim
            out[at] = out[at] + bias.reshape(len(bias), *(1,) * lead, *bias.shape[1:])
        return [out[i] for i in range(self._writes)]

    def _operand(self, term: Term, tensor: Tensor, numbers: Numbers) -> tuple[Numbers, str]:
        arithmetic = self._shop.setting.arithmetic
        if not arithmetic.exact and _grouped_otherwise(term, tensor, self._format):
            return numbers, self._format
        return arithmetic.operand(numbers, tensor.format, self._format)


def _grouped_otherwise(term: Term, tensor: Tensor, wanted: str) -> bool:
    """Return whether an operand's groups of shared scales do not lie along the sum.

    They were stored along the last dimension; for a sum over another one they are made anew.
    """
    if tensor.format != wanted or format_named(wanted).block == 1:
        return False
    left, right, out = term.operands
    letters = left if tensor is term.left else right
    summed = [x for x in left if x in right and x not in out]
    return summed != [letters[-1]]


def _attention(shop: Workshop, op: AttentionOp) -> RunOperation:
    kernel = FusedAttention(shop.setting, op)

    def run(arrays: Arrays) -> Arrays:
        made, flop = kernel(arrays)
        shop.book.computed(op.format, flop)
        return made

    return run


def _gather(shop: Workshop, op: Gather) -> RunOperation:
    setting, source, write = shop.setting, op.reads[0], op.writes[0]
    shape = shape_of(setting, write.dims)
    if write.dims[0].name == "expert":
        return lambda arrays: [dispatch(arrays[0], arrays[1], shape[1], shape[2])]
    if source.dims[0].name == "expert":
        return lambda arrays: [d_dispatch(arrays[0], arrays[1], shape)]
    table = write if op.function == "scatter_add" else source
    first = setting.ranks.first(table.dims[0])[:, None, None]

    def lookup(arrays: Arrays) -> Arrays:
        rows, here = _rows(arrays[1] - first, arrays[0].shape[1])
        found = arrays[0][np.arange(len(rows))[:, None, None], rows]
        found[~here] = 0
        return [found]

    def scatter(arrays: Arrays) -> Arrays:
        gradient, index = arrays
        rows, here = _rows(index - first, shape[1])
        return [_added(gradient, rows, here, shape)]

    return scatter if op.function == "scatter_add" else lookup


def _rows(rows: Numbers, count: int) -> tuple[Numbers, BoolArray]:
    """Return row numbers, 0 where the rank does not hold the row, and where it does."""
    here = (rows >= 0) & (rows < count)
    return np.where(here, rows, 0), here


def _added(gradient: Numbers, rows: Numbers, here: BoolArray, shape: tuple[int, ...]) -> Numbers:
    """Return a table [rank, row, hidden] with the gradients of each row's tokens added up."""
    out = np.zeros((shape[0] * shape[1], shape[2]), dtype=gradient.dtype)
    at = np.nonzero(here)
    target = at[0] * shape[1] + rows[here]
    order = np.argsort(target, kind="stable")
    row, start = np.unique(target[order], return_index=True)
    if len(row):
        out[row] = np.add.reduceat(gradient[here][order], start, axis=0)
    return out.reshape(shape)
