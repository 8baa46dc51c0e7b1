"""What launching adds to a step, on the example worked by hand in `test_step_time`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.fakes import decoder, hand_collectives, hand_efficiency, hand_platform, known
from tests.unit.analytic.test_step_time import hand_prices, seconds
from trnbench.facts.calibration.hosts import HostLaunch, load_job_rates
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import Layout
from trnbench.predict.played import played_step
from trnbench.predict.ranges import ranges_of, replaced
from trnbench.predict.setup import TrainSetup
from trnbench.program.job_phases import phases_of
from trnbench.program.step import training_step

DEVICE = 18.25 + 35
"""Seconds that the last stage, the slower one, computes and exchanges for a micro-batch."""
MICRO_BATCHES = 4
PASSES = 2
"""The last stage passes its layer forward and backward; the output is none."""
ONE_STAGE: dict[str, Any] = {"pp": 1, "dp": 4, "global_batch": 16}
WHOLE = 13.5 + 26.5 + DEVICE
"""The same of the whole model on one stage, which passes two layers forward and backward."""
_TWO = decoder().transformer
assert _TWO is not None
FOUR_LAYERS = replace(decoder(), transformer=replace(_TWO, layers=4))


def launched(dispatch: Any = "graph", **changes: Any):
    layout = changes.pop("layout", {})
    host = HostLaunch(dispatch=dispatch, **changes)
    return hand_prices(efficiency=hand_efficiency(host=host), **layout)


def test_a_graph_waits_for_its_launch_and_so_does_the_optimizer():
    found = seconds(launched(layer_pass_s=1.0, graph_s=2.0, overlap=0.0))
    assert found["host"] == pytest.approx(MICRO_BATCHES * (PASSES + 2) + (2 + 1))
    # The first stage passes as many layers, and takes its share of that at both ends.
    assert found["bubble"] == pytest.approx(14.5 + 27.5 + PASSES + 2)


def test_part_of_the_shorter_hides():
    half = seconds(launched(layer_pass_s=1.0, overlap=0.5))
    # The optimizer's own work takes next to no time, which could hide its launch.
    assert half["host"] == pytest.approx(MICRO_BATCHES * PASSES / 2 + 1)


@pytest.mark.parametrize("dispatch", ["eager", "compiled"])
def test_kernels_launched_ahead_take_the_longer_of_launch_and_device(dispatch):
    def host_s(layer_pass_s):
        found = launched(dispatch, layer_pass_s=layer_pass_s, layout=ONE_STAGE)
        return seconds(found)["host"]

    assert host_s(22.0) == 0
    assert host_s(40.0) == pytest.approx(MICRO_BATCHES * (40 * 4 - WHOLE))
    assert host_s(80.0) == pytest.approx(MICRO_BATCHES * (80 * 4 - WHOLE))


def test_the_host_of_each_stage_keeps_its_own_pace():
    # Both stages pass as many blocks: launching makes them alike, though the first computes less.
    found = seconds(launched("eager", layer_pass_s=40.0))
    assert sum(found.values()) - found["data"] - found["pipeline"] == pytest.approx(
        (MICRO_BATCHES + 1) * (40 * PASSES + 2) + 3
    )


def test_exchanges_are_launched_too():
    # A layer exchanges 4 times forward and 6 times backward, the embedding once each; the output
    # gathers, finds the largest logit and adds up, then gathers and scatters on its way back.
    exchanges = 2 * (4 + 6) + 2 + 3 + 2
    found = seconds(launched("eager", exchange_s=10.0, layout=ONE_STAGE))
    assert found["host"] == pytest.approx(MICRO_BATCHES * (10 * exchanges - WHOLE))
    alone = {**ONE_STAGE, "tp": 1, "dp": 8, "global_batch": 32}
    assert seconds(launched("eager", exchange_s=10.0, layout=alone))["host"] == 0


def test_exchanges_take_longer_to_launch_where_a_pipeline_leaves_the_node():
    # The last stage: its layer's and the output's exchanges, among 2 ranks each.
    exchanges = (4 + 6) + 3 + 2
    slow = {"piped_exchange_s": 10.0}
    assert seconds(launched("eager", **slow))["host"] == 0
    crossing = {"layout": {"tp": 2, "dp": 4, "pp": 2, "global_batch": 16}}
    plain = seconds(launched("eager", **crossing))
    found = seconds(launched("eager", **slow, **crossing))
    assert plain["host"] == 0
    assert found["host"] == pytest.approx(MICRO_BATCHES * (10 * 2 * exchanges - DEVICE))
    assert seconds(launched("eager", **slow, layout=ONE_STAGE))["host"] == 0


def test_chunks_cost_a_launch_each_in_as_far_as_a_slot_does():
    interleaved = {"vpp": 2, "schedule": "interleaved", "model": FOUR_LAYERS}
    for share, times in ((0.0, 1.0), (0.5, 1.5), (1.0, 2.0)):
        # A micro-batch costs the stack 2 s, and its graphs 3 s.
        found = launched(graph_s=3.0, overlap=0.0, slot_share=share, layout=interleaved)
        assert seconds(found)["fixed"] == pytest.approx(MICRO_BATCHES * 2 * times + 3)
        assert seconds(found)["host"] == pytest.approx(MICRO_BATCHES * 3 * times + 3)


def test_too_few_processors_launch_more_slowly():
    platform = hand_platform()
    few = replace(platform.instance, host=replace(platform.instance.host, vcpus=16))
    hosts = replace(platform, instance=few)
    # 16 vCPUs for 8 devices: with 2 wanted for each there are enough, with 6 a third of them.
    for wanted, slowness in ((2.0, 1), (6.0, 3)):
        host = HostLaunch(dispatch="graph", layer_pass_s=1.0, overlap=0.0, cores=wanted)
        found = seconds(hand_prices(platform=hosts, efficiency=hand_efficiency(host=host)))
        assert found["host"] == pytest.approx(slowness * (MICRO_BATCHES * PASSES + 1))


def test_device_time_is_without_the_host_and_whatever_waits():
    plain = hand_prices().time()
    assert float(plain.device_s_per_microbatch) == pytest.approx(DEVICE)
    after = plain.by_category["data"] + plain.by_category["optimizer"]
    assert float(plain.optimizer_s) == pytest.approx(float(after))
    slow = launched(layer_pass_s=1.0, graph_s=5.0, overlap=0.3).time()
    assert float(slow.device_s_per_microbatch) == pytest.approx(DEVICE)
    assert float(slow.optimizer_s) == pytest.approx(float(plain.optimizer_s))


@pytest.mark.parametrize(
    "layout",
    [
        {},
        {"schedule": "gpipe"},
        {"schedule": "zb-h1"},
        {"vpp": 2, "schedule": "interleaved", "model": FOUR_LAYERS},
    ],
)
@pytest.mark.parametrize(
    "host",
    [
        {"dispatch": "eager", "layer_pass_s": 40.0},
        {"dispatch": "graph", "layer_pass_s": 1.0, "graph_s": 3.0, "overlap": 0.2},
    ],
)
def test_a_played_step_is_launched_as_the_closed_one(layout, host):
    closed = launched(slot_share=1.0, layout=layout, **host)
    plain = hand_prices(**layout)
    assert float(closed.time_s()) > 1.05 * float(plain.time_s())
    assert float(closed.time_s()) == pytest.approx(float(closed.time().time_s))
    setup = TrainSetup(
        model=closed.program.model,
        platform=closed.platform,
        nodes=1,
        efficiency=closed.efficiency,
        collectives=hand_collectives(),
        rates=load_job_rates(open_catalog(environment={})),
    )
    played = played_step(setup, closed.program)
    # What the engines make of messages and of slots that split differs a little.
    assert played.time_s == pytest.approx(float(closed.time_s()), rel=0.02)
    assert played.by_category["host"] == pytest.approx(seconds(closed)["host"], rel=1e-6)


def test_numbers_of_launching_can_be_samples():
    numbers = {"layer_pass": (0.5, 2.0), "overlap": (0.0, 0.5), "slot_share": (0.3, 1.0)}
    ends = {f"host.{name}": both for name, both in numbers.items()}
    host = HostLaunch(dispatch="graph", layer_pass_s=1.0, overlap=0.2, slot_share=1.0)
    efficiency = hand_efficiency(host=host, provenance=known(ends))
    ranges = ranges_of(efficiency)
    assert list(ranges) == list(ends)
    assert ranges["host.overlap"].linear
    assert ranges["host.slot_share"].most == 1
    rows = replaced(efficiency, {"host.layer_pass": np.array([1.0, 2.0])})
    found = hand_prices(efficiency=rows).time().by_category["host"]
    assert found[1] > found[0] > 0
    assert found[0] == pytest.approx(seconds(hand_prices(efficiency=efficiency))["host"])


def test_a_stack_that_launches_no_graphs_has_no_cost_of_one():
    with pytest.raises(ValueError, match="graph"):
        HostLaunch(dispatch="eager", graph_s=1.0)
    with pytest.raises(ValueError, match="slot_share"):
        HostLaunch(dispatch="graph", slot_share=1.2)


def test_a_played_phase_that_does_not_train_is_launched_half():
    scores = Layout(
        **{**ONE_STAGE, "tp": 1, "dp": 8, "job": "grpo", "global_batch": 32, "sequence": 16},
        response=12,
        precision="bf16-master",
    )
    setup = TrainSetup(
        model=decoder(),
        platform=hand_platform(),
        nodes=1,
        efficiency=hand_efficiency(),
        collectives=hand_collectives(),
        rates=load_job_rates(open_catalog(environment={})),
    )
    phases = {one.name: one.program for one in phases_of(training_step(decoder(), scores))}
    fixed = {name: played_step(setup, phases[name]).by_category["fixed"] for name in phases}
    # 4 micro-batches of 1 s, half of it for the way back, which a score has not; 3 s once a step.
    assert fixed["train"] == pytest.approx(4 * 1 + 3)
    assert fixed["score"] == pytest.approx(4 * 0.5)
