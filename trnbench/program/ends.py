"""The ends of a model as operations: what becomes of its input before, of its stream after layers.

Text: token embedding, output projection and loss are cut along the vocabulary by tensor
parallelism. A rank looks up the tokens it holds and sums with the others, and a loss needs two
numbers a token from each rank, not the logits. Images: patches, a denoiser's condition, its output.

A recommender: embedding tables are cut by columns over ranks, MLPs are on every rank. Each rank of
an expert-parallel group looks up its columns for the samples of all of them; an all-to-all gives
every rank all columns of its own samples.
"""

from __future__ import annotations

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.facts.workload.layers import Recommender
from trnbench.facts.workload.model import Diffusion, Image, Transformer, Vocabulary
from trnbench.facts.workload.weights import FINAL_MODULATIONS
from trnbench.program.builder import BlockBuilder
from trnbench.program.grid import Grid
from trnbench.program.tensor import INDEX, LOGITS_DIM, ONE, Dim, Tensor, array

TOKEN_TABLE = "embedding.token"


def looked_up(b: BlockBuilder, transformer: Transformer, given: str) -> Tensor:
    """Rows of the token table for the given ids, cut as the stream is."""
    batch, tokens = b.grid.batch(), b.grid.tokens("cp")
    hidden = b.grid.dim("hidden", transformer.hidden)
    ids = b.given(given, (batch, tokens))
    found = b.gather("lookup", b.weights[TOKEN_TABLE], ids, "embedded", (batch, tokens, hidden))
    return b.settle(found)


def embedding(b: BlockBuilder, transformer: Transformer) -> Tensor:
    """Stream of a text: tokens, positions and types added up."""
    grid = b.grid
    hidden = grid.dim("hidden", transformer.hidden)
    stream = looked_up(b, transformer, "tokens")
    dims = (*b.stream(), hidden)
    tables = b.optional("embedding.position", "embedding.token_type")
    if tables:
        stream = b.elementwise(
            "add", (stream, *tables), "placed", dims, number_format=stream.format
        )
    if transformer.norm_placement == "post" or transformer.norm_input:
        stream = b.norm(stream, "norm.embedding")
    return b.dropout(stream) if transformer.dropout else stream


def token_loss(
    b: BlockBuilder, vocabulary: Vocabulary, stream: Tensor, *, depth: int = 0
) -> Tensor:
    """Cross entropy of each predicted token; `stream` is normalised.

    `depth`: number of the MTP depth that predicts; all depths use the same weights.
    """
    of = f".{depth}" if depth else ""
    grid, statistics = b.grid, b.grid.recipe.statistics
    tokens = b.gather_tokens(stream)
    batch, positions, hidden = tokens.dims
    if vocabulary.predicted_ratio < 1:
        share = grid.sequence * vocabulary.predicted_ratio
        positions = grid.dim("predicted", share, "cp")
        where = b.given("predicted.positions", (batch, positions))
        tokens = b.gather("select", tokens, where, "predicted", (batch, positions, hidden))
    lead = (batch, positions)
    words = grid.dim(LOGITS_DIM, vocabulary.size, "tp")
    if "transform" in b.weights:
        wide = (*lead, grid.dim("pooled", hidden.whole))
        (tokens,) = b.linear(tokens, [("transform.out", "transform", "bsh,hp->bsp", wide)])
        tokens = b.norm(
            b.elementwise("gelu", (tokens,), "transform.active", wide), "norm.transform"
        )
    tied = "head" not in b.weights
    weight = b.weights[TOKEN_TABLE if tied else "head"]
    letters = "bsh,vh->bsv" if tied else "bsh,hv->bsv"
    # Only statistics are in fp32 where the logits are never whole in it.
    kept = statistics if grid.loss == "full" else grid.recipe.activations
    logits = b.multiply(
        f"logits{of}",
        tokens,
        weight,
        letters,
        (*lead, words),
        number_format=kept,
        pieces=logits_pieces(grid, vocabulary, hidden),
    )
    if bias := b.optional("head.bias"):
        logits = b.elementwise(
            "add", (logits, *bias), f"logits.biased{of}", logits.dims, number_format=kept
        )
    targets = b.given(f"targets{of}", lead)
    highest = b.elementwise(
        "row_max", (logits,), f"logits.max{of}", lead, number_format=statistics, role="constant"
    )
    # The maximum over all words keeps exponentials in range; it takes no gradient.
    if "tp" in highest.partial:
        highest = b.exchange("all-reduce", "tp", highest, lead, maximum=True)
    # Two sums a token: of the exponentials, and the logit of the target, which one rank has.
    pair = (*lead, grid.dim("statistic", 2))
    sums = b.elementwise(
        "exponential_sums",
        (logits, highest, targets),
        f"logits.sums{of}",
        pair,
        number_format=statistics,
    )
    if "tp" in sums.partial:
        sums = b.exchange("all-reduce", "tp", sums, pair)
    return b.elementwise("cross_entropy", (sums,), f"loss{of}", lead, number_format=statistics)


