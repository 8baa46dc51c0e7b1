"""Classes of equal pipeline stages, and the blocks that a stage of each class runs.

    only     the one stage of a model without a pipeline
    first    the input block and its layers
    light    stages with the fewest layers
    heavy    stages with one layer more, where the layers do not divide evenly
    last     its layers and the output block

The order is first, light, heavy, last: the heavy stages are near the end, where fewer micro-batches
are held. The first and last stage, which run another block, take one more layer last.

Split by layers and ends, the embedding and the output block count as a layer each, and every stage
has as many (as in Megatron-LM, --account-for-embedding-in-pipeline-split and -loss-).

Depths of multi-token prediction come before the output block, or where they are drawn. Drawn by
hand (`workload.pipeline_layout`), each rank has the given layers, chunk by chunk.

Split by work, a stage takes layers until those so far have passed its share of all multiply-adds,
in which the output block counts too (as in nanotron, huggingface/nanotron models/base.py). The
first stage has one layer more than its share, the last one few.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, TypeAlias

import numpy as np

from trnbench.facts.arrays import BoolArray, FloatArray, some
from trnbench.facts.records import Record, field
from trnbench.facts.workload.choices import DEPTHS_TRAINED
from trnbench.facts.workload.layout import StageSplit
from trnbench.facts.workload.model import Model, Transformer
from trnbench.facts.workload.pipeline_layout import depths_of, stages_of
from trnbench.facts.workload.weights import DEPTH
from trnbench.program.grid import Grid
from trnbench.program.ops import Send
from trnbench.program.reasons import Reason
from trnbench.program.tensor import NOTHING, Tensor, array

AGAIN = "_again"
"""Suffix of a kind of layer that recompute repeats whole, where others are kept."""
ENDS = 2
"""Blocks at the ends of a model that count as layers in the split by layers and ends."""
StageRole: TypeAlias = str
"""only, first, light, heavy or last; stages drawn by hand between the ends are numbered."""


class StageClass(Record, eq=False):
    """Equal pipeline stages, and the blocks that each of them runs."""

    role: StageRole
    multiplicity: FloatArray  # number of such stages
    index: FloatArray  # first such stage, counted from 0
    blocks: Mapping[str, FloatArray]  # runs per micro-batch, by kind
    messages: tuple[Send, ...]  # messages of a micro-batch
    chunks: tuple[Mapping[str, FloatArray], ...] = ()  # blocks of each chunk, if drawn by hand


def is_behind(kind: str) -> bool:
    """True for blocks after the last layer, in the last chunk of their stage."""
    return kind == "head" or kind.startswith(DEPTH)


class Layers(Record):
    """A model's layers as the pipeline sees them."""

    count: int
    dense: int  # leading dense layers
    kinds: Mapping[str, FloatArray]  # kind of block -> share of the other layers
    first: tuple[str, ...]  # blocks before the first layer
    last: tuple[str, ...]  # blocks after the last layer
    last_layers: float = 0.0  # work of the blocks after the last layer, in layers
    repeats: Mapping[str, int] = field(default_factory=dict)  # runs of a first block, where not 1
    beside: tuple[str, ...] = ()  # prefixes of other models' blocks, split alike
    again: int = 0  # first layers of a chunk that are repeated whole; 0: all or none
    # blocks that predict further tokens
    depths: Mapping[str, FloatArray] = field(default_factory=dict)

    @property
    def passed(self) -> frozenset[str]:
        """Kinds of blocks that are layers, not ends of a model."""
        kinds = {"dense", *self.kinds, *self.depths}
        return self.with_beside({f"{kind}{end}" for kind in kinds for end in ("", AGAIN)})

    def with_beside(self, kinds: Iterable[str]) -> frozenset[str]:
        """Kinds of blocks of the model, and the same kinds of other models."""
        return frozenset(f"{model}{kind}" for model in ("", *self.beside) for kind in kinds)


class StageFlow(Record, eq=False):
    """Tensors that stages hand on."""

    tensors: tuple[Tensor, ...]  # with gradients sent back
    beside: tuple[Tensor, ...] = ()  # without gradients
    depths: tuple[Tensor, ...] = ()  # from stages of MTP depths to the output block


