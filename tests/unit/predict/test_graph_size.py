"""Instructions of a rank's graph, worked by hand, and what is said near the compiler's limit."""

from __future__ import annotations

import pytest

from trnbench import compare, train
from trnbench.evidence.compilations import compare_compilations
from trnbench.evidence.model_of import Models, Shape
from trnbench.facts.calibration.compiler import Compiler, compiler_of
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_chip
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.library import load_model
from trnbench.predict.compile_time import compile_each_s, compile_s, compile_time_s
from trnbench.predict.graph_size import GraphSize, StepGraphs
from trnbench.predict.setup import train_setup
from trnbench.program.step import StepProgram, training_step
from trnbench.verbs.validate.run import shipped_evidence

CATALOG = open_catalog()
CHIP = load_chip(CATALOG, "trainium1")


def _compiler() -> Compiler:
    found = compiler_of(CATALOG, "trainium1")
    assert found is not None
    return found


COMPILER = _compiler()
BY_TILE = replace(COMPILER, tile_instructions=1.0)
SMALL = Shape(
    layers=2, hidden=128, heads=1, kv_heads=1, ffn=512, vocab=1024, mlp="gelu", tied=False
)


def small(**knobs: int) -> StepProgram:
    model = Models(CATALOG).of("hand", SMALL, 128).model
    layout = Layout(global_batch=knobs.get("micro_batch", 1), sequence=128, precision="bf16")
    return training_step(model, replace(layout, **knobs))


def forward(**knobs: int) -> float:
    program = small(**knobs)
    graphs = StepGraphs(program=program, chip=CHIP, compiler=BY_TILE, phases=("F",))
    return graphs.largest().instructions


def test_tiles_of_a_forward_pass_by_hand() -> None:
    # 128 tokens are the rows of one tile. A layer: queries, keys and values side by side 1, their
    # projection 1, up 1 (512 outer), down 4 (512 inner). Logits: 1024 outer, 2.
    assert forward() == 2 * (1 + 1 + 1 + 4) + 2


def test_several_sequences_are_taken_position_by_position() -> None:
    assert forward(micro_batch=2) == 128 * forward()
    assert forward(micro_batch=4) == forward(micro_batch=2)


def test_the_largest_stage_counts() -> None:
    assert forward(pp=2) == 1 + 1 + 1 + 4 + 2  # the last layer and the logits


def test_layouts_compiled_together_take_as_long_as_each_alone() -> None:
    setup = train_setup(CATALOG, "llama3.1-8b", "trn1.32xlarge", 4)
    said = Layout(global_batch=64, sequence=4096, precision="bf16-master")
    layouts = [
        replace(said, tp=tp, pp=pp, dp=128 // tp // pp, micro_batch=size, recompute=mode)
        for tp, pp, size in ((8, 1, 1), (8, 4, 2), (32, 2, 1))
        for mode in ("none", "full")
    ]
    each = compile_each_s(setup, layouts)
    assert len(set(each)) == len(layouts)
    assert each == [compile_s(setup, [one]) for one in layouts]


def test_the_loss_that_was_refused_at_several_sequences() -> None:
    model = Models(CATALOG).of("Llama-3.1-8B", Shape(), 4096).model
    layout = Layout(tp=2, micro_batch=4, global_batch=4, sequence=4096, precision="bf16")
    program = training_step(model, layout)
    found = StepGraphs(program=program, chip=CHIP, compiler=COMPILER).largest()
    assert found.operator_instructions == 4 * 4096 * 126 == 2_064_384


def test_a_count_at_the_limit_passes_as_often_as_not() -> None:
    at = GraphSize(instructions=COMPILER.graph_instructions, operator="", operator_instructions=0.0)
    assert at.passes(COMPILER) == pytest.approx(0.5)
    assert replace(at, instructions=1e6).passes(COMPILER) > 0.99
    assert replace(at, instructions=1e6, operator_instructions=1e6).passes(COMPILER) < 0.01


def test_compile_time_of_a_million_instructions_is_the_files() -> None:
    assert compile_time_s(COMPILER, 1e6) == pytest.approx((564, 156, 2040))
    assert compile_time_s(COMPILER, 8e6)[0] == pytest.approx(564 * 8**0.17)


@pytest.mark.parametrize(("micro_batch", "warned"), [(1, False), (2, True)])
def test_train_says_what_makes_a_refused_graph_smaller(micro_batch: int, warned: bool) -> None:
    (answer,) = train(
        "llama3.1-8b",
        on="trn1.2xlarge",
        stack="optimum-neuron",
        job="lora",
        adapter_rank=16,
        tp=2,
        pp=1,
        micro_batch=micro_batch,
        global_batch=8,
        sequence=2048,
        recompute="full",
    )
    told = [one for one in answer.warnings if "likely refuses a graph" in one]
    assert bool(told) is warned
    assert all("try --micro-batch 1, a larger --tp" in one for one in told)


@pytest.mark.slow
def test_published_compilations_end_as_told() -> None:
    (file,) = shipped_evidence(["compile"])
    rows = [row for row in compare_compilations(CATALOG, file) if row.reason is None]
    assert len(rows) == 98
    training = [row for row in rows if row.family == "training"]
    right = sum(row.ran is row.called_fitting for row in training)
    assert right / len(training) > 0.8
    sizes = [row.instructions for row in rows if row.instructions.measured]
    assert len(sizes) == 4
    assert all(abs(one.error or 0.0) < 1 / 3 for one in sizes)


@pytest.mark.parametrize(
    ("cache", "first_s", "again_s"), [("kept", 600, 45), ("filled", 45, 45), ("lost", 600, 600)]
)
def test_the_cache_decides_what_a_start_and_a_restart_compile(
    cache: str, first_s: int, again_s: int
) -> None:
    ran = {"tp": 32, "pp": 1, "dp": 1, "micro_batch": 1, "recompute": "none", "zero": 0}
    asked = {"on": "trn1.32xlarge", "nodes": [1], "tokens": "1B", "global_batch": 64, **ran}
    (found,) = compare("llama3.2-1b", sequence=2048, compile_cache=cache, **asked).compared
    quote, wall = found.quote, found.quote.wall
    assert wall is not None
    program = training_step(load_model(CATALOG, "llama3.2-1b"), quote.step.layout.complete())
    size = StepGraphs(program=program, chip=CHIP, compiler=COMPILER).largest()
    cold_s = compile_time_s(COMPILER, size.instructions)[0]
    of = {600: cold_s, 45: 45.0}
    assert wall.start_s == pytest.approx(300 + of[first_s])
    read_s = wall.checkpoint_bytes / 1e9
    assert wall.each_restart_s == pytest.approx(600 + of[again_s] + read_s, rel=1e-3)
