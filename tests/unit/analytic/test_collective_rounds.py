"""Rounds that were looked at for one collective serve others: like profiles with and without."""

from __future__ import annotations

import numpy as np
import pytest

from tests.collectives import place_collective
from trnbench.engines.analytic.collective.profile import PhaseMemo, profile
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.workload.choices import Op
from trnbench.machine.message_plan.placed import Placed
from trnbench.machine.message_plan.select import algorithm_named
from trnbench.machine.placement import place

OPS: tuple[Op, ...] = ("all-reduce", "all-gather", "reduce-scatter")


@pytest.mark.parametrize("name", ["hierarchical:ring:ring", "hierarchical:ring:halving"])
@pytest.mark.parametrize("instance", ["trn2.48xlarge", "p5.48xlarge"])
def test_rounds_known_from_other_node_counts_and_parts_are_like_new_ones(
    instance: str, name: str
) -> None:
    platform, memo = load_platform(open_catalog(), instance), PhaseMemo()
    for nodes in (2, 8, 4):
        placement = place(platform, nodes=nodes)
        groups = np.arange(placement.ranks).reshape(1, -1)
        for op in OPS:
            placed = place_collective(placement, op, groups, algorithm_named(name))
            assert isinstance(placed, Placed)
            for new, known in zip(
                profile(placed).phases, profile(placed, memo).phases, strict=True
            ):
                for field in ("times", "counts", "adds", "fanout", "loads"):
                    np.testing.assert_allclose(
                        getattr(known, field), getattr(new, field), rtol=1e-12, err_msg=field
                    )
                for field in ("count", "latency_s", "busiest_s_per_byte", "share", "queue"):
                    np.testing.assert_allclose(
                        getattr(known.classes, field),
                        getattr(new.classes, field),
                        rtol=1e-12,
                        err_msg=field,
                    )
