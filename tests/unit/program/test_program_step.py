from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trnbench.errors import UnknownNameError
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.records import replace
from trnbench.facts.workload.choices import OPS
from trnbench.facts.workload.layout import Layout, ZeroStage
from trnbench.facts.workload.library import load_model
from trnbench.facts.workload.model import Attention as Heads
from trnbench.facts.workload.model import Mlp, Model, Moe, Position, Transformer, Vocabulary
from trnbench.facts.workload.weights import parameter_count, weights
from trnbench.program.ops import AttentionOp, CollectiveOp, Elementwise, MatMul
from trnbench.program.precision import RECIPES, recipe_named
from trnbench.program.reasons import divisors_near
from trnbench.program.step import host_states_bytes, training_step


def decoder(
    *,
    layers: int = 2,
    hidden: int = 8,
    heads: int = 4,
    kv_heads: int = 2,
    ffn: int = 16,
    words: int = 32,
    gpt: bool = False,
    dropout: bool = False,
    moe: Moe | None = None,
    dense_layers: int = 0,
    window: int | None = None,
) -> Model:
    """A small decoder; with `gpt`, as GPT-3 is built, else as Llama is."""
    mlp = Mlp(hidden=ffn, gated=not gpt, activation="gelu" if gpt else "silu", biases=gpt)
    position = (
        Position(encoding="learned", length=4096)
        if gpt
        else Position(encoding="rotary", length=4096, rotary_base=10000.0)
    )
    return Model(
        name="small",
        title="small",
        transformer=Transformer(
            layers=layers,
            hidden=hidden,
            norm="layer" if gpt else "rms",
            dropout=dropout,
            attention=Heads(
                heads=heads,
                kv_heads=kv_heads,
                head_size=hidden // heads,
                causal=True,
                biases="all" if gpt else "none",
                dropout=dropout,
                window=window,
            ),
            mlp=mlp if moe is None or moe.dense_layers else None,
            moe=moe,
            position=position,
        ),
        vocabulary=Vocabulary(size=words, tied=gpt),
    )


def mixture(**changes) -> Model:
    expert = Mlp(hidden=16, gated=True, activation="silu")
    moe = Moe(experts=8, top_k=2, expert=expert, shared_experts=1, **changes)
    return decoder(layers=6, moe=moe)


def layout(**changes) -> Layout:
    base = {"global_batch": 8, "sequence": 16, "precision": "bf16-master"}
    return Layout(**{**base, **changes})


HAND = layout(tp=2, pp=2, dp=2, sequence_parallel=True, zero=1)
"""Batch 8 over 2 replicas of micro-batch 1: 4 micro-batches. Stage 0 has the embedding."""


# The hand-computed example: 2 layers, TP 2, PP 2, DP 2, 4 micro-batches


def test_hand_example_flop():
    program = training_step(decoder(), HAND)
    # A rank: 16 tokens, width 8, 2 of 4 heads of size 2, 1 of 2 key heads, 8 of 16 MLP columns.
    # Forward:  q, k, v 2*16*8*(4+2+2) = 2048    output 2*16*4*8 = 1024
    #           gate and up 2*16*8*16 = 4096     down 2*16*8*8 = 2048          linear = 9216
    #           attention, half of 16*16 pairs: 2 heads * 128 * 2 products * 2*2 = 2048
    # Backward: linear twice; attention 5 products of 2*2 instead of 2.
    linear, attention = 9216, 2048
    layer = 3 * linear + attention + attention * 5 // 2
    dense = program.blocks["dense"]
    assert dense.flop("F") == linear + attention
    # Down projection: 16 x 8 and 8 x 8 operands and a 16 x 8 result in bf16.
    (down,) = [
        op for op in dense.phase("F") if isinstance(op, MatMul) and op.name == "mlp.down.out"
    ]
    sizes = [float(n) for n in (down.product.m, down.product.k, down.product.n)]
    assert sizes == [16, 8, 8]
    assert down.bytes == (16 * 8 + 8 * 8 + 16 * 8) * 2
    assert dense.flop() == layer
    # Output: 2*16*8*16 words of 32 = 4096, and twice that backward.
    head = 3 * 4096
    assert program.blocks["head"].flop() == head
    # 4 micro-batches, 4 ranks of each of 2 stages with a layer each, the head on the last.
    assert program.micro_batches == 4
    assert program.hardware_flop == 4 * 4 * (2 * layer + head)
    # The model needs 4 products of attention backward, not 5.
    assert program.model_flop == 4 * 4 * (2 * 3 * (linear + attention) + head)


