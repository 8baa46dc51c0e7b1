"""A model as its publisher describes it: shapes and structure, no batch, no layout, no hardware.

A model is either a transformer or a recommender. What surrounds the transformer tells its family:

    vocabulary, causal attention      decoder
    vocabulary, two-way attention     encoder
    image                             vision
    image and diffusion               diffusion
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import attrs

from trnbench.catalog.provenance import Provenance
from trnbench.catalog.quantity import Ratio
from trnbench.workload.sizes import MAY_BE_ZERO, check_sizes

Activation = Literal["gelu", "relu", "silu"]
Family = Literal["decoder", "encoder", "vision", "diffusion", "recommender"]
ROTARY_BASE = 10_000.0
"""Of models that name none (RoFormer, arXiv 2104.09864)."""


@attrs.frozen(kw_only=True)
class Latent:
    """Multi-head latent attention: queries, keys and values pass through low-rank projections.

    Each head adds `rope_head_size` rotated dimensions to its query; the rotated key part is shared
    by all heads. Without `query_rank` the query is projected at once.
    """

    kv_rank: int
    query_rank: int | None = None
    rope_head_size: int
    value_head_size: int

    def __attrs_post_init__(self) -> None:
        """Refuse sizes out of bounds."""
        check_sizes(self)


@attrs.frozen(kw_only=True)
class Attention:
    """The attention of a layer; `head_size` is that of queries and keys without a rotated part.

    `biases` says which projections have one; `window` bounds how far back a token looks. `dropout`:
    whether training drops out attention weights.
    """

    heads: int
    kv_heads: int
    head_size: int
    causal: bool
    biases: Literal["none", "qkv", "all"] = "none"
    query_key_norm: bool = False
    dropout: bool = False
    window: int | None = None
    latent: Latent | None = None

    def __attrs_post_init__(self) -> None:
        """Refuse heads that cannot share key-value heads evenly."""
        check_sizes(self)
        if self.heads % self.kv_heads:
            raise ValueError(f"`kv_heads` {self.kv_heads} does not divide `heads` {self.heads}")
        if self.latent is not None and (self.biases != "none" or self.kv_heads != self.heads):
            raise ValueError("latent attention has no biases, and as many `kv_heads` as `heads`")

    @property
    def variant(self) -> Literal["MHA", "GQA", "MQA", "MLA"]:
        """The usual name of this way of sharing keys and values."""
        if self.latent is not None:
            return "MLA"
        if self.kv_heads == self.heads:
            return "MHA"
        return "MQA" if self.kv_heads == 1 else "GQA"


@attrs.frozen(kw_only=True)
class Mlp:
    """A feed-forward network of inner width `hidden`; a gated one has a second input projection."""

    hidden: int
    gated: bool
    activation: Activation
    biases: bool = False

    def __attrs_post_init__(self) -> None:
        """Refuse sizes out of bounds."""
        check_sizes(self)


@attrs.frozen(kw_only=True)
class Moe:
    """A mixture of experts: each token visits `top_k` of `experts`, and every shared expert.

    The first `dense_layers` layers have the model's plain MLP instead. `selection_bias` is a number
    per expert that steers the choice and is not trained by gradient.
    """

    experts: int
    top_k: int
    expert: Mlp
    shared_experts: int = attrs.field(default=0, metadata=MAY_BE_ZERO)
    dense_layers: int = attrs.field(default=0, metadata=MAY_BE_ZERO)
    selection_bias: bool = False

    def __attrs_post_init__(self) -> None:
        """Refuse a choice of more experts than there are."""
        check_sizes(self)
        if self.top_k > self.experts:
            raise ValueError(f"`top_k` {self.top_k} is above `experts` {self.experts}")
        if self.expert.biases:
            raise ValueError("experts have no biases")


@attrs.frozen(kw_only=True)
class Position:
    """How tokens know their place, up to `length` of them.

    `learned` and `fixed` add a table to the input (`fixed` is not trained); `rotary` turns the
    first `rotary_size` dimensions of each head (all of them when not given).
    """

    encoding: Literal["learned", "fixed", "rotary"]
    length: int
    rotary_base: float | None = None
    rotary_size: int | None = None

    def __attrs_post_init__(self) -> None:
        """Refuse a rotary base with another encoding, and its absence with this one."""
        check_sizes(self)
        rotary = self.encoding == "rotary"
        if rotary != (self.rotary_base is not None) or (self.rotary_size and not rotary):
            raise ValueError("`rotary_base` goes with rotary encoding, and only with it")
        if self.rotary_base is not None and self.rotary_base <= 1:
            raise ValueError(f"`rotary_base` must be above 1, found {self.rotary_base}")


@attrs.frozen(kw_only=True)
class Transformer:
    """A stack of equal layers, but for the leading dense ones of a mixture of experts.

    `rms` has a scale, `layer` a scale and a shift, `plain` neither. `pre` normalises the input of
    attention and MLP and the last output, `post` the embeddings and the residual sums. A parallel
    residual feeds attention and MLP from the same input. `dropout`: whether training drops out
    embeddings and what is added to the residual stream.
    """

    layers: int
    hidden: int
    norm: Literal["rms", "layer", "plain"]
    norm_placement: Literal["pre", "post"] = "pre"
    residual: Literal["sequential", "parallel"] = "sequential"
    dropout: bool = False
    attention: Attention
    mlp: Mlp | None = None
    moe: Moe | None = None
    position: Position

    def __attrs_post_init__(self) -> None:
        """Refuse layers without a feed-forward part, and parts that no layer has."""
        check_sizes(self)
        if (self.mlp is None) == (self.dense_layers > 0):
            raise ValueError("expected `mlp` where there are dense layers, and only there")
        if self.dense_layers > self.layers:
            raise ValueError(f"`dense_layers` {self.dense_layers} is above `layers` {self.layers}")

    @property
    def dense_layers(self) -> int:
        """The number of layers with a plain MLP."""
        return self.layers if self.moe is None else self.moe.dense_layers


@attrs.frozen(kw_only=True)
class Vocabulary:
    """The tokens of a text model; `tied` uses the embedding as output weights too.

    `predicted` is the share of positions whose token the training objective predicts.
    """

    size: int
    tied: bool
    token_types: int = attrs.field(default=0, metadata=MAY_BE_ZERO)
    predicted_ratio: Ratio = 1.0

    def __attrs_post_init__(self) -> None:
        """Refuse a share outside (0, 1]."""
        check_sizes(self)
        if not 0 < self.predicted_ratio <= 1:
            raise ValueError(f"`predicted` must be above 0 and at most 1: {self.predicted_ratio}")


@attrs.frozen(kw_only=True)
class Image:
    """A square image (or latent) cut into square patches; each is a token, and a class token is."""

    size: int
    channels: int
    patch: int
    class_token: bool = False

    def __attrs_post_init__(self) -> None:
        """Refuse patches that do not tile the image."""
        check_sizes(self)
        if self.size % self.patch:
            raise ValueError(f"`patch` {self.patch} does not divide `size` {self.size}")

    @property
    def tokens(self) -> int:
        """The number of tokens of one image."""
        return (self.size // self.patch) ** 2 + self.class_token


@attrs.frozen(kw_only=True)
class Diffusion:
    """The inputs of a denoiser besides the image, time step and label, and its output.

    `labels` counts the class labels and the one for "none".
    """

    time_features: int
    labels: int
    output_channels: int

    def __attrs_post_init__(self) -> None:
        """Refuse sizes out of bounds."""
        check_sizes(self)


@attrs.frozen(kw_only=True)
class Head:
    """What follows the last layer of an encoder: a pooler, a classifier of so many classes."""

    pooler: bool = False
    classes: int | None = None

    def __attrs_post_init__(self) -> None:
        """Refuse sizes out of bounds."""
        check_sizes(self)


@attrs.frozen(kw_only=True)
class Recommender:
    """Embedding tables and two MLPs around low-rank cross layers (DCN v2).

    Table i has `rows[i]` rows, of which a sample looks up `lookups[i]` and adds them up. `bottom`
    and `top` are the output widths of the MLPs on the dense features and on the crossed features.
    """

    dense_features: int
    embedding_size: int
    rows: tuple[int, ...]
    lookups: tuple[int, ...]
    bottom: tuple[int, ...]
    cross_layers: int
    cross_rank: int
    top: tuple[int, ...]

    def __attrs_post_init__(self) -> None:
        """Refuse lists that do not belong together."""
        check_sizes(self)
        if not self.rows or len(self.rows) != len(self.lookups):
            raise ValueError("`rows` and `lookups` need one number for each table, and a table")
        if not self.top or not self.bottom or self.bottom[-1] != self.embedding_size:
            raise ValueError("`bottom` must end with `embedding_size`, and `top` not be empty")

    @property
    def crossed_features(self) -> int:
        """The width of the cross layers: every embedding and the bottom MLP's output."""
        return (len(self.rows) + 1) * self.embedding_size

    @property
    def bottom_widths(self) -> tuple[tuple[int, int], ...]:
        """(input, output) width of each layer of the bottom MLP."""
        return tuple(pairwise((self.dense_features, *self.bottom)))

    @property
    def top_widths(self) -> tuple[tuple[int, int], ...]:
        """(input, output) width of each layer of the top MLP."""
        return tuple(pairwise((self.crossed_features, *self.top)))


