"""One numpy function for each element-wise function and encoding of a program, for all ranks.

Arrays have the rank in front of the dimensions the program gives them. A function gets the arrays
that its operation reads, in order, and returns those it writes; rounding is done by who calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from trnbench.engines.execute.activations import ACTIVATIONS, SLOPES
from trnbench.engines.execute.arithmetic import Arithmetic, Numbers
from trnbench.engines.execute.experts import combine, d_combine, d_route, route
from trnbench.engines.execute.ranks import StageRanks
from trnbench.facts.arrays import BoolArray, IntArray
from trnbench.facts.records import Record
from trnbench.facts.workload.model import ROTARY_BASE, Attention, Transformer
from trnbench.program.ops import Elementwise
from trnbench.program.tensor import Dim

NORM_EPSILON = 1e-5
_NEVER = -np.inf


class KernelSetting(Record):
    """Setting of a function besides its arrays."""

    ranks: StageRanks
    transformer: Transformer
    arithmetic: Arithmetic


Arrays: TypeAlias = Sequence[Numbers]
Function: TypeAlias = Callable[[KernelSetting, Elementwise, Arrays], Arrays]


def shape_of(setting: KernelSetting, dims: Sequence[Dim]) -> tuple[int, ...]:
    """Shape of all ranks' arrays with these dimensions."""
    return (setting.ranks.ranks, *(int(dim.size) for dim in dims))


def named(functions: Sequence[Function]) -> Mapping[str, Function]:
    """Functions by their names, which are those of programs behind an underscore."""
    return {function.__name__.removeprefix("_"): function for function in functions}


# Sums and copies


def _add(setting: KernelSetting, op: Elementwise, arrays: Arrays) -> Arrays:
    out = op.writes[0]
    total: Numbers | None = None
    for tensor, numbers in zip(op.reads, arrays, strict=True):
        part = numbers
        if tensor.dims[0].name == "position":
            rows = setting.ranks.positions(out.dims[1])
            part = numbers[np.arange(len(numbers))[:, None], rows]
        lead = len(out.dims) + 1 - part.ndim
        part = part.reshape(part.shape[0], *(1,) * lead, *part.shape[1:])
        total = part if total is None else total + part
    assert total is not None
    return [total]


def _d_add(setting: KernelSetting, op: Elementwise, arrays: Arrays) -> Arrays:
    gradient = arrays[0]
    parts = []
    for tensor in op.writes:
        part = _summed_to(gradient, len(tensor.dims))
        if tensor.dims[0].name == "position":
            table = np.zeros(shape_of(setting, tensor.dims), dtype=gradient.dtype)
            rows = setting.ranks.positions(op.reads[0].dims[1])
            table[np.arange(len(table))[:, None], rows] = part
            part = table
        parts.append(part)
    return parts


def _summed_to(gradient: Numbers, dims: int) -> Numbers:
    over = tuple(range(1, gradient.ndim - dims))
    return np.asarray(gradient.sum(axis=over)) if over else gradient


def _sum_rows(setting: KernelSetting, op: Elementwise, arrays: Arrays) -> Arrays:
    return [_summed_to(arrays[0], len(op.writes[0].dims))]


def _cast(setting: KernelSetting, op: Elementwise, arrays: Arrays) -> Arrays:
    return arrays


def _slice(setting: KernelSetting, op: Elementwise, arrays: Arrays) -> Arrays:
    """A rank's part of what all ranks of a group hold alike."""
    of, to = op.reads[0], op.writes[0]
    if to.axes == of.axes:
        return arrays
    (axis,) = to.axes - of.axes
    at = next(i for i, dim in enumerate(to.dims) if axis in dim.axes) + 1
    size = int(to.dims[at - 1].size)
    rows = setting.ranks.coordinate(axis)[:, None] * size + np.arange(size)
    shape = [1] * arrays[0].ndim
    shape[0], shape[at] = rows.shape
    return [np.take_along_axis(arrays[0], rows.reshape(shape), axis=at)]


# Norms


def _norm(setting: KernelSetting, op: Elementwise, arrays: Arrays) -> Arrays:
    x, *weights = arrays
    unit, _ = _normalised(setting, x)
    if weights:
        unit *= _like(weights[0], unit)
    if len(weights) > 1:
        unit += _like(weights[1], unit)
    return [unit]


def _normalised(setting: KernelSetting, x: Numbers) -> tuple[Numbers, Numbers]:
    """Normalised rows, and their divisors."""
    if setting.transformer.norm != "rms":
        x = x - x.mean(axis=-1, keepdims=True)
    mean_square = np.einsum("...h,...h->...", x, x)[..., None] / x.shape[-1]
    root = np.sqrt(mean_square + NORM_EPSILON)
    return x / root, root


