"""Training steps for people and machines: rows, breakdown, memory, engines beside each other."""

from __future__ import annotations

import json

import pytest

from trnbench.engines.analytic.step.memory_parts import CATEGORIES
from trnbench.facts.catalog.provenance import Kind
from trnbench.facts.records import replace
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.predict.prediction import RankMemory, StepFigures
from trnbench.program.slots import STEP_CATEGORIES
from trnbench.show.formats import RENDERERS, render
from trnbench.show.text_table import PLAIN, Style
from trnbench.verbs.train.answer import Searched, TrainAnswer
from trnbench.verbs.train.text import train_report

GIB = 2.0**30
SETTING = PartialLayout(
    tp=8,
    pp=2,
    dp=4,
    cp=1,
    ep=1,
    vpp=1,
    micro_batch=1,
    global_batch=256,
    sequence=4096,
    zero=1,
    sequence_parallel=True,
    context_parallel="ring",
    recompute="selective",
    schedule="1f1b",
    attention="fused",
    precision="bf16-master",
)
STEP = StepFigures(
    step_time_s=4.0,
    low_step_time_s=3.2,
    high_step_time_s=5.0,
    exposed_s={str(name): 0.0 for name in STEP_CATEGORIES} | {"matrix": 3.0, "tensor": 1.0},
    hidden_s={"tensor": 0.5},
    mfu=0.40,
    mfu_headline=0.38,
    hfu=0.45,
)
MEMORY = RankMemory(
    fit_probability=1.0,
    stage="first",
    by_category=dict.fromkeys(CATEGORIES, 0.0) | {"weights": 6 * GIB, "activations": 2 * GIB},
    total_bytes=8 * GIB,
    low_bytes=7 * GIB,
    high_bytes=9 * GIB,
    capacity_bytes=16 * GIB,
    reserve_bytes=1 * GIB,
)
ANSWER = TrainAnswer(
    label="",
    model="llama2-7b",
    instance="trn1.32xlarge",
    chip="trainium1",
    nodes=2,
    chips=32,
    ranks=64,
    logical_size=None,
    tokens_per_sample=4096,
    layout=SETTING,
    engine="analytic",
    calibration="training-nxd-trn1",
    stack="nxd-trn1",
    stack_state=None,
    basis="measured",
    evidence=Kind.ASSUMED,
    chosen=("pp", "zero"),
    assumed=("precision",),
    searched=Searched(legal=120, feasible=30),
    step=STEP,
    memory=MEMORY,
)
PLAYED = replace(
    ANSWER,
    engine="emulate",
    step=replace(STEP, step_time_s=4.1, exposed_s=dict(STEP.exposed_s) | {"bubble": 0.1}),
)
NO = replace(
    ANSWER,
    instance="trn2.48xlarge",
    step=None,
    reasons=("tp=3 does not divide 32 heads; try 2, 4, 1",),
)


def people(answers, style=PLAIN, plot=False):
    return render(train_report(answers, {}, plot=plot), "table", style).decode()


def test_rates_and_their_ends_follow_from_the_step_time():
    row = ANSWER.row()
    assert row["sequences_per_s"] == 256 / 4.0
    assert row["tokens_per_s"] == 256 * 4096 / 4.0
    # The slow end of the time is the low end of every rate.
    assert row["low_tokens_per_s"] == 256 * 4096 / 5.0
    assert row["high_sequences_per_s"] == 256 / 3.2
    assert row["low_mfu"] == pytest.approx(0.40 * 4.0 / 5.0)
    assert row["memory_capacity_bytes"] == 16 * GIB
    assert row["memory_available_bytes"] == 15 * GIB


def test_a_row_has_every_key_whatever_the_answer():
    assert set(ANSWER.row()) == set(NO.row()) == set(replace(NO, memory=None).row())
    exposed = [key for key in ANSWER.row() if key.startswith("exposed_")]
    assert sum(float(str(ANSWER.row()[key])) for key in exposed) == 4.0
    assert "exposed_element_wise_s" in exposed


