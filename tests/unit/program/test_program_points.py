from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.steps import points_where


@settings(max_examples=50, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4)),
    spans=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    axes=st.integers(0, 3),
    seed=st.integers(0, 99),
)
def test_picking_is_broadcasting_and_masking(shape, spans, axes, seed):
    random = np.random.default_rng(seed)
    mask = random.random(shape) < 0.5
    own = tuple(n if span else 1 for n, span in zip(shape, spans, strict=True))[3 - axes :]
    array = random.random(own)
    points = points_where(mask)
    picked = np.broadcast_to(points.pick(array), (len(points),))
    assert np.array_equal(picked, np.broadcast_to(array, shape)[mask])


def test_chunks_are_the_layouts_in_order():
    points = points_where(np.ones((3, 5), dtype=np.bool_))
    array = np.arange(5.0)
    parts = [chunk.pick(array) for chunk in points.chunks(4)]
    assert [len(part) for part in parts] == [4, 4, 4, 3]
    assert np.array_equal(np.concatenate(parts), np.tile(array, 3))
