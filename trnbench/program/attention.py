"""The attention of a layer as operations: projections, context exchange, naive or fused core."""

from __future__ import annotations

import numpy as np

from trnbench.arrays import FloatArray
from trnbench.program.builder import BlockBuilder
from trnbench.program.grid import Grid
from trnbench.program.ops import AttentionOp
from trnbench.program.tensor import Dim, Tensor, array
from trnbench.workload.model import Attention as Settings
from trnbench.workload.model import Latent, Transformer

CORE_MATRICES = "bsnd,btnd->bnst", "bnst,btnd->bsnd"


def attention(b: BlockBuilder, transformer: Transformer, stream: Tensor) -> Tensor:
    """Return attention's output projection, summed over nothing yet; `stream` is normalised."""
    settings = transformer.attention
    if settings.latent is None:
        query, key, value = _heads(b, transformer, stream)
    else:
        query, key, value = _latent_heads(b, transformer, settings.latent, stream)
    context = _core(b, settings, query, key, value)
    batch, tokens = context.dims[:2]
    dims = (batch, tokens, _hidden(b.grid, transformer))
    output = ("attention.out", "attention.output", "bsnd,ndh->bsh", dims)
    return b.linear(context, [output], biased=False)[0]


def _hidden(grid: Grid, transformer: Transformer) -> Dim:
    return grid.dim("hidden", transformer.hidden)


