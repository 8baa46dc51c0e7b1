"""The blocks a model is made of, each lowered once for the whole grid of layouts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from trnbench.errors import GapError
from trnbench.facts.arrays import FloatArray, some
from trnbench.facts.records import replace
from trnbench.facts.workload.layers import Recommender
from trnbench.facts.workload.model import Model, Transformer
from trnbench.facts.workload.recompute import of_layers, repeated_layers
from trnbench.facts.workload.weights import (
    DEPTH,
    MERGE,
    Weight,
    depth_blocks,
    has_final_norm,
    weights,
)
from trnbench.program.block import Block, Emit, lower, varied
from trnbench.program.builder import BlockBuilder
from trnbench.program.ends import (
    TOKEN_TABLE,
    attended_pool,
    bottom,
    classified_loss,
    click_loss,
    conditioning,
    crossed,
    denoised_loss,
    embedding,
    features_into,
    looked_up,
    patch,
    pooled_into,
    pooled_token,
    tables,
    token_loss,
)
from trnbench.program.grid import Grid
from trnbench.program.job_passes import (
    VALUE,
    evaluated,
    grid_of_pass,
    job_loss,
    of_sequences,
    passes_beside,
    value_loss,
    without_weights,
)
from trnbench.program.layer import FeedForward, LayerFlow, flow_into, layer, streams_into
from trnbench.program.parameters import parameters
from trnbench.program.stages import AGAIN, Layers
from trnbench.program.tensor import NOTHING, Tensor, array
from trnbench.program.tower import LAYER, TOWER, tower_blocks, tower_grid

FINAL_NORM = ("norm.final", "norm.final.bias")
EXCHANGED = "_exchanged"
"""Suffix of a kind of layer whose tokens travel to experts on other ranks."""


def layers_of(model: Model, grid: Grid) -> Layers:
    """Order of the model's blocks along the pipeline."""
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
    dense = transformer.leading_dense
    counts = {k: n for k, n in transformer.counts.items() if not dense or k != "dense"}
    kinds: dict[str, FloatArray] = {}
    for kind, count in counts.items():
        share = 1.0 if len(counts) == 1 else count / transformer.layers
        kinds |= _where_experts_lie(transformer, grid, kind, share)
    tower = model.tower
    if tower is not None:
        inputs = (*TOWER, *inputs)
    return Layers(
        repeats={} if tower is None else {LAYER: tower.transformer.layers},
        beside=tuple(one.prefix for one in passes_beside(model, grid)),
        count=transformer.layers,
        dense=dense,
        kinds=kinds,
        first=inputs,
        last=("head",),
        depths=_depths(model, grid),
        last_layers=_last_layers(model, transformer) if grid.stage_split == "work" else 0.0,
        again=repeated_layers(grid.recompute) or 0,
    )


def _where_experts_lie(
    transformer: Transformer, grid: Grid, kind: str, share: float, name: str = ""
) -> Mapping[str, FloatArray]:
    """Share of layers by block kind; experts spread over ranks make a kind of their own."""
    name = name or kind
    shares = {name: array(share)}
    # One grid may hold layouts with and without spread experts: two kinds, with shares 1 and 0.
    if transformer.layer_kinds[kind].feed_forward == "moe":
        here = (grid.ep == 1) & (grid.expert_ranks == grid.tp)
        shares = {name: array(share * here), name + EXCHANGED: array(share * ~here)}
    return {name: share for name, share in shares.items() if some(share)}


def _depths(model: Model, grid: Grid) -> Mapping[str, FloatArray]:
    """Blocks that predict further tokens, with their share by kind."""
    found: dict[str, FloatArray] = {}
    for name in depth_blocks(model):
        assert model.transformer is not None
        last = model.transformer.last
        found |= _where_experts_lie(model.transformer, grid, last, 1.0, name)
    return found


def _last_layers(model: Model, transformer: Transformer) -> float:
    """Layers that equal the work after the last layer, in multiply-adds with weights."""
    listed = weights(model)
    head = _head_weights(listed, tied=bool(model.vocabulary and model.vocabulary.tied))
    experts = transformer.moe
    # Weights of experts count by the share of tokens that visit them.
    visited = 1.0 if experts is None else experts.top_k / experts.experts

    def work(blocks: Iterable[str]) -> float:
        return sum(
            weight.total * (visited if any(name == "expert" for name, _ in weight.dims) else 1.0)
            for block in blocks
            for weight in _of_block(listed, block)
            if len(weight.dims) > 1
        )

    matrices = sum(weight.elements for weight in head if len(weight.dims) > 1)
    behind = matrices * (1 + model.mtp_depths) + work(depth_blocks(model))
    return behind * transformer.layers / work(transformer.layer_kinds)


