"""The ends of a text model as operations: token embedding, output projection and loss.

Both are cut along the vocabulary by tensor parallelism: a rank looks up the tokens it holds and
sums with the others, and a loss needs two numbers a token from each rank, not the logits.
"""

from __future__ import annotations

from trnbench.program.builder import BlockBuilder
from trnbench.program.tensor import Tensor
from trnbench.workload.model import Transformer, Vocabulary

TOKEN_TABLE = "embedding.token"


def embedding(b: BlockBuilder, transformer: Transformer) -> Tensor:
    """Return the stream of a text: tokens, positions and types added up."""
    grid = b.grid
    batch, tokens = grid.batch(), grid.tokens("cp")
    hidden = grid.dim("hidden", transformer.hidden)
    ids = b.given("tokens", (batch, tokens))
    found = b.gather("lookup", b.weights[TOKEN_TABLE], ids, "embedded", (batch, tokens, hidden))
    stream = b.settle(found)
    dims = (*b.stream(), hidden)
    tables = b.optional("embedding.position", "embedding.token_type")
    if tables:
        stream = b.elementwise("add", (stream, *tables), "placed", dims)
    if transformer.norm_placement == "post":
        stream = b.norm(stream, "norm.embedding")
    return b.dropout(stream) if transformer.dropout else stream


def token_loss(b: BlockBuilder, vocabulary: Vocabulary, stream: Tensor) -> Tensor:
    """Return the cross entropy of each predicted token; `stream` is normalised."""
    grid, statistics = b.grid, b.grid.recipe.statistics
    tokens = b.gather_tokens(stream)
    batch, positions, hidden = tokens.dims
    if vocabulary.predicted_ratio < 1:
        share = grid.sequence * vocabulary.predicted_ratio
        positions = grid.dim("predicted", share, "cp")
        where = b.given("predicted.positions", (batch, positions))
        tokens = b.gather("select", tokens, where, "predicted", (batch, positions, hidden))
    lead = (batch, positions)
    words = grid.dim("vocabulary", vocabulary.size, "tp")
    tied = TOKEN_TABLE in b.weights
    weight = b.weights[TOKEN_TABLE if tied else "head"]
    letters = "bsh,vh->bsv" if tied else "bsh,hv->bsv"
    logits = b.multiply("logits", tokens, weight, letters, (*lead, words), number_format=statistics)
    targets = b.given("targets", lead)
    highest = b.elementwise(
        "row_max", (logits,), "logits.max", lead, number_format=statistics, role="constant"
    )
    if "tp" in highest.partial:
        highest = b.exchange("all-reduce", "tp", highest, lead, maximum=True)
    pair = (*lead, grid.dim("statistic", 2))
    sums = b.elementwise(
        "exponential_sums",
        (logits, highest, targets),
        "logits.sums",
        pair,
        number_format=statistics,
    )
    if "tp" in sums.partial:
        sums = b.exchange("all-reduce", "tp", sums, pair)
    return b.elementwise("cross_entropy", (sums,), "loss", lead, number_format=statistics)
