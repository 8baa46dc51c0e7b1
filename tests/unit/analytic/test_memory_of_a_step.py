from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sampling import sampled
from tests.steps import points_where
from trnbench.engines.analytic.step.memory import NeededMemory, memory
from trnbench.engines.analytic.step.memory_parts import CATEGORIES
from trnbench.facts.calibration.hosts import PLAIN, MemoryOverheads
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.records import replace
from trnbench.facts.units import UNITS, Dimension
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.library import load_model, load_training_suite
from trnbench.facts.workload.model import Attention, Mlp, Model, Position, Transformer, Vocabulary
from trnbench.facts.workload.weights import parameter_count
from trnbench.program.step import training_step

GIB = UNITS[Dimension.BYTES]["GiB"]
CATALOG = open_catalog()
TRN1 = load_platform(CATALOG, "trn1.32xlarge")
TRN2 = load_platform(CATALOG, "trn2.48xlarge")
FRAGMENTATION = 0.05

ROLES = ("only", "first", "light", "heavy", "last")


def decoder(layers: int = 2, *, dropout: bool = False) -> Model:
    """The decoder of the hand-computed example."""
    return Model(
        name="hand",
        title="hand",
        transformer=Transformer(
            layers=layers,
            hidden=8,
            norm="rms",
            dropout=dropout,
            attention=Attention(heads=4, kv_heads=2, head_size=2, causal=True),
            mlp=Mlp(hidden=16, gated=True, activation="silu"),
            position=Position(encoding="rotary", length=64, rotary_base=10000.0),
        ),
        vocabulary=Vocabulary(size=32, tied=False),
    )


def layout(**changes) -> Layout:
    base = {"global_batch": 8, "sequence": 16, "precision": "bf16-master"}
    return Layout(**{**base, **changes})


def held(model, chosen, platform=TRN1, fragmentation=0.0):
    return memory(training_step(model, chosen), platform, fragmentation_ratio=fragmentation)


def test_hand_example():
    found = held(decoder(), layout(tp=2, pp=2, dp=2, sequence_parallel=True, zero=1))
    # First stage: a layer of 304 weights on a rank (two norms of 8, query 32, key and value 16,
    # output 32, gate, up and down 64 each) and half of 32 words of 8: 432 weights.
    # The last stage has the final norm, too, but holds one micro-batch, not two.
    first, last = found.stages
    assert first.role == "first"
    assert first.by_category["weights"] == 432 * 2
    assert first.by_category["gradients"] == 432 * 4
    assert first.by_category["optimizer"] == 432 * 12 / 2
    # What a layer keeps: seven tensors of 8 tokens * 8 (or 16 * 4) bf16 = 128 bytes: stream, both
    # norms' results, queries, context, first residual, and log-sums (16 * 2 fp32);
    # keys and values 64 each; gate, up and active 16 * 8 * 2 = 256 each. The tokens are int32.
    layer = 7 * 128 + 2 * 64 + 3 * 256
    assert first.by_category["activations"] == 2 * (layer + 16 * 4)
    # Two buffers each for the activations sent and the gradients received.
    assert first.by_category["communication"] == 2 * 2 * 128
    assert last.by_category["weights"] == (432 + 8) * 2
    # The head keeps its input and the normalised one (128 each), fp32 logits 16 * 16, and five
    # numbers a token: maximum, two sums, and the target.
    assert last.by_category["activations"] == layer + 2 * 128 + 16 * 16 * 4 + 16 * 4 * 4


def test_working_set_of_the_hand_example():
    found = held(decoder(), layout())
    only = found.stages[0]
    # Largest in the head's backward pass: its logits' gradient (16 * 32 bf16), its input's
    # gradients before and after the norm (16 * 8 bf16), or the layer's: gradients of gate and up
    # beside that of active (16 * 16 bf16 each) and the residual's and the output's gradient.
    layer = 3 * 16 * 16 * 2 + 1 * 16 * 8 * 2
    assert only.by_category["scratch"] == max(layer, 16 * 32 * 2 + 16 * 8 * 2)
    assert only.by_category["fragmentation"] == 0


