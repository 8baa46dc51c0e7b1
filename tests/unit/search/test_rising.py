"""Layouts that fit, found by a few looks along each row of micro-batches."""

import numpy as np
import pytest

from tests.unit.search.test_search import question
from trnbench.facts.records import replace
from trnbench.predict.search import rising
from trnbench.predict.search.rising import fitting
from trnbench.predict.search.rows import Rows
from trnbench.predict.search.search import search

SIZES = {0: [3.0, 5.0, 7.0, 9.0], 1: [8.0, 9.0], 2: [1.0], 3: [2.0, 4.0, 6.0]}
"""Bytes needed along each of four rows."""


def asked_of(sizes, available):
    """Return the mask of layouts that fit, and how many layouts were looked at."""
    flat = np.array([size for held in sizes.values() for size in held])
    rows = np.array([row for row, held in sizes.items() for _ in held])
    columns = np.array([column for held in sizes.values() for column in range(len(held))])
    number = np.zeros((4, 4), dtype=np.int64)
    number[rows, columns] = np.arange(len(flat))
    looked = []

    def needed(some):
        at = some.pick(number).tolist()
        looked.extend(at)
        return flat[at]

    count = np.bincount(rows)
    asked = Rows(
        shape=(4, 4),
        index=(np.arange(4),),
        start=np.cumsum(count) - count,
        count=count,
        sizes=columns,
    )
    kept = fitting(asked, available, needed).points().pick(number).tolist()
    return [at in kept for at in range(len(flat))], len(looked)


def test_each_row_is_cut_behind_the_largest_micro_batch_that_fits(monkeypatch):
    monkeypatch.setattr(rising, "AT_ONCE", 0)
    mask, looked = asked_of(SIZES, 6.5)
    assert mask == [True, True, False, False, False, False, True, True, True, True]
    # Four first ones, then the third of row 0 and of row 3, then the second of row 0.
    assert looked == 7


def test_few_layouts_in_doubt_are_looked_at_together():
    mask, looked = asked_of(SIZES, 6.5)
    assert mask == [True, True, False, False, False, False, True, True, True, True]
    # Four first ones, then the three behind them in row 0 and the two in row 3.
    assert looked == 9


def test_where_rounding_may_decide_every_layout_is_looked_at():
    mask, looked = asked_of({**SIZES, 0: [3.0, 5.0, 7.0, 6.9]}, 7.0)
    assert mask == [True, True, True, True, False, False, True, True, True, True]
    assert looked > 10


def test_of_experts_a_larger_micro_batch_may_need_less():
    experts = question("mixtral-8x7b", "trn2.48xlarge")
    assert not rising.rises(experts.model, experts.stack.memory)
    dense = question("llama2-7b", "trn2.48xlarge")
    assert rising.rises(dense.model, dense.stack.memory)
    late = replace(dense.stack.memory, gradients_made="backward")
    assert not rising.rises(dense.model, late)


@pytest.mark.parametrize("first", [False, True])
def test_the_best_count_what_fits_as_all_layouts_do(first, monkeypatch):
    monkeypatch.setattr(rising, "LARGE", 0)
    asked = question("llama2-7b", "trn1.32xlarge", [1, 2], batch=48, sequence=4096)
    assert rising.rises(asked.model, asked.stack.memory)
    every = search(asked, top=5)
    best = search(asked, top=5, best="of all" if first else "of each")
    assert tuple(best.ranked) == tuple(every.ranked)
    assert best.tally.feasible == every.tally.feasible
    assert best.tally.rejected_by_reason == every.tally.rejected_by_reason
