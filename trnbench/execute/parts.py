"""Which blocks of the model each pipeline stage runs in each of its chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from trnbench.program.stages import StageClass
from trnbench.program.step import StepProgram

StagePart: TypeAlias = tuple[tuple[str, int], ...]
"""Blocks in the order data passes them: kind, and number of the layer (0 for an end)."""

ENDS = ("embedding", "head")


def parts_of(program: StepProgram) -> tuple[tuple[StagePart, ...], ...]:
    """Return [stage][chunk] the blocks; chunk c of stage s is part c * pp + s of the model.

    A stage's layers are dealt out to its chunks as evenly as whole layers allow, more to the first.
    """
    pp, vpp = int(program.layout.pp), int(program.layout.vpp)
    counts = []
    kinds: list[str] = []
    for stage in (_class_of(program, number) for number in range(pp)):
        layers = {kind: int(n) for kind, n in stage.blocks.items() if kind not in ENDS and n}
        kinds += [kind for kind, n in layers.items() for _ in range(n)]
        counts.append(sum(layers.values()))
    per_part = [[counts[s] // vpp + (c < counts[s] % vpp) for s in range(pp)] for c in range(vpp)]
    # Dense layers come first in a model, wherever its first layers are.
    kinds.sort(key=lambda kind: kind != "dense")
    made: list[list[StagePart]] = [[] for _ in range(pp)]
    layer = 0
    for chunk, row in enumerate(per_part):
        for s, count in enumerate(row):
            part = [(kinds[i], i) for i in range(layer, layer + count)]
            layer += count
            made[s].append(
                _with_ends(part, first=chunk + s == 0, last=chunk == vpp - 1 and s == pp - 1)
            )
    return tuple(tuple(parts) for parts in made)


def _with_ends(part: Sequence[tuple[str, int]], *, first: bool, last: bool) -> StagePart:
    ends = [(kind, 0) for kind in ENDS]
    return (*(ends[:1] if first else ()), *part, *(ends[1:] if last else ()))


def _class_of(program: StepProgram, number: int) -> StageClass:
    for stage in program.stages:
        start = int(stage.index)
        if start <= number < start + int(stage.multiplicity):
            return stage
    raise AssertionError(f"no class of stages has number {number}")
