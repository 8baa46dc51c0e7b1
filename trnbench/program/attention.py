"""The mixer of a layer as operations: attention or a scan.

Attention is projections, a context exchange, and a naive or fused core. A scan is projections, a
convolution, states updated in chunks, and a gated norm. Ranks that share a sequence exchange it for
heads in front of the convolution and back behind the scan (Megatron-LM,
megatron/core/ssm/mamba_context_parallel.py). What kernels do not keep for the backward pass is made
again there, in the region `states`: the state before each chunk, and of `mamba-2` what leaves the
convolution and the rates (state-spaces/mamba, ops/triton/ssd_combined.py;
fla-org/flash-linear-attention keeps these).
"""

from __future__ import annotations

import numpy as np

from trnbench.facts.arrays import FloatArray, some
from trnbench.facts.workload.choices import neighbours_of
from trnbench.facts.workload.layers import Scan
from trnbench.facts.workload.model import Attention as Settings
from trnbench.facts.workload.model import Latent, Transformer
from trnbench.program.builder import BlockBuilder
from trnbench.program.grid import Grid
from trnbench.program.ops import AttentionOp, Region, ScanOp
from trnbench.program.tensor import Dim, Tensor, array

CORE_MATRICES = "bsnd,btnd->bnst", "bnst,btnd->bsnd"


