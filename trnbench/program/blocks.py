"""The blocks a model is made of, each lowered once for the whole grid of layouts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import get_args

import numpy as np

from trnbench.arrays import FloatArray
from trnbench.errors import GapError
from trnbench.program.block import Block, Emit, lower, varied
from trnbench.program.builder import BlockBuilder
from trnbench.program.grid import Grid
from trnbench.program.image import classified_loss, conditioning, denoised_loss, patch, pooled_token
from trnbench.program.layer import FeedForward, flow_into, layer
from trnbench.program.parameters import parameters
from trnbench.program.recommender import (
    bottom,
    click_loss,
    crossed,
    features_into,
    pooled_into,
    tables,
)
from trnbench.program.stages import Layers
from trnbench.program.tensor import Tensor, array
from trnbench.program.vocabulary import TOKEN_TABLE, embedding, token_loss
from trnbench.workload.model import Model, Recommender, Transformer
from trnbench.workload.weights import Weight, weights

_FEEDS: Mapping[str, FeedForward] = {feed: feed for feed in get_args(FeedForward)}


def layers_of(model: Model, grid: Grid) -> Layers:
    """Return the order of the model's blocks."""
    if model.recommender is not None:
        return Layers(
            count=model.recommender.cross_layers,
            dense=0,
            kinds={"interaction": array(1)},
            first=("tables", "bottom"),
            last=("top",),
        )
    assert model.transformer is not None
    transformer = model.transformer
    inputs: tuple[str, ...] = ("embedding",) if model.image is None else ("patch",)
    if model.diffusion is not None:
        inputs += ("conditioning",)
    kinds: Mapping[str, FloatArray] = {"dense": array(1)}
    if transformer.moe is not None:
        shares = {"moe": array(grid.ep == 1), "moe_exchanged": array(grid.ep > 1)}
        kinds = {kind: share for kind, share in shares.items() if np.any(share)}
    dense = 0 if transformer.moe is None else transformer.dense_layers
    return Layers(count=transformer.layers, dense=dense, kinds=kinds, first=inputs, last=("head",))


def lower_blocks(
    model: Model, grid: Grid, layers: Layers, like: Mapping[str, Block] | None = None
) -> Mapping[str, Block]:
    """Return every kind of block that the layers name, by kind.

    `like` are those of the same grid in another ZeRO stage or recompute mode.
    """
    if like is not None:
        mode = grid.recompute
        repeated = {*layers.kinds, "dense"}
        return {
            kind: varied(grid, block, recompute=mode if kind in repeated else None)
            for kind, block in like.items()
        }
    listed = weights(model)
    if model.recommender is not None:
        return dict(_recommender(model.recommender, grid, listed))
    assert model.transformer is not None
    blocks = dict(_ends(model, model.transformer, grid, listed))
    kinds = dict.fromkeys((*(("dense",) if layers.dense else ()), *layers.kinds))
    for kind in kinds:
        blocks[kind] = _layer(model, model.transformer, grid, listed, kind)
    return blocks


def _of_block(listed: tuple[Weight, ...], block: str) -> list[Weight]:
    return [weight for weight in listed if weight.block == block]


def _layer(
    model: Model, transformer: Transformer, grid: Grid, listed: tuple[Weight, ...], kind: str
) -> Block:
    if kind not in _FEEDS:
        raise GapError(kind, "layer to emit")
    feed = _FEEDS[kind]

    def emit(b: BlockBuilder) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        flow = flow_into(b, transformer, conditioned=model.diffusion is not None)
        result = layer(b, transformer, flow, feed)
        # The condition passes by: its gradient is the sum of what the layers give.
        return flow.tensors, (result.stream,)

    members = parameters(
        grid,
        _of_block(listed, "dense" if feed == "dense" else "moe"),
        spread=feed == "moe_exchanged",
    )
    return lower(grid, kind, members, emit, recompute=grid.recompute)


def _ends(
    model: Model, transformer: Transformer, grid: Grid, listed: tuple[Weight, ...]
) -> Iterator[tuple[str, Block]]:
    def block(kind: str, emit: Emit) -> tuple[str, Block]:
        members = parameters(grid, _of_block(listed, kind))
        return kind, lower(grid, kind, members, emit, tied=tied)

    tied = TOKEN_TABLE if model.vocabulary and model.vocabulary.tied else None
    image, diffusion = model.image, model.diffusion
    if model.vocabulary is not None:
        yield block("embedding", lambda b: ((), (embedding(b, transformer),)))
    if image is not None:
        yield block("patch", lambda b: ((), (patch(b, transformer, image),)))
    if diffusion is not None:
        yield block("conditioning", lambda b: ((), (conditioning(b, transformer, diffusion),)))
    members = parameters(
        grid, _head_weights(listed, tied=tied is not None), held={TOKEN_TABLE: array(grid.pp > 1)}
    )
    yield ("head", lower(grid, "head", members, lambda b: _head(b, model, transformer), tied=tied))


def _head_weights(listed: tuple[Weight, ...], *, tied: bool) -> list[Weight]:
    shared = [weight for weight in listed if tied and weight.name == TOKEN_TABLE]
    return [*_of_block(listed, "head"), *shared]


def _head(
    b: BlockBuilder, model: Model, transformer: Transformer
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Emit what follows the last layer: one loss, or that of tokens and of the pooled token."""
    flow = flow_into(b, transformer, conditioned=model.diffusion is not None)
    if model.diffusion is not None and model.image is not None and flow.condition is not None:
        loss = denoised_loss(
            b, transformer, model.image, model.diffusion, flow.stream, flow.condition
        )
        return flow.tensors, (loss,)
    before = transformer.norm_placement == "pre"
    stream = b.norm(flow.stream, "norm.final") if before else flow.stream
    losses = []
    if model.vocabulary is not None:
        losses.append(token_loss(b, model.vocabulary, stream))
    if model.head.pooler or model.head.classes is not None:
        losses.append(_pooled(b, model, transformer, stream))
    return flow.tensors, tuple(losses)


def _pooled(b: BlockBuilder, model: Model, transformer: Transformer, stream: Tensor) -> Tensor:
    first = model.image is None or model.image.class_token
    pooled = pooled_token(b, transformer, stream, class_token=first)
    if model.head.classes is None:
        return pooled
    return classified_loss(b, model.head.classes, pooled)


def _recommender(
    model: Recommender, grid: Grid, listed: tuple[Weight, ...]
) -> Iterator[tuple[str, Block]]:
    samples = array(grid.micro_batch * grid.ep * grid.micro_batches)
    touched = {f"table.{i}": array(samples * n) for i, n in enumerate(model.lookups)}

    def block(kind: str, emit: Emit) -> tuple[str, Block]:
        members = parameters(grid, _of_block(listed, kind), touched=touched)
        return kind, lower(grid, kind, members, emit)

    def emit_bottom(b: BlockBuilder) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        pooled = pooled_into(b, model)
        return (pooled,), (bottom(b, model, pooled),)

    def emit_crossed(b: BlockBuilder) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        first, features = (features_into(b, model, name) for name in ("first", "features"))
        return (first, features), (crossed(b, model, first, features),)

    def emit_top(b: BlockBuilder) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        features = features_into(b, model, "features")
        return (features,), (click_loss(b, model, features),)

    yield block("tables", lambda b: ((), (tables(b, model),)))
    yield block("bottom", emit_bottom)
    yield block("interaction", emit_crossed)
    yield block("top", emit_top)
