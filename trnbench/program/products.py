"""Matrix products of a program side by side: as one product of many sizes, like ones once.

How they are joined follows from the program alone, so that every chip that prices it begins here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np

from trnbench.arrays import FloatArray
from trnbench.program.matrix import MatrixProduct
from trnbench.program.ops import MatMul, Operation, Term
from trnbench.records import dataclass, replace

Terms: TypeAlias = tuple[Term, ...]
"""What an operation multiplies: two that share it take equally long."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JoinedProducts:
    """Products of equal formats: the sizes of all of them in `product`, one after the other.

    `places`: which of them are an operation's, by what it multiplies, and the grid's axes that
    they span.
    """

    product: MatrixProduct
    places: Mapping[Terms, tuple[slice, tuple[int, ...]]]


def joined_products(ops: Iterable[Operation]) -> tuple[JoinedProducts, ...]:
    """Return the matrix products among operations, those of equal formats together."""
    by_terms = {op.terms: op for op in ops if isinstance(op, MatMul)}
    groups: dict[tuple[str, str], dict[Terms, MatrixProduct]] = {}
    for terms, op in by_terms.items():
        product = op.product
        groups.setdefault((product.format_a, product.format_out), {})[terms] = product
    return tuple(map(_joined, groups.values()))


def _joined(group: Mapping[Terms, MatrixProduct]) -> JoinedProducts:
    keys = {terms: _key(product) for terms, product in group.items()}
    distinct = {keys[terms]: product for terms, product in group.items()}
    sizes = [_flat(product) for product in distinct.values()]
    m, k, n, batch = np.concatenate(sizes, axis=1)
    starts = np.cumsum([0, *(size.shape[1] for size in sizes)]).tolist()
    where = {key: slice(*starts[i : i + 2]) for i, key in enumerate(distinct)}
    first = next(iter(group.values()))
    return JoinedProducts(
        product=replace(first, m=m, k=k, n=n, batch=batch),
        places={terms: (where[keys[terms]], product.shape) for terms, product in group.items()},
    )


def _key(product: MatrixProduct) -> tuple[tuple[tuple[int, ...], bytes], ...]:
    sizes = (product.m, product.k, product.n, product.batch)
    return tuple((size.shape, size.tobytes()) for size in sizes)


def _flat(product: MatrixProduct) -> FloatArray:
    """Return the sizes of products, one column each."""
    sizes = (product.m, product.k, product.n, product.batch)
    columns = np.empty((len(sizes), *product.shape))
    for row, size in enumerate(sizes):
        columns[row] = size
    return columns.reshape(len(sizes), -1)
