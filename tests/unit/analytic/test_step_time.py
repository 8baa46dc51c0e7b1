from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes import decoder, hand_collectives, hand_efficiency, hand_platform
from tests.steps import points_where, stages_of, step_prices
from trnbench.engines.analytic.step.compute import compute_time
from trnbench.engines.analytic.step.memory import stage_parts
from trnbench.engines.analytic.step.time import StepPrices
from trnbench.engines.analytic.step.utilization import utilization
from trnbench.facts.calibration.collective_stack import stack_of
from trnbench.facts.calibration.hosts import PLAIN
from trnbench.facts.calibration.training_stack import (
    TrainingEfficiency,
    load_chip_efficiency,
    training_stack_of,
)
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.memo import Memo
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.library import load_model
from trnbench.facts.workload.model import Mlp, Model, Vocabulary
from trnbench.program.slots import STEP_CATEGORIES
from trnbench.program.step import training_step
from trnbench.program.tensor import Dim

CATALOG = open_catalog()
NAMES = ("p4de.24xlarge", "p5.48xlarge", "p6-b200.48xlarge", "trn1.32xlarge", "trn2.48xlarge")
PLATFORMS = {name: load_platform(CATALOG, name) for name in NAMES}
LLAMA = load_model(CATALOG, "llama3.1-8b")

BASE: dict[str, Any] = {"global_batch": 64, "sequence": 2048, "precision": "bf16-master"}
TWO_LAYERS = decoder()
HAND: dict[str, Any] = {
    "tp": 2,
    "pp": 2,
    "dp": 2,
    "zero": 1,
    "sequence_parallel": True,
    "global_batch": 8,
    "sequence": 16,
    "precision": "bf16-master",
}


def hand_prices(platform=None, efficiency=None, model=TWO_LAYERS, **changes: Any) -> StepPrices:
    program = training_step(model, Layout(**{**HAND, **changes}))
    return step_prices(
        program, platform or hand_platform(), efficiency or hand_efficiency(), hand_collectives()
    )


def real_prices(instance: str, model: Model = LLAMA, **degrees: Any) -> StepPrices:
    platform = PLATFORMS[instance]
    efficiency = TrainingEfficiency(
        chip=load_chip_efficiency(CATALOG, platform.chip.name),
        stack=training_stack_of(CATALOG, instance),
    )
    program = training_step(model, Layout(**{**BASE, **degrees}))
    return step_prices(program, platform, efficiency, stack_of(CATALOG, instance))


def seconds(prices: StepPrices) -> dict[str, float]:
    return {name: float(of) for name, of in prices.time().by_category.items()}