def _heads(
    b: BlockBuilder, transformer: Transformer, stream: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Project every token to queries, keys and values, and turn them to their position."""
    settings, grid = transformer.attention, b.grid
    tokens = b.gather_tokens(b.operand(stream))
    lead = tokens.dims[:2]
    size = grid.dim("head_size", settings.head_size)
    query_dims = (*lead, grid.dim("head", settings.heads, "tp"), size)
    shared_dims = (*lead, grid.dim("kv_head", settings.kv_heads, "tp"), size)
    letters = "bsh,hnd->bsnd"
    query, key, value = b.linear(
        tokens,
        [
            ("query", "attention.query", letters, query_dims),
            ("key", "attention.key", letters, shared_dims),
            ("value", "attention.value", letters, shared_dims),
        ],
    )
    if settings.query_key_norm:
        query = b.norm(query, "attention.query_norm")
        key = b.norm(key, "attention.key_norm")
    if transformer.position.encoding == "rotary":
        turned = (
            b.tensor("query.turned", query.dims, (query,)),
            b.tensor("key.turned", key.dims, (key,)),
        )
        b.passes("rotary", (query, key), turned)
        query, key = turned
    return query, key, value


def _latent_heads(
    b: BlockBuilder, transformer: Transformer, latent: Latent, stream: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Project to latents, give those (they are small) to every rank, and project to heads."""
    settings, grid = transformer.attention, b.grid
    lead = stream.dims[:2]
    heads = grid.dim("head", settings.heads, "tp")
    whole_size = settings.head_size + latent.rope_head_size
    rank = grid.dim("kv_rank", latent.kv_rank)
    rotated = grid.dim("rope_head_size", latent.rope_head_size)
    down = [
        ("kv_latent", "attention.kv_down", "bsh,hr->bsr", (*lead, rank)),
        ("key_rope", "attention.key_rope", "bsh,hr->bsr", (*lead, rotated)),
    ]
    if latent.query_rank is not None:
        query_rank = grid.dim("query_rank", latent.query_rank)
        down.append(("query_latent", "attention.query_down", "bsh,hr->bsr", (*lead, query_rank)))
    kv_latent, key_rope, *query_latent = b.linear(stream, down)
    kv_latent = b.gather_tokens(b.operand(b.norm(kv_latent, "attention.kv_down_norm")))
    key_rope = b.gather_tokens(key_rope)
    lead = kv_latent.dims[:2]
    query_dims = (*lead, heads, grid.dim("query_head_size", whole_size))
    if query_latent:
        low = b.norm(query_latent[0], "attention.query_down_norm")
        source = b.gather_tokens(b.operand(low))
        output = ("query", "attention.query_up", "bsr,rnd->bsnd", query_dims)
    else:
        source = b.gather_tokens(b.operand(stream))
        output = ("query", "attention.query", "bsh,hnd->bsnd", query_dims)
    query = b.linear(source, [output])[0]
    plain = (*lead, heads, grid.dim("head_size", settings.head_size))
    value_dims = (*lead, heads, grid.dim("value_head_size", latent.value_head_size))
    key, value = b.linear(
        kv_latent,
        [
            ("key", "attention.key_up", "bsr,rnd->bsnd", plain),
            ("value", "attention.value_up", "bsr,rnd->bsnd", value_dims),
        ],
    )
    if settings.query_key_norm:
        query = b.norm(query, "attention.query_norm")
        key = b.norm(key, "attention.key_norm")
    query = b.elementwise("rotary", (query,), "query.turned", query_dims)
    key = b.elementwise("join_rotated", (key, key_rope), "key.turned", query_dims)
    return query, key, value


def attended_pairs(settings: Settings, sequence: FloatArray) -> FloatArray:
    """Return the (query, key) pairs of one sequence; a causal token sees half of it on average.

    Ranks of a ring are taken to share them evenly: each has an early and a late part.
    """
    if not settings.causal:
        return array(sequence**2)
    window = np.minimum(sequence, settings.window or np.inf)
    return array(window * sequence - window**2 / 2)


def _core(b: BlockBuilder, settings: Settings, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attend; with context parallelism, pieces go round a ring or heads change places."""
    if b.grid.context_parallel == "all-to-all":
        query, key, value = (_swap_in(b, tensor) for tensor in (query, key, value))
        return _swap_out(b, _attend(b, settings, query, key, value))
    return _attend(b, settings, query, key, value)


def _attend(
    b: BlockBuilder, settings: Settings, query: Tensor, key: Tensor, value: Tensor
) -> Tensor:
    if b.grid.attention == "naive":
        return _naive(b, settings, query, key, value)
    return _fused(b, settings, query, key, value)


def _swap_in(b: BlockBuilder, tensor: Tensor) -> Tensor:
    """Give a rank all tokens of some of its heads."""
    batch, _, heads, size = tensor.dims
    cut = b.grid.dim(heads.name, heads.whole, "tp", "cp")
    return b.exchange("all-to-all", "cp", tensor, (batch, b.grid.tokens(), cut, size))


def _swap_out(b: BlockBuilder, tensor: Tensor) -> Tensor:
    batch, _, heads, size = tensor.dims
    cut = b.grid.dim(heads.name, heads.whole, "tp")
    return b.exchange("all-to-all", "cp", tensor, (batch, b.grid.tokens("cp"), cut, size))


def _fused(
    b: BlockBuilder, settings: Settings, query: Tensor, key: Tensor, value: Tensor
) -> Tensor:
    batch, tokens, heads, _ = query.dims
    if b.grid.context_parallel == "ring":
        keys = b.grid.dim("key", b.grid.sequence)
        key = b.ring(key, (batch, keys, *key.dims[2:]))
        value = b.ring(value, (batch, keys, *value.dims[2:]))
    reads = (query, key, value)
    out = b.tensor("context", (batch, tokens, heads, value.dims[3]), reads)
    sums = b.tensor(
        "log_sums",
        (batch, heads, tokens),
        reads,
        number_format=b.grid.recipe.statistics,
        role="constant",
    )
    pairs = attended_pairs(settings, b.grid.sequence)
    b.ops.append(
        AttentionOp(
            name="attention",
            phase="F",
            reads=reads,
            writes=(out, sums),
            pairs=array(pairs * tokens.size / tokens.whole),
            whole_pairs=pairs,
            causal=settings.causal,
            window=settings.window,
            format=b.grid.recipe.other,
        )
    )
    return out


def _naive(
    b: BlockBuilder, settings: Settings, query: Tensor, key: Tensor, value: Tensor
) -> Tensor:
    """Attend by products over the whole square; this is what selective recompute repeats."""
    batch, tokens, heads, _ = query.dims
    key, value = _repeat(b, key, heads), _repeat(b, value, heads)
    scores = (batch, heads, tokens, key.dims[1])
    useful = array(attended_pairs(settings, b.grid.sequence) / b.grid.sequence**2)
    score_letters, context_letters = CORE_MATRICES
    b.region = "core"
    raw = b.multiply("scores", query, key, score_letters, scores, useful=useful)
    masked = b.elementwise("scale_mask", (raw,), "scores.masked", scores)
    weights = b.elementwise("softmax", (masked,), "probabilities", scores)
    if settings.dropout:
        weights = b.dropout(weights)
    dims = (batch, tokens, heads, value.dims[3])
    context = b.multiply("context", weights, value, context_letters, dims, useful=useful)
    b.region = ""
    return context


def _repeat(b: BlockBuilder, tensor: Tensor, heads: Dim) -> Tensor:
    """Give every query head its own copy of the keys or values it shares."""
    shared = tensor.dims[2]
    fewer = shared.size < heads.size
    if not np.any(fewer):
        return tensor
    dims = (*tensor.dims[:2], heads, tensor.dims[3])
    name = f"{tensor.name}.repeated"
    return b.elementwise("repeat_heads", (tensor,), name, dims, when=array(fewer))
