"""The population of software: its centre, the reach of left-out families, stacks drawn from it."""

from __future__ import annotations

import math

import pytest

from trnbench.evidence.fit.population import StrangerStep, centre_of, kind_of
from trnbench.facts.calibration.coverage import Spread
from trnbench.facts.calibration.population import KindOfSoftware, drawn, load_population
from trnbench.facts.calibration.stack_of import Stacks
from trnbench.facts.calibration.training_stack import (
    generic_stack,
    load_training_stack,
    passed_over,
)
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_platform
from trnbench.predict.setup import training_efficiency

CATALOG = open_catalog(environment={})


def steps(family: str, *residuals: float, known: float = 0.0) -> list[StrangerStep]:
    return [StrangerStep(family=family, residual=one, down=known, up=known) for one in residuals]


def test_the_centre_counts_families_and_not_steps():
    # One family of a hundred steps at +0.3 does not outvote four at 0.
    crowd = [[0.3] * 100, *([0.0, 0.01, -0.01] for _ in range(4))]
    assert 0.0 < centre_of(crowd).centre < 0.1
    assert centre_of([[0.3] * 100]).centre > 0.1


def test_a_family_far_away_hardly_moves_the_centre():
    near = [[0.02, 0.04, 0.06], [0.03, 0.05, 0.01], [0.04, 0.05, 0.06], [0.02, 0.02, 0.05]]
    far = centre_of([*near, [0.9, 0.9, 0.9]])
    assert abs(far.centre - centre_of(near).centre) < 0.08
    assert far.between > centre_of(near).between


def test_each_side_reaches_as_far_as_families_left_out():
    slow = [one for name in "abcdefgh" for one in steps(name, 0.0, 0.0, 0.25)]
    kind = kind_of(slow)
    assert math.log(kind.spread.high) > 1.5 * -math.log(kind.spread.low)
    # What uncertain parameters reach anyhow asks nothing of the spread.
    known = kind_of([one for name in "abcdefgh" for one in steps(name, 0.0, 0.0, 0.25, known=1.0)])
    assert known.spread.high < kind.spread.high
    assert (kind.rows, len(kind.families)) == (24, 8)


def test_a_stack_drawn_from_a_kind_has_its_level_and_its_scatter():
    platform = load_platform(CATALOG, "p5.48xlarge")
    generic = generic_stack(CATALOG, "eager", platform.instance)
    spread = Spread(low=0.8, high=1.5)
    kind = KindOfSoftware(families=("a",), rows=1, level=1.2, spread=spread, without_family=0.1)
    stack = drawn(generic, kind)
    assert stack.factor == pytest.approx(1.2 * generic.factor)
    assert stack.spread_on("p5.48xlarge") == spread
    low = generic.provenance.evidence["factor"].low
    assert low is not None
    assert stack.provenance.evidence["factor"].low == pytest.approx(1.2 * low)


def test_software_of_no_known_kind_scatters_most():
    population = load_population(CATALOG)
    assert population is not None
    for one in (population.eager, population.compiled):
        assert population.any.spread.low <= one.spread.low
        assert population.any.spread.high >= one.spread.high
    platform = load_platform(CATALOG, "p5.48xlarge")
    stacks = Stacks(CATALOG)
    assert stacks.of("homemade", "", platform).stack.spread == population.any.spread
    assert stacks.of("torchtune", "", platform).stack.spread == population.eager.spread


def test_software_on_other_chips_scatters_as_transfers_that_can_be_checked():
    population = load_population(CATALOG)
    assert population is not None
    assert population.carried is not None
    for instance, stack in (("p4d.24xlarge", "nemo-ampere"), ("trn2.48xlarge", "nxd-trn2")):
        carried = training_efficiency(CATALOG, load_platform(CATALOG, instance), stack).stack
        assert carried.spread_on(instance) == population.carried.spread
    # Software measured on these chips keeps its own scatter, whatever the machine.
    own = load_training_stack(CATALOG, "nemo-hopper")
    here = training_efficiency(CATALOG, load_platform(CATALOG, "p5.48xlarge"), "nemo-hopper").stack
    assert here.spread == own.spread


def test_stacks_with_steps_on_the_chips_are_named_beside_one_without():
    platform = load_platform(CATALOG, "p4d.24xlarge")
    carried, own = (load_training_stack(CATALOG, name) for name in ("nemo-ampere", "hf-ampere"))
    assert "megatron-a100" in passed_over(CATALOG, carried, platform)
    assert passed_over(CATALOG, own, platform) == ()
    # Where a stack has steps on the very machine, that one is named, and no other.
    titan = load_training_stack(CATALOG, "torchtitan-trn2")
    assert passed_over(CATALOG, titan, load_platform(CATALOG, "trn2.48xlarge")) == ("axlearn-trn2",)
