"""Batches that ranks divide well, by hand."""

from __future__ import annotations

import pytest

from trnbench.predict.settled import MOST_BATCH, fitted_batch


@pytest.mark.parametrize(
    ("ranks", "batch"),
    [
        (2048, 1024),
        (2304, 1152),  # 9 x 2^8: 9 x 128
        (192, 1152),  # 3 x 2^6: 3 x 128 x 3; 3 x 512 would be half more
        (320, 1120),  # 5 x 2^6: 5 x 32 x 7; 5 x 256 would be a quarter more
        (7, 1120),  # 7 x 32 x 5
        (1, 1024),
        (1201, 1024),  # a prime above an eighth more: nothing near would do
    ],
)
def test_the_next_batch_that_ranks_divide_well(ranks, batch):
    assert fitted_batch(1024, ranks) == batch
    assert fitted_batch(batch, ranks) == batch
    assert batch <= MOST_BATCH * 1024


def test_degrees_that_are_given_divide_it_too():
    assert fitted_batch(1024, 64, step=48) == 1056
    assert fitted_batch(1024, 576, step=8) % 72 == 0
    assert fitted_batch(64, 9) == 72
