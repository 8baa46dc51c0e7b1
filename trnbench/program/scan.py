"""A scan as operations: projections, a convolution, states updated in chunks, a gated norm.

Ranks that share a sequence exchange it for heads in front of the convolution and back behind the
scan (Megatron-LM, megatron/core/ssm/mamba_context_parallel.py). What kernels do not keep for the
backward pass is made again there, in the region `states`: the state before each chunk, and of
`mamba-2` what leaves the convolution and the rates (state-spaces/mamba, ops/triton/ssd_combined.py;
fla-org/flash-linear-attention keeps these).
"""

from __future__ import annotations

import numpy as np

from trnbench.facts.workload.layers import Scan
from trnbench.facts.workload.model import Transformer
from trnbench.program.builder import BlockBuilder
from trnbench.program.ops import Region, ScanOp
from trnbench.program.tensor import Dim, Tensor, array


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
        whole=np.ceil(tokens.whole / scan.chunk),
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
