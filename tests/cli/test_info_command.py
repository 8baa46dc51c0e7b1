"""`trnbench info --support`: what runs with which stack where, and how that is known."""

from __future__ import annotations

import json

import pytest


@pytest.fixture(scope="module")
def cells():
    from trnbench.verbs.info.support import support

    return {(cell.stack, cell.instance, cell.family): cell for cell in support()}


@pytest.mark.slow
def test_fitted_rows_are_those_that_are_shipped(cells):
    """22 steps of decoders with NxD, 119 of encoders: as many as lines of the published file."""
    nxd = cells["nxd-trn1", "trn1.32xlarge", "decoder"]
    assert (nxd.status, nxd.measured_rows) == ("fitted", 22)
    assert cells["neuron-bert-trn1", "trn1.32xlarge", "encoder"].measured_rows == 119
    assert cells["nxd-trn1", "trn1n.32xlarge", "decoder"].status == "modelled"
    assert cells["nxd-trn2", "trn2.48xlarge", "decoder"].status == "modelled"


def test_what_makers_refuse_says_who(cells):
    refused = cells["optimum-neuron-trn2", "trn2.48xlarge", "decoder with experts"]
    assert refused.status == "refused"
    assert "source: " in refused.reason
    assert cells["nxd-trn2", "trn2.48xlarge", "encoder"].status == "untested"


@pytest.mark.slow
def test_people_see_a_matrix_and_machines_a_row_for_each_cell(run, cells):
    rows = run("info", "--support", "--json").json["rows"]
    assert len(rows) == len(cells)
    text = run("info", "--support").out
    (line,) = [one for one in text.splitlines() if "fitted 22" in one]
    assert line.startswith("nxd-trn1")
    assert "qwen3_moe is refused" in text


@pytest.mark.slow
def test_jobs_say_who_refuses_them_and_what_was_measured(run):
    done = run("info", "--jobs", "--json")
    assert done.code == 0
    cells = {(row["stack"], row["job"]): row for row in json.loads(done.out)["rows"]}
    refused = cells["nxd-trn2", "grpo"]
    assert refused["status"] == "refused"
    assert "NxD Training" in refused["reason"]
    # Shipped rows of LoRA are among those that this stack was fitted to.
    lora = cells["optimum-neuron-trn2", "lora"]
    assert (lora["status"], lora["measured_rows"] > 0) == ("fitted", True)
    assert cells["eager-hopper", "dpo"]["measured_rows"] == 0


def test_the_two_tables_are_asked_for_one_by_one(run):
    done = run("info", "--jobs", "--support")
    assert done.code == 2
    assert "give one of them" in done.err
