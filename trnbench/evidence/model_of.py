"""The model of a row of measured steps, and its shapes: known, derived, or from shapes alone.

Shapes stated in a row win over those of the named model. A row with all shapes needs no known name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trnbench.errors import did_you_mean
from trnbench.evidence.rows import EvidenceRow, RowFault
from trnbench.facts.catalog.search import Catalog, configuration_file, plain_name
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, State, field, fields, replace
from trnbench.facts.workload.library import load_model
from trnbench.facts.workload.model import (
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
from trnbench.predict.assumption import Assumption

_MLPS: dict[str, tuple[bool, Activation]] = {
    "swiglu": (True, "silu"),
    "geglu": (True, "gelu"),
    "gelu": (False, "gelu"),
    "relu": (False, "relu"),
    "sqrelu": (False, "relu"),
    "squared relu": (False, "relu"),
}
"""MLP name in publications -> gated, activation; squaring a rectifier costs nothing."""
_PLAIN_RATIO = 4
"""Usual width of a plain MLP over the model's; another ratio means a gated one."""
_NEEDED = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab")
_NO_COUNTS = ("mlp", "tied", "latent", "window")


class Shape(Record):
    """Stated shapes of a row's model; None if unstated or absent."""

    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    ffn: int | None = None
    vocab: int | None = None
    mlp: str | None = None
    tied: bool | None = None
    head_size: int | None = None
    experts: int | None = None
    top_k: int | None = None
    expert_ffn: int | None = None
    shared_experts: int | None = None
    dense_layers: int | None = None
    latent: bool | None = None
    window: str | None = None

    @property
    def missing(self) -> tuple[str, ...]:
        """Columns still needed for a model of the shape alone."""
        return tuple(name for name in _NEEDED if getattr(self, name) is None)

    def over(self, other: WholeShape) -> WholeShape:
        said = {one.name: getattr(self, one.name) for one in fields(self)}
        return replace(other, **{name: value for name, value in said.items() if value is not None})

    def whole(self) -> WholeShape:
        """The shape as a `WholeShape`; nothing may be missing."""
        return WholeShape(**{one.name: getattr(self, one.name) for one in fields(self)})


class WholeShape(Shape):
    """Shapes sufficient for a model."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int

    @property
    def feed_forward(self) -> Mlp:
        """The MLP, without biases."""
        if self.mlp is None:
            gated = self.ffn != _PLAIN_RATIO * self.hidden
            return Mlp(hidden=self.ffn, gated=gated, activation="silu" if gated else "gelu")
        gated, activation = _MLPS[self.mlp]
        return Mlp(hidden=self.ffn, gated=gated, activation=activation)

    @property
    def size_of_head(self) -> int:
        """Width of a head: as stated, or else the model's width over the heads."""
        if self.head_size is not None:
            return self.head_size
        if self.hidden % self.heads:
            raise RowFault(
                f"heads: {self.heads} do not divide hidden {self.hidden}; give head_size"
            )
        return self.hidden // self.heads


def shape_of(row: EvidenceRow) -> Shape:
    """Shape columns of a row; RowFault for an unreadable one."""
    mlp = row.text("mlp").lower() if row.said("mlp") else None
    if mlp is not None and mlp not in _MLPS:
        raise RowFault(f"mlp: unknown kind {mlp!r}; known: {', '.join(_MLPS)}")
    counts = (one.name for one in fields(Shape) if one.name not in _NO_COUNTS)
    return Shape(
        mlp=mlp,
        tied=row.flag_if_said("tied"),
        latent=row.flag_if_said("latent"),
        window=row.text("window") if row.said("window") else None,
        **{name: row.whole_if_said(name) for name in counts},
    )


def shape_of_model(model: Model) -> WholeShape | None:
    """Shapes of a text model, as in a row; None for other models."""
    transformer, vocabulary = model.transformer, model.vocabulary
    if transformer is None or vocabulary is None or transformer.attention is None:
        return None
    if transformer.pattern is not None:
        return None  # no columns tell of layers that differ
    attention, moe = transformer.attention, transformer.moe
    feeds = transformer.mlp or (moe and moe.expert)
    assert feeds
    kinds = {kind: name for name, kind in reversed(_MLPS.items())}
    return WholeShape(
        layers=transformer.layers,
        hidden=transformer.hidden,
        heads=attention.heads,
        kv_heads=attention.kv_heads,
        ffn=feeds.hidden,
        mlp=kinds.get((feeds.gated, feeds.activation)),
        vocab=vocabulary.size,
        tied=vocabulary.tied,
        head_size=attention.head_size,
        experts=moe.experts if moe else None,
        top_k=moe.top_k if moe else None,
        expert_ffn=moe.expert.hidden if moe else None,
        shared_experts=moe.shared_experts if moe else None,
        dense_layers=moe.dense_layers if moe else None,
        latent=True if attention.latent else None,
    )


