"""A model as its publisher describes it: shapes and structure, no batch, layout or hardware.

A model is either a transformer or a recommender. A transformer's inputs determine its family:

    vocabulary, causal attention      decoder
    vocabulary, two-way attention     encoder
    image                             vision
    image and diffusion               diffusion
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Literal

from trnbench.facts.catalog.provenance import Sourced
from trnbench.facts.catalog.quantity import Ratio, Total
from trnbench.facts.records import (
    MAY_BE_ZERO,
    MOST_DEPTHS,
    Record,
    Sized,
    check_sizes,
    field,
    replace,
)
from trnbench.facts.workload.layers import MAX_LAYERS, LayerKind, Recommender, Scan, layer_order

Activation = Literal["gelu", "relu", "relu2", "silu"]
Family = Literal["decoder", "encoder", "vision", "diffusion", "recommender"]
_DENSE, _MOE = LayerKind(), LayerKind(feed_forward="moe")
ROTARY_BASE = 10_000.0
"""Default base (RoFormer, arXiv 2104.09864)."""


class Latent(Sized):
    """Multi-head latent attention: low-rank projections of queries, keys and values.

    Each head adds `rope_head_size` rotated dimensions to its query; all heads share the rotated key
    part.
    """

    kv_rank: int
    query_rank: int | None = None
    """None: a full-rank query projection."""
    rope_head_size: int
    value_head_size: int


class Attention(Record):
    """The attention of a layer."""

    heads: int
    kv_heads: int
    head_size: int
    """Size of queries and keys, without a rotated latent part."""
    causal: bool
    biases: Literal["none", "qkv", "all"] = "none"
    """Projections with a bias."""
    query_key_norm: bool = False
    query_key_norm_over: Literal["head", "all"] = "head"
    """Norm of queries and keys over each head or over all together."""
    sinks: bool = False
    """A number per head in the softmax's sum."""
    output_gate: bool = False
    """A gate as wide as the queries."""
    dropout: bool = False
    """True when training drops attention weights."""
    window: int | None = None
    """Visible tokens: backwards if causal, else both sides together."""
    chunk: int | None = None
    """Length of pieces of the sequence that do not see each other."""
    latent: Latent | None = None

    def __post_init__(self) -> None:
        check_sizes(self)
        if self.heads % self.kv_heads:
            raise ValueError(f"`kv_heads` {self.kv_heads} does not divide `heads` {self.heads}")
        if self.latent is not None and (self.biases != "none" or self.kv_heads != self.heads):
            raise ValueError("latent attention has no biases, and as many `kv_heads` as `heads`")
        if self.latent is not None and (self.sinks or self.output_gate):
            raise ValueError("latent attention has neither `sinks` nor `output_gate`")
        if self.chunk is not None and (self.window is not None or not self.causal):
            raise ValueError("`chunk` is for causal attention without `window`")

    @property
    def variant(self) -> Literal["MHA", "GQA", "MQA", "MLA"]:
        """The usual name of the sharing of keys and values."""
        if self.latent is not None:
            return "MLA"
        if self.kv_heads == self.heads:
            return "MHA"
        return "MQA" if self.kv_heads == 1 else "GQA"


class Mlp(Sized):
    """A feed-forward network of inner width `hidden`; a gated one has a second input projection."""

    hidden: int
    gated: bool
    activation: Activation
    biases: bool = False


class Moe(Record):
    """A mixture of experts: each token visits `top_k` of `experts`, and every shared expert."""

    experts: int
    top_k: int
    expert: Mlp
    shared_experts: int = field(default=0, metadata=MAY_BE_ZERO)
    shared_hidden: int | None = None
    """Width of shared experts; None: the others' width."""
    shared_gate: bool = False
    """A gate on the output of shared experts."""
    latent: int | None = None
    """Width to which tokens are projected before the exchange, and back after."""
    dense_layers: int = field(default=0, metadata=MAY_BE_ZERO)
    """Leading layers with the model's plain MLP instead."""
    selection_bias: bool = False
    """A number per expert that steers the choice, untrained by gradient."""
    router_bias: bool = False
    """A trained number per expert."""

    def __post_init__(self) -> None:
        check_sizes(self)
        if self.top_k > self.experts:
            raise ValueError(f"`top_k` {self.top_k} is above `experts` {self.experts}")
        if not self.shared_experts and (self.shared_hidden or self.shared_gate):
            raise ValueError("`shared_hidden` and `shared_gate` go with `shared_experts`")

    @property
    def shared(self) -> Mlp:
        return replace(self.expert, hidden=self.shared_hidden or self.expert.hidden)


