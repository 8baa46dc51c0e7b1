"""Child processes: started safely, ended with their parent, and workers that answer calls."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SELDOM = 1_000_000, 20, 100
"""Thresholds of the collector of cycles. Records are no cycles: looking for some among them after
every few hundred takes a fifth of a short command; a look at all of them takes half of a search."""


@contextmanager
def collected_seldom() -> Iterator[None]:
    """Let the collector of cycles look as seldom as in the process of a command."""
    before = gc.get_threshold()
    if before[0]:  # 0: it never looks
        gc.set_threshold(*(max(pair) for pair in zip(before, SELDOM, strict=True)))
    try:
        yield
    finally:
        gc.set_threshold(*before)
