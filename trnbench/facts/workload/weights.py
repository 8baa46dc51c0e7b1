"""A model's weight tensors: names, dimensions, blocks and copies; the only such list.

Dimension names describe the counted things, so that a layout can split along them: `head` and
`kv_head`, `ffn`, `vocabulary`, `expert`, `row` (of an embedding table). A bias has its weight's
name and ".bias". Blocks, in data order:

    embedding | patch, conditioning      kinds of layers (one copy a layer)      mtp.1 ...    head
    tables, bottom, interaction, top     (recommender)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from math import prod

from trnbench.facts.records import Record, replace
from trnbench.facts.workload.layers import Recommender, Scan
from trnbench.facts.workload.model import Attention, Image, Latent, Mlp, Model, Tower, Transformer

LAYER_MODULATIONS = 6
"""adaLN-Zero: shift, scale and gate, for attention and for the MLP (DiT, arXiv 2212.09748)."""
FINAL_MODULATIONS = 2
"""Shift and scale before the output projection."""

DEPTH = "mtp."
"""Prefix of the blocks of multi-token prediction."""
MERGE = "merge"
"""Weight that merges the stream with the embedding of the next token."""
TABLES = ("learned", "fixed")
"""Encodings of positions with a table."""

Dims = tuple[tuple[str, int], ...]


class Weight(Record, kw_only=False):
    """One weight tensor: its dimensions in order, and its copies (layers of its block)."""

    name: str
    dims: Dims
    block: str = ""
    count: int = 1
    trained: bool = True

    @property
    def elements(self) -> int:
        return prod(size for _, size in self.dims)

    @property
    def total(self) -> int:
        return self.elements * self.count


@lru_cache(maxsize=64)
def weights(model: Model) -> tuple[Weight, ...]:
    """Every weight tensor of the model, block by block."""
    if model.recommender is not None:
        return tuple(_recommender(model.recommender))
    transformer = model.transformer
    assert transformer is not None
    # A count stands for the copies of a kind's layers: a model of a hundred layers has as few
    # records as a model of two.
    layers = transformer.counts
    tower = model.tower
    blocks: tuple[tuple[str, int, Iterable[Weight]], ...] = (
        *(() if tower is None else _tower(tower)),
        ("embedding", 1, _embedding(model, transformer)),
        ("patch", 1, _patch(model.image, transformer)),
        ("conditioning", 1, _conditioning(model, transformer)),
        *(
            (kind, layers[kind], _layer(model, transformer.of_kind(kind), kind))
            for kind in transformer.layer_kinds
        ),
        *((name, 1, _depth(model, transformer)) for name in depth_blocks(model)),
        ("head", 1, _head(model, transformer)),
    )
    return tuple(
        replace(weight, block=block, count=count)
        for block, count, members in blocks
        for weight in members
    )


def depth_blocks(model: Model) -> tuple[str, ...]:
    return tuple(f"{DEPTH}{number}" for number in range(1, model.mtp_depths + 1))


@lru_cache(maxsize=256)
def parameter_count(model: Model) -> int:
    return sum(weight.total for weight in weights(model))


def active_parameter_count(model: Model) -> int:
    """Parameters that one token meets: of the routed experts only the visited ones."""
    moe = model.transformer.moe if model.transformer else None
    total = 0
    for weight in weights(model):
        routed = moe is not None and weight.name.startswith("experts.")
        # Routed experts have equal sizes, so the division is exact.
        total += weight.total // moe.experts * moe.top_k if moe and routed else weight.total
    return total


def parameters_by_block(model: Model) -> Mapping[str, int]:
    """Parameters of each block (all its layers), in data order."""
    counts: dict[str, int] = {}
    for weight in weights(model):
        counts[weight.block] = counts.get(weight.block, 0) + weight.total
    return counts


def has_final_norm(transformer: Transformer) -> bool:
    return transformer.norm_final and transformer.norm_placement != "post"


def _linear(name: str, ins: Dims, outs: Dims, *, bias: bool) -> Iterator[Weight]:
    yield Weight(name, (*ins, *outs))
    if bias:
        yield Weight(f"{name}.bias", outs)


def _norm(name: str, dim: tuple[str, int], flavour: str) -> Iterator[Weight]:
    if flavour != "plain":
        yield Weight(name, (dim,))
    if flavour == "layer":
        yield Weight(f"{name}.bias", (dim,))


# What comes before the layers


def _embedding(model: Model, transformer: Transformer) -> Iterator[Weight]:
    vocabulary, position = model.vocabulary, transformer.position
    if vocabulary is None:
        return
    hidden = ("hidden", transformer.hidden)
    yield Weight("embedding.token", (("vocabulary", vocabulary.size), hidden))
    if position.encoding in TABLES:
        yield _position_table("embedding.position", transformer)
    if vocabulary.token_types:
        dims = (("token_type", vocabulary.token_types), hidden)
        yield Weight("embedding.token_type", dims)
    if transformer.norm_placement == "post" or transformer.norm_input:
        yield from _norm("norm.embedding", hidden, transformer.norm)


def _tower(tower: Tower) -> Iterator[tuple[str, int, Iterable[Weight]]]:
    transformer = tower.transformer
    (kind,) = transformer.layer_kinds
    yield "tower.patch", 1, _patch(tower.image, transformer)
    yield "tower.layer", transformer.layers, _layer(None, transformer.of_kind(kind), kind)
    yield "tower.projector", 1, _projector(tower, transformer)


def _projector(tower: Tower, transformer: Transformer) -> Iterator[Weight]:
    hidden = ("hidden", transformer.hidden)
    if has_final_norm(transformer):
        yield from _norm("norm.final", hidden, transformer.norm)
    if tower.projector_norm:
        yield Weight("norm.projector", (hidden,))
    for i, (ins, outs) in enumerate(pairwise(tower.projector)):
        yield Weight(f"projector.{i}", ((f"projector_{i}", ins), (f"projected_{i}", outs)))


def _patch(image: Image | None, transformer: Transformer) -> Iterator[Weight]:
    if image is None:
        return
    hidden = ("hidden", transformer.hidden)
    pixels = ("pixel", image.channels * image.patch**2)
    yield from _linear("patch.projection", (pixels,), (hidden,), bias=image.bias)
    if image.class_token:
        yield Weight("patch.class_token", (hidden,))
    if transformer.position.encoding in TABLES:
        yield _position_table("patch.position", transformer)
    if transformer.norm_input:
        yield from _norm("norm.embedding", hidden, transformer.norm)


def _position_table(name: str, transformer: Transformer) -> Weight:
    position = transformer.position
    dims = (("position", position.length), ("hidden", transformer.hidden))
    return Weight(name, dims, trained=position.encoding == "learned")


def _conditioning(model: Model, transformer: Transformer) -> Iterator[Weight]:
    diffusion = model.diffusion
    if diffusion is None:
        return
    hidden = ("hidden", transformer.hidden)
    condition = ("condition", transformer.hidden)
    features = ("time_feature", diffusion.time_features)
    yield from _linear("conditioning.time_in", (features,), (hidden,), bias=True)
    yield from _linear("conditioning.time_out", (hidden,), (condition,), bias=True)
    yield Weight("conditioning.label", (("label", diffusion.labels), condition))


# One layer


def _layer(model: Model | None, transformer: Transformer, name: str) -> Iterator[Weight]:
    """Yield the weights of one layer of a kind, given as a one-layer model."""
    kind = transformer.layer_kinds[name]
    if model is not None and model.diffusion is not None:
        yield from _modulation("modulation", transformer, LAYER_MODULATIONS)
    if kind.mixer != "none":
        if kind.first_norm:
            yield from _part_norms("attention", transformer)
        yield from _mixer(transformer)
    if kind.feed_forward != "none":
        if kind.first_norm or kind.mixer != "none":
            yield from _part_norms("mlp", transformer)
        yield from _mlp(transformer)
        yield from _moe(transformer)


def _part_norms(part: str, transformer: Transformer) -> Iterator[Weight]:
    hidden = ("hidden", transformer.hidden)
    yield from _norm(f"norm.{part}", hidden, transformer.norm)
    if transformer.norm_placement == "both":
        yield from _norm(f"norm.{part}.out", hidden, transformer.norm)


def _mixer(transformer: Transformer) -> Iterator[Weight]:
    attention = transformer.attention
    if transformer.scan is not None:
        yield from _scan(transformer.scan, transformer)
    elif attention is not None and attention.latent is not None:
        yield from _latent_attention(attention, attention.latent, transformer)
    elif attention is not None:
        yield from _attention(attention, transformer)


def _scan(scan: Scan, transformer: Transformer) -> Iterator[Weight]:
    hidden, heads = ("hidden", transformer.hidden), ("head", scan.heads)
    value = (heads, ("head_size", scan.head_size))
    key = (("kv_head", scan.key_heads), ("state_size", scan.state_size))
    # The publishers fuse these projections into a single matrix; here each stands alone, because
    # heads and key heads are split differently over ranks.
    delta = scan.form == "gated-delta"
    for name, out in (("gate", value), ("value", value), ("key", key), ("query", key)):
        yield Weight(f"scan.{name}", (hidden, *out))
    for name in ("step", "decay") if delta else ("step",):
        yield Weight(f"scan.{name}", (hidden, heads))
    for name, out in (("value", value), ("key", key), ("query", key)):
        yield Weight(f"convolution.{name}", (*out, ("tap", scan.convolution)))
        if scan.convolution_bias:
            yield Weight(f"convolution.{name}.bias", out)
    for name in ("rate", "offset") if delta else ("rate", "offset", "skip"):
        yield Weight(f"scan.{name}", (heads,))
    yield Weight("norm.scan", value[1:] if delta else value)
    yield Weight("scan.output", (*value, hidden))


def _modulation(name: str, transformer: Transformer, vectors: int) -> Iterator[Weight]:
    condition = ("condition", transformer.hidden)
    out = (("modulation", vectors), ("hidden", transformer.hidden))
    yield from _linear(name, (condition,), out, bias=True)


def _attention(attention: Attention, transformer: Transformer) -> Iterator[Weight]:
    hidden = ("hidden", transformer.hidden)
    size = ("head_size", attention.head_size)
    query = (("head", attention.heads), size)
    shared = (("kv_head", attention.kv_heads), size)
    biased = attention.biases != "none"
    yield from _linear("attention.query", (hidden,), query, bias=biased)
    yield from _linear("attention.key", (hidden,), shared, bias=biased)
    yield from _linear("attention.value", (hidden,), shared, bias=biased)
    if attention.output_gate:
        yield Weight("attention.gate", (hidden, *query))
    if attention.sinks:
        yield Weight("attention.sinks", query[:1])
    # A norm over all heads has a scale for each of them; a norm of a head shares its scale.
    if attention.query_key_norm_over == "all" and attention.query_key_norm:
        yield Weight("attention.query_norm", query)
        yield Weight("attention.key_norm", shared)
    else:
        yield from _query_key_norm(attention, size, transformer.norm)
    yield from _linear("attention.output", query, (hidden,), bias=attention.biases == "all")


def _query_key_norm(attention: Attention, dim: tuple[str, int], flavour: str) -> Iterator[Weight]:
    if attention.query_key_norm:
        yield from _norm("attention.query_norm", dim, flavour)
        yield from _norm("attention.key_norm", dim, flavour)


def _latent_attention(
    attention: Attention, latent: Latent, transformer: Transformer
) -> Iterator[Weight]:
    hidden = ("hidden", transformer.hidden)
    heads = ("head", attention.heads)
    plain = ("head_size", attention.head_size)
    rotated = ("rope_head_size", latent.rope_head_size)
    query = (heads, ("query_head_size", attention.head_size + latent.rope_head_size))
    value = (heads, ("value_head_size", latent.value_head_size))
    kv_rank = ("kv_rank", latent.kv_rank)
    # Only dimensions of heads are split over ranks: the narrow ranks in the middle, and the rotated
    # part of keys that all heads share, have copies on every tensor-parallel rank.
    if latent.query_rank is None:
        yield Weight("attention.query", (hidden, *query))
    else:
        query_rank = ("query_rank", latent.query_rank)
        yield Weight("attention.query_down", (hidden, query_rank))
        yield from _norm("attention.query_down_norm", query_rank, transformer.norm)
        yield Weight("attention.query_up", (query_rank, *query))
    yield Weight("attention.kv_down", (hidden, kv_rank))
    yield Weight("attention.key_rope", (hidden, rotated))
    yield from _norm("attention.kv_down_norm", kv_rank, transformer.norm)
    yield Weight("attention.key_up", (kv_rank, heads, plain))
    yield Weight("attention.value_up", (kv_rank, *value))
    yield from _query_key_norm(attention, plain, transformer.norm)
    yield Weight("attention.output", (*value, hidden))


def _mlp(transformer: Transformer) -> Iterator[Weight]:
    if transformer.mlp is not None:
        yield from _feed_forward("mlp", transformer.mlp, ("hidden", transformer.hidden), ())


def _moe(transformer: Transformer) -> Iterator[Weight]:
    moe = transformer.moe
    if moe is None:
        return
    hidden, experts = ("hidden", transformer.hidden), ("expert", moe.experts)
    yield from _linear("router", (hidden,), (experts,), bias=moe.router_bias)
    if moe.selection_bias:
        yield Weight("router.selection_bias", (experts,), trained=False)
    if moe.latent is not None:
        latent = ("latent", moe.latent)
        yield Weight("latent.down", (hidden, latent))
        yield from _feed_forward("experts", moe.expert, latent, (experts,))
        yield Weight("latent.up", (latent, hidden))
    else:
        yield from _feed_forward("experts", moe.expert, hidden, (experts,))
    if moe.shared_experts:
        shared = (("shared_expert", moe.shared_experts),)
        yield from _feed_forward("shared_experts", moe.shared, hidden, shared)
        if moe.shared_gate:
            yield Weight("shared_gate", (hidden,))


def _feed_forward(name: str, mlp: Mlp, hidden: tuple[str, int], lead: Dims) -> Iterator[Weight]:
    ffn = ("ffn", mlp.hidden)
    # A bias of experts is one for each of them.
    parts = (("gate", hidden, ffn), ("up", hidden, ffn), ("down", ffn, hidden))
    for part, ins, outs in parts if mlp.gated else parts[1:]:
        yield Weight(f"{name}.{part}", (*lead, ins, outs))
        if mlp.biases:
            yield Weight(f"{name}.{part}.bias", (*lead, outs))


# What comes after the layers


def _depth(model: Model, transformer: Transformer) -> Iterator[Weight]:
    """Yield the weights of one module; token table and output weights are the model's."""
    hidden = ("hidden", transformer.hidden)
    for what in ("stream", "embedded"):
        yield from _norm(f"norm.{what}", hidden, transformer.norm)
    yield Weight(MERGE, (("joined", 2 * transformer.hidden), ("merged", transformer.hidden)))
    kind = transformer.last
    yield from _layer(model, transformer.of_kind(kind), kind)
    if has_final_norm(transformer):
        yield from _norm("norm.depth", hidden, transformer.norm)


