"""Kinds of layers, their order, scans (state-space layers), and the layers of a recommender.

A pattern is a list of names with repeats: "(sliding*5 full)*5 sliding*4".
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Literal

from trnbench.facts.records import Record, check_sizes

Mixer = Literal["attention", "scan", "none"]
FeedsForward = Literal["mlp", "moe", "none"]
MAX_LAYERS = 10_000
_TOKEN = re.compile(r"\s*(\(|\)|[a-z][a-z0-9-]*|\*\s*\d{1,5})")


class Scan(Record):
    """A per-head state that tokens update in turn, computed in chunks of `chunk` tokens.

    `mamba-2`: state-space duality (arXiv 2405.21060); `gated-delta`: the gated delta rule (arXiv
    2412.06464).
    """

    form: Literal["mamba-2", "gated-delta"]
    heads: int
    head_size: int
    key_heads: int
    """Heads of keys and queries (B and C of `mamba-2`), shared by groups of heads."""
    state_size: int
    """A state has `state_size` x `head_size` numbers."""
    convolution: int = 4
    """Tokens of the convolution in front; 0 is invalid."""
    convolution_bias: bool = False
    chunk: int

    def __post_init__(self) -> None:
        check_sizes(self)
        if self.heads % self.key_heads:
            raise ValueError(f"`key_heads` {self.key_heads} does not divide `heads` {self.heads}")


class LayerKind(Record):
    """Parts of the layers of a kind; a layer of a single part has one norm."""

    mixer: Mixer = "attention"
    feed_forward: FeedsForward = "mlp"
    window: int | None = None
    """Attention window; `chunk`: attention chunk; both override the model's."""
    chunk: int | None = None
    rotary: bool = True
    """False: the attention ignores positions."""
    first_norm: bool = True
    """False: the first part reads the residual stream without a norm."""

    def __post_init__(self) -> None:
        check_sizes(self)
        if self.mixer == self.feed_forward == "none":
            raise ValueError("a layer needs a `mixer` or a `feed_forward`")
        if self.mixer != "attention" and (self.window or self.chunk):
            raise ValueError("only attention has a `window` or a `chunk`")


def layer_order(pattern: str) -> tuple[str, ...]:
    """Kind of every layer of a pattern; ValueError for an invalid pattern."""
    stack: list[list[str]] = [[]]
    last: list[str] = []
    at = 0
    text = pattern.strip()
    while at < len(text):
        matched = _TOKEN.match(text, at)
        if matched is None:
            raise ValueError(f"`pattern` is not understood from {text[at : at + 20]!r} on")
        token, at = matched[1], matched.end()
        if token == "(":
            stack.append([])
        elif token == ")":
            if len(stack) == 1:
                raise ValueError("`pattern` closes a bracket that is not open")
            last = stack.pop()
            stack[-1] += last
        elif token.startswith("*"):
            times = int(token[1:])
            if not last or not times or len(last) * times > MAX_LAYERS:
                raise ValueError(f"`pattern` repeats nothing, or too much: {token!r}")
            stack[-1] += last * (times - 1)
            last = []
        else:
            last = [token]
            stack[-1] += last
    if len(stack) > 1 or not stack[0] or len(stack[0]) > MAX_LAYERS:
        raise ValueError("`pattern` leaves a bracket open, is empty or too long")
    return tuple(stack[0])


def as_pattern(order: tuple[str, ...]) -> str:
    """The shortest pattern for these layers, of one repeated group or of runs."""
    spelled = [_runs(order)]
    for size in range(2, len(order) // 2 + 1):
        times = 1
        while order[times * size : (times + 1) * size] == order[:size]:
            times += 1
        if times > 1:
            rest = order[times * size :]
            spelled.append(
                f"({_runs(order[:size])})*{times}" + (f" {as_pattern(rest)}" if rest else "")
            )
    return min(spelled, key=len)


def _runs(order: tuple[str, ...]) -> str:
    runs: list[tuple[str, int]] = []
    for name in order:
        if runs and runs[-1][0] == name:
            runs[-1] = name, runs[-1][1] + 1
        else:
            runs.append((name, 1))
    return " ".join(name if times == 1 else f"{name}*{times}" for name, times in runs)


class Recommender(Record):
    """Embedding tables and two MLPs around low-rank cross layers (DCN v2)."""

    dense_features: int
    embedding_size: int
    rows: tuple[int, ...]
    lookups: tuple[int, ...]
    """Rows of each table that a sample reads and sums."""
    bottom: tuple[int, ...]
    """Output widths of the MLP on the dense features."""
    cross_layers: int
    cross_rank: int
    top: tuple[int, ...]
    """Output widths of the MLP on the crossed features."""

    def __post_init__(self) -> None:
        check_sizes(self)
        if not self.rows or len(self.rows) != len(self.lookups):
            raise ValueError("`rows` and `lookups` need one number for each table, and a table")
        if not self.top or not self.bottom or self.bottom[-1] != self.embedding_size:
            raise ValueError("`bottom` must end with `embedding_size`, and `top` not be empty")

    @property
    def crossed_features(self) -> int:
        """Width of the cross layers: every embedding and the bottom MLP's output."""
        return (len(self.rows) + 1) * self.embedding_size

    @property
    def bottom_widths(self) -> tuple[tuple[int, int], ...]:
        return tuple(pairwise((self.dense_features, *self.bottom)))

    @property
    def top_widths(self) -> tuple[tuple[int, int], ...]:
        return tuple(pairwise((self.crossed_features, *self.top)))
