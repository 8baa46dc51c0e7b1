"""Which blocks each pipeline stage runs, as a few classes of equal stages.

    only     the one stage of a model without a pipeline
    first    the input block and its layers
    light    stages with the fewest layers
    heavy    stages with one layer more, where the layers do not divide evenly
    last     its layers and the output block

Stages stand in the order first, light, heavy, last: the heavy ones are near the end, where fewer
micro-batches are held. The first and last stage, which run another block, take one more layer last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trnbench.arrays import FloatArray
from trnbench.program.grid import Grid
from trnbench.program.ops import Send
from trnbench.program.tensor import Tensor, array

StageRole = Literal["only", "first", "light", "heavy", "last"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageClass:
    """Equal pipeline stages: how many there are, and how often each runs which kind of block.

    `index` is the first such stage, counted from 0. Messages are those of one micro-batch.
    """

    role: StageRole
    multiplicity: FloatArray
    index: FloatArray
    blocks: Mapping[str, FloatArray]
    messages: tuple[Send, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """A model's layers as the pipeline sees them.

    `kinds`: block kind -> 1 where a layout runs its layers as that kind (its dense ones excepted,
    which come first), `ends`: the blocks in front of the first and behind the last layer.
    """

    count: int
    dense: int
    kinds: Mapping[str, FloatArray]
    first: tuple[str, ...]
    last: tuple[str, ...]


def stage_classes(grid: Grid, layers: Layers, flow: tuple[Tensor, ...]) -> tuple[StageClass, ...]:
    """Return the classes of stages; those a layout does without have multiplicity 0."""
    pp = grid.pp
    least = np.floor(layers.count / pp)
    more = array(layers.count - least * pp)
    middle = array(np.maximum(pp - 2, 0))
    heavy = np.minimum(more, middle)
    piped = array(pp > 1)
    on_first = array(least + (more > middle))
    shares: tuple[tuple[StageRole, FloatArray, FloatArray, FloatArray], ...] = (
        ("only", 1 - piped, array(0), array(layers.count)),
        ("first", piped, array(0), on_first),
        ("light", middle - heavy, array(1), least),
        ("heavy", heavy, 1 + middle - heavy, array(least + 1)),
        ("last", piped, pp - 1, least),
    )
    return tuple(
        StageClass(
            role=role,
            multiplicity=array(multiplicity),
            index=array(index),
            blocks=_blocks(layers, role, count),
            messages=_messages(grid, role, flow),
        )
        for role, multiplicity, index, count in shares
        if np.any(multiplicity > 0)
    )


def _blocks(layers: Layers, role: StageRole, count: FloatArray) -> Mapping[str, FloatArray]:
    dense = array(layers.dense if role in ("only", "first") else 0)
    blocks: dict[str, FloatArray] = {}
    if role in ("only", "first"):
        blocks.update(dict.fromkeys(layers.first, array(1)))
    if layers.dense and np.any(dense):
        blocks["dense"] = np.minimum(dense, count)
    for kind, share in layers.kinds.items():
        blocks[kind] = array(np.maximum(count - dense, 0) * share + blocks.get(kind, 0))
    if role in ("only", "last"):
        blocks.update(dict.fromkeys(layers.last, array(1)))
    return blocks


def _messages(grid: Grid, role: StageRole, flow: tuple[Tensor, ...]) -> tuple[Send, ...]:
    """Return the messages of a stage: each chunk's output on, and its gradient back.

    The output of the model's last chunk, and the gradient of its first one's input, go nowhere.
    """
    if role == "only":
        return ()
    chunks = grid.vpp
    up_out = array(chunks - (role == "last"))
    up_in = array(chunks - (role == "first"))
    return tuple(
        message
        for tensor in flow
        for message in (
            _message(tensor, "F", "next", "send", up_out),
            _message(tensor, "F", "previous", "receive", up_in),
            _message(tensor, "B_input", "previous", "send", up_in),
            _message(tensor, "B_input", "next", "receive", up_out),
        )
        if np.any(message.count > 0)
    )


def _message(
    tensor: Tensor,
    phase: Literal["F", "B_input"],
    peer: Literal["next", "previous"],
    direction: Literal["send", "receive"],
    count: FloatArray,
) -> Send:
    return Send(
        name=f"{direction} {tensor.name} {peer}",
        phase=phase,
        tensor=tensor,
        peer=peer,
        direction=direction,
        count=count,
    )