def stage_classes(grid: Grid, layers: Layers, flow: StageFlow) -> tuple[StageClass, ...]:
    """Classes of stages; those that a layout does without have multiplicity 0."""
    if grid.pipeline_layout is not None:
        return _drawn(grid, layers, grid.pipeline_layout, flow)
    return tuple(
        StageClass(
            role=role,
            multiplicity=array(multiplicity),
            index=array(index),
            blocks=_blocks(
                layers,
                count,
                again=array(layers.again * grid.vpp),
                dense=layers.dense if role in ("only", "first") else 0,
                ends=(role in ("only", "first"), role in ("only", "last")),
                depths=role in ("only", "last"),
            ),
            messages=_all_messages(grid, role, flow),
        )
        for role, multiplicity, index, count in shares_of(grid.stage_split, layers, grid.pp)
        if some(multiplicity > 0)
    )


def shares_of(
    split: StageSplit, layers: Layers, pp: FloatArray
) -> tuple[tuple[StageRole, FloatArray, FloatArray, FloatArray], ...]:
    """Role, number of stages, first stage and layers of each class."""
    # All degrees at once: a class that a layout lacks has multiplicity 0.
    middle = array(np.maximum(pp - 2, 0))
    piped = array(pp > 1)
    if split == "work":
        on_first, on_last = _by_work(layers, pp)
        between = array(layers.count - on_first - on_last)
        least = np.floor(between / np.maximum(middle, 1))
        heavy = array((between - least * middle) * (middle > 0))
    elif split == "layers-and-ends":
        least = array((layers.count + ENDS) / pp)
        heavy, on_first, on_last = array(0), array(least - 1), array(least - 1)
    else:
        least = np.floor(layers.count / pp)
        more = array(layers.count - least * pp)
        # Layers left over go to the middle, and the last of them to the first stage.
        heavy = np.minimum(more, middle)
        on_first, on_last = array(least + (more > middle)), least
    return (
        ("only", 1 - piped, array(0), array(layers.count)),
        ("first", piped, array(0), on_first),
        ("light", middle - heavy, array(1), least),
        ("heavy", heavy, 1 + middle - heavy, array(least + 1)),
        ("last", piped, pp - 1, on_last),
    )


