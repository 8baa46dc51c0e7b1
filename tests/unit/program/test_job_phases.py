"""What the phases of a job that writes answers compute, hold, read and send, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trnbench
from tests.unit.program.test_program_step import decoder
from trnbench.engines.execute.coverage import problems
from trnbench.errors import InputError
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.library import load_model
from trnbench.program.job_phases import ENGINE, phases_of
from trnbench.program.step import training_step
from trnbench.verbs.train.answer import TrainAnswer

GRPO = Layout(job="grpo", global_batch=8, sequence=16, response=12, precision="bf16-master")
PPO = replace(GRPO, job="ppo", reward=None)
# A layer of the small decoder: hidden 8, 4 heads of 2, 2 shared ones, MLP of 16; 32 words.
PROJECTIONS = 64 + 32 + 32 + 64 + 3 * 128
NORMS = 16
LAYER = 2 * (16 * PROJECTIONS + 4 * 128 * 2 * 2)
HEAD, VALUE = 2 * 16 * 8 * 32, 2 * 16 * 8
WEIGHTS = 2 * (PROJECTIONS + NORMS) + 8 + 2 * 32 * 8
"""Two layers, the last norm, two tables of words."""


def phases(layout, **shape):
    return {one.name: one for one in phases_of(training_step(decoder(**shape), layout))}


def held(program, category):
    return sum(
        float(one.bytes * program.instances(kind))
        for kind, block in program.blocks.items()
        for one in block.residents
        if one.category == category and one.lifetime == "step"
    )


def test_phases_of_each_job_in_order():
    assert list(phases(replace(GRPO, reference="off"))) == ["generate", "score", "train"]
    assert list(phases(GRPO)) == ["generate", "score", "reference", "train"]
    assert list(phases(replace(GRPO, reward="model"))) == [
        *("generate", "score", "reference", "reward", "train"),
    ]
    assert list(phases(PPO)) == [
        *("generate", "score", "reference", "reward", "values", "train", "critic"),
    ]
    for job in ("pretrain", "lora", "dpo"):
        plain = Layout(job=job, global_batch=8, sequence=16, precision="bf16-master")
        program = training_step(decoder(), plain)
        (only,) = phases_of(program)
        assert only.program is program


def test_flop_by_hand():
    found = {name: float(one.program.model_flop) for name, one in phases(PPO).items()}
    passed, valued = 8 * (2 * LAYER + HEAD), 8 * (2 * LAYER + VALUE)
    assert found == {
        "generate": 0,
        "score": passed,
        "reference": passed,
        "reward": valued,
        "values": valued,
        "train": 3 * passed,
        "critic": 3 * valued,
    }
    assert sum(found.values()) == float(training_step(decoder(), PPO).model_flop)


def test_every_phase_holds_the_states_of_all_models():
    found = phases(PPO)
    valued = WEIGHTS - 32 * 8 + 8
    for name in ("score", "reward", "train", "critic"):
        program = found[name].program
        # Policy and reference have words, the model of rewards and the critic values.
        assert held(program, "weights") == 2 * (2 * WEIGHTS + 2 * valued)
        assert held(program, "gradients") == 4 * (WEIGHTS + valued)
        assert held(program, "optimizer") == 3 * 4 * (WEIGHTS + valued)
        assert held(program, "cache") == 0
    writing = found["generate"].program
    assert held(writing, "weights") == 2 * (3 * WEIGHTS + 2 * valued)
    # Keys and values of 2 shared heads of 2, of 16 tokens in 2 layers, of 8 answers.
    assert held(writing, "cache") == 2 * 2 * 2 * 2 * 16 * 2 * 8


def test_a_phase_keeps_nothing_of_the_others_for_a_backward_pass():
    kept = {
        name: sum(float(b.kept.tensors != ()) for b in one.program.blocks.values())
        for name, one in phases(PPO).items()
    }
    assert {name for name, some in kept.items() if some} == {"train", "critic"}


def test_a_phase_sends_what_its_pass_hands_on():
    found = phases(replace(PPO, pp=2), layers=4)
    for name, prefixes in (("reference", {"reference."}), ("critic", {"critic."}), ("train", {""})):
        sent = {
            (message.tensor.name.rpartition("stream")[0], message.phase)
            for stage in found[name].program.stages
            for message in stage.messages
        }
        assert {prefix for prefix, _ in sent} == prefixes
        assert {phase for _, phase in sent} == ({"F"} if name == "reference" else {"F", "B_input"})
    assert not any(stage.messages for stage in found["generate"].program.stages)


def test_engines_by_hand():
    writing = phases(replace(GRPO, tp=2, dp=2, generation_batch=3))["generate"].generation
    assert writing is not None
    engines = writing.engines
    # Two engines write four answers each: three, then one.
    assert (float(engines), float(writing.answers(engines))) == (2, 4)
    assert float(writing.at_once(engines)) == 3
    assert float(writing.rounds(engines)) == 2 * 12
    assert float(writing.weights_bytes) == 2 * WEIGHTS / 2
    # A rank has one of two shared heads; a round reads all tokens before: 4, 5 .. 15.
    cache = 2 * 2 * 1 * 2 * 2
    assert float(writing.cache_bytes()) == cache * 16
    assert float(writing.read_bytes(engines)) == 24 * WEIGHTS + 4 * cache * sum(range(4, 16))
    # Two heads a rank look at each token: a score and a sum of values.
    looked = 2 * 2 * 2 * 2 * 2 * sum(range(4, 16))
    assert float(writing.flop(engines)) == 4 * (12 * 2 * WEIGHTS / 2 + looked)
    sums, logits = writing.sums(engines)
    assert (sums.op, float(sums.count), float(sums.size_bytes)) == ("all-reduce", 4, 3 * 8 * 2)
    assert (logits.op, float(logits.count), float(logits.size_bytes)) == (
        *("all-gather", 1),
        3 * 32 * 2,
    )


def test_a_window_bounds_what_is_kept_and_read():
    writing = phases(GRPO, window=6)["generate"].generation
    assert writing is not None
    cache = 2 * 2 * 2 * 2 * 2
    assert float(writing.cache_bytes()) == cache * 6
    read = float(writing.read_bytes(writing.engines)) - 12 * 2 * WEIGHTS
    assert read == 8 * cache * sum(min(tokens, 6) for tokens in range(4, 16))


def test_weights_come_to_engines_from_stages_slices_and_other_nodes():
    def fetched(**change):
        writing = phases(replace(GRPO, **change), layers=4)["generate"].generation
        return [(op.op, op.axis) for op in writing.refreshed()]

    assert fetched() == []
    assert fetched(pp=2) == [("all-gather", "pp")]
    assert fetched(pp=2, dp=2, zero=3) == [("all-gather", "pp"), ("all-gather", "data")]
    assert fetched(dp=2, generation_nodes=1) == [("broadcast", "world")]


def test_nodes_of_their_own_hold_an_engine_and_nothing_else():
    program = phases(replace(GRPO, generation_nodes=1))["generate"].program
    assert list(program.blocks) == [ENGINE]
    assert held(program, "weights") == 2 * WEIGHTS
    assert held(program, "cache") == 2 * 2 * 2 * 2 * 16 * 2 * 64


def test_adapters_share_the_weights_of_policy_and_reference():
    program = phases(replace(GRPO, adapter_rank=4))["train"].program
    lora = Layout(job="lora", adapter_rank=4, global_batch=8, sequence=16, precision="bf16-master")
    alone = training_step(decoder(), lora)
    assert held(program, "weights") == held(alone, "weights")
    critic = phases(replace(PPO, adapter_rank=4))["critic"].program
    assert critic.blocks["critic.head"].parameters["value"].use == "trained"


@pytest.mark.parametrize(
    ("model", "change", "words"),
    [
        ("bert-large", {"sequence": 512}, "answers of a decoder of text, and bert-large writes"),
        ("tiny-gpt", {"samples_per_prompt": 3}, "samples_per_prompt=3 does not divide"),
        ("tiny-gpt", {"mini_batches": 3}, "dp x micro_batch x mini_batches = 3; try"),
        ("tiny-gpt", {"response": 16}, "response=16 leaves nothing of sequence=16"),
    ],
)
def test_refused(model, change, words):
    program = training_step(load_model(open_catalog(), model), replace(GRPO, **change))
    assert any(words in why for why in program.refusals())


def test_answers_are_not_written_with_real_numbers():
    (why, *_) = problems(training_step(decoder(), GRPO))
    assert why == "job grpo: training with real numbers writes no answers"


def test_knobs_of_answers_need_a_job_that_writes_some():
    with pytest.raises(ValueError, match="`response` is a knob of job grpo or ppo"):
        replace(GRPO, job="pretrain", samples_per_prompt=None, reward=None, reference=None)
    assert replace(GRPO, response=None).response == 8
    assert (PPO.reward, GRPO.reward) == ("model", "verifier")


def trained(**change: Any) -> TrainAnswer:
    asked: dict[str, Any] = {
        **{"job": "grpo", "tp": 8, "pp": 1, "zero": 1, "micro_batch": 1, "recompute": "full"},
        **{"on": "p5.48xlarge:2", "global_batch": 128, "sequence": 2048},
    }
    (answer,) = trnbench.train("llama3.1-8b", **{**asked, **change})
    return answer


def seconds(answer: TrainAnswer) -> dict[str, float]:
    return {one.name: one.step_time_s or 0.0 for one in answer.phases}


@pytest.mark.parametrize("job", ["grpo", "ppo"])
def test_a_step_is_its_phases_and_holds_what_the_worst_does(job):
    answer = trained(job=job, on="p5.48xlarge:4")
    assert answer.step is not None
    assert answer.memory is not None
    assert answer.step.step_time_s == pytest.approx(sum(seconds(answer).values()))
    assert answer.step.step_time_s == pytest.approx(sum(answer.step.exposed_s.values()))
    totals = [one.memory.total_bytes for one in answer.phases if one.memory]
    assert answer.memory.total_bytes == max(totals)
    row = answer.row()
    assert sum(one["phase_share"] for one in row["job_phases"]) == pytest.approx(1)  # type: ignore


def test_on_nodes_of_their_own_answers_are_written_beside_the_training():
    answer = trained(on="p5.48xlarge:3", generation_nodes=1)
    assert answer.step is not None
    times = seconds(answer)
    others = times["score"] + times["reference"] + times["train"]
    assert answer.step.step_time_s == pytest.approx(
        max(times["generate"], others) + times["refresh"]
    )
    assert answer.layout["dp"] == 2
    assert not any("idle" in warning for warning in answer.warnings)


def test_an_update_is_a_step_of_its_own_on_part_of_the_answers():
    # 128 answers in 4 mini-batches, twice: 8 updates on 32 answers each. Others see all once.
    whole, small = trained(global_batch=128), trained(global_batch=32)
    several = trained(global_batch=128, mini_batches=4, update_epochs=2)
    took = seconds(several)
    assert took["train"] == pytest.approx(8 * seconds(small)["train"])
    for name in ("generate", "score", "reference", "refresh"):
        assert took[name] == pytest.approx(seconds(whole)[name])
    assert several.step is not None
    assert several.step.step_time_s == pytest.approx(sum(took.values()))
    assert several.step.step_time_s == pytest.approx(sum(several.step.exposed_s.values()))


def test_flop_of_epochs_count_where_weights_are_trained():
    # A pass is F, a training pass 3 F (causal attention alike): F + F + 3 F, then F + F + 6 F.
    once, twice = (training_step(decoder(), replace(GRPO, update_epochs=n)) for n in (1, 2))
    assert float(twice.model_flop / once.model_flop) == pytest.approx(8 / 5)
    assert float(twice.hardware_flop) > float(once.hardware_flop)


def test_a_played_step_has_every_update():
    asked: dict[str, Any] = {
        **{"on": "p5.48xlarge", "tp": 2, "pp": 1, "global_batch": 32, "job": "grpo", "zero": 0},
        **{"micro_batch": 1, "sequence": 256, "recompute": "none", "mini_batches": 2},
    }

    def played(epochs):
        (answer,) = trnbench.train("tiny-gpt", **asked, update_epochs=epochs, engine="emulate")
        assert answer.step is not None
        return answer.step.step_time_s

    once, twice, thrice = map(played, (1, 2, 3))
    assert thrice - twice == pytest.approx(twice - once)
    assert twice > once


def test_idle_models_on_the_host_are_fetched_and_hold_nothing_else():
    near = phases(replace(GRPO, reward="model"))
    away = phases(replace(GRPO, reward="model", idle_models="host"))
    plain = held(phases(replace(GRPO, reference="off"))["train"].program, "weights")
    assert held(near["train"].program, "weights") > plain
    for name in ("generate", "score", "train"):
        own = held(away[name].program, "weights") - held(near[name].program, "weights")
        assert own == plain - held(near["train"].program, "weights")
    # In bf16, on one rank: what the reference phase holds beside the policy is what it fetches.
    fetched = float(away["reference"].fetched_bytes)
    assert fetched == 2 * WEIGHTS == held(away["reference"].program, "weights") - plain
    assert float(away["reward"].fetched_bytes) > 0
    assert not away["train"].fetched_bytes.any()


def test_what_is_fetched_takes_its_bytes_over_the_assumed_link():
    near, away = trained(on="trn2.48xlarge"), trained(on="trn2.48xlarge", idle_models="host")
    (fetched,) = (
        one.fetched_bytes
        for one in phases_of(
            training_step(load_model(open_catalog(), "llama3.1-8b"), away.layout.complete())
        )
        if one.name == "reference"
    )
    # 25 GB/s a chip, of 4 ranks.
    took = seconds(away)["reference"] - seconds(near)["reference"]
    assert took == pytest.approx(float(fetched) / (25e9 / 4))
    assert any("no file says the link" in note for note in away.notes)
    sizes = [
        {one.name: one.memory.total_bytes for one in answer.phases if one.memory}
        for answer in (near, away)
    ]
    assert sizes[1]["train"] < sizes[0]["train"]
    assert away.step is not None
    assert away.step.step_time_s == pytest.approx(sum(away.step.exposed_s.values()))


def test_models_that_do_not_fit_on_the_host_are_warned_of():
    # Of 2 bytes on each of 32 ranks: 8.03 billion weights of the reference, and those of the reward
    # model, without the 0.53 billion that make words: 926 GiB, and the host has 512.
    asked = {"on": "trn1.32xlarge", "tp": 1, "global_batch": 32, "stack": "graph-trn1"}
    many = trained(**asked, idle_models="host", reward="model")
    assert any("idle models need 926 GiB" in warning for warning in many.warnings)
    few = trained(on="p5.48xlarge", idle_models="host")
    assert not any("idle models need" in warning for warning in few.warnings)


def test_a_stated_rate_is_taken_at_its_word():
    answer = trained(generation_tokens_per_s=1000, response=1024)
    assert seconds(answer)["generate"] == pytest.approx(128 * 1024 / (1000 * 16))


@settings(max_examples=12, deadline=None)
@given(
    batch=st.integers(1, 6),
    more=st.integers(1, 6),
    group=st.sampled_from([1, 2, 4, 8]),
    response=st.integers(1, 15),
)
def test_more_answers_are_never_sooner_there(batch, more, group, response):
    def engines(prompts):
        layout = replace(
            GRPO,
            tp=2,
            dp=2,
            global_batch=prompts * group * 2,
            samples_per_prompt=group,
            response=response,
            generation_batch=4,
        )
        return phases(layout)["generate"].generation

    few, many = engines(batch), engines(batch + more)
    for of in ("read_bytes", "flop", "rounds"):
        assert getattr(few, of)(few.engines) <= getattr(many, of)(many.engines)


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(batch=st.sampled_from([16, 32, 64]), response=st.sampled_from([128, 512, 1024]))
def test_the_peak_is_that_of_the_worst_phase_whatever_is_asked(batch, response):
    answer, more = (trained(global_batch=n, response=response) for n in (batch, 2 * batch))
    assert answer.memory is not None
    assert answer.step is not None
    assert more.step is not None
    sizes = [one.memory.total_bytes for one in answer.phases if one.memory]
    assert answer.memory.total_bytes == max(sizes)
    assert answer.step.step_time_s < more.step.step_time_s


def test_a_search_finds_what_a_prediction_says():
    found = trained(tp=None, pp=None, zero=None, micro_batch=None, recompute=None)
    result = trnbench.search_layouts(
        model="llama3.1-8b",
        instance="p5.48xlarge",
        nodes=2,
        job="grpo",
        global_batch=128,
        sequence=2048,
        precision="bf16-master",
        top=1,
    )
    best = result.ranked[0]
    assert found.step is not None
    assert best.step_time_s == pytest.approx(found.step.step_time_s, rel=1e-5)
    assert found.memory is not None
    assert np.isclose(best.memory_bytes, found.memory.total_bytes, rtol=1e-6)


@pytest.mark.parametrize("on", ["p5.48xlarge:2", "trn1.32xlarge:2"])
def test_phases_are_played_one_after_the_other(on):
    asked: dict[str, Any] = {"on": on, "dp": None, "recompute": "none", "global_batch": 16}
    if on.startswith("trn1"):
        asked |= {"tp": 32, "sequence": 1024, "assume_supported": True}
    closed = trained(**asked)
    played = trained(**asked, engine="emulate")
    assert closed.step is not None
    assert played.step is not None
    assert played.step.exposed_s["generation"] == closed.step.exposed_s["generation"]
    assert played.step.step_time_s == pytest.approx(closed.step.step_time_s, rel=0.15)
    assert any("answers have no emulator" in note for note in played.notes)


def test_all_nodes_writing_leave_none_to_train():
    with pytest.raises(InputError, match="--generation-nodes 2 leaves no node of 2 to train"):
        trained(generation_nodes=2)
    (other,) = trnbench.compare(
        "llama3.1-8b", on="p5.48xlarge", nodes=1, tokens="1B", job="grpo", generation_nodes=1
    ).compared
    assert "--generation-nodes 1 leaves no node of 1 to train" in other.quote.reasons
