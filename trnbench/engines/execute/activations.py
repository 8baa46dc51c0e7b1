"""Activation functions and their slopes, in few passes over memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from trnbench.engines.execute.arithmetic import Numbers

_GELU_SCALE = float(np.sqrt(2 / np.pi))
_GELU_CUBIC = 0.044715
"""The tanh form of GELU (Hendrycks and Gimpel, arXiv 1606.08415)."""


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
