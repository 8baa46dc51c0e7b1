"""The model that a row of training evidence means: a shipped one, or one built from its shapes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import attrs

from trnbench.catalog.search import Catalog
from trnbench.evidence.rows import EvidenceRow, RowFault
from trnbench.workload.library import load_model
from trnbench.workload.model import (
    ROTARY_BASE,
    Activation,
    Attention,
    Latent,
    Mlp,
    Model,
    Moe,
    Position,
    Transformer,
    Vocabulary,
)

_COLUMNS = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab")
_MLPS: dict[str, tuple[bool, Activation]] = {
    "swiglu": (True, "silu"),
    "geglu": (True, "gelu"),
    "gelu": (False, "gelu"),
    "relu": (False, "relu"),
    "sqrelu": (False, "relu"),
    "squared relu": (False, "relu"),
}
"""MLP as a publication calls it -> gated, activation; squaring a rectifier costs nothing."""
_PLAIN_RATIO = 4
"""A plain MLP is usually so many times as wide as the model; another width tells a gated one."""

_EXPERTS = re.compile(r"(\d+)\s+experts?,?\s+top-(\d+)")
_EXPERT_WIDTH = re.compile(r"expert ffn\s+(\d+)")
_SHARED = re.compile(r"\+\s*(\d+)\s+shared")
_DENSE = re.compile(r"dense_layers=(\d+)|(\d+)\s+dense layers?")
_HEAD = re.compile(r"head_dim\s+(\d+)")
_MAKER = re.compile(r"^(hugging\s?face|meta|nvidia|google)\s+", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the shape columns of a row say; the kind of MLP and the experts as text."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    mlp: str = ""
    experts: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundModel:
    """A model, and what was taken for granted about it."""

    model: Model
    assumed: tuple[str, ...] = ()


@dataclass
class Models:
    """The models of a catalogue, each read once, and those built from shapes."""

    catalog: Catalog
    _shipped: tuple[Model, ...] | None = field(default=None, init=False)
    _built: dict[tuple[Shape, str, int], FoundModel] = field(default_factory=dict, init=False)

    @property
    def shipped(self) -> tuple[Model, ...]:
        """Every model of the catalogue."""
        if self._shipped is None:
            names = [entry.name for entry in self.catalog.entries("models")]
            self._shipped = tuple(load_model(self.catalog, name) for name in names)
        return self._shipped

    def of(self, row: EvidenceRow, sequence: int | None) -> FoundModel:
        """Return the model of a row; raise RowFault if its shapes are unknown."""
        name = row.needed("model")
        if not any(row.said(column) for column in _COLUMNS):
            return self._named(name)
        shape = Shape(
            **{column: row.whole(column) for column in _COLUMNS},
            mlp=row.text("mlp").lower(),
            experts=row.text("moe").lower(),
        )
        # A model is bound to a sequence only by the length of its position table.
        key = (shape, name, sequence or 0)
        if key not in self._built:
            self._built[key] = self._of_shape(shape, name, sequence or 1)
        return self._built[key]

    def _named(self, name: str) -> FoundModel:
        wanted = _plain(_MAKER.sub("", name))
        for model in self.shipped:
            if wanted in {_plain(n) for n in (model.name, *model.aliases)}:
                return FoundModel(model=model, assumed=("shapes: those of the model's name",))
        raise RowFault(f"{name}: no shapes, and no known model of this name")

    def _of_shape(self, shape: Shape, name: str, sequence: int) -> FoundModel:
        for model in self.shipped:
            if _matches(model, shape) and _long_enough(model, sequence):
                return FoundModel(model=model)
        return _built(shape, name, sequence, self.shipped)


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "-", name.strip().lower())


def _long_enough(model: Model, sequence: int) -> bool:
    assert model.transformer is not None
    position = model.transformer.position
    return position.encoding == "rotary" or sequence <= position.length


def _matches(model: Model, shape: Shape) -> bool:
    transformer, vocabulary = model.transformer, model.vocabulary
    if transformer is None or vocabulary is None:
        return False
    attention, mlp, moe = transformer.attention, transformer.mlp, transformer.moe
    width = mlp.hidden if mlp is not None else moe.expert.hidden if moe is not None else 0
    found = (transformer.layers, transformer.hidden, attention.heads, attention.kv_heads, width)
    wanted = (shape.layers, shape.hidden, shape.heads, shape.kv_heads, shape.ffn)
    if (*found, vocabulary.size) != (*wanted, shape.vocab):
        return False
    if shape.mlp and mlp is not None and mlp.gated != _mlp(shape).gated:
        return False
    if moe is None or not shape.experts:
        return moe is None and not shape.experts
    return moe == _moe(shape, selection_bias=moe.selection_bias)


def _built(shape: Shape, name: str, sequence: int, shipped: Sequence[Model]) -> FoundModel:
    mlp = _mlp(shape)
    moe = _moe(shape) if shape.experts else None
    latent = _latent(shape, shipped) if "mla" in shape.experts.split(", ") else None
    assumed = [] if shape.mlp else [f"MLP: {'gated' if mlp.gated else 'plain'}, by its width"]
    if latent is not None:
        assumed.append("ranks of latent attention: those of the known model with such heads")
    if "sliding window" in shape.experts:
        assumed.append("attention: over the whole sequence in every layer")
    head = _HEAD.search(shape.experts)
    # Models with plain MLPs are of the GPT family: layer norms, biases, a table of positions, and
    # one vocabulary for both ends; those of its users that did away with some are not told apart.
    plain = not mlp.gated and mlp.activation == "gelu"
    attention = Attention(
        heads=shape.heads,
        kv_heads=shape.heads if latent else shape.kv_heads,
        head_size=int(head[1]) if head else _head_size(shape),
        causal="bert" not in name.lower(),
        biases="all" if plain else "none",
        latent=latent,
    )
    transformer = Transformer(
        layers=shape.layers,
        hidden=shape.hidden,
        norm="layer" if plain else "rms",
        attention=attention,
        mlp=attrs.evolve(mlp, biases=plain) if moe is None or moe.dense_layers else None,
        moe=moe,
        position=Position(encoding="learned", length=sequence)
        if plain
        else Position(encoding="rotary", length=sequence, rotary_base=ROTARY_BASE),
    )
    return FoundModel(
        model=Model(
            name=name,
            title=name,
            transformer=transformer,
            vocabulary=Vocabulary(size=shape.vocab, tied=plain),
        ),
        assumed=tuple(assumed),
    )


def _head_size(shape: Shape) -> int:
    if shape.hidden % shape.heads:
        raise RowFault(f"heads: {shape.heads} do not divide hidden {shape.hidden}")
    return shape.hidden // shape.heads


def _mlp(shape: Shape) -> Mlp:
    if not shape.mlp:
        gated = shape.ffn != _PLAIN_RATIO * shape.hidden
        return Mlp(hidden=shape.ffn, gated=gated, activation="silu" if gated else "gelu")
    if shape.mlp not in _MLPS:
        raise RowFault(f"mlp: unknown kind {shape.mlp!r}; known: {', '.join(_MLPS)}")
    gated, activation = _MLPS[shape.mlp]
    return Mlp(hidden=shape.ffn, gated=gated, activation=activation)


def _moe(shape: Shape, *, selection_bias: bool = False) -> Moe:
    experts = _EXPERTS.search(shape.experts)
    if experts is None:
        raise RowFault(f"moe: cannot read {shape.experts!r}; expected such as '8 experts, top-2'")
    width, shared = _EXPERT_WIDTH.search(shape.experts), _SHARED.search(shape.experts)
    dense = _DENSE.search(shape.experts)
    return Moe(
        experts=int(experts[1]),
        top_k=int(experts[2]),
        expert=attrs.evolve(_mlp(shape), hidden=int(width[1]) if width else shape.ffn),
        shared_experts=int(shared[1]) if shared else 0,
        dense_layers=int(dense[1] or dense[2]) if dense else 0,
        selection_bias=selection_bias,
    )


def _latent(shape: Shape, shipped: Sequence[Model]) -> Latent:
    for model in shipped:
        attention = model.transformer.attention if model.transformer else None
        if attention and attention.latent and attention.heads == shape.heads:
            return attention.latent
    raise RowFault("moe: MLA without its ranks, and no known model has such heads")
