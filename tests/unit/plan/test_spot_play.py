"""Runs on spot machines as they are played: against closed forms, and what each number does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trnbench.facts.records import replace
from trnbench.facts.units import DAY_S
from trnbench.money.goodput import until_done_s
from trnbench.money.spot_play import SpotRun, play

COUNT = 4000


def run(**changed):
    each = {
        "work_s": 10 * DAY_S,
        "failures_per_node_day": 0.0,
        "reclaims_per_node_day": 0.0,
        "zone_losses_per_day": 0.0,
    }
    numbers = {
        "nodes": 16,
        "spot_nodes": 16,
        "wait_s": 1800.0,
        "zone_wait_s": 7200.0,
        "notice_s": 120.0,
        "recovery_s": 600.0,
        "launch_s": 300.0,
        "start_s": 900.0,
        "interval_s": 3600.0,
        "dump_s": 60.0,
        "write_s": 300.0,
    }
    drawn = {key: np.full(COUNT, changed.pop(key, value)) for key, value in each.items()}
    given: dict[str, Any] = {**numbers, **drawn, **changed}
    return SpotRun(**given)


def test_without_interruptions_it_takes_its_work_and_its_checkpoints():
    played = play(run(), name="a")
    expected = 900 + 10 * DAY_S * (3660 / 3600)
    assert played.elapsed_s == pytest.approx(expected)
    assert played.spot_s == pytest.approx(expected)
    assert played.reclaims.sum() == 0


def test_failures_alone_take_what_the_closed_form_says():
    rate = 0.02
    played = play(run(failures_per_node_day=rate, work_s=40 * DAY_S), name="a")
    per_s = 16 * rate / DAY_S
    segments = 40 * DAY_S / 3600
    done = segments * until_done_s(3660, per_s)
    # A stop that does not fail again: 900 s each.
    expected = 900 + done * (1 + per_s * 900)
    assert played.elapsed_s.mean() == pytest.approx(expected, rel=5e-3)


def test_a_zone_that_goes_whole_stops_a_run_once_for_all_its_machines():
    alone = play(run(reclaims_per_node_day=0.05), name="a")
    whole = play(run(zone_losses_per_day=0.05), name="a")
    assert alone.reclaims.mean() == pytest.approx(16 * 0.05 * 10, rel=0.1)
    assert whole.reclaims.mean() == pytest.approx(0.05 * 10, rel=0.15)
    assert whole.zones.mean() == whole.reclaims.mean()
    assert alone.zones.sum() == 0


def test_machines_that_are_gone_are_not_paid_for_and_their_base_is():
    played = play(run(zone_losses_per_day=0.2), name="a")
    unpaid = played.base_s - played.spot_s
    assert unpaid.mean() == pytest.approx(7200 * played.zones.mean(), rel=0.1)
    assert (played.base_s == played.elapsed_s).all()


def test_a_zone_that_is_there_half_the_time_doubles_the_days():
    # Away for 2 h at a time and there for 2 h between: 12 losses a day of running. Notice is long
    # enough to save, and starting again takes nothing.
    free = {"notice_s": 600.0, "launch_s": 0.0, "write_s": 0.0, "dump_s": 0.0, "start_s": 0.0}
    played = play(run(zone_losses_per_day=12.0, **free), name="a")
    assert played.elapsed_s.mean() == pytest.approx(2 * 10 * DAY_S, rel=0.01)
    assert played.spot_s.mean() == pytest.approx(10 * DAY_S, rel=0.01)


def test_notice_long_enough_to_save_loses_no_work():
    short = run(reclaims_per_node_day=0.1)
    saved = play(replace(short, notice_s=600.0), name="a")
    lost = play(short, name="a")
    per_stop = (lost.elapsed_s.mean() - saved.elapsed_s.mean()) / lost.reclaims.mean()
    assert per_stop == pytest.approx(3660 / 2, rel=0.15)


def test_a_base_of_other_machines_is_taken_back_less_often():
    mixed = play(run(reclaims_per_node_day=0.05, spot_nodes=4), name="a")
    assert mixed.reclaims.mean() == pytest.approx(4 * 0.05 * 10, rel=0.15)
    none = play(run(reclaims_per_node_day=0.05, spot_nodes=0, zone_losses_per_day=1.0), name="a")
    assert none.reclaims.sum() == 0


def test_the_same_name_and_seed_play_the_same():
    asked = run(reclaims_per_node_day=0.05, zone_losses_per_day=0.5)
    first, again = play(asked, name="a"), play(asked, name="a")
    assert (first.elapsed_s == again.elapsed_s).all()
    assert (first.elapsed_s != play(asked, name="a", seed=1).elapsed_s).any()


def test_a_run_that_stops_all_the_time_never_ends(monkeypatch):
    from trnbench.money import spot_play

    monkeypatch.setattr(spot_play, "MOST_EVENTS", 50)
    played = play(run(failures_per_node_day=5000.0), name="a")
    assert np.isinf(played.elapsed_s).all()