def test_hand_example_messages():
    program = training_step(decoder(), HAND)
    dense = program.blocks["dense"]
    # All-gather and reduce-scatter around attention and MLP, backward the other way round, and
    # both inputs gathered again for the weight gradients: 16 tokens * 8 * 2 bytes each.
    tensor = [op for op in dense.collectives if op.axis == "tp" and op.phase != "optimizer"]
    kinds = [(op.phase, op.op) for op in tensor]
    assert sorted(kinds) == sorted(
        [("F", "all-gather"), ("F", "reduce-scatter")] * 2
        + [("B_input", "all-gather"), ("B_input", "reduce-scatter"), ("B_weight", "all-gather")] * 2
    )
    assert all(op.size_bytes == 16 * 8 * 2 for op in tensor)
    # A layer's weights on a rank: two norms of 8, q 8*4, k and v 8*2, output 4*8, gate, up and
    # down 8*8: 304. Gradients travel in fp32, weights in bf16. The norms' gradients (every rank
    # saw its own tokens) are summed over tp first.
    step = {
        (op.axis, op.op): float(op.size_bytes)
        for op in dense.collectives
        if op.phase == "optimizer"
    }
    assert step == {
        ("tp", "all-reduce"): 16 * 4,
        ("data", "reduce-scatter"): 304 * 4,
        ("data", "all-gather"): 304 * 2,
    }
    # Half of the tokens go to the next stage from each rank.
    first, last = program.stages
    assert [(m.direction, m.peer, m.phase, float(m.size_bytes)) for m in first.messages] == [
        ("send", "next", "F", 128.0),
        ("receive", "next", "B_input", 128.0),
    ]
    assert [(m.direction, m.peer, m.phase, float(m.size_bytes)) for m in last.messages] == [
        ("receive", "previous", "F", 128.0),
        ("send", "previous", "B_input", 128.0),
    ]


def test_hand_example_kept_tensors():
    kept = training_step(decoder(), HAND).blocks["dense"].kept.tensors
    # 8 of 16 tokens of the stream, 16 tokens of half the heads or MLP columns; log-sums in fp32.
    assert {tensor.name: float(tensor.bytes) for tensor in kept} == {
        "stream": 8 * 8 * 2,
        "norm.attention.out": 8 * 8 * 2,
        "query.turned": 16 * 2 * 2 * 2,
        "key.turned": 16 * 1 * 2 * 2,
        "value": 16 * 1 * 2 * 2,
        "context": 16 * 2 * 2 * 2,
        "log_sums": 16 * 2 * 4,
        "attention.residual": 8 * 8 * 2,
        "norm.mlp.out": 8 * 8 * 2,
        "mlp.gate.out": 16 * 8 * 2,
        "mlp.up.out": 16 * 8 * 2,
        "mlp.active": 16 * 8 * 2,
    }


# Activations as published: Korthikanti et al. (arXiv 2205.05198), and the Neuron documentation


@pytest.mark.parametrize(("tp", "sequence_parallel"), [(1, False), (4, False), (4, True)])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_activations_of_a_layer_are_the_published_formula(tp, sequence_parallel, recompute):
    s, b, h, a = 256, 2, 64, 8
    model = decoder(hidden=h, heads=a, kv_heads=a, ffn=4 * h, gpt=True, dropout=True)
    chosen = layout(
        tp=tp,
        micro_batch=b,
        sequence=s,
        attention="naive",
        sequence_parallel=sequence_parallel,
        recompute=recompute,
    )
    program = training_step(model, chosen)
    kept = sum(tensor.bytes for tensor in program.blocks["dense"].kept.tensors)
    shared = tp if sequence_parallel else 1
    scores = 5 * a * s / h / tp
    expected = {
        "none": 10 / shared + 24 / tp + scores,
        "selective": 10 / shared + 24 / tp,
        "full": 2 / shared,
    }[recompute]
    assert kept == s * b * h * expected
    if tp == 1 and recompute == "none":
        assert kept == s * b * h * (34 + 5 * a * s / h)


def test_output_layer_keeps_the_published_bytes():
    s, b, h, v, t = 256, 2, 64, 512, 4
    model = decoder(hidden=h, heads=8, kv_heads=8, ffn=4 * h, words=v, gpt=True)
    chosen = layout(tp=t, micro_batch=b, sequence=s, sequence_parallel=True)
    head = training_step(model, chosen).blocks["head"]
    kept = sum(tensor.bytes for tensor in head.kept.tensors)
    # Input, normalised input, logits in fp32; and four numbers a token for the loss.
    assert kept == pytest.approx(4 * s * b * h / t * (1 + v / h), rel=0.05)


# Model FLOP: one definition, whatever the layout


def test_model_flop_is_the_published_formula_without_the_causal_half():
    s, h, v, n = 128, 64, 512, 3
    model = decoder(layers=n, hidden=h, heads=8, kv_heads=8, ffn=4 * h, words=v, gpt=True)
    program = training_step(model, layout(sequence=s, global_batch=4))
    # Korthikanti et al.: 72 B s l h^2 (1 + s/(6h) + v/(12 h l)); causal attention is half of it.
    expected = 72 * 4 * s * n * h**2 * (1 + s / (12 * h) + v / (12 * h * n))
    assert program.model_flop == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    "changes",
    [
        {"tp": 4, "sequence_parallel": True},
        {"tp": 4},
        {"pp": 2, "dp": 2, "zero": 3},
        {"cp": 2, "recompute": "full"},
        {"attention": "naive", "recompute": "selective"},
        {"precision": "fp8"},
        {"micro_batch": 4},
    ],
)
def test_model_flop_does_not_depend_on_the_layout(changes):
    model = decoder(window=8)
    one = training_step(model, layout())
    other = training_step(model, layout(**changes))
    assert other.model_flop == pytest.approx(one.model_flop, rel=1e-12)
    assert other.hardware_flop >= other.model_flop