def _like(weight: Numbers, x: Numbers) -> Numbers:
    return weight.reshape(weight.shape[0], *(1,) * (x.ndim - 2), weight.shape[1])


def _d_norm(setting: KernelSetting, op: Elementwise, arrays: Arrays) -> Arrays:
    gradient, x, *scale = arrays
    unit, root = _normalised(setting, x)
    inner = gradient * _like(scale[0], gradient) if scale else gradient
    mean = np.einsum("...h,...h->...", inner, unit)[..., None] / x.shape[-1]
    d_x = (inner - unit * mean) / root
    if setting.transformer.norm != "rms":
        d_x -= d_x.mean(axis=-1, keepdims=True)
    over = tuple(range(1, x.ndim - 1))
    weights = [(gradient * unit).sum(axis=over), gradient.sum(axis=over)]
    return [d_x, *weights[: len(op.writes) - 1]]


# Heads


def _rotary(setting: KernelSetting, op: Elementwise, arrays: Arrays) -> Arrays:
    # The gradient turns back.
    at = setting.ranks.positions(op.reads[0].dims[1]) * (-1 if op.function == "d_rotary" else 1)
    turned = zip(op.reads, arrays, strict=True)
    return [rotate(x, at, setting.transformer, tensor.dims[3]) for tensor, x in turned]


def _join_rotated(setting: KernelSetting, op: Elementwise, arrays: Arrays) -> Arrays:
    plain, shared = arrays
    at = setting.ranks.positions(op.reads[0].dims[1])
    rotated = rotate(shared[:, :, :, None], at, setting.transformer, op.reads[1].dims[2])
    return [np.concatenate([plain, np.repeat(rotated, plain.shape[3], axis=3)], axis=-1)]


def _join(setting: KernelSetting, op: Elementwise, arrays: Arrays) -> Arrays:
    return [np.concatenate(arrays, axis=-1)]


def _d_join(setting: KernelSetting, op: Elementwise, arrays: Arrays) -> Arrays:
    ends = np.cumsum([int(tensor.dims[-1].size) for tensor in op.writes])
    return np.split(arrays[0], ends[:-1], axis=-1)


def _d_join_rotated(setting: KernelSetting, op: Elementwise, arrays: Arrays) -> Arrays:
    gradient = arrays[0]
    at = setting.ranks.positions(op.reads[0].dims[1])
    plain = int(op.writes[0].dims[3].size)
    tail = gradient[..., plain:].sum(axis=3, keepdims=True)
    back = rotate(tail, -at, setting.transformer, op.writes[1].dims[2])
    return [gradient[..., :plain], back[:, :, :, 0]]


def _repeat_heads(setting: KernelSetting, op: Elementwise, arrays: Arrays) -> Arrays:
    times = int(op.writes[0].dims[2].size) // arrays[0].shape[3]
    return [np.repeat(arrays[0], times, axis=3)]


def _d_repeat_heads(setting: KernelSetting, op: Elementwise, arrays: Arrays) -> Arrays:
    gradient = arrays[0]
    shape = (*gradient.shape[:3], int(op.writes[0].dims[2].size), -1, gradient.shape[4])
    return [gradient.reshape(shape).sum(axis=4)]


def _scale(setting: KernelSetting) -> float:
    """Divisor of the scores."""
    attention = setting.transformer.attention
    assert attention is not None
    rotated = attention.latent.rope_head_size if attention.latent else 0
    return float(np.sqrt(attention.head_size + rotated))


def _scale_mask(setting: KernelSetting, op: Elementwise, arrays: Arrays) -> Arrays:
    queries, keys = (setting.ranks.positions(dim) for dim in op.reads[0].dims[2:])
    hidden = hidden_pairs(queries, keys, setting.transformer.attention)
    scores = arrays[0] / _scale(setting)
    return [scores if hidden is None else np.where(hidden[:, None, None], _NEVER, scores)]


def _d_scale_mask(setting: KernelSetting, op: Elementwise, arrays: Arrays) -> Arrays:
    return [arrays[0] / _scale(setting)]