def attention(
    b: BlockBuilder, transformer: Transformer, stream: Tensor
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Output projection of attention before its sum over ranks, and tensors to add after it.

    `stream` is normalised. The tensors to add are the bias and the adapter's output.
    """
    settings = _of(transformer)
    gate: tuple[Tensor, ...] = ()
    if settings.latent is None:
        query, key, value, *gate = _heads(b, transformer, stream)  # type: ignore[assignment]
    else:
        query, key, value = _latent_heads(b, transformer, settings.latent, stream)
    context = _core(b, settings, query, key, value)
    if gate:
        reads = (*gate, context)
        context = b.elementwise("sigmoid_gate", reads, "context.gated", context.dims)
    batch, tokens = context.dims[:2]
    dims = (batch, tokens, _hidden(b.grid, transformer))
    output = ("attention.out", "attention.output", "bsnd,ndh->bsh", dims)
    (out,) = b.linear(context, [output], summed_here=False)
    return out, (*b.optional("attention.output.bias"), *b.adapter(context, output))


def _of(transformer: Transformer) -> Settings:
    assert transformer.attention is not None
    return transformer.attention


def _hidden(grid: Grid, transformer: Transformer) -> Dim:
    return grid.dim("hidden", transformer.hidden)


def _heads(b: BlockBuilder, transformer: Transformer, stream: Tensor) -> tuple[Tensor, ...]:
    """Project tokens to queries, keys and values, and apply rotary positions.

    Where the model gates its output, the gate comes fourth.
    """
    settings, grid = _of(transformer), b.grid
    tokens = b.gather_tokens(b.operand(stream))
    lead = tokens.dims[:2]
    size = grid.dim("head_size", settings.head_size)
    query_dims = (*lead, grid.dim("head", settings.heads, "tp"), size)
    shared_dims = (*lead, grid.dim("kv_head", settings.kv_heads, "tp"), size)
    letters = "bsh,hnd->bsnd"
    outputs = [
        ("query", "attention.query", letters, query_dims),
        ("key", "attention.key", letters, shared_dims),
        ("value", "attention.value", letters, shared_dims),
    ]
    if settings.output_gate:
        outputs.append(("gate", "attention.gate", letters, query_dims))
    query, key, value, *gate = b.linear(tokens, outputs)
    if settings.query_key_norm:
        query = _normed(b, settings, query, "attention.query_norm")
        key = _normed(b, settings, key, "attention.key_norm")
    if transformer.position.encoding == "rotary":
        turned = (
            b.tensor("query.turned", query.dims, (query,)),
            b.tensor("key.turned", key.dims, (key,)),
        )
        b.passes("rotary", (query, key), turned)
        query, key = turned
    return query, key, value, *gate


def _normed(b: BlockBuilder, settings: Settings, tensor: Tensor, name: str) -> Tensor:
    """Normalise each head, or all heads at once with squares summed over tensor-parallel ranks."""
    if settings.query_key_norm_over == "head":
        return b.norm(tensor, name)
    statistics = b.grid.recipe.statistics
    lead = tensor.dims[:2]
    squares = b.elementwise("squares", (tensor,), f"{name}.squares", lead, number_format=statistics)
    # One number a token crosses ranks, not the heads themselves.
    if "tp" in squares.partial:
        squares = b.exchange("all-reduce", "tp", squares, lead)
    reads = (tensor, b.weights[name], squares)
    return b.elementwise("norm_by", reads, f"{name}.out", tensor.dims)


def _latent_heads(
    b: BlockBuilder, transformer: Transformer, latent: Latent, stream: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Project tokens to small latents, gather these on every rank, and project to heads."""
    settings, grid = _of(transformer), b.grid
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
    # Latents are gathered, not the stream: they are smaller, and each rank makes its own heads.
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
    b.module = "up-projection"
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
    b.module = None
    return query, key, value


def attended_pairs(settings: Settings, sequence: FloatArray) -> FloatArray:
    """(query, key) pairs of one sequence; a causal query sees half the sequence on average.

    A ring of ranks shares the pairs evenly, because each rank has an early and a late part.
    """
    if not settings.causal:
        # A window is as wide to both sides; at the ends a part of it is not there.
        side = np.minimum(np.floor((settings.window or np.inf) / 2), sequence)
        return array(np.minimum(sequence * (2 * side + 1) - side * (side + 1), sequence**2))
    window = np.minimum(sequence, settings.window or settings.chunk or np.inf)
    # Query i sees min(i, window) keys: a triangle, then full windows. Chunks are triangles apart.
    if settings.chunk is not None:
        pieces, rest = np.divmod(sequence, window)
        return array((pieces * window**2 + rest**2) / 2)
    return array(window * sequence - window**2 / 2)


def _core(b: BlockBuilder, settings: Settings, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention core; context ranks pass keys round a ring, swap heads for tokens, or both."""
    # A hybrid swaps heads for tokens inside groups, whose larger parts then go round the ring.
    if b.grid.context_parallel == "ring":
        return _attend(b, settings, query, key, value)
    whole = b.grid.context_parallel == "all-to-all"
    axes = ("cp", ()) if whole else ("cp_inside", ("cp_outside",))
    query, key, value = (_swap_in(b, tensor, *axes) for tensor in (query, key, value))
    return _swap_out(b, _attend(b, settings, query, key, value), axes[0])


def _attend(
    b: BlockBuilder, settings: Settings, query: Tensor, key: Tensor, value: Tensor
) -> Tensor:
    if b.grid.attention == "naive":
        return _naive(b, settings, query, key, value)
    return _fused(b, settings, query, key, value)


def _swap_in(b: BlockBuilder, tensor: Tensor, axis: str, outside: tuple[str, ...]) -> Tensor:
    batch, _, heads, size = tensor.dims
    cut = b.grid.dim(heads.name, heads.whole, "tp", axis)
    return b.exchange("all-to-all", axis, tensor, (batch, b.grid.tokens(*outside), cut, size))


def _swap_out(b: BlockBuilder, tensor: Tensor, axis: str) -> Tensor:
    batch, _, heads, size = tensor.dims
    cut = b.grid.dim(heads.name, heads.whole, "tp")
    return b.exchange("all-to-all", axis, tensor, (batch, b.grid.tokens("cp"), cut, size))


def _fused(
    b: BlockBuilder, settings: Settings, query: Tensor, key: Tensor, value: Tensor
) -> Tensor:
    batch, tokens, heads, _ = query.dims
    if b.grid.context_parallel != "all-to-all":
        reach, axis = _reach(b, settings), "cp"
        if neighbours_of(b.grid.context_parallel) is not None:
            axis = "cp_outside"
        key, value = (b.ring(one, "key", axis, reach) for one in (key, value))
    reads = (query, key, value, *b.optional("attention.sinks"))
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
            window=settings.window or settings.chunk,
            format=b.grid.recipe.other,
        )
    )
    return out


def _reach(b: BlockBuilder, settings: Settings) -> FloatArray | None:
    bound = settings.window or settings.chunk
    # A rank has an early and a late part of the sequence, and a window in front of each.
    return None if bound is None else array(2 * (bound - 1))


def _naive(
    b: BlockBuilder, settings: Settings, query: Tensor, key: Tensor, value: Tensor
) -> Tensor:
    """Attention by products over the whole square, which selective recompute repeats."""
    batch, tokens, heads, _ = query.dims
    key, value = _repeat(b, key, heads), _repeat(b, value, heads)
    scores = (batch, heads, tokens, key.dims[1])
    useful = array(attended_pairs(settings, b.grid.sequence) / b.grid.sequence**2)
    score_letters, context_letters = CORE_MATRICES
    # All in this region grows with the square of the sequence.
    b.region = "core"
    raw = b.multiply("scores", query, key, score_letters, scores, useful=useful)
    masked = b.elementwise("scale_mask", (raw,), "scores.masked", scores)
    given = (masked, *b.optional("attention.sinks"))
    weights = b.elementwise("softmax", given, "probabilities", scores)
    if settings.dropout:
        weights = b.dropout(weights)
    dims = (batch, tokens, heads, value.dims[3])
    context = b.multiply("context", weights, value, context_letters, dims, useful=useful)
    b.region = ""
    return context


def _repeat(b: BlockBuilder, tensor: Tensor, heads: Dim) -> Tensor:
    """Keys or values with a copy for every query head that shares them."""
    shared = tensor.dims[2]
    fewer = shared.size < heads.size
    if not some(fewer):
        return tensor
    dims = (*tensor.dims[:2], heads, tensor.dims[3])
    name = f"{tensor.name}.repeated"
    return b.elementwise("repeat_heads", (tensor,), name, dims, when=array(fewer))


def scanned(
    b: BlockBuilder, transformer: Transformer, stream: Tensor
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Output projection of a scan before its sum over ranks, and tensors to add after it.

    `stream` is normalised.
    """
    scan = transformer.scan
    assert scan is not None
    tokens = b.gather_tokens(b.operand(stream))
    gate, value, key, query, *rates = b.linear(tokens, _projections(b, scan, tokens.dims[:2]))
    region: Region = "states" if scan.form == "mamba-2" else ""
    # A scan needs all tokens in order, so context ranks swap them for heads. The gate stays: each
    # token's gate is needed only where its output comes back.
    value, key, query, *rates = (_to_heads(b, one) for one in (value, key, query, *rates))
    b.region = region
    value, key, query = (
        _convolved(b, one, name) for one, name in ((value, "value"), (key, "key"), (query, "query"))
    )
    steps, decays = _rates(b, rates)
    b.region = ""
    out = _scan(b, scan, (query, value, key, steps, decays))
    skip = b.optional("scan.skip")
    if skip:
        out = b.elementwise("skip", (out, value, *skip), "scan.skipped", out.dims)
    out = _to_tokens(b, out)
    function = "gated_norm" if scan.form == "mamba-2" else "norm_gate"
    normed = b.elementwise(function, (out, gate, b.weights["norm.scan"]), "scan.normed", out.dims)
    dims = (*normed.dims[:2], b.grid.dim("hidden", transformer.hidden))
    output = ("scan.out", "scan.output", "bsnd,ndh->bsh", dims)
    (done,) = b.linear(normed, [output], summed_here=False)
    return done, b.adapter(normed, output)


def _projections(
    b: BlockBuilder, scan: Scan, lead: tuple[Dim, ...]
) -> list[tuple[str, str, str, tuple[Dim, ...]]]:
    heads = b.grid.dim("head", scan.heads, "tp")
    value = (*lead, heads, b.grid.dim("head_size", scan.head_size))
    keys = b.grid.dim("kv_head", scan.key_heads, "tp")
    key = (*lead, keys, b.grid.dim("state_size", scan.state_size))
    wide = {"gate": value, "value": value, "key": key, "query": key}
    thin = ("step", "decay") if scan.form == "gated-delta" else ("step",)
    return [
        *(
            (f"scan.{name}.in", f"scan.{name}", "bsh,hnd->bsnd", dims)
            for name, dims in wide.items()
        ),
        *((f"scan.{name}.in", f"scan.{name}", "bsh,hn->bsn", (*lead, heads)) for name in thin),
    ]


def _to_heads(b: BlockBuilder, tensor: Tensor) -> Tensor:
    batch, _, heads, *rest = tensor.dims
    cut = b.grid.dim(heads.name, heads.whole, "tp", "cp")
    return b.exchange("all-to-all", "cp", tensor, (batch, b.grid.tokens(), cut, *rest))


def _to_tokens(b: BlockBuilder, tensor: Tensor) -> Tensor:
    batch, _, heads, *rest = tensor.dims
    cut = b.grid.dim(heads.name, heads.whole, "tp")
    return b.exchange("all-to-all", "cp", tensor, (batch, b.grid.tokens("cp"), cut, *rest))


def _convolved(b: BlockBuilder, tensor: Tensor, name: str) -> Tensor:
    taps = b.optional(f"convolution.{name}", f"convolution.{name}.bias")
    return b.elementwise("convolve", (tensor, *taps), f"scan.{name}", tensor.dims)


def _rates(b: BlockBuilder, raw: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Step of each token into a head's state, and the logarithm of the state's decay."""
    statistics = b.grid.recipe.statistics
    weights = (b.weights["scan.rate"], b.weights["scan.offset"])
    reads = (*raw, *weights)
    steps, decays = (
        b.tensor(f"scan.{name}", raw[0].dims, reads, number_format=statistics)
        for name in ("steps", "decays")
    )
    b.passes("scan_rates" if len(raw) == 1 else "delta_rates", reads, (steps, decays))
    return steps, decays


def _scan(b: BlockBuilder, scan: Scan, reads: tuple[Tensor, ...]) -> Tensor:
    """Emit the states before each chunk, and each token's output from its chunk and state."""
    _, value, key, steps, decays = reads
    batch, tokens, heads, size = value.dims
    chunks = Dim(
        name="chunk",
        size=np.ceil(tokens.size / scan.chunk),
        factors=(np.ceil(tokens.whole / scan.chunk),),
        axes=tokens.axes,
    )
    dims = (batch, chunks, heads, size, key.dims[3])
    states = b.tensor("scan.states", dims, (value, key, steps, decays), role="constant")
    given = (value, key, steps, decays)
    out = b.tensor("scan.read", value.dims, (*reads, states))
    for part, read, write, region in (
        ("states", given, states, "states"),
        ("output", (*reads, states), out, ""),
    ):
        b.ops.append(
            ScanOp(
                name=f"scan.{part}",
                phase="F",
                part="states" if part == "states" else "output",
                form=scan.form,
                chunk=scan.chunk,
                reads=read,
                writes=(write,),
                sizes=(array(size.size), array(key.dims[3].size)),
                heads=heads,
                key_heads=key.dims[2],
                tokens=(batch, chunks),
                format=b.grid.recipe.other,
                region="states" if region else "",
            )
        )
    return out
