"""Matrix products of a program, joined into one product of many sizes, each size once.

The joining follows from the program alone, so that every chip prices the same products.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np

from trnbench.facts.arrays import IntArray, combined
from trnbench.facts.records import Record, replace
from trnbench.program.matrix import MatrixProduct
from trnbench.program.ops import MatMul, Operation, Term

Terms: TypeAlias = tuple[Term, ...]
"""Operands of an operation; operations with the same ones take equally long."""


class JoinedProducts(Record, eq=False):
    """Products of equal formats, joined into one."""

    product: MatrixProduct  # distinct sizes, one after the other
    places: Mapping[Terms, IntArray]  # by operands: index into the sizes, over the grid's axes


def joined_products(ops: Iterable[Operation]) -> tuple[JoinedProducts, ...]:
    """Matrix products among operations, those of equal formats joined."""
    by_terms = {op.terms: op for op in ops if isinstance(op, MatMul)}
    groups: dict[tuple[str, str], dict[Terms, MatrixProduct]] = {}
    for terms, op in by_terms.items():
        product = op.product
        groups.setdefault((product.format_a, product.format_out), {})[terms] = product
    return tuple(map(_joined, groups.values()))


def _joined(group: Mapping[Terms, MatrixProduct]) -> JoinedProducts:
    keys = {terms: _key(product) for terms, product in group.items()}
    distinct = {keys[terms]: product for terms, product in group.items()}
    found = {key: combined((p.m, p.k, p.n, p.batch)) for key, p in distinct.items()}
    m, k, n, batch = np.concatenate([sizes for sizes, _ in found.values()], axis=1)
    starts = np.cumsum([0, *(sizes.shape[1] for sizes, _ in found.values())])
    where = {
        key: first + places
        for first, (key, (_, places)) in zip(starts[:-1], found.items(), strict=True)
    }
    first = next(iter(group.values()))
    return JoinedProducts(
        product=replace(first, m=m, k=k, n=n, batch=batch),
        places={terms: where[keys[terms]] for terms in group},
    )


def _key(product: MatrixProduct) -> tuple[tuple[tuple[int, ...], bytes], ...]:
    sizes = (product.m, product.k, product.n, product.batch)
    return tuple((size.shape, size.tobytes()) for size in sizes)
