"""The tiles that fused attention visits, carried out in numpy, are attention and its gradients."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from trnbench.machine.tiling.attention import (
    FUSED_KERNELS,
    KEY_TILE,
    AttentionCall,
    parts_of_cores,
    visits,
)


def call_of(**changes) -> AttentionCall:
    sizes = {"queries": 300, "keys": 1100, "heads": 1, "kv_heads": 1}
    return AttentionCall(**{**sizes, "score_size": 16, "value_size": 8, **changes})


CALLS = {
    "full": call_of(causal=False),
    "causal": call_of(queries=4224, keys=4224),
    "ring": call_of(queries=1024, keys=2048, ring_queries=1024),
    "window": call_of(queries=1500, keys=1500, window=300),
    "more-queries": call_of(queries=2600, keys=1100),
    "sections": call_of(queries=256, keys=11000, causal=False),
    "late-part": call_of(queries=512, keys=1536, first_query=256),
    "late-part-of-ring": call_of(queries=512, keys=1536, first_query=256, ring_queries=768),
}
CASES = [*product(CALLS, FUSED_KERNELS)]


def mask_of(call: AttentionCall) -> np.ndarray:
    """Return which pairs count, from the positions alone."""
    at = np.array([call.position(query) for query in range(call.queries)])[:, None]
    keys = np.arange(call.keys)[None, :]
    if not call.causal:
        return np.ones((call.queries, call.keys), dtype=bool)
    return (keys <= at) & (keys > at - (call.window or call.keys + call.queries))


def operands(call: AttentionCall) -> tuple[np.ndarray, ...]:
    draw = np.random.default_rng(7)
    return (
        draw.normal(size=(call.queries, call.score_size)),
        draw.normal(size=(call.keys, call.score_size)),
        draw.normal(size=(call.keys, call.value_size)),
        draw.normal(size=(call.queries, call.value_size)),
    )


def weights_of(call: AttentionCall) -> tuple[np.ndarray, np.ndarray]:
    q, k, *_ = operands(call)
    scores = np.where(mask_of(call), q @ k.T, -np.inf)
    top = scores.max(axis=1, keepdims=True)
    sums = np.exp(scores - top).sum(axis=1, keepdims=True)
    return np.exp(scores - top) / sums, (top + np.log(sums))[:, 0]


def tiles_of(visit):
    """Yield (first key, end, masked, keys multiplied with values) of a visit's key tiles."""
    key = visit.key
    shape = visit.visit
    for i, width in enumerate(shape.widths):
        if i < shape.multiplied:
            yield key, key + width, shape.masks[i] > 0
        key += width


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kernel"), CASES)
def test_online_softmax_over_the_visits_is_attention(name, kernel):
    call = CALLS[name]
    q, k, v, _ = operands(call)
    mask = mask_of(call)
    top = np.full(call.queries, -np.inf)
    sums = np.zeros(call.queries)
    out = np.zeros((call.queries, call.value_size))
    finished = np.zeros(call.queries, dtype=bool)
    for placed in (placed for run in visits(call, kernel) for placed in run):
        shape = placed.visit
        rows = slice(placed.query, placed.query + shape.queries)
        assert shape.first == np.all(sums[rows] == 0)
        assert not finished[rows].any()
        for start, end, masked in tiles_of(placed):
            scores = q[rows] @ k[start:end].T
            if masked:
                scores = np.where(mask[rows, start:end], scores, -np.inf)
            new = np.maximum(top[rows], scores.max(axis=1))
            # A row that attends to none of these keys keeps a maximum of nothing.
            known = np.where(np.isneginf(new), 0.0, new)
            scale, weights = np.exp(top[rows] - known), np.exp(scores - known[:, None])
            sums[rows] = sums[rows] * scale + weights.sum(axis=1)
            out[rows] = out[rows] * scale[:, None] + weights @ v[start:end]
            top[rows] = new
        finished[rows] = shape.last
    assert finished.all()
    assert np.allclose(out / sums[:, None], weights_of(call)[0] @ v)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kernel"), CASES)
def test_gradients_over_the_visits_are_those_of_attention(name, kernel):
    call = CALLS[name]
    q, k, v, slope = operands(call)
    mask = mask_of(call)
    weights, log_sums = weights_of(call)
    dot = (slope * (weights @ v)).sum(axis=1, keepdims=True)
    by_q, by_k, by_v = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    backward = AttentionCall(
        **{f: getattr(call, f) for f in call.__struct_fields__} | {"backward": True}
    )
    for placed in (placed for run in visits(backward, kernel) for placed in run):
        rows = slice(placed.query, placed.query + placed.visit.queries)
        for start, end, masked in tiles_of(placed):
            keys = slice(start, end)
            again = np.exp(q[rows] @ k[keys].T - log_sums[rows, None])
            if masked:
                again = np.where(mask[rows, keys], again, 0.0)
            by_scores = again * (slope[rows] @ v[keys].T - dot[rows])
            by_v[keys] += again.T @ slope[rows]
            by_k[keys] += by_scores.T @ q[rows]
            by_q[rows] += by_scores @ k[keys]
    right = weights * (slope @ v.T - dot)
    assert np.allclose(by_v, weights.T @ slope)
    assert np.allclose(by_k, right.T @ q)
    assert np.allclose(by_q, right @ k)


def test_causal_tiles_above_the_diagonal_are_skipped():
    whole = AttentionCall(
        queries=8192, keys=8192, heads=1, kv_heads=1, score_size=128, value_size=128
    )
    tiles = {
        kernel: sum(len(p.visit.widths) for run in visits(whole, kernel) for p in run)
        for kernel in FUSED_KERNELS
    }
    squares = (8192 // KEY_TILE) * (8192 // KEY_TILE + 1) // 2
    # Tiles of 128 x 512 on and below the diagonal; the training kernel skips 2,048 keys at a time.
    assert tiles["library"] == squares * KEY_TILE // 128
    assert tiles["training"] == 16 * 4 * (1 + 2 + 3 + 4)
    products = sum(p.visit.multiplied for run in visits(whole, "training") for p in run)
    assert products == tiles["library"]


def test_heads_go_whole_to_cores_and_an_odd_one_is_shared():
    call = call_of(queries=4096, keys=4096, heads=5)
    (first, early), (second, late) = parts_of_cores(call, 2, "library")
    assert (first.heads, second.heads) == (2, 2)
    assert (early.queries, late.queries, late.first_query) == (2688, 1408, 2688)
    assert (early.position(2687), late.position(0)) == (2687, 2688)
    ((most,),) = parts_of_cores(call, 2, "training")
    assert most.heads == 3
    assert [[part.heads for part in core] for core in parts_of_cores(call, 5, "library")] == [[1]]
