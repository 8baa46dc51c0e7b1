"""The ends of a text model as operations: token embedding, output projection and loss.

Both are cut along the vocabulary by tensor parallelism: a rank looks up the tokens it holds and
sums with the others, and a loss needs two numbers a token from each rank, not the logits.
"""

from __future__ import annotations

from trnbench.facts.workload.model import Transformer, Vocabulary
from trnbench.program.builder import BlockBuilder
from trnbench.program.tensor import Tensor

TOKEN_TABLE = "embedding.token"
LOGITS_DIM = "vocabulary"
"""Name of the last dimension of the logits."""


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
        stream = b.elementwise("add", (stream, *tables), "placed", dims)
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
    logits = b.multiply(
        f"logits{of}", tokens, weight, letters, (*lead, words), number_format=statistics
    )
    if bias := b.optional("head.bias"):
        logits = b.elementwise(
            "add", (logits, *bias), f"logits.biased{of}", logits.dims, number_format=statistics
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
