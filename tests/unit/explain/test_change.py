"""What each kind of cause does to a step, beside plain arithmetic or a prediction made so."""

from __future__ import annotations

import numpy as np
import pytest

from trnbench.evidence.explain.causes import (
    Added,
    Apart,
    AtLeast,
    Counted,
    Each,
    OtherOrder,
    Scaled,
    Scatter,
    Setting,
    SlowLaunch,
    SlowLink,
    SlowNode,
    TimedOtherwise,
)
from trnbench.evidence.explain.change import Ran, Sites
from trnbench.evidence.explain.effects import Pricer
from trnbench.evidence.explain.observed import ObservedStep
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.fabric import Network, Switch, times
from trnbench.facts.records import asdict, replace
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.library import load_model
from trnbench.facts.workload.weights import active_parameter_count
from trnbench.predict.setup import SetupMemo, train_setup
from trnbench.predict.step import predict

pytestmark = pytest.mark.xdist_group("planted")

NODES, LAYERS, HIDDEN = 8, 32, 4096
LAYOUT = Layout(
    tp=8,
    dp=8,
    zero=1,
    micro_batch=1,
    global_batch=128,
    sequence=4096,
    sequence_parallel=True,
    recompute="full",
    precision="bf16-master",
)
MICRO_BATCHES = LAYOUT.global_batch // LAYOUT.dp


@pytest.fixture(scope="module")
def setup():
    # A host that launches as fast as chips compute: causes add up without a floor.
    found = train_setup(open_catalog(), "llama3.1-8b", "p5.48xlarge", NODES)
    stack = replace(found.stack, host=None)
    return replace(found, efficiency=replace(found.efficiency, stack=stack), memo=SetupMemo())


@pytest.fixture(scope="module")
def base_s(setup):
    return predicted_s(setup)


def predicted_s(setup, layout=LAYOUT):
    found = predict(setup, layout).step
    assert found is not None
    return found.step_time_s


def laid_on(setup, way, magnitude, layout=LAYOUT):
    """Return the step's seconds with a cause at work, by the pricer of causes."""
    step = ObservedStep(
        id="row", ran=Ran(setup=setup, parts=((1.0, layout),)), measured={"step": 1.0}
    )
    pricer = Pricer()
    (figure,) = pricer.figures([step])
    ((shift,),) = pricer.shifts([figure], [(way, magnitude)])
    return figure.predicted * float(np.exp(shift))


def with_levels(setup, **factors):
    fabric = tuple(
        times(level, **factors) if isinstance(level, Network) else level
        for level in setup.platform.instance.fabric
    )
    return with_instance(setup, fabric=fabric)


def with_instance(setup, **changes):
    instance = replace(setup.platform.instance, **changes)
    platform = replace(setup.platform, instance=instance)
    return replace(setup, platform=platform, memo=SetupMemo())


def with_stack(setup, **changes):
    stack = replace(setup.stack, **changes)
    efficiency = replace(setup.efficiency, stack=stack)
    return replace(setup, efficiency=efficiency, memo=SetupMemo())


