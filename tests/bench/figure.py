"""A measured figure beside the bar it is held to; reported, never a pass or a fail.

Machines differ, so seconds and rates are told in reference units, too: one unit (U) is the
processor time of a fixed mix of bytecode, small and large array work and a matrix product, timed
just before. Bars of seconds and of rates are in units. The figures of the last runs are kept beside
the answers, and a figure that moved by more than a tenth is named.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any, Literal, TypeVar

import numpy as np

from trnbench.facts.catalog.whole_file import make_folder, write_whole
from trnbench.store.place import store_path

T = TypeVar("T")
REPEATS = 3
KEPT = 8
"""Earlier runs that are kept."""
MOVED = 0.1
"""Change from the last run by which a figure is named."""
FILE = store_path().with_name("bench-self.json")
"""Known before benchmarks that keep answers elsewhere."""
_SECONDS = {"s": 1.0, "ms": 1e-3}
_measured: dict[str, float] = {}


def _mix() -> float:
    number = 0
    for i in range(6_600_000):
        number += i & 7
    small = np.arange(64.0)
    for _ in range(260_000):
        small = small * 1.0000001 + 1e-9
    large = np.arange(400_000.0)
    for _ in range(330):
        large = np.sqrt(large * large + 1.0)
    square = np.ones((768, 768))
    for _ in range(18):
        square = (square @ square) * 1e-3
    return number + float(small[0] + large[0] + square[0, 0])


@cache
def reference_s() -> float:
    """Return the processor seconds of a reference unit on this machine, this minute."""
    return best_of(_mix)[1]


def best_of(work: Callable[[], T], repeats: int = REPEATS) -> tuple[T, float]:
    """Return what `work` returns, and the least processor time of some runs in s."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        done = work()
        best = min(best, time.process_time() - start)
    return done, best


def processor_s(*arguments: str) -> float:
    """Return the processor time of the command and its children, s."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "trnbench", *arguments], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def in_units(value: float, unit: str) -> tuple[float, str]:
    """Return seconds or a rate in reference units, anything else as it is."""
    time_unit, _, of = unit.partition(" ")
    if time_unit in _SECONDS:
        return value * _SECONDS[time_unit] / reference_s(), f"U {of}".strip()
    if unit.endswith("/s"):
        return value * reference_s(), f"{unit.removesuffix('/s')}/U"
    return value, unit


def show(
    what: str,
    value: float,
    unit: str,
    bar: float | None = None,
    side: Literal["at least", "at most"] = "at least",
) -> None:
    """Print one figure, whether it keeps its bar if it has one, and how it moved."""
    told, of = in_units(value, unit)
    earlier = [run["figures"][what] for run in kept_runs() if what in run["figures"]]
    _measured[what] = told
    parts = [f"{what:52s} {value:12,.3g} {unit:12s}"]
    parts.append(f"{told:10,.3g} {of:12s}" if of != unit else " " * 23)
    if bar is not None:
        kept = told >= bar if side == "at least" else told <= bar
        parts.append(f"{side} {bar:,.3g}{'' if kept else '  MISSED'}")
    if earlier:
        parts.append(" was " + ", ".join(f"{one:,.3g}" for one in earlier))
        if abs(change := told / earlier[-1] - 1) > MOVED:
            parts.append(f" MOVED by {change:+.0%}")
    print(" ".join(parts).rstrip(), flush=True)


def keep() -> None:
    """Write the figures measured so far beside those of the last runs."""
    now = f"{datetime.now(tz=UTC):%Y-%m-%dT%H:%M:%SZ}"
    run = {"at": now, "reference_s": reference_s(), "figures": _measured}
    if _measured:
        make_folder(FILE.parent)
        text = json.dumps([*kept_runs(), run][-KEPT:], indent=1)
        write_whole(FILE, text.encode())


def kept_runs() -> list[dict[str, Any]]:
    """Return the figures of the last runs in units, the oldest first."""
    try:
        return list(json.loads(FILE.read_text()))
    except (OSError, ValueError):
        return []
