"""What a stack's software runs, refuses or was never seen to run: features, answers, searches."""

import re
from pathlib import Path
from typing import Any

import pytest

from trnbench.evidence.rows import read_evidence
from trnbench.evidence.training_cases import Reader
from trnbench.facts.calibration.supports import ANYTHING_ELSE, SupportLine
from trnbench.facts.calibration.training_stack import load_training_stack
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.catalog.toml_file import read_toml
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.library import load_model
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.predict.setup import runs, support_of, train_setup
from trnbench.predict.step import predict
from trnbench.program.features import EXPERTS_APART, features_of, known_features
from trnbench.verbs.asking.command_lines import command_question
from trnbench.verbs.compare.run import compare
from trnbench.verbs.spec.run import cross_faults
from trnbench.verbs.train.run import train

ROOT = Path(__file__).parents[3]
CATALOG = open_catalog()
STACKS = [name for name in CATALOG.names("calibration") if name.startswith("training-")]
STEP = Layout(global_batch=64, sequence=4096, precision="bf16-master", recompute="full", zero=1)
ON_NODE = replace(STEP, tp=8, dp=4, sequence_parallel=True)


def asked(model: str, **knobs) -> set[str]:
    return set(features_of(load_model(CATALOG, model), PartialLayout(**knobs)))


def test_features_are_what_a_model_is_made_of_and_what_acts_in_its_layout():
    assert asked("llama2-7b") == {"model decoder", "attention MHA"}
    assert asked("deepseek-v3") == {"model decoder", "attention MLA", "experts"}
    assert asked("bert-large") == {"model encoder", "attention MHA"}
    assert asked("dlrm-dcnv2", ep=4, dp=4) == {"model recommender"}
    assert {"expert parallel", "experts"} <= asked("mixtral-8x7b", ep=4)
    layout = {"schedule": "zb-h1", "zero": 3, "sequence_parallel": True, "context_parallel": "ring"}
    assert asked("llama2-7b", **layout) == asked("llama2-7b")
    assert asked("llama2-7b", **layout, tp=2, pp=4, cp=2, dp=2) - asked("llama2-7b") == {
        *("tensor parallel", "pipeline parallel", "context parallel", "schedule zb-h1", "zero 3"),
        *("sequence parallel", "context exchange ring"),
    }
    assert "precision bf16-master" in asked("llama2-7b", precision="bf16-mixed")


# Kinds of software stand for what nobody has named: no library, no release, no source of its own.
KINDS = (
    *("training-eager-", "training-compiled-", "training-graph-"),
    # What these run of their kind is not told apart.
    *("training-hf-", "training-internevo-"),
)


def test_an_order_of_ranks_that_cannot_cut_experts_apart_refuses_it():
    stack = load_training_stack(CATALOG, "training-nemo-hopper")
    assert runs(stack, EXPERTS_APART)
    found = support_of(replace(stack, order="dp-tp-pp"), EXPERTS_APART)
    assert found.status == "refused"
    assert "counts ranks" in found.words


@pytest.mark.parametrize("name", [name for name in STACKS if not name.startswith(KINDS)])
def test_a_calibration_says_what_its_prior_says_of_what_is_supported(name):
    # Software without a prior of its own is the one beside which it was written, run otherwise.
    of = name.replace("-eager-", "-")
    (path,) = (ROOT / "specs" / "priors").glob(f"**/{of}.toml")
    supports = read_toml(path)["supports"]
    assert read_toml(CATALOG.find("calibration", name).path)["supports"] == supports


@pytest.mark.parametrize("name", [name for name in STACKS if not name.startswith(KINDS)])
def test_every_line_of_a_stack_names_a_source_and_features_that_there_are(name):
    stack = load_training_stack(CATALOG, name)
    features = [feature for line in stack.supports for feature in line.features]
    assert set(features) <= {*known_features(), ANYTHING_ELSE}
    assert all(support_of(stack, feature).source for feature in features)
    assert any(runs(stack, f"model {family}") for family in ("decoder", "encoder", "vision"))
    assert stack.untested is not None
    assert (stack.untested.low, stack.untested.high) == (0.7, 2.0)
    assert stack.software is not None
    assert stack.provenance.source_of("software.state") is not None
    assert not list(cross_faults(stack, CATALOG))


def test_a_feature_that_is_none_is_a_fault_of_the_file():
    stack = load_training_stack(CATALOG, "nxd-trn1")
    wrong = replace(stack, supports=(SupportLine(status="runs", features=("zero 9",)),))
    (fault,) = cross_faults(wrong, CATALOG)
    assert fault.path == "supports[0].features[0]"
    assert "zero 9" in fault.message
    with pytest.raises(ValueError, match="two lines"):
        replace(stack, supports=stack.supports[:1] * 2)


