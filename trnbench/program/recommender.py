"""A recommender as operations: embedding tables cut by columns over ranks, MLPs on every rank.

Each rank of an expert-parallel group looks up its columns for the samples of all of them; an
all-to-all gives every rank all columns of its own samples.
"""

from __future__ import annotations

from trnbench.facts.workload.layers import Recommender
from trnbench.program.builder import BlockBuilder
from trnbench.program.tensor import Dim, Tensor, array


def _samples_of_group(b: BlockBuilder) -> Dim:
    grid = b.grid
    return Dim(
        name="batch",
        size=array(grid.micro_batch * grid.ep),
        whole=array(grid.micro_batch * grid.dp),
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
    """Features that a block receives."""
    return b.tensor(name, (b.grid.batch(), b.grid.dim("feature", model.crossed_features)))


def pooled_into(b: BlockBuilder, model: Recommender) -> Tensor:
    """Pooled embeddings that the bottom block receives."""
    table = b.grid.dim("table", len(model.rows))
    column = b.grid.dim("embedding", model.embedding_size)
    return b.tensor("pooled.in", (b.grid.batch(), table, column))
