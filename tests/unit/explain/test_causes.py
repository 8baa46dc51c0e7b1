"""The table of causes: every one changes a prediction, and what cannot be read is refused."""

from __future__ import annotations

import pytest

from tests.planted import cluster
from trnbench.errors import DataFileError
from trnbench.evidence.explain.causes import CauseList, load_causes
from trnbench.evidence.explain.change import in_words
from trnbench.facts.catalog.document import load
from trnbench.facts.catalog.search import built_in_folder, open_catalog
from trnbench.predict.ranges import numbers_by_key, ranges_of
from trnbench.predict.setup import train_setup

pytestmark = pytest.mark.xdist_group("planted")


@pytest.fixture(scope="module")
def causes():
    return load_causes(open_catalog())


@pytest.mark.slow
def test_every_cause_changes_a_row(causes):
    found = {effect.cause.id for effect in cluster("h100").effects}
    assert found == {cause.id for cause in causes.cause}


@pytest.mark.slow
def test_every_effect_is_said_in_words():
    words = {in_words(effect.way, effect.magnitude) for effect in cluster("h100").effects}
    assert {"recompute full", "network bandwidth x 0.5", "global batch x 2"} <= words
    assert {"MFU with recompute", "time with recompute, MFU without"} <= words
    assert {
        "tensor-parallel groups on 2 nodes each",
        "peak, devices or tokens counted x 4",
    } <= words


@pytest.mark.parametrize("stack", ["training-nemo-hopper", "training-nxd-trn1"])
def test_numbers_by_key_are_those_that_have_ranges(stack):
    instance = "p5.48xlarge" if "hopper" in stack else "trn1.32xlarge"
    efficiency = train_setup(open_catalog(), "llama2-7b", instance, 1, stack=stack).efficiency
    numbers = numbers_by_key(efficiency)
    for key, known in ranges_of(efficiency).items():
        if "releases." not in key:
            assert numbers[key] == known.value, key


@pytest.mark.parametrize(
    ("line", "bad", "said"),
    [
        ('id = "network-latency"', 'id = "network-bandwidth"', "is given twice"),
        ('knob = "recompute"', 'knob = "recmpute"', "a layout has no 'recmpute'"),
        ('part = "network"', 'part = "nic"', "'nic'"),
        ("low = 0.25, high = 0.85", "low = 0.25", "needs a range"),
        ('"chip.memory_share"', '"chip.memory_shar"', "did you mean 'chip.memory_share'"),
        ("weight = 1.0", "weight = 0.0", "`weight` must be above 0"),
    ],
)
def test_what_is_wrong_in_a_table_of_causes_is_said(tmp_path, line, bad, said):
    text = (built_in_folder() / "specs" / "explain" / "steps.toml").read_text()
    assert line in text
    path = tmp_path / "steps.toml"
    path.write_text(text.replace(line, bad, 1))
    with pytest.raises(DataFileError) as caught:
        load(path, CauseList)
    assert said in str(caught.value) + " ".join(map(str, caught.value.faults))
