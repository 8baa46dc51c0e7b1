"""A measured figure beside the bar it is held to; reported, never a pass or a fail."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, TypeVar

T = TypeVar("T")
REPEATS = 3


def best_of(work: Callable[[], T], repeats: int = REPEATS) -> tuple[T, float]:
    """Return what `work` returns, and the least processor time of some runs in s."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        done = work()
        best = min(best, time.process_time() - start)
    return done, best


def show(
    what: str,
    value: float,
    unit: str,
    bar: float | None = None,
    side: Literal["at least", "at most"] = "at least",
) -> None:
    """Print one figure, and whether it keeps its bar if it has one."""
    if bar is None:
        print(f"{what:52s} {value:14,.3g} {unit}")
        return
    kept = value >= bar if side == "at least" else value <= bar
    verdict = "" if kept else "  MISSED"
    print(f"{what:52s} {value:14,.3g} {unit:14s} {side} {bar:,.3g}{verdict}")