@pytest.mark.parametrize("name", ["llama3.1-70b", "llama2-7b", "gpt3-175b"])
@pytest.mark.parametrize(("tp", "pp", "dp"), [(1, 1, 1), (8, 1, 4), (8, 4, 16)])
def test_state_of_a_dense_model_is_a_hand_count(name, tp, pp, dp):
    model = load_model(CATALOG, name)
    assert model.transformer
    assert model.vocabulary
    chosen = layout(tp=tp, pp=pp, dp=dp, zero=1, global_batch=64, sequence=2048)
    found = held(model, chosen)
    state = sum(found.stages[0].by_category[name] for name in CATEGORIES[:3])
    words = model.vocabulary.size * model.transformer.hidden
    tied = model.vocabulary.tied
    in_layers = parameter_count(model) - words * (1 if tied else 2)
    # The first stage has its share of the layers and one vocabulary matrix, an unpiped one both.
    ends = words * (1 if tied or pp > 1 else 2)
    expected = (in_layers / pp + ends) / tp * (2 + 4 + 12 / dp)
    assert state == pytest.approx(expected, rel=0.01)
    assert model.transformer.layers % pp == 0


def test_state_of_a_mixture_of_experts_is_a_hand_count():
    model = load_model(CATALOG, "mixtral-8x7b")
    chosen = layout(tp=4, pp=4, dp=8, ep=4, zero=1, global_batch=64, sequence=2048)
    first = held(model, chosen).stages[0]
    # 8 of 32 layers. Experts: 2 of 8 on a rank, 3 matrices 4096 x 14336, cut by 4; their optimizer
    # state is shared by 8 / 4 ranks. The rest (attention 2 * 4096^2 + 2 * 4096 * 1024, router, the
    # vocabulary) is cut by 4, its optimizer state shared by 8.
    experts = 8 * 2 * 3 * 4096 * 14336 / 4
    dense = 8 * (2 * 4096**2 + 2 * 4096 * 1024) / 4 + 8 * 4096 * 8 + 32000 * 4096 / 4
    assert first.by_category["weights"] == pytest.approx((experts + dense) * 2, rel=0.001)
    assert first.by_category["gradients"] == pytest.approx((experts + dense) * 4, rel=0.001)
    optimizer = 12 * (experts / 2 + dense / 8)
    assert first.by_category["optimizer"] == pytest.approx(optimizer, rel=0.001)


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved", "zb-h1"])
def test_activations_follow_the_schedule(schedule, recompute):
    vpp = 2 if schedule == "interleaved" else 1
    chosen = layout(
        pp=4, vpp=vpp, global_batch=16, schedule=schedule, recompute=recompute, attention="naive"
    )
    found = held(decoder(8), chosen)
    one = held(decoder(2), layout(recompute=recompute, attention="naive"))
    embedding = 16 * 4
    layers = one.stages[0].by_category["activations"] - embedding - _head_bytes()
    # Micro-batches held by the first of four stages, of 16: all; 4; (2*3 + 4 + 1) / 2 chunks; 4.
    times = {"gpipe": 16, "1f1b": 4, "interleaved": 5.5, "zb-h1": 4}[schedule]
    first = found.stages[0].by_category["activations"]
    # A backward slot apart from its weights passes two layers. Recomputed, the first to go back
    # leaves 40 features of 16 bf16 that products read (8 to queries, keys and values, 8 after the
    # core, 8 to the gate, 16 down) and 64 of gradients (16 + 8, 32 + 8) for one input of 8.
    apart = schedule == "zb-h1" and recompute == "full"
    grown = (40 + 64 - 8) * 16 * 2 if apart else 0
    assert first == pytest.approx((layers + embedding) * times + grown)


def _head_bytes() -> int:
    """Two inputs of 16 tokens * 8, fp32 logits and four numbers a token."""
    return 2 * 16 * 8 * 2 + 16 * 32 * 4 + 4 * 16 * 4


def test_weight_gradients_apart_keep_little_more_than_together():
    together, apart = (
        held(decoder(8), layout(pp=4, global_batch=16, schedule=schedule))
        for schedule in ("1f1b", "zb-h1")
    )
    # First stage: the same. Last stage: inputs of products wait for their weight gradients.
    assert apart.stages[0].by_category == together.stages[0].by_category
    last = "activations"
    assert apart.stages[-1].by_category[last] > 2 * together.stages[-1].by_category[last]


def test_zero_stages_keep_less_and_less():
    model = decoder()
    states = []
    for zero in (0, 1, 2, 3):
        held_by = held(model, layout(dp=4, zero=zero)).stages[0].by_category
        states.append([float(held_by[name]) for name in CATEGORIES[:3]])
    count = parameter_count(model)
    assert states == [
        [count * 2, count * 4, count * 12],
        [count * 2, count * 4, count * 3],
        [count * 2, count * 1, count * 3],
        [count / 2, count * 1, count * 3],
    ]