def logits_pieces(grid: Grid, vocabulary: Vocabulary, hidden: Dim) -> FloatArray:
    """Parts in which logits are made and used; 1 where all are in memory at a time.

    A fused kernel takes so many tokens that a part is as large as the stream
    (linkedin/Liger-Kernel, ops/fused_linear_cross_entropy.py).
    """
    if grid.loss != "fused":
        return ONE
    return array(np.maximum(np.ceil(vocabulary.size / hidden.whole), 1))


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
        stream = b.elementwise(
            "add", (stream, *positions), "placed", dims, number_format=b.grid.recipe.residual
        )
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


def _samples_of_group(b: BlockBuilder) -> Dim:
    grid = b.grid
    return Dim(
        name="batch",
        size=array(grid.micro_batch * grid.ep),
        factors=(grid.micro_batch, grid.dp),
        axes=grid.used("expert_data"),
    )


def tables(b: BlockBuilder, model: Recommender) -> Tensor:
    """Pooled embeddings of a rank's samples [batch, table, embedding]."""
    grid = b.grid
    group = _samples_of_group(b)
    column = grid.dim("embedding", model.embedding_size, "ep")
    found = []
    for i, lookups in enumerate(model.lookups):
        index = b.given(f"index.{i}", (group, grid.dim("lookup", lookups)))
        found.append(
            b.gather(
                "pooled_lookup",
                b.weights[f"table.{i}"],
                index,
                f"pooled.{i}",
                (group, column),
                lookups=array(lookups),
            )
        )
    table = grid.dim("table", len(found))
    # One exchange for all tables: messages of a single table would be small.
    joined = b.elementwise("join", found, "pooled", (group, table, column), view=True)
    whole = grid.dim("embedding", model.embedding_size)
    return b.exchange("all-to-all", "ep", joined, (grid.batch(), table, whole))


def bottom(b: BlockBuilder, model: Recommender, pooled: Tensor) -> Tensor:
    """Features to cross: the bottom MLP's output and every pooled embedding."""
    batch = b.grid.batch()
    size = b.grid.dim("bottom_in", model.dense_features)
    dense = b.given("dense", (batch, size), b.grid.recipe.activations)
    last = _mlp(b, "bottom", model.bottom_widths, dense)
    features = (batch, b.grid.dim("feature", model.crossed_features))
    return b.elementwise("join", (last, pooled), "features", features)


def crossed(b: BlockBuilder, model: Recommender, first: Tensor, features: Tensor) -> Tensor:
    """Features after one more low-rank cross layer."""
    batch = features.dims[0]
    rank = b.grid.dim("cross_rank", model.cross_rank)
    (low,) = b.linear(features, [("cross.low", "cross.down", "bf,fr->br", (batch, rank))])
    (high,) = b.linear(low, [("cross.high", "cross.up", "br,rf->bf", features.dims)])
    return b.elementwise("cross", (first, high, features), "crossed", features.dims)


def click_loss(b: BlockBuilder, model: Recommender, features: Tensor) -> Tensor:
    """Loss of the predicted clicks, per sample."""
    batch = features.dims[0]
    logit = _mlp(b, "top", model.top_widths, features)
    clicks = b.given("clicks", (batch,), b.grid.recipe.activations)
    return b.elementwise(
        "binary_entropy", (logit, clicks), "loss", (batch,), number_format=b.grid.recipe.statistics
    )


def _mlp(b: BlockBuilder, name: str, widths: tuple[tuple[int, int], ...], tensor: Tensor) -> Tensor:
    """Emit a stack of layers, each with a ReLU except the last of the top MLP."""
    batch = tensor.dims[0]
    for i, (_, outs) in enumerate(widths):
        dims = (batch, b.grid.dim(f"{name}_out", outs))
        (tensor,) = b.linear(tensor, [(f"{name}.{i}.out", f"{name}.{i}", "bi,io->bo", dims)])
        if (name, i + 1) != ("top", len(widths)):
            tensor = b.elementwise("relu", (tensor,), f"{name}.{i}.active", dims)
    return tensor


def features_into(b: BlockBuilder, model: Recommender, name: str) -> Tensor:
    return b.tensor(name, (b.grid.batch(), b.grid.dim("feature", model.crossed_features)))


def pooled_into(b: BlockBuilder, model: Recommender) -> Tensor:
    table = b.grid.dim("table", len(model.rows))
    column = b.grid.dim("embedding", model.embedding_size)
    return b.tensor("pooled.in", (b.grid.batch(), table, column))
