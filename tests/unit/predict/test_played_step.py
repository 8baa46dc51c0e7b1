"""Played training steps of real models on real platforms, beside the closed form."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from trnbench.analytic.step.time import STEP_CATEGORIES, StepPrices, step_prices
from trnbench.catalog.search import open_catalog
from trnbench.emulate.schedule.disturbance import Straggler
from trnbench.predict.played import REAL, SILENT, overlap_rules, played_step, stage_times
from trnbench.predict.setup import train_setup
from trnbench.program.step import training_step
from trnbench.workload.layout import Layout, Schedule

SCHEDULES: tuple[Schedule, ...] = ("gpipe", "1f1b", "interleaved", "zb-h1")
PLACES = (
    ("llama3.1-8b", "trn1.32xlarge", 4096),
    ("llama3.1-70b", "trn2.48xlarge", 8192),
    ("mixtral-8x7b", "trn2.48xlarge", 4096),
    ("megatron-22b", "p4d.24xlarge", 2048),
    ("llama3.1-8b", "p5.48xlarge", 8192),
)
LAYOUTS = 200
SHORT_MESSAGE = 0.1
"""The closed form wants messages that are short beside slots."""


@functools.cache
def place(model, instance):
    """Return a setup, and groups that were placed there."""
    return train_setup(open_catalog(), model, instance, 1), {}


def priced(model, instance, **layout):
    setup, engines = place(model, instance)
    whole = Layout(attention=setup.stack.attention, precision="bf16-master", **layout)
    program = training_step(setup.model, whole)
    if not program.legal:
        return None
    return step_prices(
        program, setup.platform, setup.efficiency, setup.collectives, engines=engines
    )


def drawn(seed):
    """Return the prices of a random layout; None if it is not legal."""
    random = np.random.default_rng(seed)
    model, instance, sequence = PLACES[int(random.integers(len(PLACES)))]
    schedule = SCHEDULES[seed % len(SCHEDULES)]
    pp, dp, micro_batch = (int(random.choice(x)) for x in ((2, 4, 8), (1, 2, 4), (1, 2)))
    micro_batches = pp * int(random.integers(1, 5))
    return priced(
        model,
        instance,
        tp=int(random.choice((1, 2, 4, 8))),
        pp=pp,
        dp=dp,
        cp=int(random.choice((1, 1, 2))),
        vpp=int(random.choice((2, 4))) if schedule == "interleaved" else 1,
        micro_batch=micro_batch,
        global_batch=dp * micro_batch * micro_batches,
        sequence=sequence,
        zero=int(random.choice((0, 1, 3))),
        sequence_parallel=bool(random.random() < 0.5),
        recompute=str(random.choice(("none", "selective", "full"))),
        schedule=schedule,
    )


def assumed(prices: StepPrices) -> bool:
    """Tell whether the closed form's assumptions hold.

    Messages short beside slots; lanes free for messages and gradients, so nothing between nodes
    inside slots; and the slowest stage last, or, without interleaving, many micro-batches.
    """
    stages = prices.stages()
    slots = [
        [
            getattr(stage.compute, slot) + sum(getattr(e.exposed, slot) for e in stage.exchanges)
            for slot in ("forward_s", "backward_s", "weight_s")
        ]
        for stage in stages
    ]
    shortest = min(slot for stage in slots for slot in stage if slot > 0) / stages[0].chunks
    message = max(stage.send_s + stage.latency_s for stage in stages)
    long = prices.program.micro_batches >= 4 * prices.program.grid.pp
    return bool(
        message <= SHORT_MESSAGE * shortest
        and all(exchange.lane == "links" for stage in stages for exchange in stage.exchanges)
        and (
            sum(slots[-1]) >= max(map(sum, slots))
            or (long and prices.program.layout.schedule != "interleaved")
        )
    )


@pytest.mark.slow
def test_two_hundred_layouts_agree_with_the_closed_form():
    left = dict.fromkeys(SCHEDULES, LAYOUTS // len(SCHEDULES))
    seed = 0
    while any(left.values()):
        seed += 1
        prices = drawn(seed) if left[SCHEDULES[seed % len(SCHEDULES)]] else None
        if prices is None or not assumed(prices):
            continue
        left[prices.program.layout.schedule] -= 1
        closed, played = prices.time(), played_step(prices)
        assert played.time_s == pytest.approx(float(closed.time_s), rel=0.01), seed
        for name, seconds in closed.by_category.items():
            apart = abs(played.by_category[name] - float(seconds))
            assert apart <= 0.01 * played.time_s, (seed, name)


def llama(**layout):
    """Return the prices of a small Llama in a pipeline of four on 16 trn1 nodes."""
    sizes = {"tp": 8, "pp": 4, "dp": 4, "micro_batch": 1, "global_batch": 64, "sequence": 4096}
    prices = priced("llama3.1-8b", "trn1.32xlarge", **{**sizes, **layout})
    assert prices is not None
    return prices


def test_one_stage_is_the_closed_form_to_the_last_digit():
    prices = llama(pp=1, tp=32, zero=1)
    closed, played = prices.time(), played_step(prices)
    assert played.time_s == pytest.approx(float(closed.time_s), rel=1e-12)
    for name in STEP_CATEGORIES:
        found = played.by_category[name]
        assert found == pytest.approx(float(closed.by_category[name]), abs=1e-9), name


@pytest.mark.parametrize("zero", [0, 1])
def test_gradients_and_exchanges_inside_slots_take_turns_on_the_network(zero):
    # A tensor group fills a node of 32 ranks: halves of a sequence meet over the network, as
    # gradients do.
    prices = llama(pp=1, tp=32, cp=2, dp=8, global_batch=8, zero=zero)
    assert {e.purpose for s in prices.stages() for e in s.exchanges if e.lane == "network"} == {
        "context"
    }
    closed, played = prices.time(), played_step(prices)
    assert float(closed.hidden["data"]) > 0
    assert played.time_s == pytest.approx(float(closed.time_s), rel=1e-12)


def test_every_second_has_a_category_and_stacks_add_theirs_once():
    prices = llama(schedule="zb-h1", zero=1)
    played = played_step(prices)
    assert tuple(played.by_category) == STEP_CATEGORIES
    assert min(played.by_category.values()) >= -1e-12
    once_s = prices.stages()[0].step_s
    assert once_s > 0
    assert played.time_s == pytest.approx(float(played.played.step_s) + once_s)
    assert played.slots == 4 * 3 * 16


def test_prices_of_a_stage_are_spread_over_its_chunks_and_messages_fall_silent():
    prices = llama(schedule="interleaved", vpp=4)
    stages = [price for price in prices.stages() for _ in range(price.stages)]
    times = stage_times(stages)
    forward_s = np.asarray(times.compute.forward_s)
    assert forward_s.shape == (4, 1)
    np.testing.assert_allclose(4 * forward_s[:, 0], [s.compute.forward_s for s in stages])
    sends_s = np.asarray(times.sends.forward_s)
    assert (sends_s[REAL] > 0).all()
    assert (sends_s[SILENT] == 0).all()
    # What a stage waits for of its exchanges is what the prices say it waits for.
    tensor = next(one for one in times.collectives if one.name == "tensor")
    shares = overlap_rules(prices, stages).shares_of("tensor")
    exposed_s = (1 - np.asarray(shares.backward)) * np.asarray(tensor.times.backward_s)
    expected = [e.exposed.backward_s for s in stages for e in s.exchanges if e.purpose == "tensor"]
    np.testing.assert_allclose(4 * exposed_s[:, 0], expected)


def test_a_timeline_is_there_when_asked_for_and_shows_the_real_messages():
    prices = llama()
    assert played_step(prices).timeline is None
    played = played_step(prices, with_timeline=True)
    assert played.timeline is not None
    step_s = float(played.played.step_s)
    assert float(played.timeline.played.step_s) == step_s
    assert max(event.end_s for event in played.timeline.events) == pytest.approx(step_s)
    assert any(event.name == "send-forward" for event in played.timeline.events)


def test_drawn_nodes_are_on_average_as_slow_as_expected():
    # One stage on 64 * 8 / 32 = 16 nodes.
    prices = llama(pp=1, dp=64, zero=1)
    scatter = float(prices.efficiency.stack.node_scatter)
    assert scatter > 0
    expected_s = played_step(prices).time_s
    drawn_s = [played_step(prices, jitter_seed=seed).time_s for seed in range(60)]
    assert played_step(prices, jitter_seed=3).time_s == drawn_s[3]
    assert len(set(drawn_s)) == 60
    # The largest of 16 draws scatters by 0.54 of one: 60 seeds leave 0.07 of the scatter.
    assert np.mean(drawn_s) == pytest.approx(expected_s, rel=0.2 * scatter)


def test_nodes_of_a_pipeline_are_drawn_stage_by_stage():
    # The slowest node need not hold the slowest stage, so drawn steps are a little faster.
    prices = llama()
    drawn_s = [played_step(prices, jitter_seed=seed).time_s for seed in range(40)]
    assert np.mean(drawn_s) < played_step(prices).time_s
    # Four stages of one node of 32 ranks share its speed: all are slower by one factor.
    together = llama(tp=4, dp=2)
    factors = (
        played_step(together, jitter_seed=1).played.compute_s
        / played_step(together).played.compute_s
    )
    np.testing.assert_allclose(factors, factors[0])


def test_a_slower_last_stage_costs_each_micro_batch():
    prices = llama(schedule="1f1b")
    plain = played_step(prices)
    slow = played_step(prices, stragglers=(Straggler(stage=3, factor=1.5),))
    assert plain.slowest_stage == slow.slowest_stage == 3
    # Half as much again on the last stage, for all of its micro-batches.
    added_s = 0.5 * float(plain.played.compute_s[3])
    assert slow.time_s - plain.time_s == pytest.approx(added_s, rel=0.01)


def test_a_straggler_elsewhere_becomes_the_slowest_stage():
    prices = llama(schedule="1f1b")
    plain = played_step(prices)
    slow = played_step(prices, stragglers=(Straggler(stage=1, factor=1.5),))
    assert slow.slowest_stage == 1
    assert plain.time_s < slow.time_s < plain.time_s + 0.5 * float(plain.played.compute_s[1])