def test_hand_example():
    prices = hand_prices()
    assert prices.reasons == ()
    assert prices.refused == ()
    # One rank, 16 tokens, at 1,024 FLOP/s. A layer forward: query, key, value 2*16*8*8 = 2048,
    # output 2*16*4*8 = 1024, gate and up 2*16*8*16 = 4096, down 2*16*8*8 = 2048 FLOP: 9 s, as
    # much for the inputs' and for the weights' gradients. Attention: 2 heads, 128 causal pairs,
    # 2 products of 2*2 FLOP: 2 s; backward 5 products: 5 s. Output of 16 words: 2*16*8*16 FLOP,
    # 4 s, three times.
    # Each of a layer's 4 exchanges forward and 6 backward sends half of 16*8*2 bytes: 0.5 s. The
    # embedding scatters its sum and gathers its gradient; the output gathers (0.5 s), finds the
    # largest logit, 16 numbers of 4 bytes (0.25 s), sums twice 16 (0.5 s), and backward gathers and
    # scatters. A micro-batch costs 2 s besides, half of it forward.
    #   first  forward 11 + 2 + 0.5 + 1 = 14.5      backward 23 + 3 + 0.5 + 1 = 27.5
    #   last   forward 15 + 2 + 1.25 + 1 = 19.25    backward 31 + 3 + 1 + 1 = 36
    first, last = stages_of(prices)
    assert (first.role, first.index, last.role, last.index) == ("first", 0, "last", 1)
    assert first.compute == (12, 24, 0)
    assert last.compute == (16, 32, 0)
    assert first.exchanges == {"tensor": (2.5, 3.5, 0)}
    assert last.exposed == {"tensor": (3.25, 4, 0)}
    found = seconds(prices)
    # 4 micro-batches on the last stage.
    assert found["matrix"] == 4 * (3 * 9 + 3 * 4)
    assert found["attention"] == 4 * (2 + 5)
    assert found["tensor"] == 4 * (3.25 + 4)
    # The first stage's forward and backward at both ends of the step.
    assert found["bubble"] == 14.5 + 27.5
    # Half of the tokens, 128 bytes, take 0.5 s: once up, once down, and once more for each further
    # micro-batch, whose gradient the last stage sends.
    assert found["pipeline"] == 0.5 * 2 + 0.5 * 3
    # Weights on a rank of the first stage: table 16*8 and layer 304, as the program's example says;
    # on the last: layer, norm 8 and 8*16. Gradients in fp32, half of them sent: 432 * 4 / 2 bytes
    # 3.375 s; the last stage is done with its own while the first drains. Norms' gradients are
    # summed over tp first (8 + 8 and 8 numbers of 4 bytes): 0.375 s on the last stage. It then
    # gathers weights, 440 * 2 / 2 bytes: 1.71875 s. The norm of all gradients, 4 bytes round 8
    # ranks: 2 * 7/8 * 4 bytes.
    norm = 2 * 7 / 8 * 4 / 256
    assert found["data"] == pytest.approx(3.375 + 0.375 + 1.71875 + norm)
    assert (last.gradients_s, last.parameters_s) == (440 * 4 / 2 / 256, 1.71875)
    assert last.sums_s == pytest.approx(0.375 + norm)
    assert (float(prices.send_s), float(prices.once_s)) == (0.5, 3)
    assert found["fixed"] == 4 * 2 + 3
    assert found["element-wise"] == pytest.approx(0, abs=1e-20)
    assert found["optimizer"] == pytest.approx(0, abs=1e-20)
    total = 221 + 42 + 2.5 + 3.375 + 0.375 + 1.71875 + norm + 3
    assert float(prices.time().time_s) == pytest.approx(total)
    # Nothing overlaps, but of its 3.4375 s of gradients the last stage spends all in the drain.
    hidden = {name: float(of) for name, of in prices.time().hidden.items() if of}
    assert hidden == {"data": pytest.approx(3.4375 - 3.375)}


def test_hand_example_without_weight_gradients_in_the_backward_slot():
    first, last = stages_of(hand_prices(schedule="zb-h1"))
    assert first.compute == (12, 15, 9)
    assert last.compute == (16, 19, 13)
    # Both inputs of a layer, and the output's, are gathered again for the weight gradients.
    assert last.exchanges == {"tensor": (3.25, 2.5, 1.5)}


def test_overlap_hides_the_shorter_of_exchange_and_compute():
    half = hand_efficiency(overlaps={"tensor": 0.5})
    first, _ = stages_of(hand_prices(efficiency=half))
    # A layer exchanges 2 s beside 11 s of compute, and 3 s beside 23 s; half of that is hidden. The
    # embedding computes nothing that its 0.5 s could hide behind.
    assert first.exchanges == {"tensor": (2.5, 3.5, 0)}
    assert first.exposed == {"tensor": (1.5, 2, 0)}
    slow = hand_platform(link_bytes_per_s=16.0)
    first, _ = stages_of(hand_prices(slow, half))
    # 16 times as long: 32 s beside 11 s, 48 s beside 23 s; half of the compute hides something.
    assert first.exposed == {"tensor": (32 - 5.5 + 8, 48 - 11.5 + 8, 0)}
    hidden = hand_prices(slow, half).time().hidden["tensor"]
    # The last stage: the same layer, and an output of 4 s forward, 8 s backward.
    assert float(hidden) == 4 * (5.5 + 11.5 + 2 + 4)


ALONE: dict[str, Any] = {"tp": 1, "pp": 1, "dp": 8, "sequence_parallel": False, "global_batch": 32}
"""Eight replicas of one rank, 4 micro-batches."""