def test_full_recompute_repeats_the_forward_pass_with_its_messages():
    none, full = (
        training_step(decoder(), layout(tp=2, recompute=mode)).blocks["dense"]
        for mode in ("none", "full")
    )
    assert full.flop("recompute") == none.flop("F")

    def reduces(block, *phases):
        return sum(op.op == "all-reduce" and op.phase in phases for op in block.collectives)

    assert reduces(none, "F") == 2
    assert reduces(none, "B_input", "B_weight") == 2
    assert reduces(full, "recompute") == 2


def test_selective_recompute_repeats_naive_attention_and_nothing_of_fused():
    naive, fused = (
        training_step(decoder(), layout(attention=kind, recompute="selective")).blocks["dense"]
        for kind in ("naive", "fused")
    )
    # Two products of 4 heads * 16 * 16 pairs * size 2.
    assert naive.flop("recompute") == 2 * 2 * 4 * 16 * 16 * 2
    assert not fused.phase("recompute")


# Conservation


LAYOUTS = st.fixed_dictionaries(
    {
        "tp": st.sampled_from([1, 2, 4]),
        "pp": st.sampled_from([1, 2, 3]),
        "dp": st.sampled_from([1, 2, 4]),
        "cp": st.sampled_from([1, 2]),
        "ep": st.sampled_from([1, 2]),
        "zero": st.sampled_from([0, 1, 2, 3]),
        "sequence_parallel": st.booleans(),
        "recompute": st.sampled_from(["none", "selective", "full"]),
        "precision": st.sampled_from(sorted(RECIPES)),
    }
)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(degrees=LAYOUTS, dense=st.booleans())
def test_what_is_sent_is_received(degrees, dense):
    model = decoder(layers=6) if dense else mixture()
    if dense or degrees["dp"] * degrees["cp"] % degrees["ep"]:
        degrees = {**degrees, "ep": 1}
    program = training_step(model, layout(**degrees))
    assert program.legal, program.refusals()
    messages = [(m, s.multiplicity) for s in program.stages for m in s.messages]
    for phase in ("F", "B_input"):
        sent, received = (
            sum(m.size_bytes * m.count * n for m, n in messages if (m.phase, m.direction) == key)
            for key in ((phase, "send"), (phase, "receive"))
        )
        assert sent == received
    for block in program.blocks.values():
        for op in block.collectives:
            assert op.op in OPS
            if op.count == 0:
                continue
            assert op.ranks > 1
            before, after = float(op.read.bytes), float(op.write.bytes)
            # Flat slices of weights and gradients are rounded up to whole elements.
            rounding = 4 * op.ranks if op.axis in ("data", "expert_data") else 0
            match op.op:
                case "all-gather":
                    assert abs(before * op.ranks - after) <= rounding
                case "reduce-scatter":
                    assert abs(after * op.ranks - before) <= rounding
                case "permute":
                    assert max(before, after) == min(before, after) * op.ranks
                    assert op.count == op.ranks - 1
                case _:
                    assert before == after


@settings(max_examples=30, deadline=None)
@given(degrees=LAYOUTS)
def test_tensors_of_a_product_agree_and_only_known_ones_are_read(degrees):
    program = training_step(decoder(layers=6), layout(**{**degrees, "ep": 1}))
    for block in program.blocks.values():
        there = {*block.entering, *(p.weight for p in block.parameters.values())}
        there |= {t for op in block.phase("F") for t in op.reads if t.role == "constant"}
        for op in block.phase("F"):
            if isinstance(op, CollectiveOp) and op.axis == "data":
                continue
            assert set(op.reads) <= there
            there |= set(op.writes)
        for op in block.ops:
            for term in op.terms if isinstance(op, MatMul) else ():
                left, right, out = term.operands
                sizes = {
                    letter: {float(n) for name, n in pairs if name == letter}
                    for letter in left + right + out
                    for pairs in [
                        [
                            *zip(left, term.left.shape, strict=True),
                            *zip(right, term.right.shape, strict=True),
                            *zip(out, term.out.shape, strict=True),
                        ]
                    ]
                }
                assert all(len(found) == 1 for found in sizes.values()), (op.name, sizes)
        for phases in (("F",), ("B_input", "B_weight")):
            exchanged = ("data", "expert_data")
            writes = [
                (type(op), tensor.name)
                for op in block.phase(*phases)
                if not (isinstance(op, CollectiveOp) and op.axis in exchanged)
                for tensor in op.writes
            ]
            assert len(set(writes)) == len(writes)