def _by_work(layers: Layers, pp: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Layers of the first and of the last of several stages that share the work."""
    # A stage ends with the layer that carries the running sum past its share, so each end of a
    # stage lies one layer beyond the whole layers of its share.
    share = (layers.count + layers.last_layers) / pp
    on_first = np.minimum(np.floor(share) + 1, layers.count)
    before_last = np.minimum(np.floor((pp - 1) * share) + 1, layers.count)
    return array(on_first), array(layers.count - np.maximum(before_last, on_first))


def _drawn(grid: Grid, layers: Layers, text: str, flow: StageFlow) -> tuple[StageClass, ...]:
    """Classes of stages drawn by hand; equal neighbours are one class."""
    drawn, ahead = stages_of(text), depths_of(text)
    degrees = [int(one) for one in np.unique(grid.pp)]
    # Pipelines that are not drawn are refused: they are nobody's stages.
    chunked = {int(one) for one in np.unique(grid.vpp)}
    degrees = [pp for pp in degrees if len(drawn) in {pp * v for v in chunked}] or degrees
    starts = np.cumsum((0, *drawn))
    # Chunk c of rank r is entry c * pp + r of the drawing: one list serves every degree.
    blocks = [
        _blocks(
            layers,
            array(count),
            again=array(min(layers.again, count)),
            dense=max(0, min(layers.dense - int(start), count)),
            ends=(number == 0, number == len(drawn) - 1),
            depths=ahead[number] > 0,
        )
        for number, (count, start) in enumerate(zip(drawn, starts, strict=False))
    ]

    def chunks(pp: int, rank: int) -> tuple[Mapping[str, FloatArray], ...]:
        return tuple(blocks[rank::pp])

    first = next((i for i, depths in enumerate(ahead) if depths), len(drawn) - 1)

    def carried(pp: int, rank: int) -> tuple[int, int]:
        """Receives and sends of depth streams by a rank, on the way to the output block."""
        after = range(first, len(drawn) - 1)
        return sum((i + 1) % pp == rank for i in after), sum(i % pp == rank for i in after)

    def streams(ranks: Mapping[int, int]) -> Iterator[Send]:
        into, out = (
            array(sum((grid.pp == pp) * carried(pp, rank)[way] for pp, rank in ranks.items()))
            for way in (0, 1)
        )
        for tensor in flow.depths:
            yield from _both_ways(tensor, into, out)

    def of(role: StageRole, ranks: Mapping[int, int], stages: FloatArray | BoolArray) -> StageClass:
        """Class of these ranks, given as pipeline degree -> rank."""
        held: dict[str, FloatArray] = {}
        for pp, rank in ranks.items():
            for chunk in chunks(pp, rank):
                for kind, count in chunk.items():
                    held[kind] = array(held.get(kind, 0) + (grid.pp == pp) * count)
        index = sum(((grid.pp == pp) * rank for pp, rank in ranks.items()), start=NOTHING)
        return StageClass(
            role=role,
            multiplicity=array(stages),
            index=array(index),
            blocks=held,
            messages=(*_all_messages(grid, role, flow), *streams(ranks)),
            chunks=chunks(*next(iter(ranks.items()))) if grid.pp.size == 1 else (),
        )

    several = [pp for pp in degrees if pp > 1]
    classes = [of("only", {1: 0}, grid.pp == 1)] if 1 in degrees else []
    if not several:
        return tuple(classes)
    classes.append(of("first", dict.fromkeys(several, 0), grid.pp > 1))
    # Neighbours with the same blocks and messages at every degree share a class: there are few
    # classes then, and everything after this is computed per class.
    rank = 1
    while rank < several[-1] - 1:
        here = [pp for pp in several if rank < pp - 1]
        alike = rank + 1
        while all(
            alike < pp - 1
            and drawn[alike::pp] == drawn[rank::pp]
            and ahead[alike::pp] == ahead[rank::pp]
            and carried(pp, alike) == carried(pp, rank)
            for pp in here
        ):
            alike += 1
        role = f"stage {rank}" if alike == rank + 1 else f"stages {rank} to {alike - 1}"
        inner = dict.fromkeys(here, rank)
        classes.append(of(role, inner, array((grid.pp > rank + 1) * float(alike - rank))))
        rank = alike
    classes.append(of("last", {pp: pp - 1 for pp in several}, grid.pp > 1))
    return tuple(classes)


def _blocks(
    layers: Layers,
    count: FloatArray,
    *,
    again: FloatArray,
    dense: int,
    ends: tuple[bool, bool],
    depths: bool,
) -> Mapping[str, FloatArray]:
    """Runs of each block on a stage of `count` layers.

    `again`: layers repeated whole; `dense`: leading dense layers of the stage; `ends`: whether the
    stage begins and whether it ends the model; `depths`: whether it predicts further tokens.
    """
    blocks: dict[str, FloatArray] = {}
    if ends[0]:
        blocks.update({kind: array(layers.repeats.get(kind, 1)) for kind in layers.first})
    # Repeated layers are the first of a stage, and leading dense layers come before all others.
    led = array(np.minimum(dense, count))
    if dense:
        blocks |= _apart("dense", led, np.minimum(led, again), layers)
    repeated = np.minimum(count - led, np.maximum(again - led, 0))
    for kind, share in layers.kinds.items():
        here = _apart(kind, (count - led) * share, repeated * share, layers)
        blocks |= {name: array(more + blocks.get(name, 0)) for name, more in here.items()}
    if depths:
        blocks.update(layers.depths)
    if ends[1]:
        blocks.update(dict.fromkeys(layers.last, array(1)))
    beside = {f"{model}{kind}": n for model in layers.beside for kind, n in blocks.items()}
    return {**beside, **blocks}


def _apart(
    kind: str, count: FloatArray, again: FloatArray, layers: Layers
) -> dict[str, FloatArray]:
    if not layers.again:
        return {kind: array(count)}
    return {kind: array(count - again), f"{kind}{AGAIN}": array(again)}


def _all_messages(grid: Grid, role: StageRole, flow: StageFlow) -> tuple[Send, ...]:
    forward = (one for one in _messages(grid, role, flow.beside) if one.phase == "F")
    return (*_messages(grid, role, flow.tensors), *forward)


def _messages(grid: Grid, role: StageRole, flow: tuple[Tensor, ...]) -> tuple[Send, ...]:
    """Messages of a stage: each chunk's output onward, and its gradient back.

    The output of the model's last chunk, and the gradient of its first chunk's input, are not sent.
    """
    if role == "only":
        return ()
    chunks = grid.vpp
    up_out = array(chunks - (role == "last"))
    up_in = array(chunks - (role == "first"))
    return tuple(message for tensor in flow for message in _both_ways(tensor, up_in, up_out))


def _both_ways(tensor: Tensor, into: FloatArray, out: FloatArray) -> Iterator[Send]:
    """Messages of a tensor and of its gradient, received `into` and sent `out` times."""
    found = (
        _message(tensor, "F", "next", "send", out),
        _message(tensor, "F", "previous", "receive", into),
        _message(tensor, "B_input", "previous", "send", into),
        _message(tensor, "B_input", "next", "receive", out),
    )
    return (message for message in found if some(message.count > 0))


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


def depth_reasons(model: Model, grid: Grid) -> Iterator[Reason]:
    """Rules on MTP depths: jobs and models without them, and where they may be drawn."""
    asked, depths = grid.mtp_depths, model.mtp_depths
    drawn = depths_of(grid.pipeline_layout) if grid.pipeline_layout is not None else ()
    at = next((i for i, here in enumerate(drawn) if here), len(drawn) - 1)
    shared = model.vocabulary is not None and model.vocabulary.tied
    jobs = " or ".join(DEPTHS_TRAINED)
    early: bool | BoolArray = False
    if sum(drawn):
        early = (grid.pp > 1) & ((at % grid.pp == 0) | (at < len(drawn) - grid.pp))
    rules: tuple[tuple[bool | BoolArray, str], ...] = (
        (asked not in (None, depths), f"mtp_depths={asked}: {model.without_depths}"),
        (
            depths > 0 and grid.job not in DEPTHS_TRAINED,
            f"job {grid.job} trains no MTP depths; try mtp_depths=0, or job {jobs}",
        ),
        (
            bool(drawn) and sum(drawn) != depths,
            f"pipeline_layout draws {sum(drawn)} MTP depths (m), and {depths} are trained; "
            f"try mtp_depths={sum(drawn)}",
        ),
        (
            early,
            f"pipeline_layout draws MTP depths (m) on stage {at + 1} of {len(drawn)}: put them in "
            f"the last chunk of a later rank, such as mL",
        ),
        (
            shared and sum(drawn) > 0 and at < len(drawn) - 1,
            "MTP depths (m) apart from the loss (L) need output weights of their own, and "
            f"{model.name} shares those of the embedding; try mL",
        ),
    )
    for broken, words in rules:
        yield Reason("MTP depths", np.asarray(broken), words)


def drawn_reasons(
    transformer: Transformer, drawn: tuple[int, ...], parts: FloatArray
) -> Iterator[Reason]:
    """Rules on stages drawn by hand: their number, and the layers they hold."""
    yield Reason(
        "stages drawn",
        parts != len(drawn),
        lambda at: (
            f"pipeline_layout draws {len(drawn)} stages, and pp={at['pp']} x vpp={at['vpp']} "
            f"are {at['pp'] * at['vpp']}; try {len(drawn)} of them"
        ),
    )
    yield Reason(
        "layers",
        np.asarray(sum(drawn) != transformer.layers),
        f"pipeline_layout draws {sum(drawn)} layers (t), and the model has "
        f"{transformer.layers}; try as many",
    )
