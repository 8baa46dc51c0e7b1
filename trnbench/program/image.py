"""Image models as operations: patches, a denoiser's condition, and its output projection."""

from __future__ import annotations

from trnbench.facts.workload.model import Diffusion, Image, Transformer
from trnbench.facts.workload.weights import FINAL_MODULATIONS
from trnbench.program.builder import BlockBuilder
from trnbench.program.tensor import INDEX, Tensor


def patch(b: BlockBuilder, transformer: Transformer, image: Image) -> Tensor:
    """Stream of an image: projected patches, a class token, positions."""
    grid = b.grid
    batch, tokens = b.stream()
    hidden = grid.dim("hidden", transformer.hidden)
    pixels = grid.dim("pixel", image.channels * image.patch**2)
    patches = grid.dim("patch", grid.sequence - image.class_token, *tokens.axes)
    given = b.given("pixels", (batch, patches, pixels), grid.recipe.activations)
    output = ("patches", "patch.projection", "bsp,ph->bsh", (batch, patches, hidden))
    (stream,) = b.linear(given, [output])
    dims = (batch, tokens, hidden)
    if image.class_token:
        reads = (stream, b.weights["patch.class_token"])
        stream = b.elementwise("join_token", reads, "tokens", dims)
    positions = b.optional("patch.position")
    if positions:
        stream = b.elementwise("add", (stream, *positions), "placed", dims)
    if transformer.norm_input:
        stream = b.norm(stream, "norm.embedding")
    return b.dropout(stream) if transformer.dropout else stream


def conditioning(b: BlockBuilder, transformer: Transformer, diffusion: Diffusion) -> Tensor:
    """Condition of a denoiser, one vector a sample from time step and label."""
    grid = b.grid
    batch = grid.batch()
    features = grid.dim("time_feature", diffusion.time_features)
    hidden = grid.dim("hidden", transformer.hidden)
    dims = (batch, grid.dim("condition", transformer.hidden))
    time = b.given("time", (batch, features), grid.recipe.activations)
    (inner,) = b.linear(time, [("time.in", "conditioning.time_in", "bf,fh->bh", (batch, hidden))])
    active = b.elementwise("silu", (inner,), "time.active", (batch, hidden))
    (embedded,) = b.linear(active, [("time.out", "conditioning.time_out", "bh,hc->bc", dims)])
    labels = b.given("labels", (batch,), INDEX)
    label = b.gather("lookup", b.weights["conditioning.label"], labels, "label", dims)
    both = b.elementwise("add", (embedded, label), "told", dims)
    return b.elementwise("silu", (both,), "condition.out", dims)


def modulation(
    b: BlockBuilder, transformer: Transformer, condition: Tensor, weight: str, vectors: int
) -> Tensor:
    """Shifts, scales and gates [batch, vector, hidden] from the condition."""
    grid = b.grid
    batch = condition.dims[0]
    vector = grid.dim("modulation", vectors)
    cut = (batch, vector, grid.dim("hidden", transformer.hidden, "tp"))
    whole = (batch, vector, grid.dim("hidden", transformer.hidden))
    (part,) = b.linear(condition, [(f"{weight}.out", weight, "bc,cmh->bmh", cut)])
    return b.exchange("all-gather", "tp", part, whole)


def denoised_loss(
    b: BlockBuilder,
    transformer: Transformer,
    image: Image,
    diffusion: Diffusion,
    stream: Tensor,
    condition: Tensor,
) -> Tensor:
    """Squared error of the predicted pixels, per patch."""
    grid = b.grid
    modulators = modulation(b, transformer, condition, "modulation.final", FINAL_MODULATIONS)
    normed = b.norm(stream, "norm.final")
    given = b.elementwise("modulate", (normed, modulators), "modulated", stream.dims)
    lead = stream.dims[:2]
    pixels = grid.dim("pixel", diffusion.output_channels * image.patch**2)
    (predicted,) = b.linear(given, [("predicted", "head", "bsh,hp->bsp", (*lead, pixels))])
    target = b.given("target", predicted.dims, grid.recipe.activations)
    return b.elementwise(
        "squared_error", (predicted, target), "loss", lead, number_format=grid.recipe.statistics
    )


def classified_loss(b: BlockBuilder, classes: int, pooled: Tensor) -> Tensor:
    """Cross entropy of the class, per sample."""
    batch = pooled.dims[0]
    dims = (batch, b.grid.dim("class", classes))
    (logits,) = b.linear(pooled, [("logits", "classifier", "bh,hc->bc", dims)])
    labels = b.given("labels", (batch,))
    statistics = b.grid.recipe.statistics
    return b.elementwise(
        "class_entropy", (logits, labels), "loss", (batch,), number_format=statistics
    )


def attended_pool(b: BlockBuilder, transformer: Transformer, stream: Tensor) -> Tensor:
    """Vector per sample: attention of a learned query over all tokens, then an MLP.

    The query is one token, so its projection and its scores are passes over the keys.
    """
    assert transformer.mlp is not None
    batch, tokens, hidden = stream.dims
    wide = (batch, tokens, b.grid.dim("pooled", transformer.hidden))
    one = (batch, wide[2])
    outputs = [(f"pool.{name}", f"pool.{name}", "bsh,hp->bsp", wide) for name in ("key", "value")]
    key, value = b.linear(stream, outputs)
    query = b.optional("pool.probe", "pool.query", "pool.query.bias")
    read = b.elementwise("pool", (key, value, *query), "pool.read", one)
    for axis in sorted(read.partial):
        read = b.exchange("all-reduce", axis, read, read.dims)
    thin = (batch, hidden)
    (out,) = b.linear(read, [("pool.out", "pool.output", "bp,ph->bh", thin)])
    normed = b.norm(out, "norm.pool")
    inner = (batch, b.grid.dim("ffn", transformer.mlp.hidden, "tp"))
    (up,) = b.linear(normed, [("pool.up", "pool.mlp.up", "bh,hf->bf", inner)])
    active = b.elementwise(transformer.mlp.activation, (up,), "pool.active", inner)
    output = ("pool.down", "pool.mlp.down", "bf,fh->bh", thin)
    (down,) = b.linear(active, [output], summed_here=False)
    if "tp" in down.partial:
        down = b.exchange("all-reduce", "tp", down, thin)
    reads = (out, down, *b.optional("pool.mlp.down.bias"))
    return b.elementwise("add", reads, "pooled", thin)


def pooled_token(
    b: BlockBuilder, transformer: Transformer, stream: Tensor, *, class_token: bool
) -> Tensor:
    """Vector per sample: the first token, or the mean of all."""
    batch, _, hidden = stream.dims
    function = "first_token" if class_token else "mean_token"
    pooled = b.elementwise(function, (stream,), "pooled", (batch, hidden))
    for axis in sorted(pooled.partial):
        pooled = b.exchange("all-reduce", axis, pooled, pooled.dims)
    if "pooler" not in b.weights:
        return pooled
    dims = (batch, b.grid.dim("pooled", transformer.hidden))
    (wide,) = b.linear(pooled, [("pooler.out", "pooler", "bh,hp->bp", dims)])
    return b.elementwise("tanh", (wide,), "pooler.active", dims)
