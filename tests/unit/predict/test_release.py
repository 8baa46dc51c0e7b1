"""A release has the factor that its steps date, or the newest one's and a wider interval."""

from __future__ import annotations

import math

import pytest

from trnbench.errors import InputError
from trnbench.facts.calibration.population import load_population
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_platform
from trnbench.predict.release import of_release
from trnbench.predict.setup import train_setup, training_efficiency
from trnbench.verbs.quotes.question import StackChoice

CATALOG = open_catalog(environment={})


def efficiency(instance: str):
    return training_efficiency(CATALOG, load_platform(CATALOG, instance), None)


def test_a_dated_release_has_its_own_factor():
    known = efficiency("trn1.32xlarge")
    dated, assumed = of_release(CATALOG, known, "2.10.3")
    assert dated.stack.release == "2.10"
    assert dated.whole_factor == pytest.approx(known.stack.factor * known.chip.releases["2.10"])
    assert dated.stack.spread == known.stack.spread
    assert assumed is not None
    assert (assumed.name, assumed.value) == ("release", "2.10")


def test_an_unknown_release_is_the_newest_in_a_wider_interval():
    known = efficiency("trn1.32xlarge")
    newer, assumed = of_release(CATALOG, known, "2.99")
    assert newer.stack.release == "2.28"
    assert assumed is not None
    assert assumed.why.startswith(
        "no step dates 2.99; between releases of one software times differ"
    )
    population = load_population(CATALOG)
    assert population is not None
    assert population.releases is not None
    for end in ("low", "high"):
        own, apart, found = (
            math.log(getattr(spread, end))
            for spread in (known.stack.spread, population.releases.spread, newer.stack.spread)
        )
        assert abs(found) == pytest.approx(math.hypot(own, apart))


def test_without_a_release_the_stack_says_which_it_stands_for():
    trainium = efficiency("trn1.32xlarge")
    same, assumed = of_release(CATALOG, trainium, None)
    assert same is trainium
    assert assumed is not None
    assert assumed.value == trainium.stack.release
    gpu = efficiency("p5.48xlarge")
    assert of_release(CATALOG, gpu, None) == (gpu, None)
    wider, _ = of_release(CATALOG, gpu, "26.99")
    assert wider.stack.factor == gpu.stack.factor
    assert wider.stack.spread.high > 1.3 * gpu.stack.spread.high / 1.1


def test_a_release_of_one_instance_type_leaves_the_others_alone():
    choice = StackChoice(release="trn1.32xlarge=2.10")
    assert choice.setup(CATALOG, "llama3.1-8b", "trn1.32xlarge").stack.release == "2.10"
    other = choice.setup(CATALOG, "llama3.1-8b", "p5.48xlarge")
    assert (other.release, other.assumed_release) == (None, None)
    assert other.spread == train_setup(CATALOG, "llama3.1-8b", "p5.48xlarge", 1).spread
    with pytest.raises(InputError, match=r"--release names trn1[.]32xlarge, which --on"):
        choice.refuse_strange(["p5.48xlarge"])
    with pytest.raises(InputError, match="--release a=b,c: give INSTANCE=NAME"):
        choice.but(release="a=b,c").refuse_strange(["a"])
