"""Matrix products as people write them: MxKxN, or MxKxNxBATCH."""

from __future__ import annotations

import re

from trnbench.errors import InputError
from trnbench.workload.suite import Product

MAX_DIGITS = 12
_SHAPE = re.compile(r"(\d+)x(\d+)x(\d+)(?:x(\d+))?")


def parse_product(text: str) -> Product:
    """Return the product that a text such as 4096x8192x8192 names."""
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
