"""Steps that use some ranks of a node: what memory, network and host leave to each of them."""

from __future__ import annotations

import numpy as np
import pytest

from trnbench.engines.analytic.step.compute import compute_time
from trnbench.engines.analytic.step.time import StepPrices
from trnbench.facts.calibration.hosts import HostLaunch
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import Layout
from trnbench.predict.prices import prices_of
from trnbench.predict.setup import SetupMemo, TrainSetup, train_setup
from trnbench.program.step import training_step

CATALOG = open_catalog()
LAYOUT = Layout(tp=2, micro_batch=1, global_batch=8, sequence=2048, precision="bf16")


def setup_on(instance: str, nodes: int = 1) -> TrainSetup:
    return train_setup(CATALOG, "gpt3-6.7b", instance, nodes)


def priced(setup: TrainSetup, layout: Layout) -> StepPrices:
    return prices_of(setup, training_step(setup.model, layout)).training


@pytest.mark.parametrize(
    ("instance", "active", "gain"),
    [
        ("trn2.3xlarge", 4, 1),
        # Two of four ranks: 2.9 TB/s / 2, less than two cores of 819 GB/s can take.
        ("trn2.3xlarge", 2, 2),
        ("trn2.3xlarge", 1, 2 * 819 / (2900 / 4)),
        # A core's DMA engines move 272 GB/s, less than its half of 820 GB/s.
        ("trn1.2xlarge", 1, 1),
        ("p5.48xlarge", 1, 1),
    ],
)
def test_a_rank_takes_of_the_memory_what_idle_ones_leave_and_its_cores_reach(
    instance, active, gain
):
    chip = load_platform(CATALOG, instance).chip
    assert chip.bandwidth_gain(active) == pytest.approx(gain)


def test_passes_over_memory_and_thin_products_are_faster_beside_idle_ranks():
    setup = setup_on("trn2.3xlarge")
    program = training_step(setup.model, replace(LAYOUT, sequence=64))

    def seconds(chip_ranks, category):
        blocks = compute_time(
            program, setup.platform.chip, setup.efficiency.compute, chip_ranks=chip_ranks
        ).blocks
        return float(blocks["dense"].seconds(category=category))

    assert seconds(4, "element-wise") == seconds(None, "element-wise")
    assert seconds(2, "element-wise") == pytest.approx(seconds(4, "element-wise") / 2)
    assert seconds(2, "matrix") < seconds(4, "matrix")
    # A set-up with two ranks of four in use says so.
    of_two = float(prices_of(setup, program).time().by_category["element-wise"])
    four = replace(LAYOUT, sequence=64, dp=2, global_batch=16)
    of_four = float(priced(setup, four).time().by_category["element-wise"])
    assert of_two == pytest.approx(of_four / 2)


@pytest.mark.parametrize(
    ("nodes", "ranks", "in_use"),
    [(1, 64, None), (1, 2, 2), (2, 8, 4), (2, 64, None), (3, 128, None), (2, 7, None)],
)
def test_ranks_are_the_first_of_each_node_unless_they_fill_nodes(nodes, ranks, in_use):
    assert setup_on("trn2.48xlarge", nodes).node_ranks(ranks) == in_use


def test_ranks_on_two_half_used_nodes_meet_over_the_network():
    layout = replace(LAYOUT, dp=2, global_batch=16)
    inside, across = setup_on("p5.48xlarge", 1), setup_on("p5.48xlarge", 2)
    data = [float(priced(one, layout).time().by_category["data"]) for one in (inside, across)]
    assert data[1] > 1.5 * data[0]
    tensor = [float(priced(one, layout).time().by_category["tensor"]) for one in (inside, across)]
    assert tensor[1] == pytest.approx(tensor[0], rel=0.1)
    # Both are remembered by one memo.
    again = priced(replace(across, memo=inside.memo), layout).time()
    assert float(again.by_category["data"]) == pytest.approx(data[1])


def test_a_host_with_idle_ranks_launches_faster():
    setup = setup_on("trn2.3xlarge")
    # 12 vCPUs for 4 ranks of 2 cores are 1.5 each, for 2 ranks 3.
    host = HostLaunch(dispatch="graph", layer_pass_s=1e-3, overlap=0.0, cores=6.0)
    stack = replace(setup.stack, host=host)
    launching = replace(setup, efficiency=replace(setup.efficiency, stack=stack), memo=SetupMemo())
    found = [
        float(
            priced(launching, replace(LAYOUT, dp=dp, global_batch=8 * dp))
            .time()
            .by_category["host"]
        )
        for dp in (2, 1)
    ]
    assert np.array(found) == pytest.approx([found[0], found[0] / 2])
    # 32 layers forward and backward, 8 micro-batches; and the optimizer's pass through all.
    assert found[1] == pytest.approx(2 * 1e-3 * (8 * 2 * 32 + 32))
