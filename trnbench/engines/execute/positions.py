"""Position of tokens: rotary encoding, and the keys that a query may see."""

from __future__ import annotations

import numpy as np

from trnbench.engines.execute.arithmetic import Numbers
from trnbench.facts.arrays import BoolArray, IntArray
from trnbench.facts.workload.model import ROTARY_BASE, Attention, Transformer
from trnbench.program.tensor import Dim


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