def test_measured_steps_of_a_stack_prove_that_it_runs_what_they_ask():
    for name in ("gpu_steps", "trainium_steps"):
        (path,) = (
            entry
            for folder in CATALOG.folders
            for entry in (folder.path / "workloads" / "published").glob(f"{name}.csv")
        )
        for case in Reader(CATALOG).cases(read_evidence(path)):
            if isinstance(case, str) or not case.setup.own_stack:
                continue
            told = case.step.layout.changed(precision=case.layout.precision)
            beyond = case.setup.beyond(told)
            assert not beyond, (case.step.id, beyond)


def test_what_is_untested_is_warned_of_and_wider_and_what_runs_is_neither():
    setup = train_setup(CATALOG, "llama2-7b", "trn1.32xlarge", 1)
    plain, sharded = predict(setup, ON_NODE), predict(setup, replace(ON_NODE, zero=3))
    assert not any("untested" in warning for warning in plain.warnings)
    assert any("zero 3 is untested with nxd-trn1" in warning for warning in sharded.warnings)
    assert setup.spread_in(replace(ON_NODE, global_batch=1024)) == setup.spread
    wide = setup.spread_in(replace(ON_NODE, zero=3))
    assert (wide.low, wide.high) == (0.7, 2.0)
    assert plain.step is not None
    assert sharded.step is not None
    apart = [one.high_step_time_s / one.step_time_s for one in (plain.step, sharded.step)]
    assert apart[1] > 1.9 > apart[0]


def test_what_is_refused_says_who_by_what_source_and_what_helps():
    setup = train_setup(CATALOG, "llama2-7b", "trn1.32xlarge", 1)
    found = predict(setup, replace(ON_NODE, precision="fp8"))
    (reason,) = found.reasons
    assert re.search(r"nxd-trn1 does not run precision fp8 \(.*Distributed Training", reason)
    assert "precision bf16-sr" in reason
    assert "--assume-supported" in reason
    assumed = predict(replace(setup, assume_supported=True), replace(ON_NODE, precision="fp8"))
    assert assumed.step is not None
    assert any("assumed that it did" in warning for warning in assumed.warnings)


def test_a_search_refuses_what_the_stack_refuses_and_keeps_to_what_it_runs():
    asked: dict[str, Any] = {"on": "trn1.32xlarge", "global_batch": 64, "sequence": 2048}
    (no,) = train("llama2-7b", **asked, precision="fp8")
    assert no.reasons
    assert "does not run precision fp8" in no.reasons[0]
    (yes,) = train("llama2-7b", **asked, precision="fp8", assume_supported=True)
    assert yes.feasible
    (chosen,) = train("llama2-7b", **asked)
    stack = load_training_stack(CATALOG, chosen.calibration)
    given = features_of(load_model(CATALOG, "llama2-7b"), chosen.layout)
    assert all(runs(stack, feature) for feature in given)
    (told,) = train("llama2-7b", **asked, zero=3)
    assert told.feasible
    assert any("untested" in warning for warning in told.warnings)


def test_a_comparison_says_which_machine_refuses_and_names_software_and_state():
    machines: dict[str, Any] = {
        "on": "trn1.32xlarge,p5.48xlarge",
        "nodes": 4,
        "price_date": "2026-11-21",
    }
    answer = compare("llama2-7b", tokens="1B", global_batch=512, precision="fp8", **machines)
    trn1, p5 = (one.quote for one in answer.compared)
    assert not trn1.feasible
    assert "nxd-trn1 does not run precision fp8" in " ".join(trn1.reasons)
    assert p5.feasible
    row = trn1.row()
    assert row["stack"] == "nxd-trn1"
    assert "end of support" in str(row["stack_state"])


def test_command_lines_carry_the_assumption():
    asked = train.request("llama2-7b", on="trn1.32xlarge", assume_supported=True)
    assert "--assume-supported" in command_question("train", asked).line
    run: dict[str, Any] = {"tokens": "1B", "on": "trn1.32xlarge", "price_date": "2026-11-21"}
    assumed = compare.request("llama2-7b", **run, assume_supported=True)
    assert "--assume-supported" in command_question("compare", assumed).line
    assert "assume" not in command_question("compare", compare.request("llama2-7b", **run)).line


def test_uneven_chunks_are_told():
    setup = train_setup(CATALOG, "llama3.1-70b", "p5.48xlarge", 4)
    chunked = replace(STEP, tp=8, pp=4, schedule="interleaved")
    even, uneven = (predict(setup, replace(chunked, vpp=vpp)) for vpp in (5, 3))
    assert not any("do not divide into" in warning for warning in even.warnings)
    assert any(
        "80 layers do not divide into 4 x 3 chunks" in warning for warning in uneven.warnings
    )