def lower_blocks(
    model: Model, grid: Grid, layers: Layers, like: Mapping[str, Block] | None = None
) -> Mapping[str, Block]:
    """Every kind of block that the layers name, by kind.

    `like`: blocks of the same grid in another ZeRO stage or recompute mode. Blocks of other
    models than the trained one (reference, rewards) come first, as their passes do.
    """
    # Jobs with several models lower each of them on the same grid; prefixes keep them apart.
    own = of_sequences(grid)
    given = {} if like is None else dict(like)
    blocks: dict[str, Block] = {}
    for one in passes_beside(model, grid):
        name = one.prefix
        there = {k.removeprefix(name): given.pop(k) for k in [*given] if k.startswith(name)}
        passed = model if one.trained else evaluated(model)
        found = _of_model(passed, grid_of_pass(own, one), layers, there)
        if one.weights_of is not None:
            found = {kind: without_weights(block) for kind, block in found.items()}
        blocks |= {f"{name}{k}": replace(block, kind=f"{name}{k}") for k, block in found.items()}
    return {**blocks, **_of_model(model, own, layers, given)}


def _of_model(
    model: Model, grid: Grid, layers: Layers, like: Mapping[str, Block]
) -> Mapping[str, Block]:
    """Blocks of one model of a job, varied from those in `like` if there are any."""
    mode = of_layers(grid.recompute)
    if like:
        repeated = {*layers.kinds, *layers.depths, "dense", LAYER}
        return {
            kind: varied(
                tower_grid(model.tower, grid) if model.tower and kind in TOWER else grid,
                block,
                recompute=mode if kind in repeated and not grid.beside else None,
            )
            for kind, block in like.items()
        }
    listed = weights(model)
    if model.recommender is not None:
        return dict(_recommender(model.recommender, grid, listed))
    assert model.transformer is not None
    blocks = dict(_ends(model, model.transformer, grid, listed))
    if model.tower is not None:
        blocks |= dict(tower_blocks(model.tower, grid, listed))
    blocks |= {kind: _depth(model, model.transformer, grid, listed, kind) for kind in layers.depths}
    kinds = dict.fromkeys((*(("dense",) if layers.dense else ()), *layers.kinds))
    for kind in kinds:
        block = _layer(model, model.transformer, grid, listed, kind)
        blocks[kind] = block
        if layers.again:
            again = block if grid.beside else varied(grid, block, recompute="full")
            blocks[kind + AGAIN] = replace(again, kind=kind + AGAIN)
    return blocks


def _of_block(listed: tuple[Weight, ...], block: str) -> list[Weight]:
    return [weight for weight in listed if weight.block == block]


def _layer(
    model: Model, transformer: Transformer, grid: Grid, listed: tuple[Weight, ...], kind: str
) -> Block:
    name = kind.removesuffix(EXCHANGED)
    if name not in transformer.layer_kinds:
        raise GapError(kind, "layer to emit")
    own = transformer.of_kind(name)
    feed = _feed(own, kind)

    def emit(b: BlockBuilder) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        flow = flow_into(b, own, conditioned=model.diffusion is not None)
        result = layer(b, own, flow, feed)
        # The condition passes by: its gradient is the sum of what the layers give.
        return flow.tensors, (result.stream,)

    members = parameters(grid, _of_block(listed, name), spread=feed == "moe_exchanged")
    return lower(grid, kind, members, emit, recompute=of_layers(grid.recompute))


def _feed(layer: Transformer, kind: str) -> FeedForward:
    if layer.moe is None:
        return "dense"
    return "moe_exchanged" if kind.endswith(EXCHANGED) else "moe"


def _depth(
    model: Model, transformer: Transformer, grid: Grid, listed: tuple[Weight, ...], kind: str
) -> Block:
    """Block of one MTP depth; the first has the token table where the pipeline has stages.

    The first depth also norms the last layer's output, in place of the head.
    """
    name = kind.removesuffix(EXCHANGED)
    number = int(name.removeprefix(DEPTH))
    own = transformer.of_kind(transformer.last)
    feed = _feed(own, kind)
    of_depth = [*_of_block(listed, name), *(w for w in listed if w.name == TOKEN_TABLE)]
    if number == 1:
        of_depth += [weight for weight in _of_block(listed, "head") if weight.name in FINAL_NORM]
    held = array(grid.pp > 1) if number == 1 else NOTHING
    members = parameters(grid, of_depth, spread=feed == "moe_exchanged", held={TOKEN_TABLE: held})
    return lower(
        grid,
        kind,
        members,
        lambda b: depth(b, own, number, feed),
        recompute=of_layers(grid.recompute),
        tied=TOKEN_TABLE,
    )


