"""Parts of a decoder between matrix products, in JAX, for training and for timing alone.

The caller passes `jax`, which is imported only after the devices are chosen.
"""

from __future__ import annotations

from typing import Any

_NORM_GUARD = 1e-6
_MASKED = -1e9
_ROTARY_BASE = 10000.0

Array = Any
"""A JAX array; JAX is untyped here."""


class Pieces:
    """Functions of arrays; statistics and the loss are in fp32 for all input formats."""

    def __init__(self, jax: Any) -> None:  # noqa: ANN401
        self.jax, self.np = jax, jax.numpy

    def norm(self, x: Array, weight: Array) -> Array:
        wide = x.astype(self.np.float32)
        scale = self.jax.lax.rsqrt(self.np.mean(wide * wide, axis=-1, keepdims=True) + _NORM_GUARD)
        return ((wide * scale) * weight).astype(x.dtype)

    def joined(self, stream: Array, branch: Array, weight: Array) -> tuple[Array, Array]:
        stream = stream + branch
        return stream, self.norm(stream, weight)

    def heads(self, mixed: Array, size: int) -> tuple[Array, Array, Array]:
        """Rotated queries and keys, and values [batch, head, token, size] of a projection."""
        split = mixed.reshape(*mixed.shape[:2], 3, -1, size)
        query, key, value = (split[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
        return self._rotated(query), self._rotated(key), value

    def fused(self, query: Array, key: Array, value: Array, kernel: str | None) -> Array:
        """The context of the backend's fused causal attention, heads side by side."""
        by_token = (one.transpose(0, 2, 1, 3) for one in (query, key, value))
        context = self.jax.nn.dot_product_attention(
            *by_token, is_causal=True, implementation=kernel
        )
        return context.reshape(*context.shape[:2], -1)

    def merged(self, context: Array) -> Array:
        batch, heads, tokens, size = context.shape
        return context.transpose(0, 2, 1, 3).reshape(batch, tokens, heads * size)

    def _rotated(self, x: Array) -> Array:
        half = x.shape[-1] // 2
        steps = self.np.arange(half, dtype=self.np.float32) / half
        angle = self.np.arange(x.shape[2], dtype=self.np.float32)[:, None] * _ROTARY_BASE**-steps
        sine, cosine = self.np.sin(angle)[None, None], self.np.cos(angle)[None, None]
        low, high = x[..., :half], x[..., half:]
        turned = (low * cosine - high * sine, high * cosine + low * sine)
        return self.np.concatenate(turned, axis=-1).astype(x.dtype)

    def gated(self, wide: Array) -> Array:
        half = wide.shape[-1] // 2
        return self.jax.nn.silu(wide[..., :half]) * wide[..., half:]

    def statistics(self, logits: Array, place: Array, largest: Array) -> Array:
        """A rank's contributions to the loss: sum of exponentials, and the target's logit.

        `place` is the target's index in the rank's slice of the vocabulary; out of range elsewhere.
        """
        wide = logits.astype(self.np.float32)
        here = self.np.arange(logits.shape[-1]) == place[..., None]
        sums = self.np.exp(wide - largest[..., None]).sum(axis=-1)
        return self.np.stack([sums, self.np.where(here, wide, 0.0).sum(axis=-1)])

    def probabilities(self, scores: Array) -> Array:
        """The causal softmax of scores [batch, head, query, key], scaled by 1/8."""
        queries, keys = scores.shape[-2:]
        later = self.np.arange(queries)[:, None] < self.np.arange(keys)[None, :]
        scaled = self.np.where(later, _MASKED, scores.astype(self.np.float32) * 0.125)
        return self.jax.nn.softmax(scaled, axis=-1).astype(scores.dtype)

    def updated(
        self, weight: Array, gradient: Array, state: tuple[Array, Array], step: Array, clip: Array
    ) -> tuple[Array, tuple[Array, Array]]:
        """A weight after a step of AdamW, and its state; `clip` scales the gradient."""
        gradient = gradient * clip
        mean = 0.9 * state[0] + 0.1 * gradient
        square = 0.95 * state[1] + 0.05 * gradient * gradient
        rate = 1e-3 * self.np.minimum(1.0, (step + 1) / 10)
        moved = (mean / (1 - 0.9 ** (step + 1))) / (
            self.np.sqrt(square / (1 - 0.95 ** (step + 1))) + 1e-8
        )
        return weight - rate * (moved + 0.1 * weight), (mean, square)
