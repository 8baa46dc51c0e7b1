"""A model as its publisher describes it: shapes and structure, no batch, no layout, no hardware.

A model is either a transformer or a recommender. What surrounds the transformer tells its family:

    vocabulary, causal attention      decoder
    vocabulary, two-way attention     encoder
    image                             vision
    image and diffusion               diffusion
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from trnbench.facts.catalog.provenance import Sourced
from trnbench.facts.catalog.quantity import Ratio, Total
from trnbench.facts.records import Record, field, replace
from trnbench.facts.workload.layers import MAX_LAYERS, LayerKind, Scan, layer_order
from trnbench.facts.workload.recommender import Recommender
from trnbench.facts.workload.sizes import MAY_BE_ZERO, MOST_DEPTHS, check_sizes

Activation = Literal["gelu", "relu", "relu2", "silu"]
Family = Literal["decoder", "encoder", "vision", "diffusion", "recommender"]
ROTARY_BASE = 10_000.0
"""Of models that name none (RoFormer, arXiv 2104.09864)."""


class Latent(Record):
    """Multi-head latent attention: queries, keys and values pass through low-rank projections.

    Each head adds `rope_head_size` rotated dimensions to its query; the rotated key part is shared
    by all heads. Without `query_rank` the query is projected at once.
    """

    kv_rank: int
    query_rank: int | None = None
    rope_head_size: int
    value_head_size: int

    def __post_init__(self) -> None:
        """Refuse sizes out of bounds."""
        check_sizes(self)


class Attention(Record):
    """The attention of a layer; `head_size` is that of queries and keys without a rotated part.

    `biases` says which projections have one; `window` bounds how far back a token looks (to both
    sides together where it is not causal), and `chunk` cuts the sequence into pieces that do not
    see each other. The norm of queries and keys is `over` each head or all of them at once.
    `sinks`: a number for each head in the softmax's sum. `output_gate`: a gate as wide as the
    queries. `dropout`: whether training drops out attention weights.
    """

    heads: int
    kv_heads: int
    head_size: int
    causal: bool
    biases: Literal["none", "qkv", "all"] = "none"
    query_key_norm: bool = False
    query_key_norm_over: Literal["head", "all"] = "head"
    sinks: bool = False
    output_gate: bool = False
    dropout: bool = False
    window: int | None = None
    chunk: int | None = None
    latent: Latent | None = None

    def __post_init__(self) -> None:
        """Refuse heads that cannot share key-value heads evenly."""
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
        """The usual name of this way of sharing keys and values."""
        if self.latent is not None:
            return "MLA"
        if self.kv_heads == self.heads:
            return "MHA"
        return "MQA" if self.kv_heads == 1 else "GQA"


class Mlp(Record):
    """A feed-forward network of inner width `hidden`; a gated one has a second input projection."""

    hidden: int
    gated: bool
    activation: Activation
    biases: bool = False

    def __post_init__(self) -> None:
        """Refuse sizes out of bounds."""
        check_sizes(self)


class Moe(Record):
    """A mixture of experts: each token visits `top_k` of `experts`, and every shared expert.

    The first `dense_layers` layers have the model's plain MLP instead. `selection_bias` is a number
    per expert that steers the choice and is not trained by gradient; `router_bias` one that is.
    Shared experts are `shared_hidden` wide, or as the others; `shared_gate` weighs their answer.
    With `latent` tokens are projected to that width before they travel, and back after it.
    """

    experts: int
    top_k: int
    expert: Mlp
    shared_experts: int = field(default=0, metadata=MAY_BE_ZERO)
    shared_hidden: int | None = None
    shared_gate: bool = False
    latent: int | None = None
    dense_layers: int = field(default=0, metadata=MAY_BE_ZERO)
    selection_bias: bool = False
    router_bias: bool = False

    def __post_init__(self) -> None:
        """Refuse a choice of more experts than there are."""
        check_sizes(self)
        if self.top_k > self.experts:
            raise ValueError(f"`top_k` {self.top_k} is above `experts` {self.experts}")
        if not self.shared_experts and (self.shared_hidden or self.shared_gate):
            raise ValueError("`shared_hidden` and `shared_gate` go with `shared_experts`")

    @property
    def shared(self) -> Mlp:
        """What a shared expert is."""
        return replace(self.expert, hidden=self.shared_hidden or self.expert.hidden)


class Position(Record):
    """How tokens know their place, up to `length` of them.

    `learned` and `fixed` add a table to the input (`fixed` is not trained); `rotary` turns the
    first `rotary_size` dimensions of each head (all of them when not given); with `none` order is
    known by what mixes tokens alone.
    """

    encoding: Literal["learned", "fixed", "rotary", "none"]
    length: int
    rotary_base: float | None = None
    rotary_size: int | None = None

    def __post_init__(self) -> None:
        """Refuse a rotary base with another encoding, and its absence with this one."""
        check_sizes(self)
        rotary = self.encoding == "rotary"
        if rotary != (self.rotary_base is not None) or (self.rotary_size and not rotary):
            raise ValueError("`rotary_base` goes with rotary encoding, and only with it")
        if self.rotary_base is not None and self.rotary_base <= 1:
            raise ValueError(f"`rotary_base` must be above 1, found {self.rotary_base}")


class Transformer(Record):
    """A stack of layers: equal ones but for the leading dense ones of a mixture of experts, or
    those that `pattern` lists, by the names of `kinds`.

    `rms` has a scale, `layer` a scale and a shift, `plain` neither. `pre` normalises the input of
    attention and MLP and the last output, `post` the embeddings and the residual sums, `branch`
    what is added to the stream and the last output, `both` input and what is added. `norm_input`:
    the embeddings too; without `norm_final` not the last output. A parallel residual feeds
    attention and MLP from the same input. `dropout`: whether training drops out embeddings and what
    is added to the residual stream.
    """

    layers: int
    hidden: int
    norm: Literal["rms", "layer", "plain"]
    norm_placement: Literal["pre", "post", "branch", "both"] = "pre"
    norm_input: bool = False
    norm_final: bool = True
    residual: Literal["sequential", "parallel"] = "sequential"
    dropout: bool = False
    pattern: str | None = None
    kinds: dict[str, LayerKind] = field(default_factory=dict)
    attention: Attention | None = None
    scan: Scan | None = None
    mlp: Mlp | None = None
    moe: Moe | None = None
    position: Position

    def __post_init__(self) -> None:
        """Refuse layers without a feed-forward part, and parts that no layer has."""
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
        """Return a hash of what tells most models apart; tables of kinds have none."""
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
        """The layers without experts in front of those with, of models without a pattern."""
        return 0 if self.moe is None else self.moe.dense_layers

    @property
    def layer_kinds(self) -> Mapping[str, LayerKind]:
        """Kinds of layers by name; of models without a pattern `dense` and `moe`."""
        if self.kinds:
            return self.kinds
        dense = {"dense": LayerKind()} if self.dense_layers else {}
        return dense if self.moe is None else {**dense, "moe": LayerKind(feed_forward="moe")}

    @property
    def order(self) -> tuple[str, ...]:
        """The kind of every layer, from the first to the last."""
        if self.pattern is not None:
            return layer_order(self.pattern)
        dense = self.dense_layers
        return ("dense",) * dense + ("moe",) * (self.layers - dense)

    def of_kind(self, name: str) -> Transformer:
        """Return one layer of a kind, as a model of it alone."""
        kind, attention = self.layer_kinds[name], self.attention
        if attention is not None and (kind.window or kind.chunk):
            attention = replace(attention, window=kind.window, chunk=kind.chunk)
        moe = self.moe if kind.feed_forward == "moe" else None
        plain = not kind.rotary and self.position.encoding == "rotary"
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
        """Whether no token sees a later one."""
        return self.attention is None or self.attention.causal

    @property
    def dense_layers(self) -> int:
        """The number of layers with a plain MLP."""
        return self.layers if self.moe is None else self.moe.dense_layers


class Vocabulary(Record):
    """The tokens of a text model; `tied` uses the embedding as output weights too.

    `bias`: the output projection has one. `predicted` is the share of positions whose token the
    training objective predicts.
    """

    size: int
    tied: bool
    bias: bool = False
    token_types: int = field(default=0, metadata=MAY_BE_ZERO)
    predicted_ratio: Ratio = 1.0

    def __post_init__(self) -> None:
        """Refuse a share outside (0, 1]."""
        check_sizes(self)
        if not 0 < self.predicted_ratio <= 1:
            raise ValueError(f"`predicted` must be above 0 and at most 1: {self.predicted_ratio}")


class Image(Record):
    """A square image (or latent) cut into square patches; each is a token, and a class token is.

    `bias`: the projection of patches has one.
    """

    size: int
    channels: int
    patch: int
    class_token: bool = False
    bias: bool = True

    def __post_init__(self) -> None:
        """Refuse patches that do not tile the image."""
        check_sizes(self)
        if self.size % self.patch:
            raise ValueError(f"`patch` {self.patch} does not divide `size` {self.size}")

    @property
    def tokens(self) -> int:
        """The number of tokens of one image."""
        return (self.size // self.patch) ** 2 + self.class_token


class Diffusion(Record):
    """The inputs of a denoiser besides the image, time step and label, and its output.

    `labels` counts the class labels and the one for "none".
    """

    time_features: int
    labels: int
    output_channels: int

    def __post_init__(self) -> None:
        """Refuse sizes out of bounds."""
        check_sizes(self)


class Head(Record):
    """What follows the last layer of an encoder: a pooler, a classifier of so many classes.

    `attention_pool`: a query that is learned attends to all tokens, an MLP follows. `transform`: a
    projection and a norm before the output projection of a vocabulary.
    """

    pooler: bool = False
    attention_pool: bool = False
    transform: bool = False
    classes: int | None = None

    def __post_init__(self) -> None:
        """Refuse sizes out of bounds."""
        check_sizes(self)


class Tower(Record):
    """A vision encoder beside a decoder: its tokens, projected, stand among those of the text.

    An image becomes `tokens` of the decoder, by way of layers of the widths that `projector` lists
    (a norm first if `projector_norm`). A sample has `images` of them.
    """

    image: Image
    transformer: Transformer
    projector: tuple[int, ...]
    projector_norm: bool = False
    tokens: int
    images: int = 1

    def __post_init__(self) -> None:
        """Refuse projectors that do not start from the encoder's output, and what is no encoder."""
        check_sizes(self)
        width = self.projector[0] if self.projector else 0
        if len(self.projector) < 2 or width % self.transformer.hidden:
            raise ValueError("`projector` lists its widths, the first a multiple of the tower's")
        if self.transformer.causal or len(set(self.transformer.order)) > 1:
            raise ValueError("a tower's layers are alike, and their attention is not causal")


