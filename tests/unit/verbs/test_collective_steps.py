"""Collectives round by round: what links carry adds up to what the whole collective moves."""

from __future__ import annotations

import pytest

from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.workload.library import Place
from trnbench.verbs.collective.steps import collective_steps

KIB = 1024.0


def test_a_ring_of_eight_gpus_by_hand():
    found = collective_steps(
        open_catalog(), "all-reduce", Place(instance="p5.48xlarge"), 64 * KIB, algorithm="ring"
    )
    whole = found.whole
    assert whole is not None
    # Seven rounds to add up and seven to hand on, eight messages each, an eighth of the data each:
    # every GPU sends 14 x 8 KiB = 112 KiB.
    assert whole.times == 14
    assert whole.messages == 14 * 8
    assert whole.busiest[0].size_bytes == pytest.approx(112 * KIB)
    assert [step.times for step in found.steps] == [7, 7]
    for step in found.steps:
        assert step.messages == 8
        assert step.busiest[0].size_bytes == pytest.approx(8 * KIB)
        assert step.busiest[0].busy == 1.0
    # 112 KiB at the 450 GB/s that a GPU of an H100 node has each way: 255 ns.
    assert whole.over_s == pytest.approx(112 * KIB / 450e9)


def test_loads_are_shares_of_capacity_over_the_time_that_it_takes():
    where = Place(instance="dgx-h100")
    busiest = 112 * KIB / 450e9
    found = collective_steps(open_catalog(), "all-reduce", where, 64 * KIB, time_s=4 * busiest)
    # A link that is busy for 255 ns of 1,020 carries a quarter of what it could.
    assert found.whole is not None
    assert found.whole.busiest[0].busy == pytest.approx(0.25)
    assert found.steps[0].busiest[0].busy == 1.0


@pytest.mark.parametrize(
    ("instance", "planes", "onward"), [("trn1.32xlarge", 1, 0), ("trn2-ultraserver", 4, 16)]
)
def test_every_plane_of_a_torus_has_its_loads(instance, planes, onward):
    found = collective_steps(open_catalog(), "all-reduce", Place(instance=instance), 2.0**30)
    assert found.whole is not None
    assert len(found.whole.planes) == planes
    for plane in found.whole.planes:
        assert plane.shape == (4, 4)
        assert len(plane.right) == len(plane.below) == 16
        assert len(plane.onward) == onward
        assert max((*plane.right, *plane.below)) > 0
        assert all(0 <= load <= 1 for load in (*plane.right, *plane.below, *plane.onward))
    # An all-reduce over all ranks treats all planes alike.
    assert len({(plane.right, plane.below) for plane in found.whole.planes}) == 1


def test_what_cannot_run_says_why():
    found = collective_steps(
        open_catalog(), "all-reduce", Place(instance="trn1.32xlarge"), 1e6, algorithm="in-switch"
    )
    assert found.reasons
    assert found.steps == ()
    assert found.whole is None
