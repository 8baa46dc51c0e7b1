"""What a step with adapters beside frozen weights computes, keeps, stores and exchanges."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.program.test_program_step import decoder
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.library import load_model
from trnbench.program.ops import AttentionOp, CollectiveOp, Elementwise, MatMul
from trnbench.program.step import training_step
from trnbench.program.tensor import element_bytes

RANK, TOKENS = 2, 16
LORA = Layout(
    job="lora",
    adapter_rank=RANK,
    global_batch=2,
    sequence=TOKENS,
    precision="bf16-master",
)
# A layer of the small decoder: hidden 8, 4 heads of 2, 2 shared ones, MLP of 16.
ATTENTION = 64 + 32 + 32 + 64
PROJECTIONS = ATTENTION + 3 * 128
NORMS = 16
# Each adapter has rank x (inputs + outputs) weights: query, key, value, output; gate, up, down.
ON_ATTENTION = RANK * (16 + 12 + 12 + 16)
ADAPTERS = ON_ATTENTION + RANK * (24 + 24 + 24)


def layer(layout, **decoder_shape):
    return training_step(decoder(**decoder_shape), layout).blocks["dense"]


def flop_of_products(block, *phases):
    return sum(float(op.flop) for op in block.phase(*phases) if isinstance(op, MatMul))


def held(block, category):
    sizes = (one.bytes for one in block.residents if one.category == category)
    return float(sum(sizes))


def test_flop_by_hand():
    block = layer(LORA)
    forward = 2 * TOKENS * (PROJECTIONS + ADAPTERS)
    assert flop_of_products(block, "F") == forward
    # Of frozen weights the gradient of their input alone, of adapters both gradients.
    assert flop_of_products(block, "B_input") == forward
    assert flop_of_products(block, "B_weight") == 2 * TOKENS * ADAPTERS
    repeated = layer(replace(LORA, recompute="full"))
    assert flop_of_products(repeated, "recompute") == forward


def test_a_model_that_is_large_beside_its_adapters_takes_two_thirds_of_the_flop():
    model = load_model(open_catalog(), "llama3.1-8b")
    layout = replace(LORA, adapter_rank=1, sequence=128)
    lora = float(training_step(model, layout).model_flop)
    whole = float(training_step(model, replace(LAYOUT_OF_ALL, sequence=128)).model_flop)
    assert 2 / 3 < lora / whole < 0.68


LAYOUT_OF_ALL = Layout(job="finetune", global_batch=2, sequence=TOKENS, precision="bf16-master")


def test_fine_tuning_is_the_step_of_pre_training():
    model = decoder()
    one = training_step(model, LAYOUT_OF_ALL)
    other = training_step(model, replace(LAYOUT_OF_ALL, job="pretrain"))
    assert repr(one.blocks["dense"].ops) == repr(other.blocks["dense"].ops)


def test_memory_by_hand():
    block = layer(LORA)
    assert held(block, "weights") == 2 * (PROJECTIONS + NORMS + ADAPTERS)
    assert held(block, "gradients") == 4 * ADAPTERS
    assert held(block, "optimizer") == (4 + 4 + 4) * ADAPTERS
    ends = training_step(decoder(), LORA).blocks
    for kind in ("embedding", "head"):
        assert held(ends[kind], "gradients") == held(ends[kind], "optimizer") == 0
    assert held(ends["embedding"], "weights") == 2 * 32 * 8


def test_nothing_flows_back_into_a_frozen_embedding():
    program = training_step(decoder(), replace(LORA, tp=2, dp=2, zero=3, sequence_parallel=True))
    embedding, head = program.blocks["embedding"], program.blocks["head"]
    assert embedding.phase("B_input", "B_weight", "optimizer") == ()
    assert head.phase("B_weight", "optimizer") == ()
    assert flop_of_products(head, "B_input") == flop_of_products(head, "F") > 0


def test_adapters_on_attention_alone():
    block = layer(replace(LORA, adapter_on="attention"))
    assert held(block, "gradients") == 4 * ON_ATTENTION
    assert not [name for name in block.parameters if name.startswith("mlp.") and "lora" in name]


def kept(layout):
    return {tensor.name for tensor in layer(layout).kept.tensors}


def test_frozen_sinks_are_read_and_get_no_gradient():
    plain = decoder()
    assert plain.transformer is not None
    assert plain.transformer.attention is not None
    heads = replace(plain.transformer.attention, sinks=True)
    model = replace(plain, transformer=replace(plain.transformer, attention=heads))
    for layout in (LORA, replace(LORA, adapter_on="attention")):
        without = training_step(plain, layout).blocks["dense"]
        with_sinks = training_step(model, layout).blocks["dense"]
        (backward,) = attention_backward(with_sinks)
        # Queries, keys and values have gradients; the 4 numbers of the sinks are read again.
        assert len(backward.writes) == 3
        assert "attention.sinks" in {one.name for one in backward.reads}
        assert "attention.sinks" not in with_sinks.passes.backward.weights
        # No product more or less, and 2 bytes for each of the 4 heads.
        assert float(with_sinks.model_flop) == float(without.model_flop)
        assert held(with_sinks, "weights") == held(without, "weights") + 2 * 4
    (trained,) = attention_backward(training_step(model, LAYOUT_OF_ALL).blocks["dense"])
    assert [one.name for one in trained.writes[3:]] == ["d.attention.sinks"]


def attention_backward(block):
    return [op for op in block.phase("B_input") if isinstance(op, AttentionOp)]


def test_what_only_weight_gradients_read_is_not_kept():
    everything = kept(LAYOUT_OF_ALL)
    assert {"mlp.active", "norm.mlp.out"} <= everything
    on_attention = kept(replace(LORA, adapter_on="attention"))
    assert not {"mlp.active", "norm.mlp.out"} & on_attention
    assert {"norm.attention.out", "query.low", "context"} <= on_attention
    # An adapter beside a layer needs its input, as the layer's own gradient would have.
    assert {"mlp.active", "norm.mlp.out", "mlp.down.out.low"} <= kept(LORA)


def test_adapters_are_cut_as_their_projections_are():
    block = layer(replace(LORA, tp=2))
    sizes = {
        name.partition(".lora_")[0] + name[-2:]: [int(n) for n in one.weight.shape]
        for name, one in block.parameters.items()
        if "lora" in name
    }
    assert sizes["attention.query_a"] == [8, RANK]
    assert sizes["attention.query_b"] == [RANK, 2, 2]
    assert sizes["attention.key_b"] == [RANK, 1, 2]
    assert sizes["attention.output_a"] == [2, 2, RANK]
    assert sizes["attention.output_b"] == [RANK, 8]
    assert sizes["mlp.up_b"] == [RANK, 8]
    assert sizes["mlp.down_a"] == [8, RANK]
    # What parts of A make is summed before B reads it; what comes back from parts of B, before A.
    summed = {op.read.name for op in block.collectives if op.phase == "F" and op.axis == "tp"}
    assert {"attention.out.low", "mlp.down.out.low"} <= summed
    back = {op.read.name for op in block.collectives if op.phase == "B_input" and op.axis == "tp"}
    assert {f"d.{name}.low" for name in ("query", "key", "value")} <= back
    # Whole halves, B beside a cut input and A beside a cut output, do the same work on all ranks.
    assert not [op for op in block.collectives if op.phase == "optimizer" and op.axis == "tp"]


def test_with_sequence_parallelism_ranks_sum_what_they_hold_alike():
    block = layer(replace(LORA, tp=2, sequence_parallel=True))
    (of_all,) = [op for op in block.collectives if op.phase == "optimizer" and op.axis == "tp"]
    # B of output and of down reads a rank's own tokens.
    assert float(of_all.read.elements) == 2 * RANK * 8


def data_exchanges(layout):
    return [
        (op.op, op.phase, float(op.size_bytes))
        for op in layer(layout).collectives
        if op.axis == "data"
    ]


def test_replicas_exchange_adapters_and_gather_frozen_slices():
    assert data_exchanges(replace(LORA, dp=2)) == [("all-reduce", "optimizer", 4 * ADAPTERS)]
    frozen, adapters = 2 * (PROJECTIONS + NORMS), 2 * ADAPTERS
    assert sorted(data_exchanges(replace(LORA, dp=2, zero=3))) == sorted(
        [
            *(
                ("all-gather", phase, size)
                for phase in ("F", "B_input")
                for size in (frozen, adapters)
            ),
            ("reduce-scatter", "B_weight", 4 * ADAPTERS),
        ]
    )
    block = layer(replace(LORA, dp=2, zero=3))
    assert held(block, "weights") == (frozen + adapters) / 2


@pytest.mark.parametrize(
    ("frozen_format", "bits"),
    [("fp8", 8), ("int8", 8), ("nf4", 4 + 8 / 64 + 32 / (64 * 256))],
)
def test_packed_weights_take_less_and_are_unpacked_for_each_use(frozen_format, bits):
    layout = replace(LORA, frozen_format=frozen_format)
    block = layer(layout)
    assert held(block, "weights") == pytest.approx(PROJECTIONS * bits / 8 + 2 * (NORMS + ADAPTERS))
    unpacked = [op for op in block.ops if isinstance(op, Elementwise) and op.function == "unpack"]
    assert [op.phase for op in unpacked] == ["F"] * 7 + ["B_input"] * 7
    moved = sum(float(op.bytes) for op in unpacked)
    assert moved == pytest.approx(2 * PROJECTIONS * (bits / 8 + 2))
    full = layer(replace(layout, recompute="full"))
    again = [op for op in full.phase("recompute") if isinstance(op, Elementwise)]
    assert len([op for op in again if op.function == "unpack"]) == 7
    # What is unpacked stays for one product only.
    assert kept(layout) == kept(LORA)
    assert held(block, "scratch") > held(layer(LORA), "scratch")


def test_packed_weights_that_products_read_as_they_are_need_no_unpacking():
    block = layer(replace(LORA, precision="fp8", frozen_format="fp8"))
    assert not [op for op in block.ops if isinstance(op, Elementwise) and op.function == "unpack"]
    assert held(block, "weights") == PROJECTIONS + 2 * (NORMS + ADAPTERS)


layouts = st.builds(
    Layout,
    job=st.just("lora"),
    adapter_rank=st.integers(1, 64),
    adapter_on=st.sampled_from(["all-linear", "attention"]),
    frozen_format=st.sampled_from(["none", "fp8", "int8", "nf4"]),
    tp=st.sampled_from([1, 2, 4]),
    pp=st.sampled_from([1, 2]),
    dp=st.sampled_from([1, 2, 3]),
    cp=st.sampled_from([1, 2]),
    zero=st.sampled_from([0, 1, 2, 3]),
    sequence_parallel=st.booleans(),
    recompute=st.sampled_from(["none", "selective", "full"]),
    schedule=st.sampled_from(["1f1b", "zb-h1"]),
    precision=st.sampled_from(["bf16-master", "bf16", "fp32", "fp8"]),
    global_batch=st.just(24),
    sequence=st.just(TOKENS),
)


@given(layouts, st.booleans())
@settings(max_examples=60, deadline=None)
def test_what_is_frozen_is_never_trained(layout, gpt):
    program = training_step(decoder(gpt=gpt), layout)
    for kind, block in program.blocks.items():
        trained = {one.weight.name for one in block.parameters.values() if one.use == "trained"}
        assert trained == set(block.gradients)
        assert all(".lora_" in name for name in trained)
        adapters = sum(
            float(one.weight.elements) for one in block.parameters.values() if one.use == "trained"
        )
        assert sum(float(of.elements) for of in block.buckets if not of.frozen) == adapters
        frozen = [of for of in block.buckets if of.frozen]
        assert all(float(of.moment_elements) == float(of.gradient_elements) == 0 for of in frozen)
        for op in block.phase("optimizer"):
            moved = (*op.reads, *op.writes)
            assert all(float(tensor.elements) <= 2 * adapters + 1 for tensor in moved), (kind, op)
        for op in block.phase("B_weight"):
            # (Activations may be gathered once more for the gradients of adapters.)
            if isinstance(op, CollectiveOp) and op.read.role == "gradient":
                assert float(op.read.elements) <= adapters + 1


@given(layouts)
@settings(max_examples=20, deadline=None)
def test_whole_adapters_are_the_same_in_every_layout(layout):
    block = layer(layout)
    whole = {
        name: [int(dim.whole) for dim in one.weight.dims]
        for name, one in block.parameters.items()
        if ".lora_" in name
    }
    assert whole["attention.query.lora_a"] == [8, layout.adapter_rank]
    assert whole["attention.output.lora_b"] == [layout.adapter_rank, 8]
    assert len(whole) == (14 if layout.adapter_on == "all-linear" else 8)


def test_a_packed_element_has_its_share_of_all_scales():
    assert element_bytes("nf4") == pytest.approx(0.515869140625)


def test_adapters_need_their_job():
    with pytest.raises(
        ValueError,
        match="`adapter_rank` is a knob of job lora or dpo or orpo or grpo or ppo: found pretrain",
    ):
        replace(LORA, job="pretrain")
    with pytest.raises(ValueError, match="`frozen_format` is a knob of job lora"):
        replace(LAYOUT_OF_ALL, frozen_format="nf4")
    assert replace(LORA, adapter_rank=None).adapter_rank == 16


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("dlrm-dcnv2", "adapters are for models of text, and dlrm-dcnv2 is none"),
        ("dit-xl-2", "adapters are for models of text, and dit-xl-2 is none"),
        ("mixtral-8x7b", "adapters of experts are not modelled; try adapter_on=attention"),
    ],
)
def test_models_without_a_place_for_adapters_are_refused(name, words):
    model = load_model(open_catalog(), name)
    layout = replace(LORA, sequence=256)
    assert words in training_step(model, layout).refusals()[0]
    attention = training_step(model, replace(layout, adapter_on="attention"))
    assert bool(attention.legal) == (name == "mixtral-8x7b")


def test_an_adapter_is_no_wider_than_its_projection():
    assert not training_step(decoder(), replace(LORA, adapter_rank=RANK)).reasons
    (reason,) = training_step(decoder(), replace(LORA, adapter_rank=100_000)).reasons
    assert "is wider than the projections" in reason.words({})
