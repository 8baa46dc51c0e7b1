"""Degrees with which each pipeline schedule can run; a refusal names the nearest that do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from trnbench.facts.arrays import BoolArray, IntArray
from trnbench.facts.workload.layout import Schedule

Degrees: TypeAlias = int | IntArray

CHUNKS_NEED_INTERLEAVED = "chunks need the interleaved schedule"
INTERLEAVED_NEEDS_CHUNKS = "interleaved needs 2 chunks"
SCHEDULE_NEEDS_STAGES = "schedule needs 2 stages"
GROUPS_OF_STAGES = "micro-batches come in groups of pp"


def broken_rules(
    schedule: Schedule, *, pp: Degrees, vpp: Degrees, micro_batches: Degrees
) -> Mapping[str, BoolArray]:
    """Rule -> where degrees break it; degrees broadcast together."""
    interleaved = schedule == "interleaved"
    rules: dict[str, BoolArray] = {CHUNKS_NEED_INTERLEAVED: np.greater(vpp, 1) & (not interleaved)}
    if interleaved:
        rules[INTERLEAVED_NEEDS_CHUNKS] = np.less(vpp, 2)
        rules[GROUPS_OF_STAGES] = np.not_equal(np.remainder(micro_batches, pp), 0)
    if schedule in ("interleaved", "zb-h1"):
        rules[SCHEDULE_NEEDS_STAGES] = np.less(pp, 2)
    shape = np.broadcast_shapes(np.shape(pp), np.shape(vpp), np.shape(micro_batches))
    if not shape:
        return rules
    return {name: np.broadcast_to(broken, shape) for name, broken in rules.items()}


def schedule_reasons(
    schedule: Schedule, *, pp: int, vpp: int, micro_batches: int
) -> tuple[str, ...]:
    """Reasons that the schedule cannot run with these degrees; empty if it can."""
    broken = broken_rules(schedule, pp=pp, vpp=vpp, micro_batches=micro_batches)
    texts = {
        CHUNKS_NEED_INTERLEAVED: f"vpp={vpp} needs schedule=interleaved, not {schedule}; try vpp=1",
        INTERLEAVED_NEEDS_CHUNKS: f"interleaved needs vpp of 2 or more, not {vpp}; "
        "try vpp=2, or schedule=1f1b",
        SCHEDULE_NEEDS_STAGES: f"{schedule} needs pp of 2 or more, not {pp}; "
        "try pp=2, or schedule=1f1b",
        GROUPS_OF_STAGES: f"interleaved needs micro-batches in groups of pp={pp}, "
        f"not {micro_batches}; try {_nearest_multiples(micro_batches, pp)}",
    }
    return tuple(texts[name] for name, array in broken.items() if bool(array))


def _nearest_multiples(count: int, step: int) -> str:
    below = count // step * step
    return f"{below} or {below + step}" if below else f"{step}"