def test_a_recommender_has_no_tokens():
    row = replace(ANSWER, tokens_per_sample=None).row()
    assert row["tokens_per_s"] is row["low_tokens_per_s"] is None
    assert row["sequences_per_s"] == 64
    assert "tokens/s" not in people([replace(ANSWER, tokens_per_sample=None)])


def test_people_see_where_time_and_memory_go_and_what_was_chosen():
    text = people([ANSWER])
    assert text.startswith("llama2-7b on 2 nodes of trn1.32xlarge (32 chips, 64 ranks)")
    assert "4 s per step (3.2 s to 5 s), 80 % interval" in text
    assert "262,144 tokens/s" in text
    assert "tp 8, pp 2*, dp 4" in text
    assert "bf16-master+" in text
    assert "* chosen: fastest of 30 layouts that fit in memory, of 120 valid" in text
    (matrix,) = [line for line in text.splitlines() if line.startswith("matrix")]
    assert matrix.split()[:4] == ["matrix", "3.000", "75.0", "-"]
    (tensor,) = [line for line in text.splitlines() if line.startswith("tensor")]
    assert tensor.split()[1:4] == ["1.000", "25.0", "0.500"]
    assert (matrix.count("#"), tensor.count("#")) == (40, 13)
    (weights,) = [line for line in text.splitlines() if line.startswith("weights")]
    assert "40.0" in weights  # 6 of 15 GiB
    assert "fitted to measured steps of these chips; weakest evidence: assumed" in text
    assert "bubble" not in text


def test_engines_stand_beside_each_other_with_the_difference():
    text = people([ANSWER, PLAYED])
    assert "analytic: 4 s per step" in text
    assert "emulate: 4.1 s per step" in text
    (bubble,) = [line for line in text.splitlines() if line.startswith("bubble")]
    assert bubble.split()[:4] == ["bubble", "-", "0.100", "+2.50"]


def test_a_no_shows_reasons_and_what_memory_is_known():
    text = people([NO])
    assert "no: tp=3 does not divide 32 heads; try 2, 4, 1" in text
    assert "weights" in text
    assert "step" not in text.split("memory")[0]
    assert train_report([NO], {}).summary["feasible"] == 0


def test_a_place_asked_for_twice_is_answered_twice():
    assert people([ANSWER, ANSWER]).startswith("llama2-7b, 2 cases")


def test_several_cases_make_a_table_and_keep_their_reasons():
    text = people([ANSWER, NO])
    lines = text.splitlines()
    assert lines[0] == "llama2-7b, 2 cases"
    assert "global batch 256, sequence 4,096, zero 1*" in lines[1]
    assert "* chosen, the fastest that fits: pp, zero" in lines
    (heading,) = [line for line in lines if line.startswith("model  ")]
    assert heading.split()[:3] == ["model", "instance", "nodes"]
    assert "llama2-7b on 2 nodes of trn2.48xlarge: no: tp=3 does not divide 32 heads" in text
    summary = json.loads(render(train_report([ANSWER, NO], {}), "json", PLAIN))["summary"]
    assert summary["chosen"][0]["chosen"] == {"pp": 2, "zero": 1}
    assert summary["chosen"][0]["defaults"] == {"precision": "bf16-master"}


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("answers", [[ANSWER], [ANSWER, PLAYED], [NO], [ANSWER, NO]])
def test_nothing_is_wider_than_the_terminal(width, answers):
    style = Style(width=width, terminal=True)
    assert max(map(len, people(answers, style).splitlines())) <= width


@pytest.mark.parametrize("output_format", RENDERERS)
def test_every_format_renders(output_format):
    data = render(train_report([ANSWER, PLAYED, NO], {"stack": None}), output_format, PLAIN)
    assert data.decode().isascii()
    if output_format == "json":
        assert json.loads(data)["schema"] == "trnbench.train/1"
