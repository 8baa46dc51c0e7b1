"""Rows of layouts: the layouts that they stand for, one by one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trnbench.predict.search.rows import Rows, listed, together

SHAPE = (3, 4, 5)


def rows_of(table, counts):
    """Return rows at these places; each has the first sizes of its own part of the table."""
    count = np.array([held for _, _, held in counts], dtype=np.int64)
    return Rows(
        shape=SHAPE,
        index=tuple(np.array([row[axis] for row in counts], dtype=np.int64) for axis in (0, 1)),
        start=np.minimum(np.arange(len(counts)), len(table) - count),
        count=count,
        sizes=np.array(table, dtype=np.int64),
    )


def places(layouts):
    return list(zip(*(axis.tolist() for axis in layouts.index), strict=True))


TABLE = [0, 2, 3, 4]
ROWS = rows_of(TABLE, [(0, 1, 2), (2, 0, 3)])


def test_a_row_has_its_part_of_the_table_of_sizes():
    assert places(ROWS.points()) == [(0, 1, 0), (0, 1, 2), (2, 0, 2), (2, 0, 3), (2, 0, 4)]
    assert (len(ROWS), ROWS.layouts) == (2, 5)
    assert places(ROWS.first) == [(0, 1, 0), (2, 0, 2)]
    assert places(ROWS.last) == [(0, 1, 2), (2, 0, 4)]
    assert ROWS.of_sizes().tolist() == [True, False, True, True, True]


def test_a_row_without_layouts_is_left_out():
    assert places(ROWS.upto(np.array([0, 1])).points()) == [(2, 0, 2)]
    assert ROWS.upto(np.array([1, 0])).of_sizes().tolist() == [True, False, False, False, False]


def test_rows_are_cut_where_enough_layouts_are_together():
    assert [places(part.points()) for part in ROWS.chunks(1)] == [
        [(0, 1, 0), (0, 1, 2)],
        [(2, 0, 2), (2, 0, 3), (2, 0, 4)],
    ]
    assert [part.layouts for part in ROWS.chunks(5)] == [5]


counts = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(1, 4)), min_size=1)
numbers = np.arange(60.0).reshape(SHAPE)
spans = st.sampled_from([(slice(None),) * 3, (slice(0, 1), *(slice(None),) * 2)])
narrow = st.sampled_from([slice(None), slice(0, 1)])


@given(counts, spans, narrow)
def test_looks_at_rows_pick_what_their_layouts_do(drawn, span, last):
    rows = rows_of(TABLE, drawn)
    array = numbers[span][..., last]
    every = rows.points()
    number = np.repeat(np.arange(len(rows)), rows.count)
    ahead = np.concatenate([np.arange(held) for held in rows.count])
    looked = rows.looked_at(number, ahead)
    assert looked.pick(array).tolist() == every.pick(array).tolist()
    one_each = rows.looked_at(None, rows.count - 1)
    assert one_each.pick(array).tolist() == rows.last.pick(array).tolist()


@given(counts, counts)
def test_parts_together_have_all_their_layouts(one, other):
    parts = rows_of(TABLE, one), rows_of(TABLE[::-1], other)
    apart = [place for part in parts for place in places(part.points())]
    assert places(together(SHAPE, parts).points()) == apart
    assert places(together(SHAPE, [listed(part.points()) for part in parts]).points()) == apart