def test_weights_kept_in_slices_are_gathered_in_every_slot():
    def exposed(link_bytes_per_s: float, share: float) -> tuple[float, float]:
        (only,) = stages_of(
            hand_prices(
                hand_platform(link_bytes_per_s=link_bytes_per_s),
                hand_efficiency(overlaps={"data": share}),
                **{**ALONE, "zero": 3},
            )
        )
        assert list(only.exchanges) == ["data"]
        forward_s, backward_s, _ = only.exposed["data"]
        return forward_s, backward_s

    # 592 weights a layer, 32 * 8 in the table, 8 + 8 * 32 in the output, in bf16; gradients of each
    # in fp32 are scattered. Forward a gather, backward a gather and a scatter; 7 of 8 parts travel.
    sent = 7 / 8 * 2 * np.array([592, 592, 256, 264])
    assert exposed(256.0, 0.0) == pytest.approx((sent.sum() / 256, 3 * sent.sum() / 256))
    # Layers compute 22 s forward, 46 s backward, the output 8 and 16 s, the table nothing: as
    # long as compute is longer, what is hidden is a share of the exchange; else one of the compute.
    per_s = sent / 256
    assert exposed(256.0, 0.5)[0] == pytest.approx(per_s.sum() - per_s[[0, 1, 3]].sum() / 2)
    hidden = (22 + 22 + 8) / 2
    assert exposed(1.0, 0.5)[0] == pytest.approx(sent.sum() - hidden)
    assert exposed(1.0, 0.5)[1] == pytest.approx(3 * sent.sum() - (46 + 46 + 16) / 2)


@pytest.mark.parametrize("link_bytes_per_s", [2.0, 20.0, 60.0, 256.0])
def test_gradients_and_weights_have_one_micro_batch_to_travel(link_bytes_per_s):
    prices = hand_prices(
        hand_platform(link_bytes_per_s=link_bytes_per_s),
        hand_efficiency(overlaps={"data": 1.0}),
        **ALONE,
    )
    # 2 * 592 + 256 + 264 weights; forward 2 * 22 + 8 and half a second of a micro-batch's cost
    # (it has no pipeline), backward twice the products and 2.5 times the attention.
    sent = 7 / 8 * 1704 / link_bytes_per_s
    gradients, weights = max(4 * sent - (92 + 16 + 0.5), 0), max(2 * sent - (52 + 0.5), 0)
    norm = 2 * 7 / 8 * 4 / link_bytes_per_s
    assert seconds(prices)["data"] == pytest.approx(gradients + weights + norm)


def test_the_optimizer_takes_what_its_bytes_take():
    platform = hand_platform(memory_bytes_per_s=1024.0)
    prices = hand_prices(platform)
    computed = compute_time(prices.program, platform.chip, prices.efficiency.compute).blocks
    heavier = max(
        sum(float(computed[kind].seconds("optimizer")) for kind in kinds)
        for kinds in (("embedding", "dense"), ("dense", "head"))
    )
    assert seconds(prices)["optimizer"] == pytest.approx(heavier)
    assert heavier > 0


@pytest.mark.parametrize("instance", ["p5.48xlarge", "trn1.32xlarge"])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_one_rank_exchanges_nothing(instance, recompute):
    found = seconds(real_prices(instance, recompute=recompute))
    busy = {name for name, time_s in found.items() if time_s > 0}
    # A small model's kernels may wait for the host that launches them.
    assert busy - {"host"} == {"matrix", "attention", "element-wise", "optimizer", "fixed"}


assert TWO_LAYERS.transformer is not None
WIDE = Model(
    name="wide",
    title="wide",
    transformer=replace(
        TWO_LAYERS.transformer, layers=16, mlp=Mlp(hidden=16384, gated=True, activation="silu")
    ),
    vocabulary=Vocabulary(size=4, tied=False),
)
"""Layers beside which the vocabulary is nothing, so that all stages are equal."""


def wide_prices(schedule="1f1b", pp=4, vpp=1, micro_batches=8) -> StepPrices:
    return hand_prices(
        hand_platform(link_bytes_per_s=1e15),
        hand_efficiency(micro_batch_s=0.0, piped_micro_batch_s=0.0, step_s=0.0),
        WIDE,
        **{**ALONE, "dp": 1, "global_batch": micro_batches, "schedule": schedule, "pp": pp}
        | {"vpp": vpp},
    )


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("pp", "micro_batches"), [(1, 8), (2, 3), (4, 8), (8, 16)])
def test_bubble_of_equal_stages(schedule, pp, micro_batches):
    prices = wide_prices(schedule, pp, micro_batches=micro_batches)
    share = seconds(prices)["bubble"] / float(prices.time().time_s)
    assert share == pytest.approx((pp - 1) / (micro_batches + pp - 1), rel=2e-3)


