"""Host memory for an optimizer that updates there."""

from __future__ import annotations

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.program.optimizer import host_bytes
from trnbench.program.step import StepProgram
from trnbench.program.tensor import array


def host_states_bytes(program: StepProgram, node_ranks: int) -> FloatArray:
    """Bytes the hosts of a node hold at most for its ranks, over the grid of layouts.

    Where several stages share a node, the stages with the largest states are taken first.
    """
    grid, shape = program.grid, program.shape
    if grid.optimizer_offload != "host":
        return np.zeros(())
    of_kind = {
        kind: array(sum((host_bytes(grid, bucket) for bucket in block.buckets), np.zeros(())))
        for kind, block in program.blocks.items()
    }
    each, ranks = (
        np.stack([np.broadcast_to(one, shape) for one in of_stages])
        for of_stages in (
            [
                sum((n * of_kind[k] for k, n in s.blocks.items()), np.zeros(()))
                for s in program.stages
            ],
            [s.multiplicity * grid.ranks_per_stage for s in program.stages],
        )
    )
    most = np.argsort(-each, axis=0, kind="stable")
    each, ranks = (np.take_along_axis(one, most, axis=0) for one in (each, ranks))
    before = np.cumsum(ranks, axis=0) - ranks
    return array((np.clip(node_ranks - before, 0, ranks) * each).sum(axis=0))
