"""Pipeline stages drawn by hand: the text, what each stage holds, and where texts are wrong."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trnbench.engines.analytic.step.memory import memory
from trnbench.engines.emulate.step.stages import chunk_counts
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.library import load_model
from trnbench.facts.workload.pipeline_layout import drawn_text, stages_of, written
from trnbench.program.step import training_step

CATALOG = open_catalog()
LLAMA = load_model(CATALOG, "llama3.1-8b")
DEEPSEEK = load_model(CATALOG, "deepseek-v3")


def step(drawn, model=LLAMA, **knobs):
    base = {"tp": 4, "global_batch": 16, "sequence": 4096, "precision": "bf16-master"}
    return training_step(model, Layout(**{**base, "pipeline_layout": drawn, **knobs}))


def held(program):
    return [
        (stage.role, {kind: float(n) for kind, n in stage.blocks.items()})
        for stage in program.stages
    ]


@pytest.mark.parametrize(
    ("text", "stages"),
    [
        # The first is Megatron-LM's own example.
        ("Et*3|(tt|)*29,m|L", (3, *[2] * 29, 0, 0)),
        ("Et*2|(t*2|)*34tL", (2, *[2] * 34, 1)),
        ("E||t|L", (0, 0, 1, 0)),
        ("E|t|*3t,tL", (0, 1, 0, 0, 2)),
        ("EtL", (1,)),
    ],
)
def test_texts_of_megatron_are_read(text, stages):
    assert stages_of(text) == stages
    assert stages_of(drawn_text(text)) == stages


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40).filter(any))
def test_what_is_written_is_read_back(stages):
    text = written(tuple(stages))
    assert stages_of(text) == tuple(stages)
    assert drawn_text(text) == text


@given(st.text(alphabet="EtmL|()*,2 09x", max_size=14))
def test_any_text_is_a_layout_or_says_what_is_wrong(text):
    try:
        stages = stages_of(text)
    except ValueError as fault:
        said = str(fault)
        stages = ()
    assert sum(stages) > 0 or said.startswith(("character ", "has ", "draws "))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Ett|x|L", "character 5: 'x' is not one of"),
        ("Et*|L", "character 3: expects . and how often"),
        ("E(t|(t))*2L", "character 5: a group is inside another"),
        ("E(t|", "character 2: the group has no end"),
        ("Et)L", "character 3: no group begins"),
        ("E(t|)L", "character 5: expects . and how often"),
        ("t|EL", r"has E \(the embedding\) once, first of all; found at 3"),
        ("Et|t", r"has L \(the loss\) once, last of all; there is none"),
        ("E|L", "draws no layer"),
        ("Et*99999|L", "character 2: more than|character 3: expects"),
        ("Et|(mt|)*2L", "character 6: a layer .t. follows a depth"),
        ("Etm|mL", "character 5: depths .m. must all be in one stage"),
    ],
)
def test_a_fault_is_named_with_its_place(text, words):
    with pytest.raises(ValueError, match=words):
        Layout(global_batch=1, sequence=8, precision="bf16", pipeline_layout=text)


def test_stages_hold_what_they_are_given():
    program = step("E|(t*6|)*4t*8|L", pp=7)
    assert program.legal, program.refusals()
    assert held(program) == [
        ("first", {"embedding": 1, "dense": 0}),
        ("stages 1 to 4", {"dense": 6}),
        ("stage 5", {"dense": 8}),
        ("last", {"dense": 0, "head": 1}),
    ]
    assert [int(stage.index) for stage in program.stages] == [0, 1, 5, 6]


def test_even_stages_are_those_of_a_step_that_shares_layers():
    plain, drawn = step(None, pp=4), step("Et*8|(t*8|)*2t*8L", pp=4)
    for one in ("model_flop", "hardware_flop"):
        assert float(getattr(plain, one)) == float(getattr(drawn, one))
    wanted = [(b, m) for (_, b), m in zip(held(plain), (1, 2, 1), strict=True)]
    assert [(b, m) for (_, b), m in zip(held(drawn), (1, 2, 1), strict=True)] == wanted


def test_leading_dense_layers_lie_where_they_are_drawn():
    program = step("Et*2|t*3|(t*4|)*14L", DEEPSEEK, pp=17)
    first, second, third = (blocks for _, blocks in held(program)[:3])
    assert (first["dense"], first["moe"]) == (2, 0)
    assert (second["dense"], second["moe"]) == (1, 2)
    assert "dense" not in third
    assert third["moe"] == 4


def test_chunks_go_round_the_ranks():
    program = step("E|t*9|t*3|t*10|t*10|L", pp=3, vpp=2, schedule="interleaved", global_batch=12)
    assert program.legal, program.refusals()
    # Rank r runs stages r and 3 + r.
    chunks = [[dict(chunk) for chunk in stage] for stage in chunk_counts(program)]
    assert chunks == [
        [{"embedding": 1.0}, {"dense": 10.0}],
        [{"dense": 9.0}, {"dense": 10.0}],
        [{"dense": 3.0}, {"head": 1.0}],
    ]


def test_a_grid_of_pipelines_has_the_stages_of_each():
    drawn = "E|t*9|t*3|t*10|t*10|L"
    grid = step(drawn, pp=np.array([2, 3, 6]), vpp=np.array([3, 2, 1]), schedule="interleaved")
    for i in range(3):
        one = grid.at((i,))
        for stage in one.stages:
            for number in range(int(stage.multiplicity)):
                place = int(stage.index) + number
                there = [
                    of
                    for of in grid.stages
                    if of.index[i] <= place < of.index[i] + of.multiplicity[i]
                ]
                assert len(there) == 1
                for kind, count in stage.blocks.items():
                    assert float(there[0].blocks[kind][i]) == float(count)


def test_the_worst_stage_is_the_one_that_holds_most():
    platform = load_platform(CATALOG, "p5.48xlarge")

    def worst(text):
        return memory(
            step(text, pp=4, zero=1, recompute="full"), platform, fragmentation_ratio=0
        ).worst()

    assert worst("Et*8|(t*8|)*2t*8L").role == "first"
    assert worst("Et*2|t*2|t*26|t*2L").role == "stage 2"


@pytest.mark.parametrize(
    ("drawn", "degrees", "words"),
    [
        ("Et*16|t*16L", {"pp": 4}, "draws 2 stages, and pp=4 x vpp=1 are 4"),
        ("Et*16|t*15L", {"pp": 2}, "draws 31 layers (t), and the model has 32"),
    ],
)
def test_what_is_drawn_for_another_model_or_pipeline_is_refused(drawn, degrees, words):
    assert any(words in said for said in step(drawn, **degrees).refusals())
