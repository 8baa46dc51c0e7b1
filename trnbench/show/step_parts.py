"""Keys of the parts that add up to the time of a step and to the memory of a rank."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trnbench.engines.analytic.step.memory_parts import CATEGORIES, MemoryCategory
from trnbench.program.slots import STEP_CATEGORIES, StepCategory

COMMUNICATION: tuple[StepCategory, ...] = ("tensor", "context", "expert", "pipeline", "data")
"""Categories of a step that can hide behind compute."""


def _timed(how: str, names: Iterable[str]) -> dict[str, str]:
    return {f"{how}_{name.replace('-', '_')}_s": name for name in names}


MEMORY_PARTS: Mapping[str, MemoryCategory] = {f"memory_{name}_bytes": name for name in CATEGORIES}
"""Keys of a row that add up to the memory of a rank, in bytes -> category."""
EXPOSED_PARTS: Mapping[str, str] = _timed("exposed", STEP_CATEGORIES)
"""Keys of a row that add up to the time of a step, in seconds -> category."""
HIDDEN_PARTS: Mapping[str, str] = _timed("hidden", COMMUNICATION)
"""Keys of communication that hides behind compute, in seconds -> category."""
