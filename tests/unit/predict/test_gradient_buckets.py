"""Gradients and weights of many layers travel together, in the buckets of their software."""

from __future__ import annotations

from typing import Any

import pytest

import trnbench
from trnbench.facts.calibration.buckets import GradientBuckets
from trnbench.facts.calibration.training_stack import load_training_stack
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import Layout
from trnbench.machine.gradient_buckets import bucket_bytes, in_buckets
from trnbench.predict.prices import prices_of
from trnbench.predict.setup import SetupMemo, TrainSetup, train_setup
from trnbench.program.step import StepProgram, training_step

CATALOG = open_catalog()
MEGATRON = GradientBuckets(parameters=40_000_000, parameters_a_rank=1_000_000)
KNOBS: dict[str, Any] = {
    **{"zero": 1, "micro_batch": 1, "sequence": 8192, "precision": "bf16-master"},
}
# Llama 3.1 8B: 32 layers, the last norm, two tables of words.
WEIGHTS = 8_030_261_248


def setup_of(model: str, nodes: int) -> TrainSetup:
    return train_setup(CATALOG, model, "p5.48xlarge", nodes, stack="nemo-hopper")


def without(setup: TrainSetup) -> TrainSetup:
    return replace(setup, efficiency=replace(setup.efficiency, buckets=None), memo=SetupMemo())


def program_of(model: str, **knobs: Any) -> StepProgram:
    layout = Layout(**{**KNOBS, "global_batch": knobs["dp"], **knobs})
    return training_step(setup_of(model, 1).model, layout)


def exchanged_s(setup: TrainSetup, program: StepProgram) -> float:
    """Seconds of all exchanges between replicas at the end of a step."""
    exchanges = prices_of(setup, program).training.exchanges
    return sum(
        float(program.instances(kind) * exchanges.seconds(op))
        for kind, block in program.blocks.items()
        for op in block.collectives
        if in_buckets(op, MEGATRON)
    )


def test_a_bucket_is_the_larger_of_two_numbers_and_at_most_all_there_is():
    def of(ranks: int, pp: int = 1) -> float:
        program = program_of("llama3.1-8b", dp=ranks, pp=pp)
        block = next(block for kind, block in program.blocks.items() if kind == "dense")
        op = next(op for op in block.collectives if op.op == "reduce-scatter")
        return float(bucket_bytes(program, op, MEGATRON))

    # Gradients travel in fp32: 4 bytes a parameter.
    assert of(8) == 4 * 40_000_000
    assert of(256) == 4 * 256_000_000
    assert of(16_384) == pytest.approx(4 * WEIGHTS, rel=1e-3)
    assert of(16_384, pp=4) == pytest.approx(4 * WEIGHTS / 4, rel=1e-3)


def test_software_says_its_buckets():
    assert setup_of("llama3.1-8b", 1).efficiency.buckets == MEGATRON
    torch = train_setup(CATALOG, "llama3.1-8b", "p5.48xlarge", 1, stack="torchtitan-hopper")
    assert torch.efficiency.buckets is None  # FSDP2 sends a layer at a time
    plain = train_setup(CATALOG, "llama3.1-8b", "p5.48xlarge", 1, stack="eager-hopper")
    assert plain.efficiency.buckets == GradientBuckets(bytes=25 * 2**20)
    graphs = train_setup(CATALOG, "llama3.1-8b", "trn1.32xlarge", 1, stack="graph-trn1")
    assert graphs.efficiency.buckets is None
    with pytest.raises(ValueError, match="above 0"):
        GradientBuckets()


@pytest.mark.parametrize("begun_as", ["training-eager-hopper", "training-nemo-hopper"])
def test_a_stack_of_a_new_name_exchanges_as_what_it_began_as(begun_as: str):
    start = load_training_stack(CATALOG, begun_as)
    mine = replace(start, name="training-mine", frameworks=("Mine",), inherits_from=start.name)
    there = [
        train_setup(CATALOG, "llama3.1-8b", "p5.48xlarge", 2, stack=one) for one in (start, mine)
    ]
    assert there[0].efficiency.buckets is not None
    assert there[1].efficiency.buckets == there[0].efficiency.buckets


def test_the_exchange_does_not_grow_with_the_latency_of_a_ring_times_layers():
    seconds: dict[tuple[int, bool], float] = {}
    for ranks in (256, 4096):
        setup = setup_of("llama3.1-8b", ranks // 8)
        program = program_of("llama3.1-8b", dp=ranks)
        for each, known in ((False, setup), (True, without(setup))):
            seconds[ranks, each] = exchanged_s(known, program)
    assert seconds[4096, False] < 1.1 * seconds[256, False]
    assert seconds[4096, True] > 3 * seconds[256, True]


def test_tiny_gradients_take_a_tree_s_time():
    # Adapters of 70B on 1,024 GPUs: two rings a layer are 80 x 2 x 1,023 hops of some 7 us, 1.1 s.
    setup = setup_of("llama3.1-70b", 128)
    knobs = {"job": "lora", "adapter_rank": 16, "adapter_on": "attention"}
    program = program_of("llama3.1-70b", dp=1024, **knobs)
    together, apart = exchanged_s(setup, program), exchanged_s(without(setup), program)
    assert together < 0.1
    assert apart > 0.8


def test_both_engines_send_the_same_buckets():
    asked: dict[str, Any] = {
        **{"on": "p5.48xlarge:4", "tp": 1, "pp": 1, "cp": 1, "vpp": 1, "zero": 1},
        **{"micro_batch": 1, "global_batch": 32, "sequence": 4096, "recompute": "none"},
    }
    closed, played = (
        trnbench.train("llama3.1-8b", engine=engine, **asked)[0]
        for engine in ("analytic", "emulate")
    )
    assert closed.step is not None
    assert played.step is not None
    waits = [step.exposed_s["data"] for step in (closed.step, played.step)]
    assert waits[0] > 0
    assert waits[1] == pytest.approx(waits[0], rel=0.1)