def test_network_bandwidth_is_that_of_fewer_adapters(setup, base_s):
    fabric = tuple(
        replace(level, adapters=level.adapters // 2) if isinstance(level, Network) else level
        for level in setup.platform.instance.fabric
    )
    found = laid_on(setup, SlowLink(part="network", figure="bandwidth", by=0.5), 0.5)
    assert found == pytest.approx(predicted_s(with_instance(setup, fabric=fabric)))
    assert found > 1.01 * base_s


def test_node_links_are_those_of_the_switch_alone(setup, base_s):
    fabric = tuple(
        replace(
            level,
            bandwidth_per_chip_one_way_bytes_per_s=level.bandwidth_per_chip_one_way_bytes_per_s / 2,
        )
        if isinstance(level, Switch)
        else level
        for level in setup.platform.instance.fabric
    )
    found = laid_on(setup, SlowLink(part="node", figure="bandwidth", by=0.5), 0.5)
    assert found == pytest.approx(predicted_s(with_instance(setup, fabric=fabric)))
    assert found > 1.05 * base_s


def test_late_messages_cost_a_step_of_a_collective_each(setup):
    alone = replace(LAYOUT, global_batch=8)
    way = SlowLink(part="network", figure="latency", by=4.0)
    bare = replace(setup, efficiency=replace(setup.efficiency, buckets=None), memo=SetupMemo())
    several = [laid_on(bare, way, by, alone) for by in (10.0, 20.0, 40.0)]
    assert predicted_s(bare, alone) < several[0] < several[1] < several[2]
    assert several[2] - several[1] == pytest.approx(2 * (several[1] - several[0]), rel=0.01)
    # A bucket goes by another algorithm where its messages are late: less than proportional.
    held = [laid_on(setup, way, by, alone) for by in (10.0, 20.0, 40.0)]
    assert held[0] < held[1] < held[2] < several[2]
    assert held[2] - held[1] < 2 * (held[1] - held[0])


@pytest.mark.parametrize(("part", "own"), [("network", "network_step_s"), ("node", "step_s")])
def test_steps_of_the_communication_library_are_late_too(setup, part, own):
    ran = Ran(setup=setup, parts=((1.0, LAYOUT),))
    late = Sites().changed(ran, SlowLink(part=part, figure="latency", by=4.0), 4.0)
    assert late is not None
    for name, tuning in setup.collectives.tunings.items():
        before = asdict(tuning)
        after = asdict(late.setup.collectives.tunings[name])
        assert after == before | {own: 4 * before[own]}


@pytest.mark.parametrize(
    ("knob", "value", "other"),
    [
        ("recompute", "none", replace(LAYOUT, recompute="none")),
        ("zero", "3", replace(LAYOUT, zero=3)),
        ("precision", "fp8", replace(LAYOUT, precision="fp8")),
    ],
)
def test_a_knob_is_predicted_with_its_other_value(setup, base_s, knob, value, other):
    found = laid_on(setup, Setting(knob=knob, to=(value,)), value)
    assert found == pytest.approx(predicted_s(setup, other))
    assert found != pytest.approx(base_s, rel=0.01)


def test_a_knob_may_be_a_multiple_of_its_own_value(setup):
    for knob in ("micro_batch", "sequence", "global_batch"):
        twice = replace(LAYOUT, **{knob: 2 * getattr(LAYOUT, knob)})
        found = laid_on(setup, Setting(knob=knob, times=(2.0,)), ("x", 2))
        assert found == pytest.approx(predicted_s(setup, twice))
    half = Setting(knob="micro_batch", times=(0.5,))
    assert np.isnan(laid_on(setup, half, ("x", 0.5)))


def test_a_setting_may_bring_others_along(setup):
    layout = replace(LAYOUT, tp=4, pp=2, vpp=4, schedule="interleaved")
    way = Setting(knob="vpp", to=("1",), also={"schedule": "1f1b"})
    plain = replace(layout, vpp=1, schedule="1f1b")
    assert laid_on(setup, way, "1", layout) == pytest.approx(predicted_s(setup, plain))


def test_seconds_are_added_once_or_for_each_sample(setup, base_s):
    counts: dict[Each, float] = {
        "once": 1,
        "sample of a node": float(LAYOUT.global_batch) / NODES,
        "sample": float(LAYOUT.global_batch),
    }
    # The stack's factor is on fixed costs too.
    cost_s = 0.01 * setup.stack.factor
    for each, count in counts.items():
        found = laid_on(setup, Added(number="step", each=each, cost_s=0.01), 0.01)
        assert found - base_s == pytest.approx(cost_s * count, rel=0.05)
    found = laid_on(setup, Added(number="micro_batch", cost_s=0.01), 0.01)
    # Longer micro-batches hide more of the gradients' exchange.
    assert 0.9 < (found - base_s) / (cost_s * MICRO_BATCHES) <= 1


def test_work_beside_the_step_shows_only_where_it_takes_longer(setup, base_s):
    way = AtLeast(each="sample of a node", cost_s=0.1)
    a_node = LAYOUT.global_batch / NODES
    assert laid_on(setup, way, 0.9 * base_s / a_node) == pytest.approx(base_s)
    assert laid_on(setup, way, 1.5 * base_s / a_node) == pytest.approx(1.5 * base_s)


def test_a_slow_host_sets_the_time_where_computing_takes_less(setup, base_s):
    way = SlowLaunch(cost_s=1e-3)
    passes = 3 * LAYERS * MICRO_BATCHES
    for launch_s in (5e-3, 10e-3):
        assert laid_on(setup, way, launch_s) == pytest.approx(passes * launch_s, rel=0.1)
    assert laid_on(setup, way, 1e-5) == pytest.approx(base_s, rel=0.01)


def test_all_wait_for_the_slowest_node(setup, base_s):
    found = [laid_on(setup, SlowNode(by=1.2), by) / base_s for by in (1.2, 1.4)]
    assert 1.12 < found[0] <= 1.2
    assert found[1] - 1 == pytest.approx(2 * (found[0] - 1), rel=0.1)
    alone = replace(setup, nodes=1)
    row = replace(LAYOUT, dp=1)
    assert laid_on(alone, SlowNode(by=1.2), 1.2, row) == pytest.approx(predicted_s(alone, row))


def test_scatter_makes_more_nodes_wait_longer(setup):
    way = Scatter(by=0.05)
    gains = []
    for nodes in (2, 8):
        fewer, row = replace(setup, nodes=nodes), replace(LAYOUT, dp=nodes, global_batch=16 * nodes)
        gains.append(laid_on(fewer, way, 0.05, row) / predicted_s(fewer, row) - 1)
    # The largest of two and of eight numbers lies 0.56 and 1.42 standard deviations above the mean.
    assert gains[1] / gains[0] == pytest.approx(1.42 / 0.56, rel=0.15)


def test_tensor_groups_round_the_nodes_exchange_over_the_network(setup, base_s):
    found = laid_on(setup, OtherOrder(to=("dp-tp-pp",)), "dp-tp-pp")
    assert found == pytest.approx(predicted_s(with_stack(setup, order="dp-tp-pp")))
    assert found > 1.5 * base_s


def test_a_group_on_two_nodes_is_slower_than_on_one_and_faster_than_on_eight(setup, base_s):
    way = Apart(nodes=(2, 4, 8))
    two, four, eight = (laid_on(setup, way, nodes) for nodes in way.nodes)
    assert 1.1 * base_s < two < four < eight
    ran = Sites().changed(Ran(setup=setup, parts=((1.0, LAYOUT),)), way, 2)
    assert ran is not None
    instance, whole = ran.setup.platform.instance, setup.platform.instance
    assert instance.network is not None
    assert whole.network is not None
    assert 2 * instance.chips == whole.chips
    assert 2 * instance.network.adapters == whole.network.adapters
    assert ran.setup.chips == setup.chips
    inside = replace(LAYOUT, tp=4, dp=16)
    assert np.isnan(laid_on(setup, way, 2, inside))
    assert not np.isnan(laid_on(setup, way, 4, inside))


@pytest.mark.parametrize(("expert_tp", "possible"), [(None, True), (1, False)])
def test_experts_cut_apart_have_no_other_order_of_ranks(setup, expert_tp, possible):
    layout = replace(LAYOUT, ep=8, expert_tp=expert_tp)
    ran = Ran(
        setup=replace(setup, model=load_model(open_catalog(), "mixtral-8x7b")),
        parts=((1.0, layout),),
    )
    assert (Sites().changed(ran, OtherOrder(to=("dp-tp-pp",)), "dp-tp-pp") is not None) == possible


def test_a_calibrated_number_is_multiplied(setup, base_s):
    found = laid_on(setup, Scaled(numbers=("factor",), by=1.3), 1.3)
    assert found / base_s == pytest.approx(1.3, rel=0.03)
    traffic = replace(
        setup.stack.kernels, elementwise_traffic=2 * setup.stack.kernels.elementwise_traffic
    )
    found = laid_on(setup, Scaled(numbers=("kernels.elementwise_traffic",), by=2.0), 2.0)
    assert found == pytest.approx(predicted_s(with_stack(setup, kernels=traffic)))


def test_a_part_of_the_step_is_timed(setup, base_s):
    assert laid_on(setup, TimedOtherwise(by=0.7), 0.7) == pytest.approx(0.7 * base_s)


def test_flop_of_a_step_by_each_convention(setup, base_s):
    """A token costs 6 FLOP a weight, and a layer's causal attention 6 x sequence x hidden."""
    causal = 6.0 * LAYERS * LAYOUT.sequence * HIDDEN
    model = load_model(open_catalog(), "llama3.1-8b")
    every = 6.0 * active_parameter_count(model)
    weights = every - 6.0 * 128256 * HIDDEN  # an embedding is looked up, not multiplied
    layers = weights - 6.0 * 128256 * HIDDEN
    usual = weights + causal
    again = (layers + causal) / 3
    stated = {
        "attention in full": usual + causal,
        "no attention": weights,
        "6 FLOP a weight and token": every,
        "recompute": usual + again,
        "attention in full and recompute": usual + causal + again,
    }
    way = Counted(by=("recompute",), times=(2.0,))
    for convention, flop in stated.items():
        factor = laid_on(setup, way, convention) / base_s
        assert factor == pytest.approx(usual / flop, rel=0.02), convention
        other = laid_on(setup, way, ("time", convention)) / base_s
        assert other == pytest.approx(1 / factor)
    assert laid_on(setup, way, ("x", 2.0)) == pytest.approx(2 * base_s)
