"""Fused attention of all ranks: scores never leave the kernel, the backward pass makes them again.

Products go through the emulated tensor engine: the shares are rounded to the operands' format
before they meet the values, and sums stay in FP32.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from trnbench.engines.execute.arithmetic import Numbers
from trnbench.engines.execute.kernels import Arrays, Workshop, hidden_pairs
from trnbench.facts.units import FLOP_PER_MULTIPLY_ADD
from trnbench.program.ops import AttentionOp
from trnbench.program.tensor import Tensor


class FusedAttention:
    """One attention operation of a block, forward or backward."""

    def __init__(self, shop: Workshop, op: AttentionOp) -> None:
        self._op = op
        self._arithmetic = shop.arithmetic
        self._format = op.format
        queries = shop.ranks.positions(op.query.dims[1])
        keys = shop.ranks.positions(op.key.dims[1])
        hidden = hidden_pairs(queries, keys, shop.transformer.attention)
        self._bias: Numbers | None = None
        if hidden is not None:
            # Ranks that see the same positions share one mask.
            if (hidden == hidden[:1]).all():
                hidden = hidden[:1]
            bias = np.where(hidden, -np.inf, 0.0).astype(shop.arithmetic.dtype)
            # [rank, batch, key head, query head of it, query, key]
            self._bias = bias[:, None, None, None]

    def __call__(self, arrays: Arrays) -> tuple[Arrays, int]:
        """Arrays that the operation writes, and the FLOP of all ranks.

        A causal square counts half, as programs count it.
        """
        query, key, value = arrays[:3]
        groups = key.shape[3]
        q = self._operand(_grouped(query, groups), self._op.query)
        k, v = (
            self._operand(np.ascontiguousarray(_unflat(x)), of)
            for x, of in zip((key, value), self._op.reads[1:3], strict=True)
        )
        scale = 1 / sqrt(query.shape[-1])
        if self._op.backward:
            made = self._backward(q, k, v, arrays, scale)
            products = 3 * query.shape[-1] + 2 * value.shape[-1]
        else:
            made = self._forward(q, k, v, query, scale)
            products = query.shape[-1] + value.shape[-1]
        ranks, batch, _, heads = query.shape[:4]
        pairs = float(self._op.pairs)
        flop = round(FLOP_PER_MULTIPLY_ADD * ranks * batch * heads * pairs * products)
        return made, flop

    def _scores(self, q: Numbers, k: Numbers, scale: float) -> Numbers:
        scores = self._arithmetic.multiply(q, np.swapaxes(k, -1, -2))
        scores *= scale
        if self._bias is None:
            return scores
        ranks, batch, groups, rows, keys = scores.shape
        queries = self._bias.shape[-2]
        shaped = scores.reshape(ranks, batch, groups, rows // queries, queries, keys)
        shaped += self._bias
        return scores

    def _forward(
        self, q: Numbers, k: Numbers, v: Numbers, query: Numbers, scale: float
    ) -> list[Numbers]:
        shares = self._scores(q, k, scale)
        top = _largest(shares)
        shares -= top
        np.exp(shares, out=shares)
        total = shares.sum(axis=-1, keepdims=True)
        context = self._arithmetic.multiply(self._operand(shares), v)
        context /= total
        sums = (top + np.log(total)).reshape(*q.shape[:3], -1, query.shape[2])
        return [
            _ungrouped(context, query.shape[2]),
            sums.reshape(query.shape[0], query.shape[1], query.shape[3], query.shape[2]),
        ]

    def _backward(
        self, q: Numbers, k: Numbers, v: Numbers, arrays: Arrays, scale: float
    ) -> list[Numbers]:
        query, _, _, context, sums, gradient = arrays
        groups = k.shape[2]
        shares = self._scores(q, k, scale)
        shares -= sums.reshape(*shares.shape[:-1], 1)
        np.exp(shares, out=shares)
        multiply = self._arithmetic.multiply
        g = self._operand(_grouped(gradient, groups), self._op.reads[-1])
        d_v = multiply(np.swapaxes(self._operand(shares), -1, -2), g)
        d_scores = multiply(g, np.swapaxes(v, -1, -2))
        # sum_j p_j dp_j of a row equals gradient . context: no second pass over the square.
        settled = np.einsum("rbsnd,rbsnd->rbns", gradient, context)
        d_scores -= settled.reshape(*d_scores.shape[:-1], 1)
        d_scores *= shares
        d_scores *= scale
        d_scores = self._operand(d_scores)
        d_q = multiply(d_scores, k)
        d_k = multiply(np.swapaxes(d_scores, -1, -2), q)
        return [_ungrouped(d_q, query.shape[2]), _unflat(d_k), _unflat(d_v)]

    def _operand(self, numbers: Numbers, stored_as: Tensor | None = None) -> Numbers:
        if stored_as is not None and stored_as.format == self._format:
            return numbers
        return self._arithmetic.store(numbers, self._format)


def _largest(scores: Numbers) -> Numbers:
    """Largest of each row [..., 1]; short rows take numpy half as long one behind the other."""
    starts = np.arange(0, scores.size, scores.shape[-1])
    return np.maximum.reduceat(scores.reshape(-1), starts).reshape(*scores.shape[:-1], 1)


def _grouped(x: Numbers, groups: int) -> Numbers:
    ranks, batch, tokens, heads, size = x.shape
    split = x.reshape(ranks, batch, tokens, groups, heads // groups, size)
    return split.transpose(0, 1, 3, 4, 2, 5).reshape(ranks, batch, groups, -1, size)


def _ungrouped(x: Numbers, tokens: int) -> Numbers:
    ranks, batch, groups, rows, size = x.shape
    split = x.reshape(ranks, batch, groups, rows // tokens, tokens, size)
    return split.transpose(0, 1, 4, 2, 3, 5).reshape(ranks, batch, tokens, -1, size)


def _unflat(x: Numbers) -> Numbers:
    return x.transpose(0, 1, 3, 2, 4)
