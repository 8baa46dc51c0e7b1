"""Matrix products of all ranks at once: letters of a term become a batched product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from trnbench.execute.arithmetic import Arithmetic, Numbers
from trnbench.program.ops import Term
from trnbench.units import FLOP_PER_MULTIPLY_ADD


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductPlan:
    """How the letters of a term are laid out for a batched product of two matrices.

    Each order lists dimensions behind the rank's: batch, then rows, then columns.
    """

    left: tuple[int, ...]
    right: tuple[int, ...]
    out: tuple[int, ...]
    batch: int
    rows: int
    summed: int


def plan_product(term: Term) -> ProductPlan:
    """Return the layout of a term's product."""
    left, right, out = term.operands
    batch = [x for x in out if x in left and x in right]
    rows = [x for x in out if x in left and x not in right]
    columns = [x for x in out if x in right and x not in left]
    summed = [x for x in left if x in right and x not in out]
    produced = batch + rows + columns
    return ProductPlan(
        left=tuple(left.index(x) for x in batch + rows + summed),
        right=tuple(right.index(x) for x in batch + summed + columns),
        out=tuple(produced.index(x) for x in out),
        batch=len(batch),
        rows=len(rows),
        summed=len(summed),
    )


def product(
    plan: ProductPlan,
    left: Numbers,
    right: Numbers,
    arithmetic: Arithmetic,
    formats: tuple[str, str],
) -> tuple[Numbers, int]:
    """Return the product of all ranks in FP32, and the FLOP they spent on it.

    Operands are rounded to `formats` along the sum.
    """
    a = _ordered(left, plan.left)
    b = _ordered(right, plan.right)
    split = 1 + plan.batch
    batch, rows = a.shape[:split], a.shape[split : split + plan.rows]
    columns = b.shape[split + plan.summed :]
    m, n = prod(rows), prod(columns)
    a = a.reshape(*batch, m, prod(a.shape[split + plan.rows :]))
    b = b.reshape(*batch, prod(b.shape[split : split + plan.summed]), n)
    made = arithmetic.multiply(a, b, formats).reshape(*batch, *rows, *columns)
    return _ordered(made, plan.out), int(FLOP_PER_MULTIPLY_ADD) * int(a.size) * n


def _ordered(numbers: Numbers, order: Sequence[int]) -> Numbers:
    if list(order) == sorted(order):
        return numbers
    return np.transpose(numbers, (0, *(i + 1 for i in order)))