@given(degrees=LAYOUTS, spread=st.sampled_from([2, 4]))
@settings(max_examples=30, deadline=None)
def test_more_replicas_never_change_what_a_rank_computes(degrees, spread):
    one = {**degrees, "ep": 1}
    more = {**one, "dp": one["dp"] * spread, "global_batch": 8 * spread}
    few, many = (training_step(mixture(), layout(**d)) for d in (one, more))
    assert few.micro_batches == many.micro_batches
    for kind, block in few.blocks.items():
        assert many.blocks[kind].flop() == block.flop()
        for before, after in zip(_passes(block), _passes(many.blocks[kind]), strict=True):
            assert before.bytes == after.bytes


def _passes(block):
    return [
        op
        for op in block.ops
        if isinstance(op, Elementwise | AttentionOp) and op.phase != "optimizer"
    ]


@pytest.mark.parametrize("model", [decoder(), decoder(gpt=True), mixture()])
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_one_rank_communicates_with_nobody(model, zero):
    program = training_step(model, layout(zero=zero))
    assert not any(block.collectives for block in program.blocks.values())
    assert not any(stage.messages for stage in program.stages)
    assert not program.closing


# Grids


def test_a_grid_holds_the_programs_of_its_layouts():
    open_grid = layout(
        tp=np.array([1, 2, 4]).reshape(-1, 1, 1, 1),
        pp=np.array([1, 2, 3]).reshape(-1, 1, 1),
        dp=np.array([1, 4]).reshape(-1, 1),
        ep=np.array([1, 2]),
        sequence_parallel=True,
        zero=1,
        recompute="full",
    )
    program = training_step(mixture(), open_grid)
    assert program.shape == (3, 3, 2, 2)
    for index in np.ndindex(program.shape):
        alone = program.at(index)
        assert alone.legal == program.legal[index]
        assert alone.refusals() == program.refusals(index)
        if not alone.legal:
            continue
        for whole, one in (
            (program.hardware_flop, alone.hardware_flop),
            (program.model_flop, alone.model_flop),
            (_sent(program), _sent(alone)),
        ):
            assert np.broadcast_to(whole, program.shape)[index] == one


def _sent(program):
    """Bytes of all collectives and messages of a step, whatever they are."""
    total = np.zeros(())
    for kind, block in program.blocks.items():
        for op in block.collectives:
            times = 1 if op.phase == "optimizer" else program.micro_batches
            total = total + op.size_bytes * op.count * times * program.instances(kind)
    for stage in program.stages:
        for message in stage.messages:
            total = total + message.size_bytes * message.count * stage.multiplicity
    return total


def test_operations_depend_on_the_axes_they_need_only():
    open_grid = layout(
        tp=np.array([1, 2, 4]).reshape(-1, 1, 1),
        pp=np.array([1, 2]).reshape(-1, 1),
        dp=np.array([1, 2, 4, 8]),
    )
    dense = training_step(decoder(), open_grid).blocks["dense"]
    for op in dense.ops:
        if isinstance(op, MatMul):
            assert op.product.shape in [(), (3, 1, 1)]


# Stages


def test_layers_that_do_not_divide_go_to_the_middle_then_to_the_first_stage():
    def held(layers, pp):
        stages = training_step(decoder(layers=layers), layout(pp=pp)).stages
        return {s.role: (int(s.multiplicity), int(s.blocks["dense"])) for s in stages}

    assert held(8, 1) == {"only": (1, 8)}
    assert held(8, 4) == {"first": (1, 2), "light": (2, 2), "last": (1, 2)}
    assert held(9, 4) == {"first": (1, 2), "light": (1, 2), "heavy": (1, 3), "last": (1, 2)}
    assert held(11, 4) == {"first": (1, 3), "heavy": (2, 3), "last": (1, 2)}


def test_stages_that_share_the_work_count_the_output_projection():
    def held(layers, pp):
        # A layer has 576 weights that multiply, the head 144 x 8: as many as two layers.
        stages = training_step(
            decoder(layers=layers, words=144), layout(pp=pp, stage_split="work")
        ).stages
        return {s.role: (int(s.multiplicity), int(s.blocks["dense"])) for s in stages}

    assert held(8, 1) == {"only": (1, 8)}
    # Ten layers of work: a stage goes on until its five are passed.
    assert held(8, 2) == {"first": (1, 6), "last": (1, 2)}
    assert held(8, 4) == {"first": (1, 3), "light": (1, 2), "heavy": (1, 3), "last": (1, 0)}
    assert held(9, 2) == {"first": (1, 6), "last": (1, 3)}


@settings(max_examples=50, deadline=None)
@given(layers=st.integers(1, 30), pp=st.integers(1, 8), split=st.sampled_from(["layers", "work"]))
def test_stages_hold_every_layer_and_both_ends_once(layers, pp, split):
    program = training_step(decoder(layers=layers), layout(pp=pp, stage_split=split))
    if layers < pp:
        assert not program.legal
        return
    assert sum(s.multiplicity for s in program.stages) == pp
    assert program.instances("dense") == layers
    assert program.instances("embedding") == program.instances("head") == 1