def _head(model: Model, transformer: Transformer) -> Iterator[Weight]:
    hidden = ("hidden", transformer.hidden)
    pooled = ("pooled", transformer.hidden)
    if has_final_norm(transformer):
        yield from _norm("norm.final", hidden, transformer.norm)
    if model.head.attention_pool and transformer.mlp is not None:
        yield Weight("pool.probe", (hidden,))
        for part in ("query", "key", "value", "output"):
            yield from _linear(f"pool.{part}", (hidden,), (pooled,), bias=True)
        yield from _norm("norm.pool", hidden, transformer.norm)
        yield from _feed_forward("pool.mlp", transformer.mlp, hidden, ())
    if model.head.transform:
        yield Weight("transform", (hidden, pooled))
        yield from _norm("norm.transform", hidden, transformer.norm)
    if model.head.pooler:
        yield from _linear("pooler", (hidden,), (pooled,), bias=True)
    if model.head.classes is not None:
        before = pooled if model.head.pooler else hidden
        yield from _linear("classifier", (before,), (("class", model.head.classes),), bias=True)
    if model.vocabulary is not None:
        words = ("vocabulary", model.vocabulary.size)
        if not model.vocabulary.tied:
            yield Weight("head", (hidden, words))
        if model.vocabulary.bias:
            yield Weight("head.bias", (words,))
    if model.diffusion is not None and model.image is not None:
        pixels = ("pixel", model.diffusion.output_channels * model.image.patch**2)
        yield from _modulation("modulation.final", transformer, FINAL_MODULATIONS)
        yield from _linear("head", (hidden,), (pixels,), bias=True)


# The recommender


def _recommender(recommender: Recommender) -> Iterator[Weight]:
    for i, rows in enumerate(recommender.rows):
        table = (("row", rows), ("embedding", recommender.embedding_size))
        yield Weight(f"table.{i}", table, block="tables")
    yield from _stack("bottom", recommender.bottom_widths)
    features = ("feature", recommender.crossed_features)
    rank = ("cross_rank", recommender.cross_rank)
    for name, dims in (
        ("cross.down", (features, rank)),
        ("cross.up", (rank, features)),
        ("cross.up.bias", (features,)),
    ):
        yield Weight(name, dims, block="interaction", count=recommender.cross_layers)
    yield from _stack("top", recommender.top_widths)


def _stack(block: str, widths: Iterable[tuple[int, int]]) -> Iterator[Weight]:
    for i, (ins, outs) in enumerate(widths):
        layer = _linear(
            f"{block}.{i}", ((f"{block}_in", ins),), ((f"{block}_out", outs),), bias=True
        )
        for weight in layer:
            yield replace(weight, block=block)
