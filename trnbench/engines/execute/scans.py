"""Scans of all ranks, and operations around them, with real numbers in FP32 or finer, by token.

A state S [value, key] is updated by each token: S <- a S + s v k' (`mamba-2`), and with the gated
delta rule S <- a (S - s (S k) k') + s v k' of keys of length 1; a token reads S q. `a` is the
exponential of its decay, `s` its step. The backward pass starts from the state before each chunk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from trnbench.engines.execute.arithmetic import Numbers
from trnbench.engines.execute.kernels import (
    NORM_EPSILON,
    Arrays,
    Function,
    Workshop,
    named,
    of_arrays,
)
from trnbench.program.ops import Elementwise, ScanOp

_LEAST = 1e-6  # Added to the square of a key's length (flash-linear-attention)


class ScanKernel:
    """One scan of a block: its states, what tokens read of them, or all gradients."""

    def __init__(self, op: ScanOp) -> None:
        self._op = op
        self._erases = op.form == "gated-delta"

    def __call__(self, arrays: Arrays) -> tuple[Arrays, int]:
        """Arrays that the operation writes, and the FLOP of all ranks as in chunks."""
        flop = round(float(self._op.flop)) * len(arrays[0])
        if self._op.backward:
            return self._backward(arrays), flop
        if self._op.part == "states":
            value, key, steps, decays = arrays
            return [self._states(value, self._keys(key, value), steps, decays)], flop
        query, value, key, steps, decays, states = arrays
        q, k = self._read_by(query, value), self._keys(key, value)
        out = np.empty_like(value)
        for start, state in self._chunks(states):
            for t in self._tokens(start, value):
                state = self._step(state, t, value, k, steps, decays)
                out[:, :, t] = np.einsum("rbhvk,rbhk->rbhv", state, q[:, :, t])
        return [out], flop

    def _chunks(self, states: Numbers) -> Sequence[tuple[int, Numbers]]:
        return [(c * self._op.chunk, states[:, :, c]) for c in range(states.shape[2])]

    def _tokens(self, start: int, value: Numbers) -> range:
        return range(start, min(start + self._op.chunk, value.shape[2]))

    def _keys(self, key: Numbers, value: Numbers) -> Numbers:
        wide = np.repeat(key, value.shape[3] // key.shape[3], axis=3)
        return wide / _length(wide) if self._erases else wide

    def _read_by(self, query: Numbers, value: Numbers) -> Numbers:
        wide = self._keys(query, value)
        return wide * self._scale(wide)

    def _scale(self, query: Numbers) -> float:
        return float(1 / np.sqrt(query.shape[-1])) if self._erases else 1.0

    def _step(self, state: Numbers, t: int, *tokens: Numbers) -> Numbers:
        """State after token t of values, keys, steps and decays."""
        v, k, step, decay = (numbers[:, :, t] for numbers in tokens)
        s, a = step[..., None, None], np.exp(decay)[..., None, None]
        if self._erases:
            recalled = np.einsum("rbhvk,rbhk->rbhv", state, k)
            state = state - s * recalled[..., None] * k[..., None, :]
        return np.asarray(a * state + s * v[..., None] * k[..., None, :])

    def _states(self, value: Numbers, k: Numbers, steps: Numbers, decays: Numbers) -> Numbers:
        chunks = -(-value.shape[2] // self._op.chunk)
        state = np.zeros((*value.shape[:2], *value.shape[3:], k.shape[-1]), dtype=value.dtype)
        found = []
        for chunk in range(chunks):
            found.append(state)
            for t in self._tokens(chunk * self._op.chunk, value):
                state = self._step(state, t, value, k, steps, decays)
        return np.stack(found, axis=2)

    def _backward(self, arrays: Arrays) -> Arrays:
        query, value, key, steps, decays, states, _, gradient = arrays
        q, k = self._read_by(query, value), self._keys(key, value)
        d_q, d_k, d_v = np.zeros_like(q), np.zeros_like(k), np.zeros_like(value)
        d_s, d_a = np.zeros_like(steps), np.zeros_like(decays)
        # `left` is the gradient of the loss by the state behind a token. Only the first state of a
        # chunk is stored: the others are played again, so memory grows with chunks, not tokens.
        left = np.zeros_like(states[:, :, 0])
        for start, first in reversed(self._chunks(states)):
            before = [first]
            tokens = self._tokens(start, value)
            for t in tokens:
                before.append(self._step(before[-1], t, value, k, steps, decays))
            for t in reversed(tokens):
                old, new = before[t - start], before[t - start + 1]
                g, s, a = gradient[:, :, t], steps[:, :, t], np.exp(decays[:, :, t])
                kt, vt = k[:, :, t], value[:, :, t]
                left = left + g[..., None] * q[:, :, t][..., None, :]
                d_q[:, :, t] = np.einsum("rbhvk,rbhv->rbhk", new, g)
                by_key = np.einsum("rbhvk,rbhk->rbhv", left, kt)
                d_v[:, :, t] = s[..., None] * by_key
                d_k[:, :, t] = s[..., None] * np.einsum("rbhvk,rbhv->rbhk", left, vt)
                d_s[:, :, t] = (by_key * vt).sum(axis=-1)
                kept = old
                back = left
                # The erased part s (S k) k' is quadratic in k: its key gradient has two terms.
                if self._erases:
                    recalled = np.einsum("rbhvk,rbhk->rbhv", old, kt)
                    kept = old - s[..., None, None] * recalled[..., None] * kt[..., None, :]
                    back = left - s[..., None, None] * by_key[..., None] * kt[..., None, :]
                    d_s[:, :, t] -= a * (by_key * recalled).sum(axis=-1)
                    erased = np.einsum("rbhvk,rbhv->rbhk", old, by_key)
                    erased += np.einsum("rbhvk,rbhv->rbhk", left, recalled)
                    d_k[:, :, t] -= (a * s)[..., None] * erased
                d_a[:, :, t] = a * (left * kept).sum(axis=(-1, -2))
                left = a[..., None, None] * back
        return [
            self._to_group(d_q * self._scale(q), query),
            d_v,
            self._to_group(d_k, key),
            d_s,
            d_a,
        ]

    def _to_group(self, d_wide: Numbers, narrow: Numbers) -> Numbers:
        """Gradient of a tensor that several heads read."""
        # Keys of length 1: the part of the gradient along the key changes no unit vector.
        times = d_wide.shape[3] // narrow.shape[3]
        if self._erases:
            raw = np.repeat(narrow, times, axis=3)
            length = _length(raw)
            unit = raw / length
            d_wide = (d_wide - unit * (unit * d_wide).sum(axis=-1, keepdims=True)) / length
        shape = (*narrow.shape[:4], times, narrow.shape[4])
        return np.asarray(d_wide.reshape(shape).sum(axis=4))


def _length(x: Numbers) -> Numbers:
    return np.asarray(np.sqrt(np.einsum("...k,...k->...", x, x) + _LEAST)[..., None])


def _sigmoid(x: Numbers) -> Numbers:
    return np.asarray(1 / (1 + np.exp(-x)))


def _softplus(x: Numbers) -> Numbers:
    return np.asarray(np.logaddexp(x, 0))


def _all_tokens(weight: Numbers) -> Numbers:
    return weight[:, None, None]


def _summed(x: Numbers) -> Numbers:
    return np.asarray(x.sum(axis=(1, 2)))


# Convolution


def _filtered(x: Numbers, taps: Numbers, bias: Numbers | None = None) -> Numbers:
    out = np.zeros_like(x)
    # The last tap meets the token itself, the others the tokens before it: nothing looks ahead.
    last = taps.shape[-1] - 1
    for back in range(min(last + 1, x.shape[2])):
        out[:, :, back:] += x[:, :, : x.shape[2] - back] * _all_tokens(taps[..., last - back])
    return out if bias is None else out + _all_tokens(bias)


@of_arrays
def _convolve(*arrays: Numbers) -> Arrays:
    out = _filtered(*arrays)
    return [out * _sigmoid(out)]


@of_arrays
def _d_convolve(gradient: Numbers, x: Numbers, taps: Numbers, *bias: Numbers) -> Arrays:
    out = _filtered(x, taps, *bias)
    open_share = _sigmoid(out)
    d_out = gradient * open_share * (1 + out * (1 - open_share))
    d_x, d_taps = np.zeros_like(x), np.zeros_like(taps)
    last = taps.shape[-1] - 1
    for back in range(min(last + 1, x.shape[2])):
        tokens, late = x.shape[2] - back, d_out[:, :, back:]
        d_x[:, :, :tokens] += late * _all_tokens(taps[..., last - back])
        d_taps[..., last - back] = _summed(late * x[:, :, :tokens])
    return [d_x, d_taps, *([_summed(d_out)] if bias else [])]


# Rates


@of_arrays
def _scan_rates(raw: Numbers, rate: Numbers, offset: Numbers) -> Arrays:
    steps = _softplus(raw + _all_tokens(offset))
    return [steps, -np.exp(_all_tokens(rate)) * steps]


@of_arrays
def _d_scan_rates(
    d_steps: Numbers, d_decays: Numbers, raw: Numbers, rate: Numbers, offset: Numbers
) -> Arrays:
    speed = -np.exp(_all_tokens(rate))
    shifted = raw + _all_tokens(offset)
    d_raw = (d_steps + d_decays * speed) * _sigmoid(shifted)
    return [d_raw, _summed(d_decays * speed * _softplus(shifted)), _summed(d_raw)]


@of_arrays
def _d_delta_rates(d_steps: Numbers, d_decays: Numbers, *forward: Numbers) -> Arrays:
    step, decay, rate, offset = forward
    share, speed = _sigmoid(step), -np.exp(_all_tokens(rate))
    shifted = decay + _all_tokens(offset)
    d_decay = d_decays * speed * _sigmoid(shifted)
    d_rate = _summed(d_decays * speed * _softplus(shifted))
    return [d_steps * share * (1 - share), d_decay, d_rate, _summed(d_decay)]


@of_arrays
def _d_skip(gradient: Numbers, value: Numbers, skip: Numbers) -> Arrays:
    d_value = gradient * _all_tokens(skip)[..., None]
    return [gradient, d_value, _summed((gradient * value).sum(axis=-1))]


# Norms


def _grouped(shop: Workshop, x: Numbers) -> Numbers:
    """Numbers with those of a group of heads, which are normalised together, last."""
    scan = shop.transformer.scan
    assert scan is not None
    return x.reshape(*x.shape[:3], -1, scan.heads // scan.key_heads * x.shape[-1])


def _unit(x: Numbers) -> tuple[Numbers, Numbers]:
    root = np.sqrt(np.einsum("...h,...h->...", x, x)[..., None] / x.shape[-1] + NORM_EPSILON)
    return x / root, root


def _gated_norm(shop: Workshop, op: Elementwise, arrays: Arrays) -> Arrays:
    x, gate, scale = arrays
    unit, _ = _unit(_grouped(shop, x * gate * _sigmoid(gate)))
    return [unit.reshape(x.shape) * _all_tokens(scale)]


def _d_gated_norm(shop: Workshop, op: Elementwise, arrays: Arrays) -> Arrays:
    gradient, x, gate, scale = arrays
    share = _sigmoid(gate)
    unit, root = _unit(_grouped(shop, x * gate * share))
    inner = _grouped(shop, gradient * _all_tokens(scale))
    mean = np.einsum("...h,...h->...", inner, unit)[..., None] / unit.shape[-1]
    d_in = ((inner - unit * mean) / root).reshape(x.shape)
    d_gate = d_in * x * share * (1 + gate * (1 - share))
    made = [d_in * gate * share, d_gate, _summed(gradient * unit.reshape(x.shape))]
    return made[: len(op.writes)]


@of_arrays
def _norm_gate(x: Numbers, gate: Numbers, scale: Numbers) -> Arrays:
    unit, _ = _unit(x)
    return [unit * _all_tokens(scale)[:, :, :, None] * gate * _sigmoid(gate)]


@of_arrays
def _d_norm_gate(gradient: Numbers, x: Numbers, gate: Numbers, scale: Numbers) -> Arrays:
    share, weight = _sigmoid(gate), _all_tokens(scale)[:, :, :, None]
    unit, root = _unit(x)
    inner = gradient * weight * gate * share
    mean = np.einsum("...h,...h->...", inner, unit)[..., None] / unit.shape[-1]
    d_gate = gradient * unit * weight * share * (1 + gate * (1 - share))
    d_scale = (gradient * unit * gate * share).sum(axis=(1, 2, 3))
    return [(inner - unit * mean) / root, d_gate, d_scale]


# Gates and norms of other layers


@of_arrays
def _d_sigmoid_gate(gradient: Numbers, gate: Numbers, x: Numbers) -> Arrays:
    share = _sigmoid(gate)
    return [gradient * x * share * (1 - share), gradient * share]


def _root(op: Elementwise, squares: Numbers, at: int) -> tuple[Numbers, float]:
    count = float(op.reads[at].dims[2].whole * op.reads[at].dims[3].whole)
    return np.sqrt(squares / count + NORM_EPSILON)[..., None, None], count


def _norm_by(shop: Workshop, op: Elementwise, arrays: Arrays) -> Arrays:
    x, scale, squares = arrays
    root, _ = _root(op, squares, 0)
    return [x / root * _all_tokens(scale)]


def _d_norm_by(shop: Workshop, op: Elementwise, arrays: Arrays) -> Arrays:
    gradient, x, scale, squares = arrays
    root, count = _root(op, squares, 1)
    inner = gradient * _all_tokens(scale)
    d_squares = -(inner * x / root**3).sum(axis=(3, 4)) / (2 * count)
    d_scale = [_summed(gradient * x / root)]
    return [inner / root, *d_scale[: len(op.writes) - 2], d_squares]


def _token_share(tokens: Numbers, weight: Numbers) -> Numbers:
    return _sigmoid(np.einsum("rbsh,rh->rbs", tokens, weight))


@of_arrays
def _d_weighed(gradient: Numbers, x: Numbers, tokens: Numbers, weight: Numbers) -> Arrays:
    share = _token_share(tokens, weight)
    d_inner = np.einsum("rbsh,rbsh->rbs", gradient, x) * share * (1 - share)
    d_tokens = d_inner[..., None] * _all_tokens(weight)
    return [gradient * share[..., None], d_tokens, _summed(d_inner[..., None] * tokens)]


SCANS: Mapping[str, Function] = {
    **named(
        (
            *(_convolve, _d_convolve, _scan_rates, _d_scan_rates, _d_delta_rates),
            *(_d_skip, _gated_norm, _d_gated_norm, _norm_gate, _d_norm_gate),
            *(_d_sigmoid_gate, _norm_by, _d_norm_by, _d_weighed),
        )
    ),
    "sigmoid_gate": of_arrays(lambda gate, x: [_sigmoid(gate) * x]),
    "delta_rates": of_arrays(
        lambda step, decay, rate, offset: [
            _sigmoid(step),
            -np.exp(_all_tokens(rate)) * _softplus(decay + _all_tokens(offset)),
        ]
    ),
    "skip": of_arrays(lambda out, value, skip: [out + value * _all_tokens(skip)[..., None]]),
    "weighed": of_arrays(lambda x, tokens, weight: [x * _token_share(tokens, weight)[..., None]]),
    "squares": of_arrays(lambda x: [np.einsum("rbsnd,rbsnd->rbs", x, x)]),
    "d_squares": of_arrays(lambda gradient, x: [2 * x * gradient[..., None, None]]),
}
"""Functions of a scan and of the gates and norms around it, by the name that programs use."""
