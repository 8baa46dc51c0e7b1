"""Both engines over a sample of layouts: they agree, and could not if one of them were wrong."""

from __future__ import annotations

import functools

import pytest

from tests.agreement import (
    MACHINES,
    MODELS,
    NEARLY,
    NEARLY_ALL,
    Case,
    across_chips,
    apart,
    as_played,
    by,
    closed_form,
    disagreements,
    distribution,
    sample,
)
from tests.sampling import sampled
from trnbench.engines.analytic.collective.time import ClosedForm
from trnbench.engines.analytic.step import pipeline
from trnbench.engines.analytic.step.compute import PricedRank
from trnbench.engines.emulate.step import compute, exchanges, play
from trnbench.facts.records import replace

pytestmark = pytest.mark.xdist_group("two engines")
WRONG = 3
"""So many times too long is what an engine takes that is wrong."""


@functools.cache
def small() -> tuple[tuple[Case, ...], list, list]:
    """Return a sample of every model and machine, and both engines on it."""
    cases = sample(1, seed=1)
    return cases, by(closed_form, cases), by(as_played, cases)


@pytest.mark.slow
def test_engines_agree_on_a_sample_of_layouts_and_are_never_equal():
    cases, closed, played = small()
    assert len(cases) >= 3 * len(MODELS)
    assert disagreements(closed, played) == [], distribution(closed, played)
    assert apart(closed, played).min() > 1e-5


@pytest.mark.soak
def test_engines_agree_on_three_hundred_layouts():
    cases = sample(20, seed=2)
    assert len(cases) == 300
    assert sum(case.layout.pp > 1 for case in cases) >= 100
    assert sum(map(across_chips, cases)) >= 100
    closed, played = by(closed_form, cases), by(as_played, cases)
    print(distribution(closed, played))
    assert disagreements(closed, played) == []
    assert (apart(closed, played) <= NEARLY_ALL).mean() >= NEARLY


def slower(function):
    """Return a function whose seconds, or runs, are too long."""

    def wrong(*args, **kwargs):
        found = function(*args, **kwargs)
        if isinstance(found, dict):
            return {key: WRONG * value for key, value in found.items()}
        if hasattr(found, "times"):
            return found.times(WRONG)
        if hasattr(found, "time_s"):
            return replace(found, time_s=WRONG * found.time_s)
        return WRONG * found

    return wrong


def with_slower_messages(play_selected):
    def wrong(*args, **kwargs):
        choice, played = play_selected(*args, **kwargs)
        return choice, replace(played, time_s=WRONG * played.time_s)

    return wrong


def with_longer_bubble(play_schedule):
    def wrong(*args, **kwargs):
        played = play_schedule(*args, **kwargs)
        busiest_s = (played.compute_s + played.collectives_s).max(axis=-1)
        added_s = (WRONG - 1) * (played.pipeline_s - busiest_s)
        return replace(
            played, pipeline_s=played.pipeline_s + added_s, step_s=played.step_s + added_s
        )

    return wrong


CLOSED = {
    "matrix products": (PricedRank, "products", slower),
    "attention": (PricedRank, "attention", slower),
    "collectives": (ClosedForm, "time_s", slower),
    "bubble": (pipeline, "_bubble", slower),
}
PLAYED = {
    "matrix products": (compute, "run_matrix", slower),
    "attention": (compute, "attention_s", slower),
    "collectives": (exchanges, "play_selected", with_slower_messages),
    "bubble": (play, "play", with_longer_bubble),
}


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["closed form", "played"])
@pytest.mark.parametrize("what", sampled(CLOSED, ("collectives",)))
def test_an_engine_that_is_three_times_off_is_caught(what, engine, monkeypatch):
    # One layout of each model is enough to see it by.
    each = slice(None, None, len(MACHINES))
    cases, closed, played = small()
    cases, closed, played = cases[each], closed[each], played[each]
    where, name, wrong = (CLOSED if engine == "closed form" else PLAYED)[what]
    monkeypatch.setattr(where, name, wrong(getattr(where, name)))
    mutated = by(
        closed_form if engine == "closed form" else as_played,
        [case.afresh() for case in cases],
    )
    pair = (mutated, played) if engine == "closed form" else (closed, mutated)
    assert disagreements(closed, played) == []
    assert disagreements(*pair) != [], (what, engine)