def test_leading_dense_layers_are_on_the_first_stage():
    model = mixture(dense_layers=2)
    stages = training_step(model, layout(pp=2)).stages
    assert [{k: int(n) for k, n in s.blocks.items()} for s in stages] == [
        {"embedding": 1, "dense": 2, "moe": 1},
        {"moe": 3, "head": 1},
    ]


def test_interleaved_chunks_send_more_often():
    model = decoder(layers=8)
    chosen = layout(pp=2, vpp=4, schedule="interleaved")
    first, last = training_step(model, chosen).stages
    up = {m.direction: int(m.count) for m in first.messages if m.phase == "F"}
    # Eight parts of the model hand on seven times a micro-batch: four times up, three times back.
    assert up == {"send": 4, "receive": 3}
    down = {m.direction: int(m.count) for m in last.messages if m.phase == "F"}
    assert down == {"send": 3, "receive": 4}


# Layouts that do not divide


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"tp": 3}, "tp=3 does not divide 4 heads; try 2, 4, 1"),
        ({"dp": 3}, "global_batch=8 does not divide by dp x micro_batch = 3; try 6 or 9"),
        ({"cp": 5}, "sequence=16 does not divide by cp = 5; try 15 or 20"),
        ({"pp": 4}, "pp=4 x vpp=1 is more than 2 layers; try pp=2"),
        ({"ep": 2}, "ep=2: the model has no experts; try 1"),
        ({"vpp": 2}, "vpp=2 needs schedule=interleaved, not 1f1b; try vpp=1"),
        (
            {"cp": 2, "attention": "naive"},
            "cp=2: ring context parallelism needs fused attention; try attention=fused",
        ),
        (
            {"tp": 2, "cp": 4, "sequence_parallel": True, "sequence": 12},
            "sequence=12 does not divide by tp x cp = 8; try 8 or 16",
        ),
    ],
)
def test_refusals_name_the_nearest_layout(changes, text):
    program = training_step(decoder(), layout(**changes))
    assert not program.legal
    assert text in program.refusals()


def test_experts_and_their_ranks_must_divide():
    program = training_step(mixture(), layout(dp=4, ep=3))
    assert program.refusals() == (
        "ep=3 does not divide 8 experts; try 2, 4, 1",
        "ep=3 does not divide dp x cp = 4 ranks; try 2, 4, 1",
    )


def test_context_ranks_that_share_out_heads_need_enough_of_them():
    chosen = layout(tp=2, cp=2, context_parallel="all-to-all")
    assert "key-value heads" in training_step(decoder(), chosen).refusals()[0]
    assert training_step(decoder(kv_heads=4), chosen).legal


# Precision


def test_recipes_have_the_bytes_users_expect():
    def per_parameter(name):
        recipe = recipe_named(name)
        dense = training_step(decoder(), layout(precision=recipe.name)).blocks["dense"]
        state = sum(
            r.bytes for r in dense.residents if r.category in ("weights", "gradients", "optimizer")
        )
        return state / sum(p.weight.elements for p in dense.parameters.values())

    assert per_parameter("bf16-master") == 2 + 4 + 12
    assert per_parameter("bf16-sr-master") == 18
    assert per_parameter("bf16-sr") == per_parameter("bf16") == 2 + 2 + 4
    assert per_parameter("fp32") == per_parameter("TF32") == 4 + 4 + 8
    assert per_parameter("auto-cast-bf16") == 16
    # Nearly every weight is in a linear layer and has an fp8 copy.
    assert per_parameter("fp8") == pytest.approx(19, rel=0.01)


def test_an_unknown_recipe_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match=r"unknown precision 'bf16-mastr'.*bf16-master"):
        training_step(decoder(), layout(precision="bf16-mastr"))


def test_fp8_operands_travel_and_are_kept_in_fp8():
    chosen = layout(precision="fp8", tp=2, sequence_parallel=True)
    dense = training_step(decoder(), chosen).blocks["dense"]
    gathered = [op for op in dense.collectives if op.op == "all-gather" and op.phase == "F"]
    assert [float(op.size_bytes) for op in gathered] == [16 * 8 * 1.0] * 2
    kept = {t.name: float(t.bytes) for t in dense.kept.tensors}
    # A rank keeps its own half of the tokens only.
    assert kept["norm.mlp.out.fp8_e4m3"] == 8 * 8 * 1.0


def test_fp8_operands_are_kept_small_and_gradients_stay_wide():
    wide, small = (
        training_step(decoder(), layout(precision=name)).blocks["dense"]
        for name in ("bf16-master", "fp8")
    )
    kept = {t.name: t.format for t in small.kept.tensors}
    assert kept["norm.mlp.out.fp8_e4m3"] == "fp8_e4m3"
    assert "norm.mlp.out" not in kept
    assert {g.format for g in small.gradients.values()} == {"fp32"}
    assert sum(t.bytes for t in small.kept.tensors) < sum(t.bytes for t in wide.kept.tensors)


# Every model that ships


