"""How large a checkpoint is: weights and optimizer state, each number once, whatever the layout."""

from __future__ import annotations

from trnbench.analytic.step.memory import MemoryCategory, memory
from trnbench.hardware.instance import Platform
from trnbench.program.step import training_step
from trnbench.workload.layout import Layout
from trnbench.workload.model import Model

SAVED: tuple[MemoryCategory, ...] = ("weights", "optimizer")


def checkpoint_bytes(model: Model, platform: Platform, *, precision: str, sequence: int) -> float:
    """Return the bytes of a whole checkpoint: what a single rank would hold of what is kept."""
    layout = Layout(global_batch=1, sequence=sequence, precision=precision)
    held = memory(training_step(model, layout), platform, fragmentation_ratio=0.0).by_category()
    return sum(held[category] for category in SAVED)
