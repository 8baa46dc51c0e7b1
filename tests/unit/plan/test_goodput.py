"""Checkpoints and failures: published intervals, the closed form, and failures played."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.plan.failure_play import play
from trnbench.errors import InputError
from trnbench.facts.catalog.provenance import Kind
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_instance, load_reliability
from trnbench.facts.prices.purchase import load_purchase_rules
from trnbench.money.failures import Compiling, Estimate, Operations, Stated, operations_of
from trnbench.money.goodput import (
    daly_interval_s,
    goodput,
    segment_variance_s2,
    until_done_s,
    young_interval_s,
)

CATALOG = open_catalog(environment={})
RULES: Any = load_purchase_rules(CATALOG, "AWS")
MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0


def sure(value, low=None, high=None):
    return Estimate(
        value=value,
        low=value if low is None else low,
        high=value if high is None else high,
        kind=Kind.ASSUMED,
    )


def operations(
    *,
    failures=0.01,
    taken=0.0,
    zones=0.0,
    recovery=600.0,
    start=0.0,
    write=1e9,
    stalled=1.0,
    **ranged,
) -> Operations:
    known = {
        "failures_per_node_day": sure(failures),
        "interruptions_per_node_day": sure(taken),
        "zone_losses_per_day": sure(zones),
        "available": sure(1.0),
        "recovery_s": sure(recovery),
        "start_s": sure(start),
        "write_per_node_bytes_per_s": sure(write),
        "write_total_bytes_per_s": sure(1e15),
        "stalled_share": sure(stalled),
    }
    return Operations(**{**known, **ranged}, reclaimed_recovery_s=1800.0, launch_s=300.0)


# Daly, "A higher order estimate ...", figures 3 to 5: dumps of 5 minutes.
@pytest.mark.parametrize(("mtbf_s", "minutes"), [(86400, 117), (21600, 57), (900, 9.1)])
def test_dalys_published_intervals(mtbf_s, minutes):
    assert float(daly_interval_s(300.0, mtbf_s)) / 60 == pytest.approx(minutes, rel=0.006)


def test_young_and_daly_by_hand():
    # sqrt(2 x 50 x 10,000) = 1000 s.
    assert young_interval_s(50.0, 10000.0) == 1000.0
    # d / 2M = 0.0025, its root 0.05: 1000 (1 + 0.05 / 3 + 0.0025 / 9) - 50 = 966.944 s
    assert daly_interval_s(50.0, 10000.0) == pytest.approx(966.944, abs=1e-3)
    # A dump longer than 2M: M.
    assert daly_interval_s(3.0, 1.0) == 1.0


@settings(deadline=None, max_examples=40)
@given(ratio=st.floats(1e-5, 0.5), mtbf=st.floats(1e2, 1e7))
def test_no_other_interval_is_much_better_than_dalys(ratio, mtbf):
    dump = ratio * mtbf
    spans = mtbf * np.geomspace(1e-4, 10, 400)
    cost = until_done_s(spans + dump, 1 / mtbf) / spans
    best = daly_interval_s(dump, mtbf)
    assert until_done_s(best + dump, 1 / mtbf) / best <= cost.min() * 1.001


def test_terms_by_hand():
    # 1 node, one failure a day, 60 GB at 1 GB/s: a dump of 60 s; 1,000 h of work in 500 segments
    # of 2 h = 7,200 s. x / M = 7,260 / 86,400 = 0.0840278, exp - 1 = 0.0876591;
    # 500 x 86,400 x 0.0876591 = 3,786,872 s until all segments are done, of which 3,600,000 work,
    # 30,000 dumps, 156,872 lost. R = 600 + 60: exp(660 / 86,400) = 1.0076681: 29,038 s restarts.
    found = goodput(
        operations(failures=1.0, start=100.0),
        work_s=3.6e6,
        nodes=1,
        checkpoint_bytes=60e9,
        interval_s=7200.0,
    )
    assert found.segments == 500
    assert found.dump_s == 60
    assert found.start_s == 100
    assert found.work_s == 3.6e6
    assert found.checkpoint_s == 30000
    assert found.lost_s == pytest.approx(156872, abs=5)
    assert found.restart_s == pytest.approx(29038, abs=5)
    assert found.wall_s == pytest.approx(100 + 3.6e6 + 30000 + 156872 + 29038, abs=10)
    assert found.goodput == pytest.approx(3.6e6 / 3816010, abs=1e-5)
    # Failures come at a constant rate as long as the run is up or coming up.
    assert found.failures == pytest.approx((float(found.wall_s) - 100) / DAY_S)
    # Write, launch, read.
    assert found.seam_s == 60 + 300 + 60


@pytest.mark.parametrize(
    ("failures", "nodes", "size", "days"),
    [
        (0.005, 64, 1e12, 27.0),
        (0.02, 1024, 6e12, 10.0),
        (0.5, 100, 2e12, 3.0),
        (0.01, 1, 1e10, 5.0),
    ],
)
def test_playing_agrees_with_the_closed_form(failures, nodes, size, days):
    found = goodput(
        operations(failures=failures, start=900.0, taken=failures / 3),
        work_s=days * DAY_S,
        nodes=nodes,
        checkpoint_bytes=size,
    )
    played = play(found, runs=4000, seed=7)
    assert abs(played.mean_s - found.wall_s) < 3 * played.standard_error_s
    # The variance too: its own relative standard error over 4,000 runs is a few per cent.
    assert played.walls_s.std(ddof=1) == pytest.approx(found.deviation_s, rel=0.12)
    error = played.failures.std(ddof=1) / np.sqrt(4000)
    assert abs(played.failures.mean() - found.failures) < 3 * error
    assert played.quantile_s(0.0) >= found.start_s + found.work_s + found.checkpoint_s - 1e-6


def test_the_interval_of_chance_holds_four_in_five():
    found = goodput(operations(failures=0.05), work_s=20 * DAY_S, nodes=64, checkpoint_bytes=1e12)
    played = play(found, runs=4000, seed=3)
    inside = (played.walls_s > found.low_wall_s) & (played.walls_s < found.high_wall_s)
    # Nothing but chance is unsure here; 3 standard errors are 2 %.
    assert inside.mean() == pytest.approx(0.8, abs=0.025)


def test_the_same_seed_plays_the_same():
    found = goodput(operations(), work_s=DAY_S, nodes=64, checkpoint_bytes=1e12)
    assert np.array_equal(
        play(found, runs=50, seed=1).walls_s, play(found, runs=50, seed=1).walls_s
    )
    assert not np.array_equal(
        play(found, runs=50, seed=1).walls_s, play(found, runs=50, seed=2).walls_s
    )


def test_without_failures_a_run_is_work_and_one_checkpoint():
    found = goodput(operations(failures=0.0), work_s=DAY_S, nodes=4, checkpoint_bytes=4e9)
    assert found.segments == 1
    assert found.wall_s == DAY_S + 1
    assert found.lost_s == found.restart_s == found.failures == found.deviation_s == 0
    assert play(found, runs=3, seed=0).walls_s.tolist() == [DAY_S + 1] * 3


def test_a_run_that_cannot_get_on_never_ends():
    # 1e5 failures a second: no dump is ever finished.
    hopeless = operations(failures=8.64e9)
    found = goodput(hopeless, work_s=DAY_S, nodes=1, checkpoint_bytes=1e12)
    assert found.wall_s == np.inf
    assert found.goodput == 0
    with pytest.raises(InputError, match="that ends"):
        play(found, runs=10, seed=0)


def test_segment_variance_by_hand():
    # Without restarts the time until a span x has passed undisturbed has the variance
    # M^2 (exp(2u) - 2 u exp(u) - 1), u = x / M. At u = 1, M = 2: 4 (7.389056 - 5.436564 - 1).
    assert segment_variance_s2(2.0, 0.0, 0.5) == pytest.approx(3.809970, abs=1e-5)
    # Short spans, where differences of nearly equal numbers would be noise: u^3 / 3.
    assert segment_variance_s2(1e-4, 0.0, 1.0) == pytest.approx(1e-12 / 3, rel=1e-3)
    assert segment_variance_s2(5.0, 7.0, 0.0) == 0


@settings(deadline=None, max_examples=60)
@given(
    rate=st.floats(1e-4, 1.0),
    nodes=st.integers(1, 500),
    size=st.floats(1e9, 1e13),
    more=st.floats(1.01, 3.0),
)
def test_worse_conditions_take_longer(rate, nodes, size, more):
    def wall(**kinds):
        return goodput(
            operations(**{"failures": rate, **kinds}),
            work_s=30 * DAY_S,
            nodes=nodes,
            checkpoint_bytes=kinds.pop("size", size),
        )

    plain = wall()
    total = plain.start_s + plain.work_s + plain.checkpoint_s + plain.lost_s + plain.restart_s
    assert total == plain.wall_s >= 30 * DAY_S
    assert plain.low_wall_s <= plain.wall_s <= plain.high_wall_s
    # Rounding to whole segments may cost a little of the optimum.
    for worse in (wall(failures=rate * more), wall(recovery=600 * more), wall(write=1e9 / more)):
        assert worse.wall_s >= plain.wall_s * (1 - 1e-3)


def test_unsure_numbers_widen_the_interval_to_their_side():
    def found(**ranged):
        return goodput(operations(**ranged), work_s=30 * DAY_S, nodes=64, checkpoint_bytes=1e12)

    plain = found()
    worse = found(failures_per_node_day=sure(0.01, high=0.05))
    better = found(failures_per_node_day=sure(0.01, low=0.001))
    assert worse.wall_s == plain.wall_s == better.wall_s
    assert worse.high_wall_s > plain.high_wall_s + HOUR_S
    assert worse.low_wall_s == plain.low_wall_s
    assert better.low_wall_s < plain.low_wall_s - HOUR_S / 2
    assert better.high_wall_s == plain.high_wall_s
    # A start of 1 to 3 hours, expected 2, and nothing else unsure: an hour to either side.
    started = goodput(
        operations(failures=0.0, start_s=sure(2 * HOUR_S, HOUR_S, 3 * HOUR_S)),
        work_s=DAY_S,
        nodes=1,
        checkpoint_bytes=1e9,
    )
    assert started.high_wall_s - started.wall_s == pytest.approx(HOUR_S)
    assert started.wall_s - started.low_wall_s == pytest.approx(HOUR_S)


def test_a_checkpoint_written_beside_training_waits_for_the_one_before():
    # Stalling for 1 % of 1,000 s would ask for short intervals: none is below the rest of writing.
    found = goodput(
        operations(failures=5.0, stalled=0.01), work_s=DAY_S, nodes=1, checkpoint_bytes=1e12
    )
    assert found.dump_s == 10
    assert found.interval_s == pytest.approx(990, rel=0.01)


def test_what_an_instance_meets():
    trn1 = load_reliability(CATALOG, "trainium1")
    node = operations_of(trn1, load_instance(CATALOG, "trn1.32xlarge"))
    assert node.failures_per_node_day.value == trn1.failures_per_node_day
    assert node.kind is Kind.ASSUMED
    assert node.recovery_s.value == trn1.detect_s + trn1.launch_s
    assert node.start_s.high == 10 * MINUTE_S + 2 * HOUR_S
    # One chip of 16 fails a sixteenth as often, and its host has 12.5 Gbit/s at most.
    small = operations_of(trn1, load_instance(CATALOG, "trn1.2xlarge"))
    assert small.failures_per_node_day.value == pytest.approx(trn1.failures_per_node_day / 16)
    assert small.write_per_node_bytes_per_s.high <= 25e9 / 8
    # An UltraServer has 4 hosts and 64 chips.
    server = load_instance(CATALOG, "trn2-ultraserver")
    large = operations_of(load_reliability(CATALOG, "trainium2"), server)
    assert large.failures_per_node_day.value == pytest.approx(4 * trn1.failures_per_node_day)
    assert large.write_per_node_bytes_per_s.value == pytest.approx(4e9)


def test_spot_machines_are_taken_back_on_top():
    instance = load_instance(CATALOG, "trn1.32xlarge")
    known = load_reliability(CATALOG, "trainium1")
    spot = operations_of(known, instance, spot=RULES)
    # 5 % in 30 days: -ln(0.95) / 30 = 0.00171 a day, of which 30 % come one by one.
    alone = 0.3 * 0.0017098
    assert spot.interruptions_per_node_day.value == pytest.approx(alone, abs=1e-6)
    # The zone is there 52 % of the time and away for 2 h: 48 / 52 * 24 / 2 = 11.08 losses a day.
    assert spot.zone_losses_per_day.value == pytest.approx(11.077, abs=1e-3)
    assert spot.zone_losses_per_day.low < 0.2 < 11.077 < 28 < spot.zone_losses_per_day.high
    assert spot.reclaimed_recovery_s == RULES.spot.wait_s + known.launch_s
    runs: dict[str, Any] = {"work_s": 27 * DAY_S, "nodes": 64, "checkpoint_bytes": 1e12}
    taken, kept = goodput(spot, **runs), goodput(operations_of(known, instance), **runs)
    assert taken.wall_s > kept.wall_s
    stops = 64 * (0.005 + alone) + 11.077
    assert taken.failures_per_day == pytest.approx(stops, rel=1e-4)
    # The mean of the recoveries by how often they come, and reading 1e12 bytes at 64 GB/s.
    again = 0.005 * spot.recovery_s.value + alone * spot.reclaimed_recovery_s
    mean = (64 * again + 11.077 * spot.launch_s) / stops
    assert taken.each_restart_s == pytest.approx(mean + 15.625, rel=1e-4)


def test_what_the_user_knows_better():
    known = load_reliability(CATALOG, "trainium1")
    instance = load_instance(CATALOG, "trn1.32xlarge")
    stated = Stated(failures_per_node_day=0.001, recovery_s=60.0, write_per_node_bytes_per_s=5e9)
    met = operations_of(known, instance, stated=stated)
    assert met.failures_per_node_day == Estimate(
        value=0.001, low=0.001, high=0.001, kind=Kind.DERIVED
    )
    assert met.recovery_s.value == 60
    assert met.write_per_node_bytes_per_s.value == 5e9
    assert met.start_s.value == known.launch_s + known.compile_s


def test_compiling_is_paid_at_the_start_and_at_each_restart():
    known = load_reliability(CATALOG, "trainium1")
    compiling = Compiling(first=sure(600.0, 200.0, 2000.0), again=sure(45.0, 18.0, 240.0))
    met = operations_of(
        known, load_instance(CATALOG, "trn1.32xlarge"), stated=Stated(compiling=compiling), starts=2
    )
    # Two parts: twice 5 minutes and the first compilation; a failure: detected, launched, read.
    assert met.start_s.value == 2 * (300 + 600)
    assert met.start_s.high == 2 * (10 * MINUTE_S + 2000)
    assert met.recovery_s.value == 300 + 300 + 45
    assert met.recovery_s.low == 120 + 120 + 18
    assert met.launch_s == 345


@pytest.mark.parametrize(
    "wrong",
    [
        {"failures_per_node_day": -1.0},
        {"recovery_s": float("nan")},
        {"write_per_node_bytes_per_s": 0.0},
    ],
)
def test_impossible_statements_are_refused(wrong):
    with pytest.raises(InputError):
        Stated(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [{"work_s": 0.0}, {"nodes": 0}, {"checkpoint_bytes": 0.0}, {"interval_s": 0.0}],
)
def test_runs_of_nothing_are_refused(wrong):
    with pytest.raises(InputError):
        goodput(operations(), **{"work_s": 1.0, "nodes": 1, "checkpoint_bytes": 1.0, **wrong})


def test_many_runs_at_once_are_each_as_alone():
    met = operations_of(
        load_reliability(CATALOG, "trainium2"), load_instance(CATALOG, "trn2.48xlarge")
    )
    works = np.array([1.0, 30.0, 400.0, np.nan]) * DAY_S
    nodes = np.array([1.0, 64.0, 512.0])[:, None]
    together = goodput(met, work_s=works, nodes=nodes, checkpoint_bytes=1e12)
    for i, count in enumerate(nodes[:, 0]):
        for j, work in enumerate(works):
            alone = goodput(met, work_s=work, nodes=count, checkpoint_bytes=1e12)
            for name in ("wall_s", "low_wall_s", "high_wall_s", "failures", "seam_s"):
                whole = np.broadcast_to(getattr(together, name), (3, 4))
                np.testing.assert_equal(whole[i, j], float(getattr(alone, name)))