class FoundModel(Record):
    """A model, and the assumptions about it."""

    model: Model
    assumed: tuple[Assumption, ...] = ()
    of_shapes: bool = False
    """True for a model that no catalogue names."""

    @property
    def with_dropout(self) -> FoundModel:
        transformer = self.model.transformer
        if transformer is None or transformer.attention is None or not self.of_shapes:
            return self
        attention = replace(transformer.attention, dropout=True)
        dropped = replace(transformer, dropout=True, attention=attention)
        usual = Assumption(name="dropout", value="yes", why="usual of its software's command line")
        model = replace(self.model, transformer=dropped)
        return replace(self, model=model, assumed=(*self.assumed, usual))


class Models(State, kw_only=False):
    """Models of a catalogue, each read once, and models made for rows."""

    catalog: Catalog
    _known: tuple[Model, ...] | None = None
    _made: Memo[tuple[Shape, str, int], FoundModel | RowFault] = field(default_factory=Memo)
    _by_name: Memo[None, Mapping[str, Model]] = field(default_factory=Memo)

    @property
    def known(self) -> tuple[Model, ...]:
        if self._known is None:
            names = [entry.name for entry in self.catalog.entries("models")]
            self._known = tuple(load_model(self.catalog, name) for name in names)
        return self._known

    def of(self, name: str, shape: Shape, sequence: int | None) -> FoundModel:
        """The model of a row; raise RowFault if some of its shapes are unknown."""
        # A model is bound to a sequence only by the length of its position table.
        found = self._made.of(
            (shape, name, sequence or 0), lambda: self._found(name, shape, sequence or 1)
        )
        if isinstance(found, RowFault):
            raise RowFault(str(found))
        return found

    def _found(self, name: str, shape: Shape, sequence: int) -> FoundModel | RowFault:
        try:
            return self._find(name, shape, sequence)
        except RowFault as fault:
            return RowFault(str(fault))

    def _find(self, name: str, shape: Shape, sequence: int) -> FoundModel:
        named = self._named(name)
        own = shape_of_model(named) if named is not None else None
        if named is not None and (own is None or shape == Shape()):
            return FoundModel(model=named, assumed=(_named_shapes(named),))
        if named is not None and own is not None:
            found = _like(named, shape.over(own), name, sequence, self.known)
            if not shape.missing:
                return found
            missing = ", ".join(shape.missing)
            remark = Assumption(name="shapes", value=missing, why=f"as in {named.name}")
            return replace(found, assumed=(remark, *found.assumed))
        if shape == Shape():
            near = did_you_mean(name.lower(), (model.name for model in self.known))
            raise RowFault(f"{name}: no shapes, and no known model of this name{near}")
        if shape.missing:
            raise RowFault(
                f"{', '.join(shape.missing)}: not given, and no known model is called {name}"
            )
        for model in self.known:
            if _matches(model, shape) and _long_enough(model, sequence):
                return FoundModel(model=model)
        return _new(shape.whole(), name, sequence, self.known)

    def _named(self, name: str) -> Model | None:
        if (file := configuration_file(name)) is not None:
            return load_model(self.catalog, str(file))
        return self._by_name.of(None, self._spelled).get(plain_name(name))

    def _spelled(self) -> Mapping[str, Model]:
        """Models by normalised names; the first of each spelling."""
        found: dict[str, Model] = {}
        for model in self.known:
            for known in (model.name, *model.aliases):
                found.setdefault(plain_name(known), model)
        return found


def refuse_unknown_model(catalog: Catalog, name: str) -> None:
    if Models(catalog)._named(name) is None:
        catalog.find("models", name)


def _long_enough(model: Model, sequence: int) -> bool:
    assert model.transformer is not None
    position = model.transformer.position
    return position.encoding == "rotary" or sequence <= position.length


def _matches(model: Model, shape: Shape) -> bool:
    """True when a model has all stated shapes, and experts only if stated."""
    transformer = model.transformer
    if transformer is None:
        return False
    if (transformer.layers, transformer.hidden) != (shape.layers, shape.hidden):
        return False  # as it is for most, without a look at the rest
    own = shape_of_model(model)
    if own is None or (own.experts is None) != (shape.experts is None):
        return False
    whole = shape.over(own)
    # Of the MLP it is the shape that counts.
    gated = whole.feed_forward.gated == own.feed_forward.gated
    return gated and replace(whole, mlp=own.mlp, window=None) == own


