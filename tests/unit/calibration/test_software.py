"""Training software: names, chips, related names, and the end of support."""

from __future__ import annotations

import pytest

from trnbench import compare, train
from trnbench.errors import InputError
from trnbench.facts.calibration.software import (
    all_software,
    run_by,
    software_called,
    software_in,
    software_on,
)
from trnbench.facts.calibration.stack_of import Stacks
from trnbench.facts.calibration.training_stack import STACK_PREFIX, load_training_stack
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.records import replace
from trnbench.launch.catalogue import FRAMEWORKS
from trnbench.program.features import ACTIVATIONS_AWAY

CATALOG = open_catalog(environment={})


def test_every_framework_that_files_are_written_for_is_known():
    assert set(FRAMEWORKS) <= {one.name for one in all_software(CATALOG)}


def test_every_stack_that_names_its_software_has_a_file_of_it():
    for name in CATALOG.names("calibration"):
        if name.startswith(STACK_PREFIX):
            stack = load_training_stack(CATALOG, name)
            platform = load_platform(CATALOG, stack.instances[0])
            found = software_on(CATALOG, platform, stack.frameworks)
            assert (found is not None) == bool(stack.frameworks), name


@pytest.mark.parametrize(
    ("name", "instance", "runs"),
    [
        ("torchtitan", "trn1.32xlarge", False),
        ("torchtitan", "trn2.48xlarge", True),
        ("torchtitan", "p5.48xlarge", True),
        ("nxdt", "p5.48xlarge", False),
    ],
)
def test_software_runs_on_the_chips_of_its_file(name, instance, runs):
    software = software_called(CATALOG, name)
    assert software is not None
    assert software.runs_on(load_platform(CATALOG, instance)) is runs


def test_a_name_that_contains_megatron_is_the_megatron_stack_of_the_machine():
    platform = load_platform(CATALOG, "dgx-a100")
    assert software_in(CATALOG, platform, "Megatron-DeepSpeed 0.9") is not None
    found = Stacks(CATALOG).of("Megatron-DeepSpeed 0.9", "", platform)
    assert found.stack.name == "training-megatron-a100"
    assert not found.own
    deepspeed = software_in(CATALOG, platform, "DeepSpeed")
    assert deepspeed is not None
    assert deepspeed.name == "deepspeed"
    assert software_in(CATALOG, platform, "homemade") is None


def test_a_step_on_software_out_of_support_says_so():
    asked = {"tp": 8, "pp": 4, "dp": 4, "global_batch": 64}
    (ended,) = train("llama2-7b", on="trn1.32xlarge:4", **asked)
    assert any("support ended with Neuron SDK 2.32" in one for one in ended.warnings)
    (going,) = train("llama2-7b", on="trn2.48xlarge:2", global_batch=64)
    assert not any("support ended" in one for one in going.warnings)


def test_supported_only_leaves_out_what_is_out_of_support():
    answer = compare(
        "llama2-7b",
        tokens="10B",
        on="trn1.32xlarge,trn2.48xlarge",
        nodes=4,
        supported_only=True,
    )
    reasons = {row.instance: row.reasons for row in (one.quote for one in answer.compared)}
    assert "support ended" in reasons["trn1.32xlarge"][0]
    assert reasons["trn2.48xlarge"] == ()


def test_each_instance_may_have_a_stack_of_its_own():
    answer = compare(
        "llama2-7b",
        tokens="10B",
        on="trn1.32xlarge,trn2.48xlarge",
        nodes=4,
        stack="trn2.48xlarge=axlearn-trn2",
    )
    stacks = {row.instance: row.step.stack for row in (one.quote for one in answer.compared)}
    assert stacks == {"trn1.32xlarge": "nxd-trn1", "trn2.48xlarge": "axlearn-trn2"}


@pytest.mark.parametrize(
    ("stack", "said"),
    [
        ("p5.48xlarge=megatron", "which --on does not"),
        ("trn1.32xlarge=", "is none"),
        ("trn1.32xlarge=a,trn1.32xlarge=b", "named twice"),
    ],
)
def test_a_stack_for_an_instance_that_is_not_asked_is_refused(stack, said):
    with pytest.raises(InputError, match=said):
        compare("llama2-7b", tokens="10B", on="trn1.32xlarge", stack=stack)


def test_the_mfu_of_torchtitan_counts_its_own_peak():
    settled = {"pp": 1, "cp": 1, "vpp": 1, "zero": 3, "micro_batch": 1, "global_batch": 64}
    (answer,) = train(
        "qwen3-8b", on="trn2.48xlarge", tp=4, sequence=4096, recompute="full", **settled
    )
    # The same FLOP over 632 TFLOP/s a chip in place of 653.1 or 667.
    (note,) = (note for note in answer.notes if "prints MFU" in note)
    peak = load_platform(CATALOG, "trn2.48xlarge").chip.peak_flop_per_s("bf16")
    assert answer.step is not None
    assert f"TorchTitan prints MFU {100 * answer.step.mfu * peak / 632e12:.1f} %" in note
    (gpu,) = train(
        "qwen3-8b",
        on="hgx-h800",
        stack="torchtitan-hopper",
        sequence=4096,
        tp=8,
        recompute="full",
        **settled,
    )
    assert not any("prints MFU" in note for note in gpu.notes)


