"""Shapes of a row's model."""

from __future__ import annotations

from trnbench.evidence.rows import EvidenceRow, RowFault
from trnbench.facts.records import Record, fields, replace
from trnbench.facts.workload.model import Activation, Mlp, Model

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
