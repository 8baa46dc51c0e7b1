from __future__ import annotations

from trnbench.machine.costs.instructions import EXCHANGED, MEMORY, TENSOR, WAITING
from trnbench.predict.prediction import differences


def test_a_category_is_told_with_the_quantity_that_differs_most():
    (found,) = differences(
        {"matrix": 10.0, "tensor": 5.0},
        {"matrix": 12.0, "tensor": 5.1},
        {"matrix": {TENSOR: 8.0, MEMORY: 4.0}, "tensor": {EXCHANGED: 5.0}},
        {"matrix": {TENSOR: 8.5, MEMORY: 4.0}, "tensor": {EXCHANGED: 9.0}},
    )
    assert found.category == "matrix"
    # 2 s beside the array's 8, and 3.5 beside its 8.5.
    assert found.quantity == WAITING
    assert (found.closed_quantity_s, found.played_quantity_s) == (2.0, 3.5)


def test_what_is_little_of_a_step_is_not_told():
    assert (
        differences({"matrix": 10.0, "data": 0.001}, {"matrix": 10.0, "data": 0.002}, {}, {}) == ()
    )


def test_a_category_that_nobody_knows_the_parts_of_waits():
    (found,) = differences({"bubble": 1.0}, {"bubble": 2.0}, {}, {})
    assert (found.quantity, found.closed_quantity_s, found.played_quantity_s) == (WAITING, 1.0, 2.0)
