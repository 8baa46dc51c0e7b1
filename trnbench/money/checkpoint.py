"""Size of a checkpoint: weights and optimizer state, each number once, in any layout.

A job with adapters saves only these; the other weights are those the job was given.
"""

from __future__ import annotations

from functools import lru_cache

from trnbench.facts.workload.layout import KNOBS, Layout
from trnbench.facts.workload.model import Model
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.program.block import Block
from trnbench.program.grid import Grid
from trnbench.program.optimizer import state_bytes
from trnbench.program.step import training_step

_READ = ("sequence", "precision", "job", *(name for name, one in KNOBS.items() if one.of_jobs))


def checkpoint_bytes(model: Model, layout: PartialLayout) -> float:
    """Bytes of a whole checkpoint: the saved states of a single rank that holds the whole model."""
    alone = PartialLayout(global_batch=1, **{name: layout[name] for name in _READ})
    return _saved_bytes(model, alone.complete())


@lru_cache(maxsize=16)
def _saved_bytes(model: Model, layout: Layout) -> float:
    # All instance types of a question save the same.
    program = training_step(model, layout)
    saved = (
        float(program.instances(kind)) * _block_bytes(program.grid, block)
        for kind, block in program.blocks.items()
    )
    return sum(saved)


def _block_bytes(grid: Grid, block: Block) -> float:
    states = [state_bytes(grid, bucket) for bucket in block.buckets if not bucket.frozen]
    fixed = (one.weight.bytes * one.held for one in block.parameters.values() if one.use == "fixed")
    return float(sum((of.weights + of.optimizer for of in states), start=sum(fixed, start=0.0)))