def test_full_recompute_holds_one_layer_at_a_time():
    none, full = (
        held(decoder(8), layout(recompute=mode)).stages[0].by_category for mode in ("none", "full")
    )
    # Eight inputs stay; while a layer goes back, all that it would have kept is there again.
    per_layer = (none["activations"] - 16 * 4 - _head_bytes()) / 8
    assert full["activations"] == 8 * 16 * 8 * 2 + 16 * 4 + _head_bytes()
    assert full["scratch"] >= per_layer - 16 * 8 * 2


# The example configurations that ship with NxD Training


NXD = load_training_suite(CATALOG, "nxd-examples").case


@pytest.mark.slow
@pytest.mark.parametrize("case", NXD, ids=lambda case: case.label)
def test_shipped_configurations_fit(case):
    model, platform = load_model(CATALOG, case.model), load_platform(CATALOG, case.instance)
    program = training_step(model, case.layout)
    assert program.legal, program.refusals()
    assert case.layout.ranks == case.nodes * platform.instance.chips * platform.chip.ranks()
    for fragmentation in (0.0, 0.15):
        assert memory(program, platform, fragmentation_ratio=fragmentation).feasible


def test_unfused_attention_without_recompute_at_twice_the_sequence_does_not_fit():
    refused = 0
    for case in NXD:
        harder = replace(
            case.layout, attention="naive", recompute="none", sequence=2 * case.layout.sequence
        )
        model, platform = load_model(CATALOG, case.model), load_platform(CATALOG, case.instance)
        found = memory(training_step(model, harder), platform, fragmentation_ratio=0.0)
        refused += not found.feasible
    assert refused >= 5


# Answers


def test_a_refusal_lists_what_needs_the_memory():
    chosen = layout(sequence=4096, global_batch=1)
    found = held(load_model(CATALOG, "llama3.1-8b"), chosen)
    text = found.refusal()
    assert text is not None
    assert text.startswith("needs 154.7 GiB per rank, 9.98x the 15.5 GiB available")
    assert "available: optimizer 89.75 GiB" in text
    assert held(decoder(), layout()).refusal() is None


def test_capacity_is_a_ranks_share_less_the_reserve():
    program = training_step(decoder(), layout())
    default, single = (
        memory(program, TRN2, fragmentation_ratio=0.0, logical_size=size) for size in (None, 1)
    )
    # 96 GiB and 8 cores: pairs have 24 GiB less 1 GiB, single cores half of both.
    assert default.available_bytes == 23 * GIB
    assert single.available_bytes == 11.5 * GIB


def test_fragmentation_is_a_share_of_what_comes_and_goes():
    plain, lossy = (held(decoder(), layout(), fragmentation=ratio) for ratio in (0.0, 0.5))
    passing = sum(
        plain.stages[0].by_category[name] for name in ("activations", "communication", "scratch")
    )
    assert lossy.stages[0].by_category["fragmentation"] == 0.5 * passing
    assert lossy.total_bytes == plain.total_bytes + 0.5 * passing


# Grids


GRID = layout(
    tp=np.array([1, 2, 4]).reshape(-1, 1, 1, 1),
    pp=np.array([1, 2, 3, 4]).reshape(-1, 1, 1),
    cp=np.array([1, 2]).reshape(-1, 1),
    dp=np.array([1, 2, 4, 8]),
    sequence_parallel=True,
)


WASTEFUL = MemoryOverheads(
    whole=1.05,
    states=1.1,
    gradient_copies=0.5,
    activations=1.3,
    gathered=0.6,
    logits=2.5,
    runtime_bytes=100.0,
    communicator_bytes=7.0,
)


def test_overheads_by_hand():
    chosen = layout(tp=2, dp=2, sequence_parallel=True, zero=1)
    plain = held(decoder(1), chosen).worst().by_category

    def more(category, **overheads):
        program = training_step(decoder(1), chosen)
        found = memory(
            program, TRN1, fragmentation_ratio=0.0, overheads=MemoryOverheads(**overheads)
        )
        return float(found.worst().by_category[category] - plain[category])

    assert more("weights", states=1.5) == 0.5 * plain["weights"]
    assert more("optimizer", states=1.5) == 0.5 * plain["optimizer"]
    # A second set of gradients in bf16: half of the fp32 ones.
    assert more("gradients", gradient_copies=1) == 0.5 * plain["gradients"]
    assert more("activations", activations=1.5) == 0.5 * plain["activations"]
    # Two norms of the layer and that of the head are gathered: 16 tokens of 8 wide in bf16, of
    # which a rank has half.
    assert more("activations", gathered=1) == 3 * 16 * 8 * 2 / 2
    # Logits: 16 words of 32 on a rank, for 16 tokens, in fp32; with two the head needs most.
    assert more("scratch", logits=3) - more("scratch", logits=2) == 16 * 16 * 4
    # Groups of all ranks, of tensor-parallel ones, of replicas.
    assert more("runtime", runtime_bytes=100.0, communicator_bytes=7.0) == 100 + 3 * 7