SHIPPED = [entry.name for entry in open_catalog().entries("models")]


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("how", [{}, {"tp": 4, "sequence_parallel": True}, {"recompute": "full"}])
def test_every_trained_weight_of_every_model_gets_a_gradient_cut_as_it_is(name, how):
    model = load_model(open_catalog(), name)
    if model.recommender is not None:
        how = {key: value for key, value in how.items() if key == "recompute"}
    length = model.transformer.position.length if model.transformer else 1
    chosen = layout(**how, sequence=min(length, 4096), precision="bf16-sr")
    program = training_step(model, chosen)
    trained = {(w.block, w.name): w for w in weights(model) if w.trained}
    found = {
        (kind, parameter.weight.name): (parameter.weight, block.gradients[parameter.weight.name])
        for kind, block in program.blocks.items()
        for parameter in block.parameters.values()
        if parameter.use == "trained"
    }
    assert trained.keys() <= found.keys()
    for weight, gradient in found.values():
        assert gradient.shape == weight.shape
        assert [(dim.name, dim.axes) for dim in gradient.dims if dim.axes] == [
            (dim.name, dim.axes) for dim in weight.dims if dim.axes
        ]
    held = sum(
        float(parameter.weight.elements * parameter.held * program.instances(kind))
        for kind, block in program.blocks.items()
        for parameter in block.parameters.values()
    )
    if not how.get("tp") and not (model.vocabulary and model.vocabulary.tied):
        assert held == parameter_count(model)
    assert program.hardware_flop >= program.model_flop > 0


@pytest.mark.parametrize(
    ("name", "tokens", "hidden", "layers", "modulation"),
    [("vit-base", 197, 768, 12, 0), ("dit-xl-2", 256, 1152, 28, 6)],
)
def test_image_models_have_the_operations_of_a_hand_count(name, tokens, hidden, layers, modulation):
    program = training_step(
        load_model(open_catalog(), name), layout(global_batch=1, sequence=tokens)
    )
    # A layer: 12 h^2 multiply-adds a token, two products of tokens^2 h, h^2 a modulation vector.
    # All three times; both ends are below 1 % (ViT 17.56 G, DiT 118.6 G multiply-adds forward).
    layer = 12 * hidden**2 * tokens + 2 * tokens**2 * hidden + modulation * hidden**2
    assert program.model_flop == pytest.approx(3 * 2 * layers * layer, rel=0.01)


def test_only_predicted_positions_reach_the_vocabulary():
    model = load_model(open_catalog(), "bert-large")
    head = training_step(model, layout(sequence=512)).blocks["head"]
    (logits,) = [op for op in head.phase("F") if op.name == "logits"]
    # 15 % of 512 is 76.8; a tied table of 30,522 words.
    assert [float(n) for n in logits.writes[0].shape] == [1, 77, 30522]


# What replicas exchange


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_zero_exchanges_as_its_stage_says(zero):
    dense = training_step(decoder(), layout(dp=4, zero=zero)).blocks["dense"]
    held = sum(w.elements for w in weights(decoder()) if w.block == "dense")
    found = [(o.phase, o.op, float(o.size_bytes)) for o in dense.collectives]
    gathered, reduced = ("all-gather", held * 2.0), ("reduce-scatter", held * 4.0)
    assert (
        found
        == {
            0: [("optimizer", "all-reduce", held * 4.0)],
            1: [("optimizer", *reduced), ("optimizer", *gathered)],
            2: [("B_weight", *reduced), ("optimizer", *gathered)],
            3: [("F", *gathered), ("B_input", *gathered), ("B_weight", *reduced)],
        }[zero]
    )


def test_key_heads_held_by_several_ranks_sum_their_gradients():
    dense = training_step(decoder(), layout(tp=4)).blocks["dense"]
    (copies,) = [op for op in dense.collectives if op.axis == "kv_copies"]
    # 2 key heads on 4 ranks: k and v are 8 x 1 x 2 on each, in pairs.
    assert copies.ranks == 2
    assert copies.size_bytes == 2 * 8 * 2 * 4
    assert not any(
        op.axis == "kv_copies"
        for op in training_step(decoder(), layout(tp=2)).blocks["dense"].collectives
    )


def test_a_shared_vocabulary_is_exchanged_between_the_ends_of_a_pipeline():
    model = decoder(gpt=True, kv_heads=4)
    piped = training_step(model, layout(pp=2, tp=2))
    for kind in ("embedding", "head"):
        (tied,) = [op for op in piped.blocks[kind].collectives if op.axis == "tied"]
        assert (float(tied.ranks), float(tied.size_bytes)) == (2, 32 / 2 * 8 * 4)
    alone = training_step(model, layout(tp=2))
    assert not any(op.axis == "tied" for b in alone.blocks.values() for op in b.collectives)


