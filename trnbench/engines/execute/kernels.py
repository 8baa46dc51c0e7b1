"""One numpy function for each element-wise function and encoding of a program, for all ranks.

Arrays have the rank in front of the dimensions the program gives them. A function gets the arrays
that its operation reads, in order, and returns those it writes; rounding is done by who calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import TypeAlias

import numpy as np

from trnbench.engines.execute.arithmetic import Arithmetic, Numbers
from trnbench.engines.execute.exchange import Book, Exchanger
from trnbench.engines.execute.experts import combine, d_combine, d_route, route
from trnbench.engines.execute.shards import StageRanks
from trnbench.facts.arrays import BoolArray, IntArray
from trnbench.facts.records import Record
from trnbench.facts.workload.model import ROTARY_BASE, Attention, Transformer
from trnbench.program.ops import Elementwise
from trnbench.program.tensor import Dim

_GELU_SCALE = float(np.sqrt(2 / np.pi))
_GELU_CUBIC = 0.044715  # The tanh form of GELU (Hendrycks and Gimpel, arXiv 1606.08415)


def _gelu_tanh(x: Numbers) -> tuple[Numbers, Numbers]:
    """Tanh inside GELU, and x squared."""
    square = x * x
    inner = square * (_GELU_SCALE * _GELU_CUBIC)
    inner += _GELU_SCALE
    inner *= x
    return np.tanh(inner, out=inner), square


def _gelu(x: Numbers) -> Numbers:
    out, _ = _gelu_tanh(x)
    out += 1
    out *= x
    out *= 0.5
    return out


def _d_gelu(x: Numbers) -> Numbers:
    """1/2 (1 + t) + 1/2 x (1 - t^2) (c + 3 c k x^2), t the tanh of c (x + k x^3)."""
    t, square = _gelu_tanh(x)
    square *= 3 * _GELU_SCALE * _GELU_CUBIC
    square += _GELU_SCALE
    square *= x
    square *= 1 - t * t
    square += t
    square += 1
    square *= 0.5
    return square


def _sigmoid(x: Numbers) -> Numbers:
    out = np.tanh(x * 0.5)
    out += 1
    out *= 0.5
    return out


def _d_silu(x: Numbers) -> Numbers:
    s = _sigmoid(x)
    return s * (1 + x * (1 - s))


def _relu(x: Numbers) -> Numbers:
    return np.maximum(x, 0)


ACTIVATIONS: Mapping[str, Callable[[Numbers], Numbers]] = {
    "gelu": _gelu,
    "silu": lambda x: x * _sigmoid(x),
    "relu": _relu,
    "relu2": lambda x: _relu(x) ** 2,
}
SLOPES: Mapping[str, Callable[[Numbers], Numbers]] = {
    "gelu": _d_gelu,
    "silu": _d_silu,
    "relu": lambda x: (x > 0).astype(x.dtype),
    "relu2": lambda x: 2 * _relu(x),
}
"""The slope of each at the number that went in."""


NORM_EPSILON = 1e-5
_NEVER = -np.inf


class Workshop(Record):
    """Context of an operation of a stage, besides its arrays."""

    ranks: StageRanks
    transformer: Transformer
    arithmetic: Arithmetic
    exchange: Exchanger
    book: Book


Arrays: TypeAlias = Sequence[Numbers]
Function: TypeAlias = Callable[[Workshop, Elementwise, Arrays], Arrays]


def shape_of(shop: Workshop, dims: Sequence[Dim]) -> tuple[int, ...]:
    return (shop.ranks.ranks, *(int(dim.size) for dim in dims))


def of_arrays(make: Callable[..., Arrays]) -> Function:
    """A function that needs nothing but its arrays, one parameter each."""
    # Gradients of frozen weights stand last, and are not written.
    return wraps(make)(lambda shop, op, arrays: make(*arrays)[: len(op.writes)])


def named(functions: Sequence[Function]) -> Mapping[str, Function]:
    """Functions by their names, which are those of programs behind an underscore."""
    return {function.__name__.removeprefix("_"): function for function in functions}


# Sums and copies


def _add(shop: Workshop, op: Elementwise, arrays: Arrays) -> Arrays:
    out = op.writes[0]
    total: Numbers | None = None
    for tensor, numbers in zip(op.reads, arrays, strict=True):
        part = numbers
        if tensor.dims[0].name == "position":
            rows = shop.ranks.positions(out.dims[1])
            part = numbers[np.arange(len(numbers))[:, None], rows]
        lead = len(out.dims) + 1 - part.ndim
        part = part.reshape(part.shape[0], *(1,) * lead, *part.shape[1:])
        total = part if total is None else total + part
    assert total is not None
    return [total]


def _d_add(shop: Workshop, op: Elementwise, arrays: Arrays) -> Arrays:
    gradient = arrays[0]
    parts = []
    for tensor in op.writes:
        part = _summed_to(gradient, len(tensor.dims))
        if tensor.dims[0].name == "position":
            table = np.zeros(shape_of(shop, tensor.dims), dtype=gradient.dtype)
            rows = shop.ranks.positions(op.reads[0].dims[1])
            table[np.arange(len(table))[:, None], rows] = part
            part = table
        parts.append(part)
    return parts


def _summed_to(gradient: Numbers, dims: int) -> Numbers:
    over = tuple(range(1, gradient.ndim - dims))
    return np.asarray(gradient.sum(axis=over)) if over else gradient


def _slice(shop: Workshop, op: Elementwise, arrays: Arrays) -> Arrays:
    of, to = op.reads[0], op.writes[0]
    if to.axes == of.axes:
        return arrays
    (axis,) = to.axes - of.axes
    at = next(i for i, dim in enumerate(to.dims) if axis in dim.axes) + 1
    size = int(to.dims[at - 1].size)
    rows = shop.ranks.coordinate(axis)[:, None] * size + np.arange(size)
    shape = [1] * arrays[0].ndim
    shape[0], shape[at] = rows.shape
    return [np.take_along_axis(arrays[0], rows.reshape(shape), axis=at)]


# Norms


def _norm(shop: Workshop, op: Elementwise, arrays: Arrays) -> Arrays:
    x, *weights = arrays
    unit, _ = _normalised(shop, x)
    if weights:
        unit *= _like(weights[0], unit)
    if len(weights) > 1:
        unit += _like(weights[1], unit)
    return [unit]


def _normalised(shop: Workshop, x: Numbers) -> tuple[Numbers, Numbers]:
    if shop.transformer.norm != "rms":
        x = x - x.mean(axis=-1, keepdims=True)
    mean_square = np.einsum("...h,...h->...", x, x)[..., None] / x.shape[-1]
    root = np.sqrt(mean_square + NORM_EPSILON)
    return x / root, root


def _like(weight: Numbers, x: Numbers) -> Numbers:
    return weight.reshape(weight.shape[0], *(1,) * (x.ndim - 2), weight.shape[1])


def _d_norm(shop: Workshop, op: Elementwise, arrays: Arrays) -> Arrays:
    gradient, x, *scale = arrays
    unit, root = _normalised(shop, x)
    inner = gradient * _like(scale[0], gradient) if scale else gradient
    mean = np.einsum("...h,...h->...", inner, unit)[..., None] / x.shape[-1]
    d_x = (inner - unit * mean) / root
    if shop.transformer.norm != "rms":
        d_x -= d_x.mean(axis=-1, keepdims=True)
    over = tuple(range(1, x.ndim - 1))
    weights = [(gradient * unit).sum(axis=over), gradient.sum(axis=over)]
    return [d_x, *weights[: len(op.writes) - 1]]


# Heads


def _rotary(shop: Workshop, op: Elementwise, arrays: Arrays) -> Arrays:
    # The gradient turns back.
    at = shop.ranks.positions(op.reads[0].dims[1]) * (-1 if op.function == "d_rotary" else 1)
    turned = zip(op.reads, arrays, strict=True)
    return [rotate(x, at, shop.transformer, tensor.dims[3]) for tensor, x in turned]


def _join_rotated(shop: Workshop, op: Elementwise, arrays: Arrays) -> Arrays:
    plain, shared = arrays
    at = shop.ranks.positions(op.reads[0].dims[1])
    rotated = rotate(shared[:, :, :, None], at, shop.transformer, op.reads[1].dims[2])
    return [np.concatenate([plain, np.repeat(rotated, plain.shape[3], axis=3)], axis=-1)]


def _d_join(shop: Workshop, op: Elementwise, arrays: Arrays) -> Arrays:
    ends = np.cumsum([int(tensor.dims[-1].size) for tensor in op.writes])
    return np.split(arrays[0], ends[:-1], axis=-1)


def _d_join_rotated(shop: Workshop, op: Elementwise, arrays: Arrays) -> Arrays:
    gradient = arrays[0]
    at = shop.ranks.positions(op.reads[0].dims[1])
    plain = int(op.writes[0].dims[3].size)
    tail = gradient[..., plain:].sum(axis=3, keepdims=True)
    back = rotate(tail, -at, shop.transformer, op.writes[1].dims[2])
    return [gradient[..., :plain], back[:, :, :, 0]]


def _repeat_heads(shop: Workshop, op: Elementwise, arrays: Arrays) -> Arrays:
    times = int(op.writes[0].dims[2].size) // arrays[0].shape[3]
    return [np.repeat(arrays[0], times, axis=3)]


def _d_repeat_heads(shop: Workshop, op: Elementwise, arrays: Arrays) -> Arrays:
    (gradient,) = arrays
    shape = (*gradient.shape[:3], int(op.writes[0].dims[2].size), -1, gradient.shape[4])
    return [gradient.reshape(shape).sum(axis=4)]


def _scale(shop: Workshop) -> float:
    attention = shop.transformer.attention
    assert attention is not None
    rotated = attention.latent.rope_head_size if attention.latent else 0
    return float(np.sqrt(attention.head_size + rotated))


def _scale_mask(shop: Workshop, op: Elementwise, arrays: Arrays) -> Arrays:
    queries, keys = (shop.ranks.positions(dim) for dim in op.reads[0].dims[2:])
    hidden = hidden_pairs(queries, keys, shop.transformer.attention)
    scores = arrays[0] / _scale(shop)
    return [scores if hidden is None else np.where(hidden[:, None, None], _NEVER, scores)]


@of_arrays
def _softmax(scores: Numbers) -> Arrays:
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    return [shares]


# The loss


def _words(shop: Workshop, words: Dim, logits: Numbers) -> Numbers:
    """Logits with those of padding words masked."""
    at = shop.ranks.positions(words)
    if at.max() < int(words.whole):
        return logits
    return np.where((at < int(words.whole))[:, None, None], logits, _NEVER)


def _exponential_sums(shop: Workshop, op: Elementwise, arrays: Arrays) -> Arrays:
    logits, top, targets = arrays
    words = op.reads[0].dims[2]
    total = np.exp(_words(shop, words, logits) - top[..., None]).sum(axis=-1)
    rows = targets - shop.ranks.first(words)[:, None, None]
    here = (rows >= 0) & (rows < logits.shape[-1])
    chosen = np.take_along_axis(logits, np.where(here, rows, 0)[..., None], axis=-1)[..., 0]
    return [np.stack([total, np.where(here, chosen - top, 0).astype(total.dtype)], axis=-1)]


def _d_exponential_sums(shop: Workshop, op: Elementwise, arrays: Arrays) -> Arrays:
    gradient, logits, top, targets = arrays
    words = op.reads[1].dims[2]
    out = np.exp(_words(shop, words, logits) - top[..., None])
    out *= gradient[..., :1]
    rows = targets - shop.ranks.first(words)[:, None, None]
    at = np.nonzero((rows >= 0) & (rows < logits.shape[-1]))
    out[(*at, rows[at])] += gradient[(*at, 1)]
    return [out]


# Activations, alone and as gates


def _active(name: str) -> tuple[Function, Function]:
    function, slope = ACTIVATIONS[name], SLOPES[name]
    return (
        of_arrays(lambda x: [function(x)]),
        of_arrays(lambda gradient, x: [gradient * slope(x)]),
    )


def _gated(name: str) -> tuple[Function, Function]:
    function, slope = ACTIVATIONS[name], SLOPES[name]
    return (
        of_arrays(lambda gate, up: [function(gate) * up]),
        of_arrays(lambda g, gate, up: [g * up * slope(gate), g * function(gate)]),
    )


# The experts


FUNCTIONS: Mapping[str, Function] = {
    **named(
        (
            *(_add, _d_add, _slice, _norm, _d_norm, _rotary, _join_rotated, _d_join_rotated),
            *(_d_join, _repeat_heads, _d_repeat_heads, _scale_mask, _softmax),
            *(_exponential_sums, _d_exponential_sums),
        )
    ),
    "cast": lambda shop, op, arrays: arrays,
    "unpack": lambda shop, op, arrays: arrays,
    "own_tokens": _slice,
    "d_rotary": _rotary,
    "join": lambda shop, op, arrays: [np.concatenate(arrays, axis=-1)],
    "sum_rows": lambda shop, op, arrays: [_summed_to(arrays[0], len(op.writes[0].dims))],
    "d_scale_mask": lambda shop, op, arrays: [arrays[0] / _scale(shop)],
    "row_max": lambda s, op, arrays: [_words(s, op.reads[0].dims[2], arrays[0]).max(axis=-1)],
    "cross_entropy": lambda shop, op, arrays: [np.log(arrays[0][..., 0]) - arrays[0][..., 1]],
    "d_softmax": of_arrays(
        lambda g, shares: [shares * (g - (g * shares).sum(axis=-1, keepdims=True))]
    ),
    "d_cross_entropy": of_arrays(lambda g, x: [np.stack([g / x[..., 0], -g], axis=-1)]),
    "route": lambda shop, op, arrays: route(int(op.writes[0].dims[2].size), *arrays),
    "d_route": lambda shop, op, arrays: d_route(int(op.writes[0].dims[2].size), *arrays),
    "combine": lambda shop, op, arrays: [combine(*arrays)],
    "d_combine": of_arrays(d_combine),
    **{
        f"{lead}{name}{tail}": function
        for tail, make in (("", _active), ("_gate", _gated))
        for name in ACTIVATIONS
        for lead, function in zip(("", "d_"), make(name), strict=True)
    },
}
"""Functions of the executor, by the name that programs use."""


def rotate(x: Numbers, positions: IntArray, transformer: Transformer, size: Dim) -> Numbers:
    """[rank, batch, token, head, size] turned pair by pair by [rank, token] positions.

    A number and the one half the rotated span further on are a pair. Of queries with a part that
    is not rotated, the tail turns; with a partial rotary encoding, the head.
    """
    latent = transformer.attention.latent if transformer.attention else None
    start, stop = 0, x.shape[-1]
    if latent is not None and size.name == "query_head_size":
        start = stop - latent.rope_head_size
    elif latent is None and transformer.position.rotary_size:
        stop = min(stop, transformer.position.rotary_size)
    half = (stop - start) // 2
    base = transformer.position.rotary_base or ROTARY_BASE
    angle = positions[:, None, :, None, None] / base ** (np.arange(half) / half)
    cos, sin = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)
    low, high = x[..., start : start + half], x[..., start + half : stop]
    out = x.copy()
    out[..., start : start + half] = low * cos - high * sin
    out[..., start + half : stop] = low * sin + high * cos
    return out


def hidden_pairs(
    queries: IntArray, keys: IntArray, attention: Attention | None
) -> BoolArray | None:
    """[rank, query, key] whether a query may not see a key, from their positions."""
    if attention is None or not attention.causal:
        return None
    ahead = keys[:, None, :] - queries[:, :, None]
    hidden = ahead > 0
    if attention.window is not None:
        hidden |= ahead <= -attention.window
    if attention.chunk is not None:
        hidden |= keys[:, None, :] // attention.chunk != queries[:, :, None] // attention.chunk
    return np.asarray(hidden)