def test_whole_is_of_all_but_the_runtime():
    chosen = layout(tp=2, pp=2, dp=2, sequence_parallel=True)
    program = training_step(decoder(), chosen)
    overheads = MemoryOverheads(whole=1.25, runtime_bytes=64.0)
    once, more = (
        memory(program, TRN1, fragmentation_ratio=0.25, overheads=one) for one in (PLAIN, overheads)
    )
    assert float(more.total_bytes) == 1.25 * float(once.total_bytes) + 64


WAYS = [
    (zero, schedule, overheads)
    for zero in (0, 1, 3)
    for schedule in ("1f1b", "zb-h1")
    for overheads in (PLAIN, WASTEFUL)
]


# The quick suites hold each stage once, and each schedule with overheads and without.
@pytest.mark.parametrize("way", sampled(WAYS, WAYS[::3]))
def test_a_grid_holds_what_its_layouts_hold(way):
    zero, schedule, overheads = way
    program = training_step(decoder(9), replace(GRID, zero=zero, schedule=schedule))
    grid = memory(program, TRN1, fragmentation_ratio=0.1, overheads=overheads)
    points = points_where(program.legal)

    needed = NeededMemory(program=program, overheads=overheads)

    def quickly(chunk, roles=ROLES):
        return needed.bytes(chunk, fragmentation_ratios=(0.1,), roles=roles)[0]

    quick = quickly(points)
    assert quick == pytest.approx(grid.total_bytes[program.legal], rel=1e-12)
    parts = [quickly(chunk) for chunk in points.chunks(7)]
    assert np.array_equal(np.concatenate(parts), quick)
    each = [quickly(points, (role,)) for role in ROLES]
    assert np.array_equal(np.max(each, axis=0), quick)
    for index in zip(*points.index, strict=True):
        alone = memory(program.at(index), TRN1, fragmentation_ratio=0.1, overheads=overheads)
        assert grid.total_bytes[index] == pytest.approx(float(alone.total_bytes), rel=1e-12)
        assert sum(grid.by_category(index).values()) == pytest.approx(
            float(alone.total_bytes), rel=1e-12
        )


@settings(max_examples=25, deadline=None)
@given(
    tp=st.sampled_from([1, 2, 4]),
    pp=st.sampled_from([1, 2]),
    recompute=st.sampled_from(["none", "selective", "full"]),
    micro_batch=st.sampled_from([1, 2]),
)
def test_more_ranks_or_less_kept_never_needs_more(tp, pp, recompute, micro_batch):
    base = layout(tp=tp, pp=pp, recompute=recompute, micro_batch=micro_batch, attention="naive")
    total = float(held(decoder(4), base).total_bytes)
    wider = replace(base, micro_batch=2 * micro_batch)
    assert held(decoder(4), wider).total_bytes > total
    assert held(decoder(4), replace(base, zero=1, dp=2)).total_bytes < total
    if recompute == "none":
        less = replace(base, recompute="selective")
        assert held(decoder(4), less).total_bytes < total


def test_dropout_keeps_its_masks():
    program, dropping = (
        training_step(decoder(dropout=dropout), layout()) for dropout in (False, True)
    )
    plain, more = (
        memory(p, TRN1, fragmentation_ratio=0.0).stages[0].by_category["activations"]
        for p in (program, dropping)
    )
    # One byte an element of the stream: twice in each of two layers, and after the embedding.
    assert more - plain == (2 * 2 + 1) * 16 * 8


def test_embedding_tables_spread_over_ranks():
    model = load_model(CATALOG, "dlrm-dcnv2")
    assert model.recommender
    rows = sum(model.recommender.rows)
    chosen = Layout(dp=8, ep=8, global_batch=8192, micro_batch=1024, sequence=1, precision="fp32")
    program = training_step(model, chosen)
    assert program.legal, program.refusals()
    tables = {r.category: r.bytes for r in program.blocks["tables"].residents}
    # 128 columns over 8 ranks; a row has one number of optimizer state.
    assert tables["weights"] == rows * 128 / 8 * 4
    assert tables["optimizer"] == rows * 4
