from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes import decoder, hand_chip
from trnbench.engines.analytic.matrix.time import matrix_time
from trnbench.engines.analytic.step.compute import compute_time
from trnbench.facts.calibration.chip_efficiency import (
    ChipEfficiency,
    ComputeEfficiency,
    KernelEfficiency,
)
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_chip
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.library import load_model
from trnbench.program.ops import MatMul
from trnbench.program.slots import ComputeCategory
from trnbench.program.step import training_step

CATALOG = open_catalog()
CHIPS = {name: load_chip(CATALOG, name) for name in ("a100-80gb", "h100", "trainium1", "trainium2")}
LLAMA = load_model(CATALOG, "llama3.1-8b")


def layout(**changes) -> Layout:
    base = {"global_batch": 8, "sequence": 16, "precision": "bf16-master"}
    return Layout(**{**base, **changes})


def efficiency(**changes) -> ComputeEfficiency:
    """Efficiencies of the hand-computed example, some changed."""
    chip: dict[str, Any] = {
        "tensor_share": 0.5,
        "half_share_depth": 8.0,
        "narrow_share": 0.75,
        "memory_share": 0.5,
    }
    kernels: dict[str, Any] = {
        "attention_forward_share": 0.25,
        "attention_backward_share": 0.2,
        "score_touches_forward": 5.0,
        "score_touches_backward": 7.0,
        "elementwise_traffic": 0.5,
        "optimizer_traffic": 2.0,
        "block_pass_s": 3.0,
    }
    said: dict[str, Any] = {"name": "hand", "title": "hand", "chips": ("hand",)}
    return ComputeEfficiency(
        chip=ChipEfficiency(**said, **{key: changes.get(key, chip[key]) for key in chip}),
        kernels=KernelEfficiency(
            **{key: changes.get(key, kernels[key]) for key in kernels},
            **{
                key: value
                for key, value in changes.items()
                if key.startswith("attention_") and key not in kernels
            },
        ),
    )


IDEAL = efficiency(
    tensor_share=1.0,
    half_share_depth=0.0,
    narrow_share=1.0,
    memory_share=1.0,
    attention_forward_share=1.0,
    attention_backward_share=1.0,
    elementwise_traffic=1.0,
    optimizer_traffic=1.0,
    block_pass_s=0.0,
)


def layer(chosen, *, model=None, chip=None, of=None, logical_size=None):
    program = training_step(model or decoder(), chosen)
    found = compute_time(
        program, chip or hand_chip(), of or efficiency(), logical_size=logical_size
    )
    return found.blocks["dense"]


def test_hand_example():
    block = layer(layout())
    # 16 tokens of 8. Products m x k x n at 1,024 FLOP/s, no padding: query, key and value
    # 16 x 8 x 16 in 4 s, output 16 x 8 x 8 in 2 s, gate and up 16 x 8 x 32 in 8 s, down
    # 16 x 16 x 8 in 4 s. At depth 8 the share is 0.5 * 8 / 16 = 1/4, at 16 it is
    # 0.5 * 16 / 24 = 1/3: 16 + 8 + 32 + 12 s; each of four takes another second to start.
    assert float(block.seconds("F", category="matrix")) == pytest.approx(68 + 4)
    # Input gradients have depths 16 (query, key and value add up), 8, 32 (share 0.4) and 8:
    # 4 * 3 + 2 * 4 + 8 / 0.4 + 4 * 4 s.
    assert float(block.seconds("B_input", category="matrix")) == pytest.approx(56 + 4)
    # Weight gradients all have the 16 tokens as depth: (4 + 2 + 8 + 4) * 3 s.
    assert float(block.seconds("B_weight", category="matrix")) == pytest.approx(54 + 4)
    # Attention: 4 heads, 128 causal pairs, 2 products of 2 * 2 FLOP: 4,096 FLOP at a quarter of
    # the peak; backward 5 products, 10,240 FLOP at a fifth. One kernel starts, and three.
    assert float(block.seconds("F", category="attention")) == pytest.approx(16 + 1)
    assert float(block.seconds("B_input", category="attention")) == pytest.approx(50 + 3)
    # Passes, 256 bytes for 16 tokens of 8 in bf16: two norms 256 + 16 + 256, rotation of queries
    # and keys 2 * (256 + 128), two residuals 3 * 256, gate 3 * 512; half of it at 512 bytes/s.
    forward_bytes = 2 * 528 + 768 + 2 * 768 + 1536
    assert float(block.seconds("F", category="element-wise")) == pytest.approx(
        forward_bytes * 0.5 / 512
    )
    # 592 weights: norms 16, query and output 64 each, key and value 32 each, three times 128.
    # An update reads gradient, moments and master (4 + 8 + 4 bytes), writes weight, moments and
    # master (2 + 8 + 4): 30 bytes, twice, at 512 bytes/s.
    assert float(block.seconds("optimizer")) == pytest.approx(592 * 30 * 2 / 512)
    # A pass forward and one backward.
    assert float(block.seconds(category="fixed")) == 6
    assert not block.seconds("recompute")