class Published(Record):
    """The parameter count that its makers state: exact unless a tolerance is given."""

    parameters: Total
    tolerance_ratio: Ratio = 0.0

    def agrees(self, count: int) -> bool:
        """Return whether a counted number of parameters is the published one."""
        return abs(count - self.parameters) <= self.tolerance_ratio * self.parameters


class Model(Sourced):
    """A model; of `mtp_depths` further tokens a module of its own predicts each (arXiv 2412.19437).

    A depth joins the stream with the next token's embedding, and is one more layer like the last.
    """

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
    published: Published | None = None

    def __post_init__(self) -> None:
        """Refuse tables that do not make up one of the families."""
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
            raise ValueError("[tower] stands beside text, its `projector` ends as wide as that")
        if self.mtp_depths and (why := self.without_depths):
            raise ValueError(f"`mtp_depths`: {why}")

    @property
    def family(self) -> Family:
        """What kind of model this is."""
        if self.transformer is None:
            return "recommender"
        if self.image is not None:
            return "vision" if self.diffusion is None else "diffusion"
        return "decoder" if self.transformer.causal else "encoder"

    @property
    def without_depths(self) -> str:
        """Why no depths can predict further tokens; empty where they can."""
        transformer = self.transformer
        if transformer is None or self.family != "decoder" or self.diffusion is not None:
            return "only decoders predict further tokens"
        if transformer.position.encoding in ("learned", "fixed"):
            return "a depth embeds tokens without a table of positions, and this model has one"
        if transformer.norm_placement == "post" or transformer.norm_input:
            return "a depth norms the embeddings itself, and this model's are normed before"
        kind = transformer.layer_kinds[transformer.order[-1]]
        if "none" in (kind.mixer, kind.feed_forward):
            return "a depth is a layer like the last, which has no mixer or no feed-forward part"
        return ""

    def with_depths(self, depths: int | None) -> Model:
        """Return it with so many depths; as it is where none is said, or it can have none."""
        if depths is None or self.without_depths:
            return self
        return replace(self, mtp_depths=depths)
