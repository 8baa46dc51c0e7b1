from __future__ import annotations

import numpy as np
import pytest

from trnbench.facts.catalog.structure import structure
from trnbench.facts.workload.layout import Layout


def layout(**changes) -> Layout:
    return Layout(**{"global_batch": 8, "sequence": 128, "precision": "bf16", **changes})


def test_ranks_are_the_product_of_the_degrees():
    assert layout(tp=8, pp=4, cp=2, dp=3, ep=6).ranks == 192


def test_degrees_may_be_grids():
    tp = np.array([1, 2, 4])[:, None]
    dp = np.array([1, 8])
    assert np.array_equal(layout(tp=tp, dp=dp).ranks, [[1, 8], [2, 16], [4, 32]])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tp": 0}, "`tp` must be from 1"),
        ({"global_batch": -1}, "`global_batch` must be from 1"),
        ({"tp": 0, "pp": -3}, "`tp` must be .*; `pp` must be"),
        ({"zero": 4}, "`zero` must be"),
        ({"recompute": "some"}, "`recompute` .some. is not one of none, selective, full"),
        ({"schedule": "zb"}, "`schedule` must be one of gpipe, 1f1b, interleaved, zb-h1"),
        ({"attention": "flash"}, "`attention` must be one of naive, fused"),
        ({"capacity_factor": 0.0}, "`capacity_factor` must be above 0"),
    ],
)
def test_malformed_values_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        layout(**changes)


def test_a_layout_reads_from_a_table():
    read = structure(
        {"tp": 4, "global_batch": 8, "sequence": 128, "zero": 1, "precision": "bf16"}, Layout
    )
    assert read == layout(tp=4, zero=1)


def test_a_table_with_faults_lists_them():
    faults = structure({"tp": "4", "sequence": 128, "zero": 5, "precision": "bf16"}, Layout)
    assert isinstance(faults, list)
    assert {fault.path for fault in faults} == {"tp", "global_batch", "zero"}