def _named_shapes(model: Model) -> Assumption:
    return Assumption(name="shapes", value=model.name, why="from the model's name")


def _like(
    model: Model, shape: WholeShape, name: str, sequence: int, known: Sequence[Model]
) -> FoundModel:
    """A known model with a row's shapes; everything else is unchanged."""
    own, transformer, vocabulary = shape_of_model(model), model.transformer, model.vocabulary
    assert own is not None
    assert transformer is not None
    assert transformer.attention is not None
    assert vocabulary is not None
    if replace(shape, window=None) == own and _long_enough(model, sequence):
        return FoundModel(model=model)
    attention, mlp, moe = transformer.attention, transformer.mlp, transformer.moe
    kinds = [
        (one.experts is None, one.latent, one.feed_forward.gated, one.feed_forward.activation)
        for one in (own, shape)
    ]
    # Another architecture: nothing of the known model carries over.
    if kinds[0] != kinds[1]:
        return _new(shape, name, sequence, known)
    if shape.head_size == attention.head_size and own.heads * attention.head_size == own.hidden:
        shape = replace(shape, head_size=None)
    position = transformer.position
    if not _long_enough(model, sequence):
        position = replace(position, length=sequence)
    changed = replace(
        transformer,
        layers=shape.layers,
        hidden=shape.hidden,
        attention=replace(
            attention, heads=shape.heads, kv_heads=shape.kv_heads, head_size=shape.size_of_head
        ),
        mlp=mlp and replace(mlp, hidden=shape.ffn),
        moe=moe and _moe(shape, moe.expert, selection_bias=moe.selection_bias),
        position=position,
    )
    words = replace(vocabulary, size=shape.vocab, tied=bool(shape.tied))
    return FoundModel(
        model=replace(model, name=name, title=name, transformer=changed, vocabulary=words)
    )


def _new(shape: WholeShape, name: str, sequence: int, known: Sequence[Model]) -> FoundModel:
    """A model from shapes alone.

    Plain MLPs mean the GPT family: layer norms, biases, a position table, and tied vocabularies;
    variants without some of these are not distinguished.
    """
    mlp, latent = shape.feed_forward, _latent(shape, known) if shape.latent else None
    assumed: list[Assumption] = []

    def taken(name: str, value: str, why: str) -> None:
        assumed.append(Assumption(name=name, value=value, why=why))

    if shape.mlp is None:
        taken("mlp", "gated" if mlp.gated else "plain", "by its width")
    if latent is not None:
        taken("ranks of latent attention", "known", "those of the known model with such heads")
    if shape.window is not None:
        taken("window", "whole sequence", "windows are not modelled")
    plain = not mlp.gated and mlp.activation == "gelu"
    moe = _moe(shape, mlp)
    attention = Attention(
        heads=shape.heads,
        kv_heads=shape.heads if latent else shape.kv_heads,
        head_size=shape.size_of_head,
        causal="bert" not in name.lower(),
        biases="all" if plain else "none",
        latent=latent,
    )
    transformer = Transformer(
        layers=shape.layers,
        hidden=shape.hidden,
        norm="layer" if plain else "rms",
        attention=attention,
        mlp=replace(mlp, biases=plain) if moe is None or moe.dense_layers else None,
        moe=moe,
        position=Position(encoding="learned", length=sequence)
        if plain
        else Position(encoding="rotary", length=sequence, rotary_base=ROTARY_BASE),
    )
    tied = plain if shape.tied is None else shape.tied
    if shape.tied is None:
        taken("tied", "yes" if tied else "no", "usual for models of this kind")
    words = Vocabulary(size=shape.vocab, tied=tied)
    model = Model(name=name, title=name, transformer=transformer, vocabulary=words)
    return FoundModel(model=model, assumed=tuple(assumed), of_shapes=True)


def _moe(shape: WholeShape, mlp: Mlp, *, selection_bias: bool = False) -> Moe | None:
    if shape.experts is None:
        return None
    if shape.top_k is None:
        raise RowFault("top_k: not given, and the model has experts")
    return Moe(
        experts=shape.experts,
        top_k=shape.top_k,
        expert=replace(mlp, hidden=shape.expert_ffn or shape.ffn),
        shared_experts=shape.shared_experts or 0,
        dense_layers=shape.dense_layers or 0,
        selection_bias=selection_bias,
    )


def _latent(shape: WholeShape, known: Sequence[Model]) -> Latent:
    for model in known:
        attention = model.transformer.attention if model.transformer else None
        if attention and attention.latent and attention.heads == shape.heads:
            return attention.latent
    raise RowFault("latent: no ranks are given, and no known model has such heads")