class Position(Record):
    """Encoding of up to `length` token positions.

    `learned` and `fixed` add a table to the input (`fixed` is untrained); `rotary` turns the first
    `rotary_size` dimensions of each head (all if unset); with `none` only mixing layers see the
    order.
    """

    encoding: Literal["learned", "fixed", "rotary", "none"]
    length: int
    rotary_base: float | None = None
    rotary_size: int | None = None

    def __post_init__(self) -> None:
        check_sizes(self)
        rotary = self.encoding == "rotary"
        if rotary != (self.rotary_base is not None) or (self.rotary_size and not rotary):
            raise ValueError("`rotary_base` goes with rotary encoding, and only with it")
        if self.rotary_base is not None and self.rotary_base <= 1:
            raise ValueError(f"`rotary_base` must be above 1, found {self.rotary_base}")


class Transformer(Record):
    """A stack of layers: equal but for leading dense ones, or listed by `pattern` of `kinds`."""

    layers: int
    hidden: int
    norm: Literal["rms", "layer", "plain"]
    """`rms` has a scale, `layer` a scale and a shift, `plain` neither."""
    norm_placement: Literal["pre", "post", "branch", "both"] = "pre"
    """`pre`: inputs of attention and MLP, and the final output; `post`: embeddings and residual
    sums; `branch`: additions to the stream, and the final output; `both`: inputs and additions.
    """
    norm_input: bool = False
    norm_final: bool = True
    residual: Literal["sequential", "parallel"] = "sequential"
    """`parallel`: attention and MLP read the same input."""
    dropout: bool = False
    """True when training drops embeddings and residual additions."""
    pattern: str | None = None
    kinds: dict[str, LayerKind] = field(default_factory=dict)
    attention: Attention | None = None
    scan: Scan | None = None
    mlp: Mlp | None = None
    moe: Moe | None = None
    position: Position

    def __post_init__(self) -> None:
        check_sizes(self)
        if self.layers > MAX_LAYERS:
            raise ValueError(f"`layers` {self.layers:,} are more than {MAX_LAYERS:,}")
        if (self.pattern is None) != (not self.kinds):
            raise ValueError("`pattern` lists the layers of `kinds`: expected both or neither")
        if self.pattern is None and self.attention is None:
            raise ValueError("expected `attention`, or a `pattern` of layers without any")
        if self.moe is not None and self.dense_layers >= self.layers:
            raise ValueError(
                f"`dense_layers` {self.dense_layers} of {self.layers} `layers` leave none with "
                "experts: leave out [transformer.moe]"
            )
        if self.pattern is not None:
            self._check_pattern()
        used = {
            part for kind in self.layer_kinds.values() for part in (kind.mixer, kind.feed_forward)
        }
        for part in ("attention", "scan", "mlp", "moe"):
            if (getattr(self, part) is None) == (part in used):
                raise ValueError(f"expected `{part}` where layers have one, and only there")
        if self.residual == "parallel" and not used <= {"attention", "mlp", "moe"}:
            raise ValueError("a parallel residual is for layers with attention and an MLP alone")

    def __hash__(self) -> int:
        """Hash of the fields that distinguish most models; tables of kinds are unhashable."""
        parts = (self.attention, self.scan, self.mlp, self.moe, self.position)
        return hash((self.layers, self.hidden, self.norm, self.pattern, *parts))

    def _check_pattern(self) -> None:
        order = layer_order(self.pattern or "")
        if set(order) != set(self.kinds):
            raise ValueError(
                f"`pattern` lists {sorted(set(order))}, `kinds` has {sorted(self.kinds)}"
            )
        if len(order) != self.layers:
            raise ValueError(f"`pattern` lists {len(order)} layers of {self.layers}")
        if self.moe is not None and self.moe.dense_layers:
            raise ValueError("`dense_layers` is for models without a `pattern`")

    @property
    def leading_dense(self) -> int:
        """Leading layers without experts, in models without a pattern."""
        return 0 if self.moe is None else self.moe.dense_layers

    @property
    def layer_kinds(self) -> Mapping[str, LayerKind]:
        """Kinds of layers by name; `dense` and `moe` in models without a pattern."""
        if self.kinds:
            return self.kinds
        if self.moe is None:
            return {"dense": _DENSE}
        return {"dense": _DENSE, "moe": _MOE} if self.dense_layers else {"moe": _MOE}

    @property
    def order(self) -> tuple[str, ...]:
        """The kind of every layer, from first to last."""
        if self.pattern is not None:
            return layer_order(self.pattern)
        dense = self.dense_layers
        return ("dense",) * dense + ("moe",) * (self.layers - dense)

    @property
    def last(self) -> str:
        """The kind of the last layer."""
        if self.pattern is not None:
            return self.order[-1]
        return "dense" if self.moe is None else "moe"

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of layers of each kind, kinds in the order in which they first stand."""
        if self.pattern is not None:
            return Counter(self.order)
        dense = self.dense_layers
        counts = {"dense": dense, "moe": self.layers - dense}
        return {kind: counts[kind] for kind in self.layer_kinds}

    def of_kind(self, name: str) -> Transformer:
        """One layer of a kind, as a one-layer model."""
        kind, attention = self.layer_kinds[name], self.attention
        if attention is not None and (kind.window or kind.chunk):
            attention = replace(attention, window=kind.window, chunk=kind.chunk)
        moe = self.moe if kind.feed_forward == "moe" else None
        plain = not kind.rotary and self.position.encoding == "rotary"
        # The kind's window moves to the attention, where formulas of models without kinds look.
        return replace(
            self,
            layers=1,
            pattern=name,
            kinds={name: replace(kind, window=None, chunk=None)},
            attention=attention if kind.mixer == "attention" else None,
            scan=self.scan if kind.mixer == "scan" else None,
            mlp=self.mlp if kind.feed_forward == "mlp" else None,
            moe=None if moe is None else replace(moe, dense_layers=0),
            position=Position(encoding="none", length=self.position.length)
            if plain
            else self.position,
            residual=self.residual if self.pattern is None else "sequential",
        )

    @property
    def causal(self) -> bool:
        return self.attention is None or self.attention.causal

    @property
    def dense_layers(self) -> int:
        return self.layers if self.moe is None else self.moe.dense_layers


class Vocabulary(Record):
    """The tokens of a text model."""

    size: int
    tied: bool
    """True when the embedding also serves as output weights."""
    bias: bool = False
    """True when the output projection has a bias."""
    token_types: int = field(default=0, metadata=MAY_BE_ZERO)
    predicted_ratio: Ratio = 1.0
    """Share of positions whose token the training objective predicts."""

    def __post_init__(self) -> None:
        check_sizes(self)
        if not 0 < self.predicted_ratio <= 1:
            raise ValueError(f"`predicted` must be above 0 and at most 1: {self.predicted_ratio}")


class Image(Record):
    """A square image (or latent) cut into square patches; each patch is a token."""

    size: int
    channels: int
    patch: int
    class_token: bool = False
    bias: bool = True
    """Bias of the patch projection."""

    def __post_init__(self) -> None:
        check_sizes(self)
        if self.size % self.patch:
            raise ValueError(f"`patch` {self.patch} does not divide `size` {self.size}")

    @property
    def tokens(self) -> int:
        return (self.size // self.patch) ** 2 + self.class_token


class Diffusion(Sized):
    """Inputs of a denoiser besides the image (time step, label), and its output."""

    time_features: int
    labels: int
    """Class labels, including the one for "none"."""
    output_channels: int


class Head(Sized):
    """Parts after the last layer of an encoder."""

    pooler: bool = False
    attention_pool: bool = False
    """A learned query attends to all tokens; an MLP follows."""
    transform: bool = False
    """A projection and a norm before the output projection of a vocabulary."""
    classes: int | None = None


class Tower(Record):
    """A vision encoder of a decoder: its projected tokens join those of the text."""

    image: Image
    transformer: Transformer
    projector: tuple[int, ...]
    projector_norm: bool = False
    tokens: int
    """Decoder tokens per image."""
    images: int = 1
    """Images per sample."""

    def __post_init__(self) -> None:
        check_sizes(self)
        width = self.projector[0] if self.projector else 0
        if len(self.projector) < 2 or width % self.transformer.hidden:
            raise ValueError("`projector` lists its widths, the first a multiple of the tower's")
        if self.transformer.causal or len(set(self.transformer.order)) > 1:
            raise ValueError("a tower's layers are alike, and their attention is not causal")


class Published(Record):
    """Parameter count stated by the publisher, exact unless a tolerance is given."""

    parameters: Total
    tolerance_ratio: Ratio = 0.0

    def agrees(self, count: int) -> bool:
        return abs(count - self.parameters) <= self.tolerance_ratio * self.parameters


class Model(Sourced):
    """A transformer or recommender, with its inputs and outputs."""

    name: str
    title: str
    aliases: tuple[str, ...] = ()
    transformer: Transformer | None = None
    vocabulary: Vocabulary | None = None
    image: Image | None = None
    diffusion: Diffusion | None = None
    head: Head = Head()
    tower: Tower | None = None
    recommender: Recommender | None = None
    mtp_depths: int = 0
    """Further tokens predicted, each by a module of its own (arXiv 2412.19437).

    A module joins the stream with the next token's embedding, in one more layer like the last.
    """
    published: Published | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.mtp_depths <= MOST_DEPTHS:
            raise ValueError(f"`mtp_depths` must be from 0 to {MOST_DEPTHS}: {self.mtp_depths}")
        around = (self.vocabulary, self.image, self.diffusion)
        if (self.transformer is None) == (self.recommender is None):
            raise ValueError("expected either [transformer] or [recommender]")
        if self.recommender is not None and (any(around) or self.head != Head()):
            raise ValueError("a recommender has no [vocabulary], [image], [diffusion] or [head]")
        if self.transformer is None:
            return
        if (self.vocabulary is None) == (self.image is None):
            raise ValueError("expected either [vocabulary] or [image]")
        position = self.transformer.position
        if self.image is not None and position.length != self.image.tokens:
            raise ValueError(
                f"`transformer.position.length` is {position.length}; "
                f"the image has {self.image.tokens} tokens"
            )
        if self.image is not None and self.transformer.causal:
            raise ValueError("attention over an image is not causal")
        if self.diffusion is not None and self.image is None:
            raise ValueError("[diffusion] needs [image]")
        if self.tower is not None and (
            self.image is not None or self.tower.projector[-1] != self.transformer.hidden
        ):
            raise ValueError(
                "[tower] needs a text model, and its `projector` must end as wide as that"
            )
        if self.mtp_depths and (why := self.without_depths):
            raise ValueError(f"`mtp_depths`: {why}")

    @property
    def family(self) -> Family:
        """The family of the model."""
        if self.transformer is None:
            return "recommender"
        if self.image is not None:
            return "vision" if self.diffusion is None else "diffusion"
        return "decoder" if self.transformer.causal else "encoder"

    @property
    def without_depths(self) -> str:
        """Reason against multi-token prediction; empty if possible."""
        transformer = self.transformer
        if transformer is None or self.family != "decoder" or self.diffusion is not None:
            return "only decoders predict further tokens"
        if transformer.position.encoding in ("learned", "fixed"):
            return "a depth embeds tokens without a table of positions, and this model has one"
        if transformer.norm_placement == "post" or transformer.norm_input:
            return "a depth norms the embeddings itself, and this model's are normed before"
        kind = transformer.layer_kinds[transformer.last]
        if "none" in (kind.mixer, kind.feed_forward):
            return "a depth is a layer like the last, which has no mixer or no feed-forward part"
        return ""

    def with_depths(self, depths: int | None) -> Model:
        """The model with `depths` modules of multi-token prediction, where it can have them."""
        if depths is None or self.without_depths:
            return self
        return replace(self, mtp_depths=depths)
