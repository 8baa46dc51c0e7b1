import math

import pytest

from trnbench.errors import UnknownNameError
from trnbench.facts.calibration.collective_stack import (
    FILE_PREFIX,
    CollectiveStack,
    Rule,
    load_stack,
    stack_of,
)
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_instance
from trnbench.facts.records import replace


def stacks() -> list[CollectiveStack]:
    catalog = open_catalog()
    names = [name for name in catalog.names("calibration") if name.startswith(FILE_PREFIX)]
    return [load_stack(catalog, name) for name in names]


def test_every_stack_loads_names_real_instances_and_says_what_set_it():
    catalog = open_catalog()
    found = stacks()
    assert len(found) >= 8
    listed = [name for stack in found for name in stack.instances]
    assert len(listed) == len(set(listed))
    for name in listed:
        assert load_instance(catalog, name).name == name
    for stack in found:
        assert stack.fitted_rows or stack.inherits_from
        assert stack.inherits_from is None or load_stack(catalog, stack.inherits_from)
        assert stack.provenance.evidence


def test_every_number_that_no_row_set_is_marked_so():
    trn2 = load_stack(open_catalog(), "collective-neuron-trn2")
    for field in ("on_chip", "link", "network", "launch"):
        evidence = trn2.provenance.evidence[f"tunings.node.{field}"]
        assert evidence.kind.name.lower() == "assumed"
        assert evidence.low is not None
        assert evidence.high is not None


def test_a_rule_fits_when_all_its_conditions_hold():
    rule = Rule(
        algorithm="tree", tuning="t", ops=("all-reduce",), nodes_from=3, nodes_to=8, ranks_to=64
    )
    assert rule.fits("all-reduce", 4, 32)
    assert not rule.fits("all-gather", 4, 32)
    assert not rule.fits("all-reduce", 2, 32)
    assert not rule.fits("all-reduce", 9, 32)
    assert not rule.fits("all-reduce", 4, 128)


def test_limits_are_the_smaller_of_fixed_and_per_node():
    both = Rule(algorithm="ring", tuning="t", below_bytes=100.0, below_per_node_bytes=30.0)
    assert both.limit_bytes(2) == 60
    assert both.limit_bytes(4) == 100
    assert Rule(algorithm="ring", tuning="t").limit_bytes(4) == math.inf


def test_faults_in_a_stack_are_refused():
    stack = load_stack(open_catalog(), "collective-neuron-trn1")
    with pytest.raises(ValueError, match="no tuning 'x'"):
        replace(stack, default_tuning="x")
    with pytest.raises(ValueError, match="`link` must be above 0"):
        replace(stack.tuning("node"), link=1.5)
    with pytest.raises(ValueError, match="`pieces` must be at least 1"):
        replace(stack.tuning("node"), pieces=0)
    with pytest.raises(UnknownNameError, match="did you mean 'node'"):
        stack.tuning("nood")
    with pytest.raises(UnknownNameError, match=r"unknown instance 'g5\.48xlarge'"):
        stack_of(open_catalog(), "g5.48xlarge")


def test_the_tuning_of_an_algorithm_is_that_of_its_last_rule():
    stack = load_stack(open_catalog(), "collective-nccl-hopper")
    assert stack.tuning_for("ring") == "ring"
    assert stack.tuning_for("in-switch") == "nvls"
    assert stack.tuning_for("mesh") == stack.default_tuning
