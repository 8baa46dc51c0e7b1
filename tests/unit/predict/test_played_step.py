"""Played training steps of real models on real platforms: what they tell, and who slows them."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from trnbench.engines.emulate.schedule.times import Straggler
from trnbench.engines.emulate.step.play import COMPUTED, Disturbance
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.workload.layout import Layout
from trnbench.predict.played import played_step
from trnbench.predict.setup import train_setup
from trnbench.program.slots import STEP_CATEGORIES
from trnbench.program.step import training_step


@functools.cache
def setup_on(instance, nodes):
    return train_setup(open_catalog(), "llama3.1-8b", instance, nodes)


def played(instance="trn1.32xlarge", nodes=4, disturbed=None, with_timeline=False, **layout):
    """Return the played step of a small Llama in a pipeline of four."""
    sizes = {"tp": 8, "pp": 4, "dp": 4, "micro_batch": 1, "global_batch": 64, "sequence": 4096}
    setup = setup_on(instance, nodes)
    whole = Layout(attention="fused", precision="bf16-master", **{**sizes, **layout})
    program = training_step(setup.model, whole)
    assert program.legal
    return played_step(setup, program, disturbed, with_timeline=with_timeline)


def late(seed):
    return Disturbance(seed=seed)


@pytest.mark.slow
def test_every_second_has_a_category_and_stacks_add_theirs_once():
    step = played(schedule="zb-h1", zero=1)
    assert tuple(step.by_category) == STEP_CATEGORIES
    assert min(step.by_category.values()) >= -1e-12
    stack = setup_on("trn1.32xlarge", 4).efficiency
    once_s = float(stack.whole_factor * stack.stack.step_s)
    assert once_s > 0
    assert step.time_s == pytest.approx(float(step.played.step_s) + once_s)
    assert step.slots == 4 * 3 * 16
    assert step.unplayed == ()


def test_what_a_gpu_computes_is_not_played_and_the_step_says_so():
    step = played("p4d.24xlarge", 16)
    assert step.unplayed == COMPUTED
    assert step.by_category["tensor"] > 0


def test_the_input_block_is_in_the_first_chunk_and_the_output_block_in_the_last():
    step = played(schedule="interleaved", vpp=4, with_timeline=True)
    lengths: dict[tuple[int, int], list[float]] = {}
    for event in step.timeline.events:
        if event.track == "compute" and event.name == "forward":
            lengths.setdefault((event.stage, event.chunk), []).append(event.end_s - event.start_s)
    mean = {place: np.mean(found) for place, found in lengths.items()}
    # The last chunk of the last stage computes the logits besides as many layers as any other.
    assert mean[3, 3] > 1.2 * mean[3, 2]
    assert mean[0, 0] > mean[0, 1]
    assert mean[3, 2] == pytest.approx(mean[1, 1], rel=0.05)


@pytest.mark.slow
def test_a_timeline_is_there_when_asked_for_and_shows_the_real_messages():
    assert played().timeline is None
    step = played(with_timeline=True)
    assert step.timeline is not None
    step_s = float(step.played.step_s)
    assert float(step.timeline.played.step_s) == step_s
    assert max(event.end_s for event in step.timeline.events) == pytest.approx(step_s)
    assert any(event.name == "send-forward" for event in step.timeline.events)


@pytest.mark.slow
def test_drawn_nodes_are_on_average_as_slow_as_expected():
    # One stage on 64 * 8 / 32 = 16 nodes.
    whole = {"nodes": 16, "pp": 1, "dp": 64, "zero": 1}
    scatter = float(setup_on("trn1.32xlarge", 16).stack.node_scatter)
    assert scatter > 0
    expected_s = played(**whole).time_s
    drawn_s = [played(disturbed=late(seed), **whole).time_s for seed in range(60)]
    assert played(disturbed=late(3), **whole).time_s == drawn_s[3]
    assert len(set(drawn_s)) == 60
    # The largest of 16 draws scatters by 0.54 of one: 60 seeds leave 0.07 of the scatter.
    assert np.mean(drawn_s) == pytest.approx(expected_s, rel=0.2 * scatter)


@pytest.mark.slow
def test_nodes_of_a_pipeline_are_drawn_stage_by_stage():
    # The slowest node need not hold the slowest stage, so drawn steps are a little faster.
    drawn_s = [played(disturbed=late(seed)).time_s for seed in range(40)]
    assert np.mean(drawn_s) < played().time_s
    # Four stages of one node of 32 ranks share its speed: all are slower by one factor.
    together = {"nodes": 1, "tp": 4, "dp": 2}
    factors = (
        played(disturbed=late(1), **together).played.compute_s / played(**together).played.compute_s
    )
    np.testing.assert_allclose(factors, factors[0])


def test_a_slower_last_stage_costs_each_micro_batch():
    plain = played(schedule="1f1b")
    slow = played(
        disturbed=Disturbance(stragglers=(Straggler(stage=3, factor=1.5),)), schedule="1f1b"
    )
    assert plain.slowest_stage == slow.slowest_stage == 3
    # Half as much again on the last stage, for all of its micro-batches.
    added_s = 0.5 * float(plain.played.compute_s[3])
    assert slow.time_s - plain.time_s == pytest.approx(added_s, rel=0.01)


def test_a_straggler_elsewhere_becomes_the_slowest_stage():
    plain = played(schedule="1f1b")
    slow = played(
        disturbed=Disturbance(stragglers=(Straggler(stage=1, factor=1.5),)), schedule="1f1b"
    )
    assert slow.slowest_stage == 1
    assert plain.time_s < slow.time_s < plain.time_s + 0.5 * float(plain.played.compute_s[1])