def test_experts_are_summed_over_the_ranks_that_hold_the_same():
    block = training_step(mixture(), layout(dp=8, ep=4)).blocks["moe_exchanged"]
    (experts,) = [op for op in block.collectives if op.axis == "expert_data"]
    # 2 of 8 experts with 3 matrices of 8 x 16, in fp32, over 8 / 4 ranks.
    assert (float(experts.ranks), float(experts.size_bytes)) == (2, 2 * 3 * 8 * 16 * 4)
    exchanged = [op for op in block.collectives if op.op == "all-to-all"]
    # 16 tokens visit 2 experts each: out and back, forward and backward.
    assert [float(op.size_bytes) for op in exchanged] == [16 * 2 * 8 * 2] * 4


def test_experts_apart_from_tensor_ranks_are_whole_and_take_tokens_of_each_of_them():
    apart = replace(layout(tp=4, dp=2, ep=8, sequence_parallel=True), expert_tp=1)
    program = training_step(mixture(), apart)
    assert program.legal, program.refusals()
    block = program.blocks["moe_exchanged"]
    # 4 x 2 ranks hold one whole expert each: nobody holds the same, nothing is summed.
    assert not [op for op in block.collectives if op.axis in ("expert_data", "expert_tp")]
    assert [float(n) for n in block.parameters["experts.up"].weight.shape] == [1, 8, 16]
    # Each tensor rank sends its quarter of 16 tokens, to 2 experts each.
    exchanged = [op for op in block.collectives if op.op == "all-to-all"]
    assert [float(op.size_bytes) for op in exchanged] == [16 / 4 * 2 * 8 * 2] * 4
    assert [float(op.ranks) for op in exchanged] == [8] * 4


def test_experts_apart_gather_tokens_over_their_own_ranks():
    apart = replace(layout(tp=4, dp=2, ep=2, sequence_parallel=True), expert_tp=2)
    block = training_step(mixture(), apart).blocks["moe_exchanged"]
    own = [op for op in block.collectives if op.axis == "expert_tp"]
    # Ranks hold half of each of 4 experts and take a slot of each from 2 senders: 4 tokens visit
    # 2 of 8 experts. With their neighbour's they gather twice that, and sum it on the way back.
    sizes = {(op.op, float(op.size_bytes)) for op in own}
    assert sizes == {(op, 2 * 4 * 2 * 8 * 2) for op in ("all-gather", "reduce-scatter")}
    (summed,) = [op for op in block.collectives if op.axis == "expert_data"]
    assert (float(summed.ranks), float(summed.size_bytes)) == (2, 4 * 3 * 8 * 8 * 4)
    assert [float(n) for n in block.parameters["experts.up"].weight.shape] == [4, 8, 8]


@pytest.mark.parametrize(
    ("expert_tp", "degrees", "text"),
    [
        (3, {"tp": 4, "sequence_parallel": True}, "expert_tp=3 does not divide tp=4; try 2, 4, 1"),
        (1, {"tp": 4, "ep": 2}, "expert_tp=1 apart from tp=4 needs sequence parallelism"),
        (2, {"tp": 4, "sequence_parallel": True}, "expert_tp=2 apart from tp=4 is for experts"),
    ],
)
def test_experts_apart_are_refused_where_they_cannot_stand(expert_tp, degrees, text):
    program = training_step(mixture(), replace(layout(dp=2, **degrees), expert_tp=expert_tp))
    assert any(reason.startswith(text) for reason in program.refusals())


def test_hybrid_sharding_reduces_in_a_group_and_across_groups():
    """4 of 8 data ranks share slices: the bytes of a layer of E weights, worked by hand."""
    model, degrees = decoder(), {"tp": 1, "dp": 8, "zero": 3}
    hybrid, whole = (
        training_step(model, replace(layout(**degrees), shard=shard)).blocks["dense"]
        for shard in (4, None)
    )
    # Attention: 8 x 8 twice, keys and values 8 x 4; three MLP matrices of 8 x 16; two norms of 8.
    elements = 2 * 64 + 2 * 32 + 3 * 128 + 2 * 8
    found = [
        (op.phase, op.op, op.axis, float(op.ranks), float(op.size_bytes))
        for op in hybrid.collectives
    ]
    assert found == [
        ("F", "all-gather", "shard", 4, elements * 2),
        ("B_input", "all-gather", "shard", 4, elements * 2),
        ("B_weight", "reduce-scatter", "shard", 4, elements * 4),
        # Once a step, between the two ranks that keep the same slice.
        ("optimizer", "all-reduce", "copies", 2, elements * 4 / 4),
    ]
    of = lambda block, what: sum(  # noqa: E731
        float(one.bytes) for one in block.residents if one.category == what
    )
    for what in ("weights", "gradients", "optimizer"):
        assert of(hybrid, what) == 2 * of(whole, what)


@pytest.mark.parametrize(
    ("chosen", "text"),
    [
        ({"dp": 8, "shard": 4}, "shard=4: ZeRO stage 0 shares out nothing; try zero=1 or more"),
        (
            {"dp": 8, "zero": 1, "shard": 1},
            "shard=1: a group of one rank shares out nothing; try zero=0",
        ),
        ({"dp": 8, "zero": 1, "shard": 3}, "shard=3 does not divide dp x cp = 8 ranks; try 2, 4"),
        ({"dp": 8, "zero": 1, "shard": 2, "ep": 4}, "shard=2: its ranks are not a multiple of"),
    ],
)
def test_shard_groups_are_refused_where_they_cannot_stand(chosen, text):
    shard = chosen.pop("shard")
    program = training_step(mixture(), replace(layout(**chosen), shard=shard))
    assert any(reason.startswith(text) for reason in program.refusals())


