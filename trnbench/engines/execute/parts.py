"""Which blocks of the model each pipeline stage runs in each of its chunks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from trnbench.facts.arrays import FloatArray
from trnbench.facts.workload.recompute import repeated_layers
from trnbench.facts.workload.weights import DEPTH
from trnbench.program.blocks import EXCHANGED
from trnbench.program.stages import AGAIN, StageClass, is_behind
from trnbench.program.step import StepProgram

StagePart: TypeAlias = tuple[tuple[str, int], ...]
"""Blocks in the order data passes them: kind, and number of the layer (0 for an end)."""


def parts_of(program: StepProgram) -> tuple[tuple[StagePart, ...], ...]:
    """[stage][chunk] the blocks; chunk c of stage s is part c * pp + s of the model.

    A stage's layers are dealt out to its chunks as evenly as whole layers allow, more to the first.
    """
    pp, vpp = int(program.layout.pp), int(program.layout.vpp)
    transformer = program.model.transformer
    assert transformer is not None
    # A kind of layer whose experts are spread over ranks has a block of its own.
    kinds = [name if name in program.blocks else name + EXCHANGED for name in transformer.order]
    classes = [_class_of(program, number) for number in range(pp)]
    per_part = [[_layers(one, chunk, vpp) for one in classes] for chunk in range(vpp)]
    made: list[list[StagePart]] = [[] for _ in range(pp)]
    again = repeated_layers(program.layout.recompute) or 0
    last = vpp * pp - 1
    layer = 0
    for chunk, row in enumerate(per_part):
        for s, count in enumerate(row):
            part = [
                (kinds[i] + AGAIN if i - layer < again else kinds[i], i)
                for i in range(layer, layer + count)
            ]
            layer += count
            place = chunk * pp + s
            depths = _depths(program, classes[s]) if chunk == vpp - 1 else ()
            first, head = [("embedding", 0)], [("head", 0)]
            made[s].append((*first[: place == 0], *part, *depths, *(head if place == last else ())))
    return tuple(tuple(parts) for parts in made)


def _layers(stage: StageClass, chunk: int, vpp: int) -> int:
    """Layers of a chunk of a stage."""

    def count(blocks: Mapping[str, FloatArray]) -> int:
        return round(
            sum(
                float(n)
                for kind, n in blocks.items()
                if kind != "embedding" and not is_behind(kind)
            )
        )

    if stage.chunks:
        return count(stage.chunks[chunk])
    whole = count(stage.blocks)
    return whole // vpp + (chunk < whole % vpp)


def _depths(program: StepProgram, stage: StageClass) -> StagePart:
    """Depths of a stage; they are numbered on behind the layers."""
    transformer = program.model.transformer
    assert transformer is not None
    depths = [kind for kind in stage.blocks if kind.startswith(DEPTH) and stage.blocks[kind]]
    return tuple((kind, transformer.layers + i) for i, kind in enumerate(depths))


def _class_of(program: StepProgram, number: int) -> StageClass:
    for stage in program.stages:
        start = int(stage.index)
        if start <= number < start + int(stage.multiplicity):
            return stage
    raise AssertionError(f"no class of stages has number {number}")
