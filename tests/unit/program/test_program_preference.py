"""What a step of a job on pairs of answers computes, holds and sends, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import trnbench
from tests.unit.program.test_program_step import decoder
from trnbench.engines.execute.coverage import problems
from trnbench.errors import InputError
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.library import load_model
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.money.checkpoint import checkpoint_bytes
from trnbench.program.ops import CollectiveOp, Elementwise
from trnbench.program.step import messages_of, training_step

DPO = Layout(job="dpo", global_batch=2, sequence=16, precision="bf16-master")
ORPO = replace(DPO, job="orpo")
PLAIN = replace(DPO, job="finetune", global_batch=4, micro_batch=2)
# A layer of the small decoder: hidden 8, 4 heads of 2, 2 shared ones, MLP of 16; 32 words.
PROJECTIONS = 64 + 32 + 32 + 64 + 3 * 128
NORMS = 16
# Forward, two sequences of 16 tokens; attention is half of 16 x 16 pairs, two products of size 2.
LAYER = 2 * (2 * 16 * PROJECTIONS + 4 * 128 * 2 * 2 * 2)
HEAD = 2 * (2 * 16 * 8 * 32)


def step(layout, **shape):
    return training_step(decoder(**shape), layout)


def held(block, category):
    return float(sum(one.bytes for one in block.residents if one.category == category))


def test_flop_by_hand():
    program = step(DPO)
    assert program.blocks["dense"].flop("F") == LAYER
    assert program.blocks["reference.dense"].flop() == LAYER
    assert program.blocks["reference.head"].flop() == HEAD
    # Two pairs, two layers.
    assert program.model_flop - step(ORPO).model_flop == 2 * (2 * LAYER + HEAD)


def test_a_pair_is_two_sequences_of_the_batch():
    pairs, plain = step(ORPO), step(PLAIN)
    assert pairs.micro_batches == plain.micro_batches == 2
    assert repr(pairs.blocks["dense"].ops) == repr(plain.blocks["dense"].ops)
    assert pairs.model_flop == plain.model_flop


def test_the_reference_holds_weights_alone():
    program = step(DPO)
    reference = program.blocks["reference.dense"]
    assert held(reference, "weights") == 2 * (PROJECTIONS + NORMS)
    for category in ("gradients", "optimizer", "activations"):
        assert held(reference, category) == 0
    assert held(program.blocks["dense"], "optimizer") > 0
    assert {op.phase for op in reference.ops} == {"F"}
    assert all(op.function != "dropout" for op in elementwise(step(DPO, dropout=True)))


def elementwise(program):
    blocks = (block for kind, block in program.blocks.items() if kind.startswith("reference."))
    return [op for block in blocks for op in block.ops if isinstance(op, Elementwise)]


def test_every_stage_runs_the_reference_as_often_as_the_policy():
    program = step(replace(DPO, pp=2, global_batch=4), layers=4)
    for stage in program.stages:
        policy = {kind: n for kind, n in stage.blocks.items() if "reference" not in kind}
        assert {
            kind.removeprefix("reference."): float(n)
            for kind, n in stage.blocks.items()
            if kind not in policy
        } == {kind: float(n) for kind, n in policy.items()}


def test_zero_3_cuts_the_reference_and_gathers_it_once_a_micro_batch():
    block = step(replace(DPO, dp=2, zero=3)).blocks["reference.dense"]
    assert held(block, "weights") == 2 * (PROJECTIONS + NORMS) / 2
    assert [op.op for op in block.collectives] == ["all-gather"]


def test_the_reference_is_handed_on_one_way():
    program = step(replace(DPO, pp=2), layers=4)
    policy, reference = sorted(messages_of(program), key=lambda send: -float(send.size_bytes))
    assert float(policy.size_bytes) == 2 * 16 * 8 * 2
    # Each direction is charged half of what goes in one.
    assert float(reference.size_bytes) == float(policy.size_bytes) / 2
    phases = {send.phase for one in program.stages for send in one.messages if "ref" in send.name}
    assert phases == {"F"}


def test_ranks_that_share_a_sequence_add_up_its_score():
    (score,) = [
        op
        for op in step(replace(DPO, cp=2)).blocks["head"].ops
        if isinstance(op, CollectiveOp) and op.read.name == "scores"
    ]
    # Two sequences, a number each.
    assert (score.op, score.axis, float(score.size_bytes)) == ("all-reduce", "cp", 2 * 4)


def test_the_loss_reads_the_reference_of_dpo_and_none_of_orpo():
    for layout, reads in ((DPO, 2), (ORPO, 1)):
        (loss,) = [op for op in step(layout).blocks["head"].phase("F") if "pref" in op.name]
        assert len(loss.reads) == reads
        assert float(loss.writes[0].elements) == 1
    assert "reference.head" not in step(ORPO).blocks


@pytest.mark.parametrize("change", [{"recompute": "full"}, {"zero": 3}])
def test_a_program_made_from_another_is_the_same(change):
    model, plain = decoder(), replace(DPO, dp=2)
    other = replace(plain, **change)
    one = training_step(model, other, like=training_step(model, plain))
    two = training_step(model, other)
    assert set(one.blocks) == set(two.blocks)
    for kind, block in two.blocks.items():
        assert repr(one.blocks[kind].ops) == repr(block.ops)
        assert repr(one.blocks[kind].residents) == repr(block.residents)


def test_a_checkpoint_saves_the_policy_alone():
    model = decoder()
    plain, pairs = (checkpoint_bytes(model, PartialLayout.of(one)) for one in (PLAIN, DPO))
    assert pairs == plain


def test_who_writes_no_answers_has_none_to_compare():
    model = load_model(open_catalog(), "bert-large")
    (why,) = training_step(model, replace(DPO, sequence=512)).refusals()
    assert why == (
        "job=dpo compares answers of a decoder, and bert-large writes none; try job=finetune"
    )


def test_pairs_are_not_trained_with_real_numbers():
    (why, *_) = problems(step(DPO))
    assert why == "job dpo: training with real numbers has no pairs of answers"


@pytest.mark.parametrize("engine", ["analytic", "emulate"])
def test_dpo_takes_a_forward_pass_and_its_weights_more(engine):
    given: dict[str, Any] = {
        "tp": 8,
        "pp": 2,
        "dp": 2,
        "micro_batch": 1,
        "global_batch": 8,
        "sequence": 1024,
    }
    found = {}
    for job in ("orpo", "dpo"):
        (found[job],) = trnbench.train(
            "tinyllama-1.1b", on="trn1.32xlarge", engine=engine, job=job, **given
        )
    orpo, dpo = found["orpo"], found["dpo"]
    assert dpo.tokens_per_sample == 2048
    assert dpo.step is not None
    assert orpo.step is not None
    assert dpo.memory is not None
    assert orpo.memory is not None
    # A forward pass beside one and two backward, in fixed costs that do not grow.
    matrix = dpo.step.exposed_s["matrix"] / orpo.step.exposed_s["matrix"]
    assert 1.25 < matrix < 1.4
    weights = dpo.memory.by_category["weights"] / orpo.memory.by_category["weights"]
    assert np.isclose(weights, 2, rtol=0.01)
    assert dpo.memory.by_category["optimizer"] == orpo.memory.by_category["optimizer"]


def test_compare_prices_pairs_by_all_their_tokens():
    costs = {
        job: trnbench.compare(
            "llama3.1-8b", on="trn2.48xlarge", nodes=4, tokens="1B", sequence=2048, job=job
        )
        for job in ("finetune", "dpo")
    }
    days = {job: answer.compared[0].row()["days"] for job, answer in costs.items()}
    # As many tokens, and a forward pass more of each.
    assert 1.15 < float(days["dpo"]) / float(days["finetune"]) < 1.5  # type: ignore[arg-type]


def test_an_unknown_job_is_one_line():
    with pytest.raises(InputError, match="job"):
        trnbench.train("tiny-gpt", on="trn1.2xlarge", job="dpoo")


ADAPTED = replace(DPO, adapter_rank=4)


def test_the_reference_of_adapters_is_the_policy_without_them():
    program, alone = step(ADAPTED), step(replace(ADAPTED, job="lora"))
    reference = program.blocks["reference.dense"]
    assert not any(one.lifetime == "step" for one in reference.residents)
    assert reference.flop() == LAYER
    # The policy's passes are longer by its adapters: on 2 of each 4 inputs and outputs of 7.
    assert program.blocks["dense"].flop("F") > LAYER
    weights = sum(held(block, "weights") for block in program.blocks.values())
    assert weights == sum(held(block, "weights") for block in alone.blocks.values())


def test_a_preference_job_has_adapters_where_something_is_said_of_them():
    assert step(DPO).grid.adapter_rank is None
    assert (ADAPTED.adapter_on, replace(DPO, adapter_on="attention").adapter_rank) == (
        "all-linear",
        16,
    )
    assert replace(DPO, frozen_format="nf4").adapter_rank == 16


def test_dpo_with_adapters_holds_one_copy_of_the_weights():
    given: dict[str, Any] = {"tp": 8, "pp": 1, "dp": 4, "micro_batch": 1, "global_batch": 8}
    given["sequence"] = 1024
    found = [
        trnbench.train("tinyllama-1.1b", on="trn1.32xlarge", job=job, adapter_rank=8, **given)[0]
        for job in ("lora", "dpo")
    ]
    lora, dpo = (one.memory.by_category for one in found if one.memory is not None)
    assert dpo["weights"] == lora["weights"]
    assert dpo["optimizer"] == lora["optimizer"]
    assert found[1].step is not None