def _softmax(setting: KernelSetting, op: Elementwise, arrays: Arrays) -> Arrays:
    shares = np.exp(arrays[0] - arrays[0].max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    return [shares]


def _d_softmax(setting: KernelSetting, op: Elementwise, arrays: Arrays) -> Arrays:
    gradient, shares = arrays
    return [shares * (gradient - (gradient * shares).sum(axis=-1, keepdims=True))]


# The loss


def _words(setting: KernelSetting, words: Dim, logits: Numbers) -> Numbers:
    """Logits with those of padding words masked."""
    at = setting.ranks.positions(words)
    if at.max() < int(words.whole):
        return logits
    return np.where((at < int(words.whole))[:, None, None], logits, _NEVER)


def _row_max(setting: KernelSetting, op: Elementwise, arrays: Arrays) -> Arrays:
    return [_words(setting, op.reads[0].dims[2], arrays[0]).max(axis=-1)]


def _exponential_sums(setting: KernelSetting, op: Elementwise, arrays: Arrays) -> Arrays:
    logits, top, targets = arrays
    words = op.reads[0].dims[2]
    total = np.exp(_words(setting, words, logits) - top[..., None]).sum(axis=-1)
    rows = targets - setting.ranks.first(words)[:, None, None]
    here = (rows >= 0) & (rows < logits.shape[-1])
    chosen = np.take_along_axis(logits, np.where(here, rows, 0)[..., None], axis=-1)[..., 0]
    return [np.stack([total, np.where(here, chosen - top, 0).astype(total.dtype)], axis=-1)]


def _d_exponential_sums(setting: KernelSetting, op: Elementwise, arrays: Arrays) -> Arrays:
    gradient, logits, top, targets = arrays
    words = op.reads[1].dims[2]
    out = np.exp(_words(setting, words, logits) - top[..., None])
    out *= gradient[..., :1]
    rows = targets - setting.ranks.first(words)[:, None, None]
    at = np.nonzero((rows >= 0) & (rows < logits.shape[-1]))
    out[(*at, rows[at])] += gradient[(*at, 1)]
    return [out]


def _cross_entropy(setting: KernelSetting, op: Elementwise, arrays: Arrays) -> Arrays:
    return [np.log(arrays[0][..., 0]) - arrays[0][..., 1]]


def _d_cross_entropy(setting: KernelSetting, op: Elementwise, arrays: Arrays) -> Arrays:
    gradient, sums = arrays
    return [np.stack([gradient / sums[..., 0], -gradient], axis=-1)]


# Activations, alone and as gates


def _active(name: str) -> tuple[Function, Function]:
    function, slope = ACTIVATIONS[name], SLOPES[name]

    def forward(setting: KernelSetting, op: Elementwise, arrays: Arrays) -> Arrays:
        return [function(arrays[0])]

    def backward(setting: KernelSetting, op: Elementwise, arrays: Arrays) -> Arrays:
        return [arrays[0] * slope(arrays[1])]

    return forward, backward


def _gated(name: str) -> tuple[Function, Function]:
    function, slope = ACTIVATIONS[name], SLOPES[name]

    def forward(setting: KernelSetting, op: Elementwise, arrays: Arrays) -> Arrays:
        return [function(arrays[0]) * arrays[1]]

    def backward(setting: KernelSetting, op: Elementwise, arrays: Arrays) -> Arrays:
        gradient, gate, up = arrays
        return [gradient * up * slope(gate), gradient * function(gate)]

    return forward, backward


# The experts


def _route(setting: KernelSetting, op: Elementwise, arrays: Arrays) -> Arrays:
    steering = arrays[1] if len(arrays) > 1 else None
    return route(arrays[0], int(op.writes[0].dims[2].size), steering)


def _d_route(setting: KernelSetting, op: Elementwise, arrays: Arrays) -> Arrays:
    gradient, shares, choice = arrays
    return [d_route(gradient, shares, choice, int(op.writes[0].dims[2].size))]


_BY_THEIR_NAME: Sequence[Function] = (
    *(_add, _d_add, _sum_rows, _cast, _slice, _norm, _d_norm, _rotary, _join_rotated),
    *(_d_join_rotated, _repeat_heads, _d_repeat_heads, _scale_mask, _d_scale_mask, _softmax),
    *(_d_softmax, _row_max, _exponential_sums, _d_exponential_sums, _cross_entropy),
    *(_d_cross_entropy, _route, _d_route, _join, _d_join),
)
FUNCTIONS: Mapping[str, Function] = {
    **named(_BY_THEIR_NAME),
    "unpack": _cast,
    "own_tokens": _slice,
    "d_rotary": _rotary,
    "combine": lambda setting, op, arrays: [combine(*arrays)],
    "d_combine": lambda setting, op, arrays: d_combine(*arrays),
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
