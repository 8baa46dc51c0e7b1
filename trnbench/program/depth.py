"""A depth of multi-token prediction as operations: one token further, by one more layer.

As Megatron-LM has it (megatron/core/transformer/multi_token_prediction.py): the normed stream and
the normed embedding of the next token are joined and projected to one stream, by a
weight cut along its outputs, which are gathered; a layer and a norm follow. The first depth norms
what the last layer hands on. Output weights read the streams of all depths in the block `head`.
"""

from __future__ import annotations

from trnbench.facts.workload.model import Transformer
from trnbench.facts.workload.weights import MERGE, has_final_norm
from trnbench.program.builder import BlockBuilder
from trnbench.program.layer import FeedForward, LayerFlow, layer, streams_into
from trnbench.program.tensor import Tensor
from trnbench.program.vocabulary import looked_up


def depth(
    b: BlockBuilder, transformer: Transformer, number: int, kind: FeedForward
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Streams that enter an MTP depth (`number` from 1 on), and those that leave it."""
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