def _ends(
    model: Model, transformer: Transformer, grid: Grid, listed: tuple[Weight, ...]
) -> Iterator[tuple[str, Block]]:
    def block(kind: str, emit: Emit) -> tuple[str, Block]:
        members = parameters(grid, _of_block(listed, kind))
        return kind, lower(grid, kind, members, emit, tied=tied)

    shared = model.vocabulary is not None and model.vocabulary.tied and not grid.valued
    tied = TOKEN_TABLE if shared or model.mtp_depths else None
    image, diffusion = model.image, model.diffusion
    if model.vocabulary is not None:
        yield block("embedding", lambda b: ((), (embedding(b, transformer),)))
    if image is not None:
        yield block("patch", lambda b: ((), (patch(b, transformer, image),)))
    if diffusion is not None:
        yield block("conditioning", lambda b: ((), (conditioning(b, transformer, diffusion),)))
    of_head = _head_weights(listed, tied=shared)
    if model.mtp_depths:
        of_head = [one for one in of_head if one.name not in FINAL_NORM]
    if grid.valued:
        value = Weight(name=VALUE, dims=(("hidden", transformer.hidden), ("value", 1)))
        of_head = [*(one for one in of_head if not one.name.startswith("head")), value]
    # The first depth has the table of its stage.
    held = NOTHING if model.mtp_depths else array(grid.pp > 1)
    members = parameters(grid, of_head, held={TOKEN_TABLE: held})
    yield ("head", lower(grid, "head", members, lambda b: _head(b, model, transformer), tied=tied))


def _head_weights(listed: tuple[Weight, ...], *, tied: bool) -> list[Weight]:
    shared = [weight for weight in listed if tied and weight.name == TOKEN_TABLE]
    return [*_of_block(listed, "head"), *shared]


def _head(
    b: BlockBuilder, model: Model, transformer: Transformer
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Emit the final norm and the losses: of tokens, and of a pooled token or an image.

    With MTP depths there is one token loss a depth, on streams that the depths have normed.
    """
    if model.mtp_depths and model.vocabulary is not None:
        streams = streams_into(b, transformer, 1 + model.mtp_depths)
        of_depths = enumerate(streams)
        return streams, tuple(token_loss(b, model.vocabulary, s, depth=i) for i, s in of_depths)
    flow = flow_into(b, transformer, conditioned=model.diffusion is not None)
    if model.diffusion is not None and model.image is not None and flow.condition is not None:
        loss = denoised_loss(
            b, transformer, model.image, model.diffusion, flow.stream, flow.condition
        )
        return flow.tensors, (loss,)
    stream = b.norm(flow.stream, "norm.final") if has_final_norm(transformer) else flow.stream
    losses = []
    if b.grid.valued:
        return flow.tensors, (value_loss(b, stream),)
    if model.vocabulary is not None:
        losses.append(job_loss(b, token_loss(b, model.vocabulary, stream)))
    if model.head.attention_pool:
        losses.append(attended_pool(b, transformer, stream))
    elif model.head.pooler or model.head.classes is not None:
        losses.append(_pooled(b, model, transformer, stream))
    # An encoder that nothing follows hands on its tokens.
    return flow.tensors, tuple(losses) or (stream,)


def _pooled(b: BlockBuilder, model: Model, transformer: Transformer, stream: Tensor) -> Tensor:
    first = model.image is None or model.image.class_token
    pooled = pooled_token(b, transformer, stream, class_token=first)
    if model.head.classes is None:
        return pooled
    return classified_loss(b, model.head.classes, pooled)


def _recommender(
    model: Recommender, grid: Grid, listed: tuple[Weight, ...]
) -> Iterator[tuple[str, Block]]:
    # Tables are cut by columns, so each rank of ep looks up the rows of all their samples.
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


def depth(
    b: BlockBuilder, transformer: Transformer, number: int, kind: FeedForward
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Streams that enter an MTP depth (`number` from 1 on), and those that leave it.

    A depth predicts one token further, as Megatron-LM does it (multi_token_prediction.py). The
    normed stream and the normed embedding of the next token are joined and projected to one stream,
    by a weight cut along its outputs, which are gathered; a layer and a norm follow.
    """
    entering = before = streams_into(b, transformer, number)
    if number == 1 and has_final_norm(transformer):
        before = (b.norm(entering[0], "norm.final"),)
    embedded = looked_up(b, transformer, f"tokens.{number}")
    parts = (b.norm(before[-1], "norm.stream"), b.norm(embedded, "norm.embedded"))
    merged = _merged(b, transformer, parts)
    out = layer(b, transformer, LayerFlow(stream=merged), kind).stream
    if has_final_norm(transformer):
        out = b.norm(out, "norm.depth")
    return entering, (*before, out)


def _merged(b: BlockBuilder, transformer: Transformer, parts: tuple[Tensor, ...]) -> Tensor:
    """Stream that the layer of a depth reads: both parts joined and projected."""
    grid, hidden = b.grid, transformer.hidden
    joined = b.elementwise("join", parts, "joined", (*b.stream(), grid.dim("joined", 2 * hidden)))
    whole = b.gather_tokens(b.operand(joined))
    lead = whole.dims[:2]
    cut = (*lead, grid.dim("merged", hidden, "tp"))
    (out,) = b.linear(whole, [("merged", MERGE, "bsj,jh->bsh", cut)])
    out = b.exchange("all-gather", "tp", out, (*lead, grid.dim("hidden", hidden)))
    return b.own_tokens(out)
