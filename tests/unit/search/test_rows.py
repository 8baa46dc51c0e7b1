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


parts = st.lists(st.sets(st.integers(0, 4), min_size=1).map(sorted), min_size=1, max_size=4)


@given(parts, st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), min_size=1))
def test_layouts_before_a_place_are_those_with_smaller_sizes(table, wanted):
    held = [table[number % len(table)] for number, _ in wanted]
    begins = np.cumsum([0, *map(len, table)])
    rows = Rows(
        shape=SHAPE,
        index=(np.zeros(len(held), int),) * 2,
        start=np.array([begins[number % len(table)] for number, _ in wanted]),
        count=np.array([*map(len, held)]),
        sizes=np.array([size for part in table for size in part]),
    )
    found = rows.before(np.array([place for _, place in wanted])).tolist()
    pairs = zip(held, wanted, strict=True)
    assert found == [sum(size < place for size in sizes) for sizes, (_, place) in pairs]


@given(counts, counts)
def test_parts_together_have_all_their_layouts(one, other):
    parts = rows_of(TABLE, one), rows_of(TABLE[::-1], other)
    apart = [place for part in parts for place in places(part.points())]
    assert places(together(SHAPE, parts).points()) == apart
    assert places(together(SHAPE, [listed(part.points()) for part in parts]).points()) == apart
