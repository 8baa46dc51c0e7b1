"""Which stack a row ran with, on machines that stacks name and on ones of somebody's own."""

from __future__ import annotations

import pytest

from trnbench.errors import InputError
from trnbench.facts.calibration.stack_of import Stacks
from trnbench.facts.calibration.training_stack import load_training_stack
from trnbench.facts.catalog.search import BUILT_IN, Catalog, Folder, built_in_folder
from trnbench.facts.hardware.library import load_platform


@pytest.fixture
def catalog(tmp_path):
    (tmp_path / "instances").mkdir()
    text = 'name = "lab"\nprovider = "own"\nlike = "dgx-h100"\n'
    (tmp_path / "instances" / "lab.toml").write_text(text)
    return Catalog((Folder(tmp_path, "user"), Folder(built_in_folder(), BUILT_IN)))


@pytest.mark.parametrize(
    ("framework", "stack"),
    [("NeMo", "training-nemo-hopper"), ("MaxText", "training-jax-hopper")],
)
def test_software_is_known_by_its_name_on_any_machine_with_its_chip(catalog, framework, stack):
    found = Stacks(catalog).of(framework, "", load_platform(catalog, "lab"))
    assert (found.stack.name, found.own, found.usual) == (stack, True, False)


def test_software_that_nobody_names_is_stood_in_for(catalog):
    found = Stacks(catalog).of("homemade", "", load_platform(catalog, "lab"))
    assert (found.stack.name, found.own) == ("training-eager-hopper", False)


def test_a_machine_that_stacks_name_is_served_by_those_alone(catalog):
    known = load_platform(catalog, "grand-teton-h100")
    assert not Stacks(catalog).of("MaxText", "", known).own


@pytest.mark.parametrize(
    ("framework", "instance", "stack"),
    [
        *[("nxdt", "trn1.32xlarge", "nxd-trn1"), ("nxdt", "trn2.48xlarge", "nxd-trn2")],
        ("optimum-neuron", "trn1.32xlarge", "optimum-neuron-trn1"),
        *[
            ("torchtitan", "trn2.3xlarge", "torchtitan-trn2"),
            ("torchtitan", "lab", "torchtitan-hopper"),
        ],
        *[
            ("megatron", "dgx-a100", "megatron-a100"),
            ("torchtitan", "dgx-b200", "compiled-blackwell"),
        ],
    ],
)
def test_a_framework_stands_for_its_stack_on_the_instance(catalog, framework, instance, stack):
    found = Stacks(catalog).by_name(framework, load_platform(catalog, instance))
    assert found.stack.short_name == stack
    assert found.own is (stack != "compiled-blackwell")


@pytest.mark.slow
def test_a_framework_is_refused_where_it_does_not_run(catalog):
    with pytest.raises(InputError, match="nxdt does not run on lab") as refused:
        Stacks(catalog).by_name("nxdt", load_platform(catalog, "lab"))
    assert "megatron, megatron-bridge" in str(refused.value.hint)
    # Rows of other software are stood in for there, as if nothing were said.
    stacks = Stacks(catalog, otherwise="nxdt")
    assert not stacks.of("homemade", "", load_platform(catalog, "lab")).own
    there = stacks.of("homemade", "", load_platform(catalog, "trn2.48xlarge"))
    assert there.stack.short_name == "nxd-trn2"


def test_a_stack_of_ones_own_goes_before_a_framework_of_its_name(catalog, tmp_path):
    (tmp_path / "calibration").mkdir()
    text = (built_in_folder() / "specs/calibration/training-eager-hopper.toml").read_text()
    own = text.replace('"training-eager-hopper"', '"training-megatron"', 1)
    (tmp_path / "calibration" / "training-megatron.toml").write_text(own)
    found = Stacks(catalog).by_name("megatron", load_platform(catalog, "lab"))
    assert found.stack == load_training_stack(catalog, "training-megatron")