@pytest.mark.parametrize(("pp", "vpp", "micro_batches"), [(2, 2, 4), (4, 2, 16), (4, 4, 8)])
def test_bubble_of_chunks(pp, vpp, micro_batches):
    prices = wide_prices("interleaved", pp, vpp, micro_batches)
    share = seconds(prices)["bubble"] / float(prices.time().time_s)
    assert share == pytest.approx((pp - 1) / (vpp * micro_batches + pp - 1), rel=2e-3)


def test_bubble_where_weight_gradients_fill_it():
    prices = wide_prices("zb-h1", 4, micro_batches=16)
    forward_s, backward_s, weight_s = stages_of(prices)[0].compute
    idle = 3 * (forward_s + backward_s - weight_s)
    assert seconds(prices)["bubble"] == pytest.approx(idle, rel=2e-3)


LAYOUTS = st.fixed_dictionaries(
    {
        "tp": st.sampled_from([1, 2, 8]),
        "pp": st.sampled_from([1, 2, 4]),
        "dp": st.sampled_from([1, 2, 4]),
        "zero": st.sampled_from([0, 1, 2, 3]),
        "recompute": st.sampled_from(["none", "selective", "full"]),
        "sequence_parallel": st.booleans(),
        "schedule": st.sampled_from(["gpipe", "1f1b"]),
    }
)


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(
    degrees=LAYOUTS,
    gain=st.floats(1.0, 16.0),
    part=st.sampled_from(["memory_bytes_per_s", "link_bytes_per_s", "flop_per_s"]),
    share=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_more_of_anything_is_never_slower(degrees, gain, part, share):
    base = {"memory_bytes_per_s": 1e4, "link_bytes_per_s": 256.0, "flop_per_s": 1024.0}
    overlaps = dict.fromkeys(("tensor", "context", "expert", "pipeline", "data"), share)
    degrees = {**degrees, "tp": min(degrees["tp"], 2), "pp": min(degrees["pp"], 2)}
    less, more = (
        hand_prices(
            hand_platform(**{**base, part: base[part] * by}),
            hand_efficiency(overlaps=overlaps),
            **{**degrees, "dp": 2},
        )
        for by in (1.0, gain)
    )
    assert float(more.time().time_s) <= float(less.time().time_s) * (1 + 1e-12)


@settings(deadline=None, max_examples=25)
@given(degrees=LAYOUTS, instance=st.sampled_from(["p5.48xlarge", "trn1.32xlarge"]))
def test_categories_add_up(degrees, instance):
    degrees = {**degrees, "tp": 8 if instance == "trn1.32xlarge" else degrees["tp"]}
    prices = real_prices(instance, **degrees)
    time = prices.time()
    assert set(time.by_category) == set(STEP_CATEGORIES)
    assert all(float(of) >= 0 for of in (*time.by_category.values(), *time.hidden.values()))
    assert sum(map(float, time.by_category.values())) == pytest.approx(float(time.time_s))
    assert float(prices.time_s()) == pytest.approx(float(time.time_s))


@pytest.mark.parametrize("zero", [0, 1, 3])
@pytest.mark.parametrize("instance", ["p5.48xlarge", "trn2.48xlarge"])
def test_more_replicas_with_as_much_work_each_compute_the_same(instance, zero):
    few, many = (
        real_prices(instance, tp=4, dp=dp, zero=zero, global_batch=8 * dp) for dp in (4, 8)
    )
    scatter = float(many.slowdown / few.slowdown)
    for name in ("matrix", "attention", "element-wise"):
        assert seconds(many)[name] == pytest.approx(seconds(few)[name] * scatter)
    assert seconds(few)["matrix"] > 0


def test_grids_and_points_have_the_numbers_of_their_layouts():
    degrees: dict[str, Any] = {
        "tp": np.array([4, 8, 32]).reshape(-1, 1, 1, 1, 1),
        "pp": np.array([1, 2, 4, 8]).reshape(-1, 1, 1, 1),
        "dp": np.array([1, 2, 4]).reshape(-1, 1, 1),
        "micro_batch": np.array([1, 2, 3]).reshape(-1, 1),
        "global_batch": np.array([24, 48]),
        "zero": 1,
        "sequence_parallel": True,
    }
    prices = real_prices("trn1.32xlarge", **degrees)
    everywhere = prices.time()
    legal = prices.program.legal
    assert np.array_equal(np.isfinite(everywhere.time_s), legal)
    points = points_where(legal)
    picked = prices.time(points)
    for name in STEP_CATEGORIES:
        assert np.allclose(
            picked.by_category[name], everywhere.by_category[name][legal], rtol=1e-12, atol=0
        )
    assert picked.time_s.shape == (len(points),)
    assert np.allclose(prices.time_s(points), picked.time_s, rtol=1e-12, atol=0)
    for at in range(0, len(points), 7):
        index = tuple(int(axis[at]) for axis in points.index)
        layout: dict[str, Any] = {
            name: int(np.broadcast_to(value, legal.shape)[index])
            if isinstance(value, np.ndarray)
            else value
            for name, value in degrees.items()
        }
        alone = real_prices("trn1.32xlarge", **layout)
        assert float(picked.time_s[at]) == pytest.approx(float(alone.time().time_s), rel=1e-9)


def test_samples_are_an_axis_behind_the_layouts():
    names = ("micro_batch_s", "communication", "node_scatter", "factor")
    rows = {name: np.array([0.5, 1.0, 0.25]) for name in names}
    shares = np.array([0.0, 0.5, 1.0])
    degrees = {"dp": np.array([1, 2]), "pp": np.array([1, 2]).reshape(-1, 1), "tp": 2}
    legal = np.ones((2, 2), dtype=np.bool_)
    for chip_rows in ({}, {"tensor_share": np.array([0.5, 0.75, 1.0])}):
        sampled = hand_efficiency(overlaps={"tensor": shares, "data": shares}, **rows)
        sampled = replace(sampled, chip=replace(sampled.chip, **chip_rows))
        time = hand_prices(efficiency=sampled, **degrees).time()
        picked = hand_prices(efficiency=sampled, **degrees).time(points_where(legal))
        assert time.time_s.shape == (2, 2, 3)
        assert np.allclose(picked.time_s, time.time_s.reshape(4, 3), rtol=1e-12)
        for i in range(3):
            one = hand_efficiency(
                overlaps={"tensor": float(shares[i]), "data": float(shares[i])},
                **{name: float(row[i]) for name, row in rows.items()},
            )
            one = replace(
                one,
                chip=replace(one.chip, **{k: float(row[i]) for k, row in chip_rows.items()}),
            )
            alone = hand_prices(efficiency=one, **degrees).time()
            for name in STEP_CATEGORIES:
                assert np.allclose(time.by_category[name][..., i], alone.by_category[name])


def test_samples_of_layouts_without_a_pipeline():
    sampled = hand_efficiency(factor=np.array([1.0, 2.0]))
    degrees = {**ALONE, "dp": np.array([2, 4])}
    prices = hand_prices(efficiency=sampled, **degrees)
    one, two = prices.time_s(points_where(np.ones(2, dtype=np.bool_))).T
    assert two == pytest.approx(2 * one)
    assert one == pytest.approx(hand_prices(**degrees).time_s())


def test_equal_samples_are_the_same_as_one_number():
    program = training_step(LLAMA, Layout(**{**HAND, "tp": 8, "sequence": 2048}))
    platform = PLATFORMS["trn1.32xlarge"]
    stack = training_stack_of(CATALOG, "trn1.32xlarge")
    chip = load_chip_efficiency(CATALOG, platform.chip.name)
    one, many = (
        step_prices(
            program,
            platform,
            TrainingEfficiency(chip=chip, stack=replace(stack, factor=factor)),
            stack_of(CATALOG, "trn1.32xlarge"),
        ).time()
        for factor in (1.5, np.full(500, 1.5))
    )
    assert many.time_s.shape == (500,)
    assert np.allclose(many.time_s, float(one.time_s), rtol=1e-12)


def test_the_factor_multiplies_everything_and_communication_every_exchange():
    usual = seconds(hand_prices())
    twice = seconds(hand_prices(efficiency=hand_efficiency(factor=2.0)))
    assert twice == pytest.approx({name: 2 * time_s for name, time_s in usual.items()})
    talks = seconds(hand_prices(efficiency=hand_efficiency(communication=2.0)))
    assert talks["tensor"] == 2 * usual["tensor"]
    assert talks["matrix"] == usual["matrix"]


@pytest.mark.parametrize(("nodes", "largest"), [(1, 0.0), (2, 0.5895), (16, 1.7688)])
def test_the_slowest_node_is_waited_for(nodes, largest):
    # Blom: the quantile at (n - 3/8) / (n + 1/4); the true means are 0, 0.5642 and 1.7660.
    prices = real_prices("trn1.32xlarge", tp=32, dp=nodes, global_batch=64 * nodes)
    scatter = float(prices.efficiency.stack.node_scatter)
    assert scatter > 0
    assert float(prices.slowdown) == pytest.approx(1 + scatter * largest, rel=1e-4)


def test_messages_that_ranks_hold_alike_travel_in_slices():
    send_s = {
        parallel: float(hand_prices(sequence_parallel=parallel).send_s)
        for parallel in (True, False)
    }
    # 256 bytes on both ranks of a group: each sends 128, and they gather 128 from each other.
    assert send_s == {True: 0.5, False: 1.0}


@pytest.mark.parametrize("instance", ["p5.48xlarge", "p6-b200.48xlarge", "trn1.32xlarge"])
def test_fp8_is_the_chips_own(instance):
    eight, sixteen = (
        real_prices(instance, tp=8, precision=precision) for precision in ("fp8", "bf16-master")
    )
    assert eight.reasons == ()
    assert 0 < seconds(eight)["matrix"] < 1.1 * seconds(sixteen)["matrix"]


def test_exchanges_that_the_stack_cannot_serve_have_reasons_and_no_time():
    # 12 ranks a stage, 32 a node: some groups of 3 have two ranks on a node and one on the next.
    prices = real_prices("trn1.32xlarge", tp=4, dp=3, pp=8, global_batch=6)
    assert prices.program.legal
    assert prices.refused[0].words({}).startswith("all-reduce of 3 ranks, each 4 from the next: ")
    assert np.isnan(prices.time().time_s)


def test_a_format_that_the_chip_lacks_has_reasons_and_no_time():
    prices = real_prices("p4de.24xlarge", tp=8, precision="fp8")
    assert prices.reasons[0].startswith("a100-80gb has no fp8_e4m3 product")
    assert np.isnan(prices.time().time_s)


def test_only_wanted_layouts_are_placed():
    engines: dict[Any, Any] = {}
    platform = PLATFORMS["trn1.32xlarge"]
    program = training_step(
        LLAMA,
        Layout(
            tp=8, dp=np.array([1, 2, 4]), global_batch=8, sequence=2048, precision="bf16-master"
        ),
    )
    efficiency = TrainingEfficiency(
        chip=load_chip_efficiency(CATALOG, "trainium1"),
        stack=training_stack_of(CATALOG, "trn1.32xlarge"),
    )
    prices = step_prices(
        program,
        platform,
        efficiency,
        stack_of(CATALOG, "trn1.32xlarge"),
        wanted=np.array([True, False, True]),
        engines=engines,
    )
    assert np.isfinite(prices.time().time_s).tolist() == [True, False, True]
    placed = len(engines)
    assert placed > 0
    again = step_prices(
        program,
        platform,
        efficiency,
        stack_of(CATALOG, "trn1.32xlarge"),
        wanted=np.array([True, False, True]),
        engines=engines,
    )
    assert len(engines) == placed
    assert np.array_equal(again.time().time_s, prices.time().time_s, equal_nan=True)


def test_utilization():
    prices = hand_prices()
    found = utilization(prices.program, prices.platform, np.array(100.0))
    # Model FLOP as in the program's example: a layer's products 18,432 and attention 4,096 over
    # both ranks, three times; the output 8,192, three times; 16 tokens of 8 samples. Attention is
    # computed once more backward, in 5 products instead of 4.
    layer, attention, head = 18432.0, 4096.0, 8192.0
    model = 8 * 3 * (2 * (layer + attention) + head)
    hardware = model + 8 * 2 * attention / 2
    assert float(found.mfu) == pytest.approx(model / (100 * 8 * 1024))
    assert float(found.mfu_headline) == pytest.approx(model / (100 * 8 * 2048))
    assert float(found.hfu) == pytest.approx(hardware / (100 * 8 * 1024))
    one, two = (
        float(
            utilization(
                prices.program, PLATFORMS["trn2.48xlarge"], np.array(1.0), logical_size=size
            ).mfu
        )
        for size in (1, 2)
    )
    # A rank of two cores has twice the peak.
    assert one == pytest.approx(2 * two)


def expert_seconds(dispatcher, **degrees):
    """Return the exchange of tokens with experts in a slot of Mixtral on p5.48xlarge, s."""
    platform = PLATFORMS["p5.48xlarge"]
    stack = replace(
        training_stack_of(CATALOG, "p5.48xlarge"),
        dispatcher=dispatcher,
        communication=1.0,
        efa=None,
    )
    chip = load_chip_efficiency(CATALOG, platform.chip.name)
    base = {"global_batch": 64, "sequence": 4096, "precision": "bf16-master"}
    program = training_step(load_model(CATALOG, "mixtral-8x7b"), Layout(**{**base, **degrees}))
    prices = step_prices(
        program,
        platform,
        TrainingEfficiency(chip=chip, stack=stack),
        stack_of(CATALOG, "p5.48xlarge"),
    )
    block = next(block for kind, block in program.blocks.items() if "moe" in kind)
    op = next(op for op in block.collectives if op.axis == "ep" and op.phase == "F")
    return op, prices.exchanges


@pytest.mark.parametrize("dispatcher", ["alltoall", "deepep"])
def test_exchanges_priced_together_take_what_each_takes_alone(dispatcher):
    _, known = expert_seconds(dispatcher, tp=4, dp=np.array([8, 16]), ep=8)
    blocks = known.program.blocks.values()
    ops = [*(op for block in blocks for op in block.collectives), *known.program.closing]
    assert len({(op.op, op.axis) for op in ops}) > 4
    alike = {(op.op, op.axis, op.size_bytes.tobytes()) for op in ops}
    assert len(alike) < len(ops)  # one price serves several

    def fresh():
        return replace(known, known=Memo(), prices=replace(known.prices, priced=Memo()), refused=[])

    together = fresh().seconds_of(ops)
    for op in ops:
        assert np.array_equal(together[op], fresh().seconds(op), equal_nan=True)


@pytest.mark.parametrize("recompute", ["none", "selective"])
@pytest.mark.parametrize("instance", ["p4de.24xlarge", "trn1.32xlarge"])
def test_unfused_attention_with_shared_keys_is_the_same_beside_other_layouts(instance, recompute):
    """With 32 ranks each has one of 32 heads, and a copy of one of 8 keys: nothing is repeated."""

    def numbers(tp):
        prices = real_prices(instance, tp=tp, attention="naive", recompute=recompute)
        program, time_s = prices.program, prices.time().time_s
        used = utilization(program, prices.platform, time_s)
        memory = reduce(np.maximum, (s.total_bytes(PLAIN, 0.0) for s in stage_parts(program)))
        known = (time_s, program.model_flop, program.hardware_flop, memory, used.mfu, used.hfu)
        return [np.broadcast_to(one, program.shape) for one in known]

    degrees = (4, 8, 16, 32)
    together = numbers(np.array(degrees))
    for place, tp in enumerate(degrees):
        assert [float(one[place]) for one in together] == [float(one) for one in numbers(tp)]
    # What the model needs is the same by any kernel.
    fused = training_step(LLAMA, Layout(**{**BASE, "tp": 32, "attention": "fused"}))
    assert together[1][-1] == pytest.approx(float(fused.model_flop), rel=1e-12)


def test_a_token_goes_to_a_node_once_and_is_handed_on_inside_it():
    # Eight experts, four ranks apart, on four nodes of eight ranks: two a node. A token has two
    # experts, and both are elsewhere with a chance of 9/16: it reaches 4 (1 - 9/16) = 1.75 nodes,
    # in 2 copies.
    op, once = expert_seconds("deepep", tp=4, dp=8, ep=8)
    _, copies = expert_seconds("alltoall", tp=4, dp=8, ep=8)
    assert op.copies == 2
    fewer = once.prices.collectives([replace(op, read=cut(op.read, 1.75 / 2))])[0]
    stack = once.efficiency.stack
    assert stack.experts is not None
    # The rank with most tokens holds up the others.
    factor = once.efficiency.whole_factor * (1 + stack.experts.imbalance)
    assert float(once.seconds(op)) == pytest.approx(float(fewer.time_s * factor))
    assert float(once.seconds(op)) < float(copies.seconds(op))


def test_inside_a_node_every_copy_is_sent():
    op, once = expert_seconds("deepep", tp=1, dp=8, ep=8)
    _, copies = expert_seconds("alltoall", tp=1, dp=8, ep=8)
    assert float(once.seconds(op)) == float(copies.seconds(op)) > 0


def cut(tensor, share):
    """Return a tensor with a share of its elements."""
    part = Dim(name="part", size=np.asarray(share), factors=(np.asarray(1.0),))
    return replace(tensor, dims=(*tensor.dims, part))