def test_capacity_pads_the_experts_and_not_the_model():
    plain, padded = (
        training_step(mixture(), replace(layout(), capacity_factor=factor))
        for factor in (None, 2.0)
    )
    assert padded.model_flop == plain.model_flop
    assert padded.hardware_flop > plain.hardware_flop


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("zero", [0, 1, 3])
def test_a_program_made_like_another_is_the_one_made_anew(recompute, zero):
    model = load_model(open_catalog(), "llama3.1-8b")
    layout = Layout(
        tp=np.array([1, 8]),
        pp=4,
        dp=np.array([8, 1]),
        global_batch=64,
        sequence=4096,
        precision="bf16-master",
        sequence_parallel=True,
    )
    first = training_step(model, layout)
    other = replace(layout, zero=zero, recompute=recompute)
    found, anew = training_step(model, other, like=first), training_step(model, other)
    assert list(found.blocks) == list(anew.blocks)
    for kind, block in anew.blocks.items():
        made = found.blocks[kind]
        assert [(op.name, op.phase) for op in made.ops] == [(o.name, o.phase) for o in block.ops]
        for one, two in zip(made.residents, block.residents, strict=True):
            assert (one.category, one.lifetime) == (two.category, two.lifetime)
            assert np.array_equal(one.bytes, two.bytes)
        for sent, again in zip(made.collectives, block.collectives, strict=True):
            assert np.array_equal(sent.size_bytes, again.size_bytes)
    assert np.array_equal(found.hardware_flop, anew.hardware_flop)
    assert found.layout is other


@pytest.mark.parametrize("shard", [None, 4])
@pytest.mark.parametrize("offload", ["none", "host"])
def test_zero_stages_along_an_axis_are_the_programs_of_each(offload, shard):
    stages: tuple[ZeroStage, ...] = (1, 2, 3) if shard else (0, 1, 2, 3)
    asked = layout(
        tp=np.array([[1], [2]]),
        dp=np.array([[8, 1]]),
        micro_batch=1,
        shard=shard,
        zero=stages[0],
        optimizer_offload=offload,
        precision="bf16-master",
    )
    shape = (2, 2)
    together = training_step(decoder(), asked, known_legal=True, zero=stages)

    def held(program, place):
        return [
            np.broadcast_to(one.bytes, (len(stages), *shape))[place]
            for block in program.blocks.values()
            for one in (*block.residents, *block.copies.values())
        ]

    def sent(program, place):
        found: dict[object, np.ndarray] = {}
        for op in (op for block in program.blocks.values() for op in block.collectives):
            size = np.broadcast_to(op.size_bytes * op.count, (len(stages), *shape))[place]
            key = op.name, op.phase
            found[key] = found.get(key, 0) + size
        return {key: size.tolist() for key, size in found.items() if size.any()}

    def updated(program, place):
        ops = (op for block in program.blocks.values() for op in block.phase("optimizer"))
        updates = (op for op in ops if isinstance(op, Elementwise))
        return [np.broadcast_to(op.bytes, (len(stages), *shape))[place] for op in updates]

    for place, stage in enumerate(stages):
        alone = training_step(decoder(), replace(asked, zero=stage), known_legal=True)
        assert np.array_equal(held(together, place), held(alone, place))
        assert sent(together, place) == sent(alone, place)
        assert np.array_equal(updated(together, place), updated(alone, place))
        on_host = np.broadcast_to(host_states_bytes(together, 16), (len(stages), *shape))[place]
        assert np.array_equal(on_host, np.broadcast_to(host_states_bytes(alone, 16), shape))


@pytest.mark.parametrize("zero", [0, 2, 3])
def test_a_block_without_updates_lacks_what_its_zero_stage_adds(zero):
    layout = Layout(dp=8, zero=zero, global_batch=8, sequence=64, precision="bf16-master")
    for block in training_step(decoder(), layout).blocks.values():
        bare = block.without_updates
        added = [op for op in block.ops if op not in bare.ops]
        assert bare.ops == tuple(op for op in block.ops if op not in added)
        assert bare.ops == (*block.passes.forward, *block.kept.ops)
        assert not any(op.phase == "optimizer" for op in bare.ops)
        gathers = [op for op in added if op.phase in ("F", "B_input")]
        assert len(gathers) == (2 if zero == 3 else 0)
        assert any(op.phase == "optimizer" for op in added)


def test_divisors_of_a_cluster_beyond_all_bounds_are_found_at_once():
    """A file that says two thousand million chips is refused in words, not by a loop over them."""
    assert divisors_near(8 * 2_147_483_647, 64) == "8, 4, 2"
    assert divisors_near(36, 6) == "4, 3"
