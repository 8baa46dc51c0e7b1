"""Bytes of eager kernels, counted by hand an element; casts of autocast; losses in parts."""

from __future__ import annotations

import pytest

from tests.unit.analytic.test_memory_of_a_step import decoder, layout
from trnbench.engines.analytic.step.memory import reader_of
from trnbench.facts.records import replace
from trnbench.machine.costs.single_kernels import adapted, around, moved
from trnbench.program.keeping import unfused_bytes
from trnbench.program.ops import Elementwise, MatMul
from trnbench.program.precision import recipe_named
from trnbench.program.step import training_step

BF16, CAST = recipe_named("bf16"), recipe_named("bf16-autocast")
PLAIN = layout(global_batch=1, precision="bf16")


def op_of(program, function, phase, kind="dense"):
    return next(
        op
        for op in program.blocks[kind].phase(phase)
        if isinstance(op, Elementwise) and op.function == function
    )


@pytest.mark.parametrize(
    ("function", "phase", "each"),
    [
        # Cast 6, square 8, mean 4, product 8, cast 6, scale 4.
        ("norm", "F", 36),
        # Scale 4 + 6, its sum 2, cast 6, products 8 + 12 + 4, mean 4, square 28, sum 12, cast 6.
        ("d_norm", "B_input", 92),
        ("silu_gate", "F", 10),
        ("d_silu_gate", "B_input", 18),
    ],
)
def test_passes_move_what_their_kernels_read_and_write(function, phase, each):
    op = op_of(training_step(decoder(1), PLAIN), function, phase)
    elements = max(float(tensor.elements) for tensor in (*op.reads, *op.writes))
    assert float(moved(op, BF16).bytes) == each * elements


def test_rotary_positions_turn_queries_and_keys():
    program = training_step(decoder(1), PLAIN)
    for function, phase, each in (("rotary", "F", 20), ("d_rotary", "B_input", 30)):
        op = op_of(program, function, phase)
        elements = sum(float(tensor.elements) for tensor in op.writes)
        assert float(moved(op, BF16).bytes) == each * elements


def test_a_norm_with_a_bias_is_one_kernel():
    op = op_of(training_step(decoder(1), PLAIN), "norm", "F")
    biased = replace(op, reads=(*op.reads, op.reads[1]))
    assert moved(biased, BF16).kernels == 1
    assert float(moved(biased, BF16).bytes) == float(biased.bytes)


def test_gradients_of_a_shared_input_are_added_up():
    program = training_step(decoder(1), PLAIN)
    op = next(
        op
        for op in program.blocks["dense"].phase("B_input")
        if isinstance(op, MatMul) and len(op.terms) == 3
    )
    # Two products more are written, and added to the sum so far: 2 + 6 bytes each.
    assert float(around(op, BF16).bytes) == 2 * 8 * float(op.writes[0].elements)


def test_autocast_casts_weights_for_every_pass_and_keeps_the_copies():
    whole = training_step(decoder(1), layout(global_batch=1, precision="bf16-autocast"))
    op = next(op for op in whole.blocks["dense"].phase("F") if isinstance(op, MatMul))
    weights = sum(float(term.right.elements) for term in op.terms)
    inputs = float(op.terms[0].left.elements)
    assert float(around(op, CAST).bytes) == 6 * (weights + 2 * inputs)
    assert op.terms[0].left.format == "bf16"
    assert whole.blocks["dense"].entering[0].format == "fp32"

    def weight_bytes(recompute):
        asked = layout(global_batch=1, precision="bf16-autocast", recompute=recompute)
        (block,) = (training_step(decoder(1), asked).blocks["dense"],)
        return sum(float(one.bytes) for one in block.residents if one.category == "weights")

    norms = sum(
        float(one.weight.elements)
        for name, one in whole.blocks["dense"].parameters.items()
        if name.startswith("norm")
    )
    cast = sum(float(one.weight.elements) for one in whole.blocks["dense"].parameters.values())
    # Checkpointed layers cast again instead.
    assert weight_bytes("none") - weight_bytes("full") == 2 * (cast - norms)


def test_single_kernels_keep_fp32_copies_and_the_gates_activation():
    program = training_step(decoder(1), replace(PLAIN, attention="naive"))
    norm, gate, softmax = (op_of(program, name, "F") for name in ("norm", "silu_gate", "softmax"))
    # 8 bytes a norm (fp32 4, normalised 2, output 2) where the program keeps 4.
    assert float(unfused_bytes(norm, BF16)) == 4 * float(norm.writes[0].elements)
    assert float(unfused_bytes(gate, BF16)) == 2 * float(gate.writes[0].elements)
    # 6 bytes a score where the program keeps 2.
    assert float(unfused_bytes(softmax, BF16)) == 4 * float(softmax.writes[0].elements)


def test_a_fused_loss_never_holds_all_logits():
    def head(loss):
        program = training_step(decoder(1), replace(PLAIN, loss=loss))
        parts = reader_of(program).held["head"]
        passing = ("activations", "scratch")
        return program, sum(float(one.bytes) for one in parts if one.category in passing)

    full, all_bytes = head("full")
    fused, few_bytes = head("fused")
    assert fused.hardware_flop == full.hardware_flop
    logits = op_of(full, "exponential_sums", "F", "head").reads[0]
    assert all_bytes >= float(logits.bytes)
    pieces = float(op_of(fused, "exponential_sums", "F", "head").reads[0].pieces)
    # Two parts at a time, of as many as the vocabulary is wider than the stream.
    assert pieces == max(-(-logits.dims[-1].whole // fused.model.transformer.hidden), 1)
    assert few_bytes < all_bytes


def test_an_adapter_in_fp32_casts_its_input_and_its_result():
    asked = layout(global_batch=1, precision="bf16", job="lora", adapter_rank=8)
    program = training_step(decoder(1), asked)
    ends = {".lora_a": 6, ".lora_b": 18}
    for op in program.blocks["dense"].phase("F"):
        if isinstance(op, MatMul):
            (name, *_) = (term.right.name for term in op.terms)
            each = next((n for end, n in ends.items() if name.endswith(end)), 0)
            of = op.terms[0].left if name.endswith(".lora_a") else op.terms[0].out
            assert float(adapted(op).bytes) == each * float(of.elements)
