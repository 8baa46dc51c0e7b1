"""The one place that lists a model's weight tensors: names, dimensions, blocks and copies.

Dimension names say what is counted, so that a layout can cut along them: `head` and `kv_head`,
`ffn`, `vocabulary`, `expert`, `row` (of an embedding table). A bias has its weight's name and
".bias". Blocks, in the order data passes them:

    embedding | patch, conditioning      dense, moe (one copy a layer)      head
    tables, bottom, interaction, top     (recommender)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from trnbench.workload.model import Attention, Latent, Mlp, Model, Recommender, Transformer

LAYER_MODULATIONS = 6
"""adaLN-Zero: shift, scale and gate, for attention and for the MLP (DiT, arXiv 2212.09748)."""
FINAL_MODULATIONS = 2
"""Shift and scale before the output projection."""

Dims = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """One weight tensor: its dimensions in order, and how many layers of its block have one."""

    name: str
    dims: Dims
    block: str = ""
    count: int = 1
    trained: bool = True

    @property
    def elements(self) -> int:
        """The number of elements of one copy."""
        return prod(size for _, size in self.dims)

    @property
    def total(self) -> int:
        """The number of elements of all copies."""
        return self.elements * self.count


def weights(model: Model) -> tuple[Weight, ...]:
    """Return every weight tensor of the model, block by block."""
    if model.recommender is not None:
        return tuple(_recommender(model.recommender))
    transformer = model.transformer
    assert transformer is not None
    dense = transformer.dense_layers
    blocks: tuple[tuple[str, int, Iterable[Weight]], ...] = (
        ("embedding", 1, _embedding(model, transformer)),
        ("patch", 1, _patch(model, transformer)),
        ("conditioning", 1, _conditioning(model, transformer)),
        ("dense", dense, _layer(model, transformer, _mlp(transformer))),
        ("moe", transformer.layers - dense, _layer(model, transformer, _moe(transformer))),
        ("head", 1, _head(model, transformer)),
    )
    return tuple(
        replace(weight, block=block, count=count)
        for block, count, members in blocks
        if count
        for weight in members
    )


def parameter_count(model: Model) -> int:
    """Return the number of parameters of the model."""
    return sum(weight.total for weight in weights(model))


def active_parameter_count(model: Model) -> int:
    """Return the parameters one token meets: of the routed experts only those it visits."""
    moe = model.transformer.moe if model.transformer else None
    total = 0
    for weight in weights(model):
        routed = moe is not None and weight.name.startswith("experts.")
        total += weight.total // moe.experts * moe.top_k if moe and routed else weight.total
    return total


def parameters_by_block(model: Model) -> Mapping[str, int]:
    """Return the parameters of each block (all layers of it), in the order data passes them."""
    counts: dict[str, int] = {}
    for weight in weights(model):
        counts[weight.block] = counts.get(weight.block, 0) + weight.total
    return counts


def _linear(name: str, ins: Dims, outs: Dims, *, bias: bool) -> Iterator[Weight]:
    yield Weight(name=name, dims=(*ins, *outs))
    if bias:
        yield Weight(name=f"{name}.bias", dims=outs)


def _norm(name: str, dim: tuple[str, int], flavour: str) -> Iterator[Weight]:
    if flavour != "plain":
        yield Weight(name=name, dims=(dim,))
    if flavour == "layer":
        yield Weight(name=f"{name}.bias", dims=(dim,))


# What comes before the layers


def _embedding(model: Model, transformer: Transformer) -> Iterator[Weight]:
    vocabulary, position = model.vocabulary, transformer.position
    if vocabulary is None:
        return
    hidden = ("hidden", transformer.hidden)
    yield Weight(name="embedding.token", dims=(("vocabulary", vocabulary.size), hidden))
    if position.encoding != "rotary":
        yield _position_table("embedding.position", transformer)
    if vocabulary.token_types:
        dims = (("token_type", vocabulary.token_types), hidden)
        yield Weight(name="embedding.token_type", dims=dims)
    if transformer.norm_placement == "post":
        yield from _norm("norm.embedding", hidden, transformer.norm)


def _patch(model: Model, transformer: Transformer) -> Iterator[Weight]:
    image = model.image
    if image is None:
        return
    hidden = ("hidden", transformer.hidden)
    pixels = ("pixel", image.channels * image.patch**2)
    yield from _linear("patch.projection", (pixels,), (hidden,), bias=True)
    if image.class_token:
        yield Weight(name="patch.class_token", dims=(hidden,))
    if transformer.position.encoding != "rotary":
        yield _position_table("patch.position", transformer)


def _position_table(name: str, transformer: Transformer) -> Weight:
    position = transformer.position
    dims = (("position", position.length), ("hidden", transformer.hidden))
    return Weight(name=name, dims=dims, trained=position.encoding == "learned")


def _conditioning(model: Model, transformer: Transformer) -> Iterator[Weight]:
    diffusion = model.diffusion
    if diffusion is None:
        return
    hidden = ("hidden", transformer.hidden)
    condition = ("condition", transformer.hidden)
    features = ("time_feature", diffusion.time_features)
    yield from _linear("conditioning.time_in", (features,), (hidden,), bias=True)
    yield from _linear("conditioning.time_out", (hidden,), (condition,), bias=True)
    yield Weight(name="conditioning.label", dims=(("label", diffusion.labels), condition))


# One layer


def _layer(
    model: Model, transformer: Transformer, feed_forward: Iterable[Weight]
) -> Iterator[Weight]:
    hidden = ("hidden", transformer.hidden)
    if model.diffusion is not None:
        yield from _modulation("modulation", transformer, LAYER_MODULATIONS)
    yield from _norm("norm.attention", hidden, transformer.norm)
    if transformer.attention.latent is None:
        yield from _attention(transformer.attention, transformer)
    else:
        yield from _latent_attention(
            transformer.attention, transformer.attention.latent, transformer
        )
    yield from _norm("norm.mlp", hidden, transformer.norm)
    yield from feed_forward


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
    if latent.query_rank is None:
        yield Weight(name="attention.query", dims=(hidden, *query))
    else:
        query_rank = ("query_rank", latent.query_rank)
        yield Weight(name="attention.query_down", dims=(hidden, query_rank))
        yield from _norm("attention.query_down_norm", query_rank, transformer.norm)
        yield Weight(name="attention.query_up", dims=(query_rank, *query))
    yield Weight(name="attention.kv_down", dims=(hidden, kv_rank))
    yield Weight(name="attention.key_rope", dims=(hidden, rotated))
    yield from _norm("attention.kv_down_norm", kv_rank, transformer.norm)
    yield Weight(name="attention.key_up", dims=(kv_rank, heads, plain))
    yield Weight(name="attention.value_up", dims=(kv_rank, *value))
    yield from _query_key_norm(attention, plain, transformer.norm)
    yield Weight(name="attention.output", dims=(*value, hidden))


def _mlp(transformer: Transformer) -> Iterator[Weight]:
    if transformer.mlp is not None:
        yield from _feed_forward("mlp", transformer.mlp, transformer, ())


def _moe(transformer: Transformer) -> Iterator[Weight]:
    moe = transformer.moe
    if moe is None:
        return
    experts = ("expert", moe.experts)
    yield Weight(name="router", dims=(("hidden", transformer.hidden), experts))
    if moe.selection_bias:
        yield Weight(name="router.selection_bias", dims=(experts,), trained=False)
    yield from _feed_forward("experts", moe.expert, transformer, (experts,))
    if moe.shared_experts:
        shared = (("shared_expert", moe.shared_experts),)
        yield from _feed_forward("shared_experts", moe.expert, transformer, shared)


def _feed_forward(name: str, mlp: Mlp, transformer: Transformer, lead: Dims) -> Iterator[Weight]:
    hidden, ffn = ("hidden", transformer.hidden), ("ffn", mlp.hidden)
    if mlp.gated:
        yield from _linear(f"{name}.gate", (*lead, hidden), (ffn,), bias=mlp.biases)
    yield from _linear(f"{name}.up", (*lead, hidden), (ffn,), bias=mlp.biases)
    yield from _linear(f"{name}.down", (*lead, ffn), (hidden,), bias=mlp.biases)


# What comes after the layers


def _head(model: Model, transformer: Transformer) -> Iterator[Weight]:
    hidden = ("hidden", transformer.hidden)
    pooled = ("pooled", transformer.hidden)
    if transformer.norm_placement == "pre":
        yield from _norm("norm.final", hidden, transformer.norm)
    if model.head.pooler:
        yield from _linear("pooler", (hidden,), (pooled,), bias=True)
    if model.head.classes is not None:
        before = pooled if model.head.pooler else hidden
        yield from _linear("classifier", (before,), (("class", model.head.classes),), bias=True)
    if model.vocabulary is not None and not model.vocabulary.tied:
        yield Weight(name="head", dims=(hidden, ("vocabulary", model.vocabulary.size)))
    if model.diffusion is not None and model.image is not None:
        pixels = ("pixel", model.diffusion.output_channels * model.image.patch**2)
        yield from _modulation("modulation.final", transformer, FINAL_MODULATIONS)
        yield from _linear("head", (hidden,), (pixels,), bias=True)


# The recommender


def _recommender(recommender: Recommender) -> Iterator[Weight]:
    for i, rows in enumerate(recommender.rows):
        table = (("row", rows), ("embedding", recommender.embedding_size))
        yield Weight(name=f"table.{i}", dims=table, block="tables")
    yield from _stack("bottom", recommender.bottom_widths)
    features = ("feature", recommender.crossed_features)
    rank = ("cross_rank", recommender.cross_rank)
    for name, dims in (
        ("cross.down", (features, rank)),
        ("cross.up", (rank, features)),
        ("cross.up.bias", (features,)),
    ):
        yield Weight(name=name, dims=dims, block="interaction", count=recommender.cross_layers)
    yield from _stack("top", recommender.top_widths)


def _stack(block: str, widths: Iterable[tuple[int, int]]) -> Iterator[Weight]:
    for i, (ins, outs) in enumerate(widths):
        layer = _linear(
            f"{block}.{i}", ((f"{block}_in", ins),), ((f"{block}_out", outs),), bias=True
        )
        for weight in layer:
            yield replace(weight, block=block)