@pytest.mark.parametrize(
    ("said", "instance", "stack", "own", "software", "zero"),
    [
        ("Hugging Face Trainer", "hgx-a100-80gb", "hf-ampere", True, "transformers", 0),
        ("XTuner (DeepSpeed ZeRO-3)", "hgx-a100-80gb", "eager-ampere", False, "xtuner", 3),
        ("TRL (Accelerate, FSDP2, compile off)", "p5.48xlarge", "eager-hopper", False, "trl", 3),
        ("torchao, torch.compile", "p5.48xlarge", "compiled-hopper", False, "torchao", 3),
        ("NeMo AutoModel", "p5.48xlarge", "nemo-hopper", False, "nemo-automodel", 1),
        ("torchtitan FSDP2 eager", "dgx-h100", "eager-hopper", False, "torchtitan", 3),
        ("torchtitan FSDP2 compile", "dgx-h100", "torchtitan-hopper", True, "torchtitan", 3),
        (
            "TorchNeuron native, eager",
            "trn2.3xlarge",
            "torchneuron-eager-trn2",
            True,
            "torchneuron",
            3,
        ),
        ("my own (torch.compile)", "dgx-h100", "compiled-hopper", False, None, 3),
        ("nobody's words", "dgx-h100", "eager-hopper", False, None, 1),
        ("Megatron-LM", "gb200-nvl72", "nemo-blackwell", False, "megatron", 1),
    ],
)
def test_a_publication_s_words_name_software_and_its_kind(
    said, instance, stack, own, software, zero
):
    found = Stacks(CATALOG).of(said, "", load_platform(CATALOG, instance))
    assert (found.stack.short_name, found.own, found.stack.habits.zero) == (stack, own, zero)
    assert (found.software and found.software.name) == software


def test_an_answer_says_what_was_understood_of_the_software():
    platform = load_platform(CATALOG, "p5.48xlarge")
    known = Stacks(CATALOG).of("torchtune 0.6", "", platform)
    assert known.why == "as none is known for torchtune, taken as not compiled"
    unknown = Stacks(CATALOG).of("homemade", "", platform)
    assert unknown.why == "as none is known for its software"


@pytest.mark.parametrize("name", [one.name for one in all_software(CATALOG)])
def test_every_file_says_by_a_source_whether_activations_may_wait_on_the_host(name):
    software = software_called(CATALOG, name)
    assert software is not None
    ((place, _),) = (
        (i, line) for i, line in enumerate(software.supports) if ACTIVATIONS_AWAY in line.features
    )
    assert software.provenance.source_of(f"supports[{place}].status") is not None


def test_a_loss_is_the_habit_of_releases_from_one_on():
    trl, torchtune = (software_called(CATALOG, name) for name in ("trl", "torchtune"))
    assert trl is not None
    assert torchtune is not None
    told = {"": "fused", "1.7.0": "fused", "1.14": "fused", "main of May": "fused", "1.6.4": None}
    told |= {"transformers 5.3.0, TRL v0.24.0": None, "TRL 1.9, torch 2.9": "fused"}
    assert {words: trl.loss_in(words) for words in told} == told
    assert torchtune.loss_in("0.1.0") == "chunked"


@pytest.mark.parametrize(
    ("framework", "release", "loss"),
    [
        ("torchtune", "0.6", "chunked"),
        ("TRL (Accelerate, FSDP2)", "1.14.1", "fused"),
        ("TRL (Accelerate, FSDP2)", "0.24.0", "full"),
        ("TRL 0.24.0 (Accelerate)", "", "full"),
        ("unsloth", "", "fused"),
        ("LLaMA-Factory", "", "full"),
        ("homemade", "", "full"),
    ],
)
def test_software_that_a_kind_stands_for_has_its_own_loss(framework, release, loss):
    found = Stacks(CATALOG).of(framework, release, load_platform(CATALOG, "p5.48xlarge"))
    assert not found.own
    assert found.stack.loss == loss


def test_a_stack_names_first_what_it_runs_and_its_software_the_rest():
    nanogpt = software_called(CATALOG, "nanogpt")
    stack = load_training_stack(CATALOG, "training-compiled-hopper")
    found = run_by(stack, nanogpt).support_of(ACTIVATIONS_AWAY)
    assert found is not None
    assert found.status == "refused"
    assert "nanoGPT" in found.words
    (line,) = (one for one in stack.supports if one.status == "runs")
    named = replace(line, features=(*line.features, ACTIVATIONS_AWAY))
    own = replace(stack, supports=(named,))
    assert run_by(own, nanogpt) == own
    assert run_by(stack, None) == stack


def test_software_that_cannot_keep_activations_on_the_host_says_so_in_a_line():
    asked = {"on": "p5.48xlarge", "tp": 1, "pp": 1, "dp": 8, "cp": 1, "micro_batch": 1}
    (no,) = train(
        "llama3.2-1b",
        stack="nanogpt",
        activation_offload="host",
        zero=0,
        recompute="none",
        global_batch=8,
        sequence=1024,
        **asked,
    )
    assert any("does not run activation offload" in reason for reason in no.reasons)
