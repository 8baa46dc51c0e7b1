"""Instances that one switch joins: what stands in a domain, and what leaves it."""

from __future__ import annotations

import numpy as np
import pytest

from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.machine.placement import place
from trnbench.predict.prices import prices_of
from trnbench.predict.search.question import SearchQuestion
from trnbench.predict.search.search import search
from trnbench.predict.setup import train_setup
from trnbench.program.step import training_step

CATALOG = open_catalog(environment={})
RACK = load_platform(CATALOG, "gb200-nvl72")


@pytest.mark.parametrize(
    ("nodes", "domain"),
    [(1, 18), (4, 16), (7, 14), (16, 16), (18, 18), (64, 16), (36, 18), (20, 10)],
)
def test_a_job_spreads_evenly_over_domains(nodes: int, domain: int) -> None:
    assert RACK.domain_of(nodes) == domain


def test_a_joined_instance_is_all_of_its_nodes() -> None:
    joined = RACK.joined(16)
    network = joined.instance.network
    assert network is not None
    assert (joined.instance.chips, joined.instance.hosts, network.adapters) == (64, 16, 64)
    assert joined.instance.host.vcpus == 16 * 144
    assert joined.domain_of(1) == 1


def test_one_switch_carries_what_trays_say_to_each_other() -> None:
    inside, across = place(RACK, nodes=16), place(RACK, nodes=32)
    assert (inside.nodes, inside.ranks) == (1, 64)
    assert (across.nodes, across.ranks) == (2, 128)


def _share_s(nodes: int, tp: int) -> float:
    setup = train_setup(CATALOG, "llama3.1-8b", "gb200-nvl72", nodes)
    layout = Layout(
        tp=tp, dp=4 * nodes // tp, global_batch=1024, sequence=8192, precision="bf16-master"
    )
    prices = prices_of(setup, training_step(setup.model, layout)).training
    (reduce,) = {
        float(prices.exchanges.seconds(op))
        for op in prices.program.blocks["dense"].collectives
        if op.phase == "F" and op.axis == "tp"
    }
    return reduce


def test_tensor_parallelism_over_two_trays_is_as_fast_as_in_one() -> None:
    # 8 ranks are two trays; 900 GB/s to each of them either way, not a network's 50 GB/s.
    assert _share_s(2, 8) < 1.5 * _share_s(1, 4)
    assert _share_s(32, 8) == pytest.approx(_share_s(2, 8))


@pytest.mark.slow
def test_a_search_over_domains_of_several_sizes_prices_each_as_predict_does() -> None:
    setup = train_setup(CATALOG, "llama3.1-8b", "gb200-nvl72", 1)
    question = SearchQuestion(
        model=setup.model,
        platform=setup.platform,
        efficiency=setup.efficiency,
        collectives=setup.collectives,
        rates=setup.rates,
        nodes=(3, 16, 20, 32),
        layout=PartialLayout(
            tp=1,
            pp=1,
            cp=1,
            micro_batch=1,
            global_batch=960 * 4,
            sequence=8192,
            precision="bf16-master",
        ),
        headroom=0.0,
    )
    found = search(question, top=1).by_nodes
    for nodes in question.nodes:
        setup = train_setup(CATALOG, "llama3.1-8b", "gb200-nvl72", nodes)
        for best in found[nodes].ranked:
            alone = prices_of(setup, training_step(setup.model, best.layout)).time().time_s
            assert best.step_time_s == pytest.approx(float(np.ravel(alone)[0]), rel=1e-12)