@attrs.frozen(kw_only=True)
class Published:
    """The parameter count that its makers state: exact unless a tolerance is given."""

    parameters: int
    tolerance_ratio: Ratio = 0.0

    def agrees(self, count: int) -> bool:
        """Return whether a counted number of parameters is the published one."""
        return abs(count - self.parameters) <= self.tolerance_ratio * self.parameters


@attrs.frozen(kw_only=True)
class Model:
    """A model."""

    name: str
    title: str
    aliases: tuple[str, ...] = ()
    transformer: Transformer | None = None
    vocabulary: Vocabulary | None = None
    image: Image | None = None
    diffusion: Diffusion | None = None
    head: Head = Head()
    recommender: Recommender | None = None
    published: Published | None = None
    provenance: Provenance = attrs.field(
        factory=Provenance, repr=False, eq=False, metadata={"derived": True}
    )

    def __attrs_post_init__(self) -> None:
        """Refuse tables that do not make up one of the families."""
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
        if self.image is not None and self.transformer.attention.causal:
            raise ValueError("attention over an image is not causal")
        if self.diffusion is not None and self.image is None:
            raise ValueError("[diffusion] needs [image]")

    @property
    def family(self) -> Family:
        """What kind of model this is."""
        if self.transformer is None:
            return "recommender"
        if self.image is not None:
            return "vision" if self.diffusion is None else "diffusion"
        return "decoder" if self.transformer.attention.causal else "encoder"
