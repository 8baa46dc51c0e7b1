"""Kinds of layers, in which order they stand, and the scan that some have instead of attention.

A pattern is names with repeats: "(sliding*5 full)*5 sliding*4".
"""

from __future__ import annotations

import re
from typing import Literal

from trnbench.facts.records import Record
from trnbench.facts.workload.sizes import check_sizes

Mixer = Literal["attention", "scan", "none"]
FeedsForward = Literal["mlp", "moe", "none"]
MAX_LAYERS = 10_000
_TOKEN = re.compile(r"\s*(\(|\)|[a-z][a-z0-9-]*|\*\s*\d{1,5})")


class Scan(Record):
    """A state for each head that tokens update in turn, computed in chunks of `chunk` tokens.

    `mamba-2`: state-space duality (arXiv 2405.21060); `gated-delta`: the gated delta rule (arXiv
    2412.06464). A state has `state_size` x `head_size` numbers. Heads share the keys and queries
    of `key_heads` (B and C of `mamba-2`, in groups). In front stands a convolution over so many
    tokens.
    """

    form: Literal["mamba-2", "gated-delta"]
    heads: int
    head_size: int
    key_heads: int
    state_size: int
    convolution: int = 4
    convolution_bias: bool = False
    chunk: int

    def __post_init__(self) -> None:
        """Refuse heads that cannot share keys evenly."""
        check_sizes(self)
        if self.heads % self.key_heads:
            raise ValueError(f"`key_heads` {self.key_heads} does not divide `heads` {self.heads}")


class LayerKind(Record):
    """What stands in the layers of a kind; a layer of one part alone has one norm.

    `window` and `chunk` bound what its attention sees, before what the model's says. Without
    `rotary` its attention knows no positions; without `first_norm` the first part reads the stream.
    """

    mixer: Mixer = "attention"
    feed_forward: FeedsForward = "mlp"
    window: int | None = None
    chunk: int | None = None
    rotary: bool = True
    first_norm: bool = True

    def __post_init__(self) -> None:
        """Refuse layers without any part, and windows of what is no attention."""
        check_sizes(self)
        if self.mixer == self.feed_forward == "none":
            raise ValueError("a layer needs a `mixer` or a `feed_forward`")
        if self.mixer != "attention" and (self.window or self.chunk):
            raise ValueError("only attention has a `window` or a `chunk`")


def layer_order(pattern: str) -> tuple[str, ...]:
    """Return the kind of every layer that a pattern lists; raise ValueError if it is none."""
    stack: list[list[str]] = [[]]
    last: list[str] = []
    at = 0
    text = pattern.strip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError(f"`pattern` is not understood from {text[at : at + 20]!r} on")
        token, at = found[1], found.end()
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
    """Return a pattern that lists these layers: the shortest that repeats one group, or runs."""
    found = [_runs(order)]
    for size in range(2, len(order) // 2 + 1):
        times = 1
        while order[times * size : (times + 1) * size] == order[:size]:
            times += 1
        if times > 1:
            rest = order[times * size :]
            found.append(
                f"({_runs(order[:size])})*{times}" + (f" {as_pattern(rest)}" if rest else "")
            )
    return min(found, key=len)


def _runs(order: tuple[str, ...]) -> str:
    runs: list[tuple[str, int]] = []
    for name in order:
        if runs and runs[-1][0] == name:
            runs[-1] = name, runs[-1][1] + 1
        else:
            runs.append((name, 1))
    return " ".join(name if times == 1 else f"{name}*{times}" for name, times in runs)