def test_causal_attention_computes_whole_tiles_of_keys_and_each_call_and_head_costs_something():
    # Four heads, 16 queries, 136 pairs counted as 128; half a tile of 4 keys more for each query:
    # 160. A tile as long as the sequence is all of the square, 256.
    tiled = layer(layout(), of=efficiency(attention_forward_keys=4.0))
    assert float(tiled.seconds("F", category="attention")) == pytest.approx(16 * 160 / 128 + 1)
    whole = layer(layout(), of=efficiency(attention_forward_keys=64.0))
    assert float(whole.seconds("F", category="attention")) == pytest.approx(33)
    backward = layer(layout(), of=efficiency(attention_backward_keys=4.0))
    assert float(backward.seconds("B_input", category="attention")) == pytest.approx(
        50 * 160 / 128 + 3
    )
    # Two cores share four heads.
    called = layer(layout(), of=efficiency(attention_call_s=3.0, attention_head_s=0.5))
    cores = hand_chip().unit.cores_per_rank(None)
    assert float(called.seconds("F", category="attention")) == pytest.approx(
        16 + 1 + 3 + 0.5 * -(-4 // cores)
    )


@pytest.mark.parametrize(("size", "factor"), [(64, 2.0), (128, 1.0), (192, 4 / 3), (96, 4 / 3)])
def test_a_systolic_array_takes_as_long_over_heads_that_do_not_fill_it(size, factor):
    chip = CHIPS["trainium2"]
    found = [
        float(
            layer(
                layout(sequence=8192), model=decoder(head_size=of_size), chip=chip, of=IDEAL
            ).seconds("F", category="attention")
        )
        for of_size in (size, 128)
    ]
    assert found[0] / found[1] == pytest.approx(factor * size / 128)


def test_unfused_attention_touches_every_score():
    block = layer(layout(attention="naive"))
    # Scores: four times 16 x 2 x 16, the depth padded to 8: 16 s at 0.5 * 8 / 16 of the rate.
    # Context: four times 16 x 16 x 2, the width padded to 8: 16 s at 1/3. Two starts.
    products = 64 + 48 + 2
    # 4 * 16 * 16 scores of 2 bytes, 5 touches, 512 bytes/s.
    touches = 1024 * 2 * 5 / 512
    assert float(block.seconds("F", category="attention")) == pytest.approx(products + touches)
    # Passes as with fused attention, and two key-value heads repeated for four query heads,
    # 128 bytes to 256 for keys and for values; no pass over scores.
    passes = 2 * 528 + 768 + 2 * 768 + 1536 + 2 * 384
    assert float(block.seconds("F", category="element-wise")) == pytest.approx(passes * 0.5 / 512)
    more = layer(
        layout(attention="naive"),
        of=efficiency(score_touches_forward=6.0, score_touches_backward=9.0),
    )
    gained = {
        phase: float(more.seconds(phase) - block.seconds(phase)) for phase in ("F", "B_input")
    }
    assert gained == pytest.approx({"F": 1024 * 2 / 512, "B_input": 2 * 1024 * 2 / 512})


def test_recompute_repeats_the_core_or_the_whole_block():
    selective = layer(layout(attention="naive", recompute="selective"))
    core = float(selective.seconds("F", category="attention"))
    assert float(selective.seconds("recompute")) == pytest.approx(core)
    full = layer(layout(recompute="full"))
    assert float(full.seconds("recompute")) == pytest.approx(float(full.seconds("F")))
    assert float(full.seconds("recompute", category="fixed")) == 3


@pytest.mark.parametrize("model", ["llama3.1-8b", "mixtral-8x7b", "bert-large", "dlrm-dcnv2"])
def test_the_whole_is_the_sum_of_its_parts(model):
    program = training_step(load_model(CATALOG, model), layout(sequence=512, tp=2))
    found = compute_time(program, CHIPS["h100"], efficiency())
    assert set(found.blocks) == set(program.blocks)
    assert not found.reasons
    for block in found.blocks.values():
        whole = float(block.seconds())
        by_category = sum(float(block.seconds(category=of)) for of in get_args(ComputeCategory))
        phases = {phase for phase, _ in block.parts}
        by_phase = sum(float(block.seconds(phase)) for phase in phases)
        assert whole > 0
        assert by_category == pytest.approx(whole, rel=1e-12)
        assert by_phase == pytest.approx(whole, rel=1e-12)


@pytest.mark.parametrize("attention", ["fused", "naive"])
@pytest.mark.parametrize("degrees", [{}, {"tp": 2, "pp": 2, "dp": 2, "recompute": "full"}])
def test_ideal_products_take_the_hardware_flop_over_the_peak(attention, degrees):
    # Every size is a multiple of the tile, memory and starts take nothing.
    model = decoder(hidden=64, heads=4, kv_heads=4, head_size=16, wide=128, words=256)
    chip = hand_chip(tile=16, memory_bytes_per_s=1e30, launch_latency_s=0.0)
    program = training_step(model, layout(sequence=64, attention=attention, **degrees))
    found = compute_time(program, chip, IDEAL)
    seconds = sum(float(program.instances(kind) * b.seconds()) for kind, b in found.blocks.items())
    ranks_and_runs = float(program.micro_batches * program.grid.ranks_per_stage)
    assert seconds * ranks_and_runs == pytest.approx(
        float(program.hardware_flop) / chip.peak_flop_per_s("bf16"), rel=1e-9
    )


@pytest.mark.parametrize(("name", "cores"), [("h100", 1), ("trainium1", 1), ("trainium2", 2)])
def test_ideal_products_take_what_the_matrix_model_says(name, cores):
    program = training_step(LLAMA, layout(sequence=512, tp=4))
    found = compute_time(program, CHIPS[name], IDEAL)
    for kind, block in program.blocks.items():
        ops = [op for op in block.ops if isinstance(op, MatMul)]
        alone = sum(
            float(op.count * matrix_time(op.product, CHIPS[name], cores=cores).time_s) for op in ops
        )
        assert float(found.blocks[kind].seconds(category="matrix")) == pytest.approx(alone)


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(
    chip=st.sampled_from(sorted(CHIPS)),
    tp=st.sampled_from([1, 2, 8]),
    sequence=st.sampled_from([128, 1000, 4096]),
    attention=st.sampled_from(["fused", "naive"]),
    share=st.floats(0.05, 1.0),
    part=st.sampled_from(["tensor_share", "memory_share", "attention_forward_share"]),
)
def test_a_larger_share_is_never_slower(chip, tp, sequence, attention, share, part):
    chosen = layout(tp=tp, sequence=sequence, attention=attention)
    less = layer(chosen, model=LLAMA, chip=CHIPS[chip], of=efficiency(**{part: 0.05}))
    more = layer(chosen, model=LLAMA, chip=CHIPS[chip], of=efficiency(**{part: share}))
    assert more.parts.keys() == less.parts.keys()
    for key, seconds in more.parts.items():
        assert float(seconds) <= float(less.parts[key])


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(
    tp=st.sampled_from([1, 2, 8]),
    sequence=st.sampled_from([128, 1000, 4096]),
    gain=st.floats(1.0, 8.0),
)
def test_more_bandwidth_or_peak_is_never_slower(tp, sequence, gain):
    chip = CHIPS["a100-80gb"]
    unit = chip.multiprocessors
    assert unit is not None
    bandwidth = chip.memory.bandwidth_per_chip_bytes_per_s * gain
    rates = {name: rate * gain for name, rate in unit.rates_per_chip_flop_per_s.items()}
    wider = replace(chip, memory=replace(chip.memory, bandwidth_per_chip_bytes_per_s=bandwidth))
    faster = replace(chip, multiprocessors=replace(unit, rates_per_chip_flop_per_s=rates))
    chosen = layout(tp=tp, sequence=sequence)
    before = layer(chosen, model=LLAMA, chip=chip).parts
    for better in (wider, faster):
        after = layer(chosen, model=LLAMA, chip=better).parts
        for key, seconds in after.items():
            assert float(seconds) <= float(before[key]) * (1 + 1e-12)


@pytest.mark.parametrize("chip", sorted(CHIPS))
def test_more_replicas_with_as_much_work_each_change_nothing(chip):
    one, two = (
        layer(layout(dp=dp, global_batch=8 * dp, zero=1), model=LLAMA, chip=CHIPS[chip])
        for dp in (4, 8)
    )
    assert one.parts.keys() == two.parts.keys()
    for (phase, _), seconds in one.parts.items():
        if phase != "optimizer":
            assert float(two.seconds(phase)) == float(one.seconds(phase))
            assert float(seconds) > 0
    assert float(two.seconds("optimizer")) == pytest.approx(float(one.seconds("optimizer")) / 2)


def test_two_tensor_parallel_ranks_halve_the_products():
    model = decoder(hidden=64, heads=4, kv_heads=4, head_size=16, wide=128, words=256)
    chip = hand_chip(tile=16, memory_bytes_per_s=1e30, launch_latency_s=0.0)
    one, two = (
        layer(layout(tp=tp, sequence=64), model=model, chip=chip, of=IDEAL) for tp in (1, 2)
    )
    for category in ("matrix", "attention"):
        halved = float(one.seconds(category=category)) / 2
        assert float(two.seconds(category=category)) == pytest.approx(halved)


def test_a_grid_is_priced_as_its_layouts_are_one_by_one():
    grid = layout(
        tp=np.array([1, 2, 4, 8]).reshape(-1, 1, 1),
        dp=np.array([1, 2]).reshape(-1, 1),
        micro_batch=np.array([1, 2]),
        sequence=512,
        zero=1,
    )
    program = training_step(LLAMA, grid)
    found = compute_time(program, CHIPS["trainium2"], efficiency())
    # Only the optimizer's share depends on the number of replicas.
    assert found.blocks["dense"].seconds("F").size == 8
    for index in np.ndindex(program.shape):
        alone = compute_time(program.at(index), CHIPS["trainium2"], efficiency())
        for kind, block in found.blocks.items():
            for key, seconds in block.parts.items():
                here = np.broadcast_to(seconds, program.shape)[index]
                assert here == pytest.approx(float(alone.blocks[kind].parts[key]), rel=1e-12)


def test_samples_are_an_axis_behind_the_layouts():
    samples = {
        "tensor_share": np.array([0.5, 0.6, 0.7]),
        "memory_share": np.array([0.9, 0.6, 0.3]),
        "score_touches_forward": np.array([4.0, 5.0, 6.0]),
        "block_pass_s": np.array([0.0, 1e-5, 1e-4]),
    }
    chosen = layout(tp=np.array([1, 2, 4]), sequence=512, attention="naive")
    block = layer(chosen, model=LLAMA, chip=CHIPS["h100"], of=efficiency(**samples))
    assert block.seconds().shape == (3, 3)
    for i in range(3):
        one = efficiency(**{name: float(row[i]) for name, row in samples.items()})
        alone = layer(chosen, model=LLAMA, chip=CHIPS["h100"], of=one)
        for phase in ("F", "B_input", "B_weight", "optimizer"):
            here = np.broadcast_to(block.seconds(phase), (3, 3))[:, i]
            assert here == pytest.approx(alone.seconds(phase), rel=1e-12)


def test_eight_bit_products_reach_their_own_share():
    chip = hand_chip(memory_bytes_per_s=1e30, launch_latency_s=0.0)
    assert chip.multiprocessors is not None
    rates = {"bf16": 1024.0, "fp8_e4m3": 2048.0}
    chip = replace(
        chip, multiprocessors=replace(chip.multiprocessors, rates_per_chip_flop_per_s=rates)
    )
    found = {
        precision: compute_time(
            training_step(decoder(), layout(precision=precision)), chip, efficiency()
        )
        for precision in ("bf16-master", "fp8")
    }
    assert not found["fp8"].reasons
    # Twice the rate, of which three quarters of the usual share are reached: in the layers, not
    # in the head.
    sixteen, eight = (
        {kind: float(block.seconds(category="matrix")) for kind, block in of.blocks.items()}
        for of in found.values()
    )
    assert eight["dense"] == pytest.approx(sixteen["dense"] / 2 / 0.75)
    assert eight["head"] == pytest.approx(sixteen["head"])


def test_a_rank_has_its_share_of_the_chip():
    one, two = (
        layer(layout(sequence=512), model=LLAMA, chip=CHIPS["trainium2"], logical_size=size)
        for size in (1, 2)
    )
    for category in ("element-wise", "attention"):
        halved = float(one.seconds(category=category)) / 2
        assert float(two.seconds(category=category)) == pytest.approx(halved)
    assert float(two.seconds(category="matrix")) < float(one.seconds(category="matrix"))
    assert float(layer(layout(), chip=CHIPS["trainium2"]).seconds("F")) == float(
        layer(layout(), chip=CHIPS["trainium2"], logical_size=2).seconds("F")
    )


def test_a_format_the_chip_lacks_is_a_result_with_reasons():
    program = training_step(decoder(), layout(precision="fp16-master"))
    found = compute_time(program, hand_chip(), efficiency())
    assert found.reasons == ("hand has no fp16 product; it has bf16",)
    block = found.blocks["dense"]
    assert np.isnan(block.seconds("F", category="matrix"))
    assert np.isnan(block.seconds("F", category="attention"))
    assert block.seconds("F", category="element-wise") > 0


def test_a_thin_adapter_is_no_slower_than_a_thick_one():
    seconds = []
    for rank in (1, 16, 64):
        program = training_step(LLAMA, layout(job="lora", adapter_rank=rank, sequence=512))
        blocks = compute_time(program, CHIPS["h100"], efficiency(half_share_depth=300.0)).blocks
        seconds.append(float(blocks["dense"].seconds("F", category="matrix")))
    assert seconds[0] <= seconds[1] <= seconds[2] < 1.2 * seconds[0]
