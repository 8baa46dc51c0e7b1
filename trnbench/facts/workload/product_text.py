"""Texts of matrix products: MxKxN, or MxKxNxBATCH."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trnbench.errors import InputError

if TYPE_CHECKING:
    from trnbench.facts.workload.suite import Product

MAX_DIGITS = 12
_SHAPE = re.compile(r"(\d+)x(\d+)x(\d+)(?:x(\d+))?")


def parse_product(text: str) -> Product:
    """The product in a text such as 4096x8192x8192."""
    from trnbench.facts.workload.suite import Product

    match = _SHAPE.fullmatch(text.strip().lower())
    if match is None or any(len(size) > MAX_DIGITS for size in match.groups(default="1")):
        raise InputError(
            f"{text!r} is not a product; write MxKxN or MxKxNxBATCH, e.g. 4096x8192x8192"
        )
    m, k, n, batch = (int(size) for size in match.groups(default="1"))
    try:
        return Product(m=m, k=k, n=n, batch=batch)
    except ValueError as error:
        raise InputError(f"{text!r}: {error}") from None


def product_text(product: Product) -> str:
    """The text of a product."""
    batch = f"x{product.batch}" if product.batch > 1 else ""
    return f"{product.m}x{product.k}x{product.n}{batch}"
