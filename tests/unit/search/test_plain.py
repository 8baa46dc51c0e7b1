"""The simplest layout near the fastest and the usual one, against all layouts one by one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.records import replace
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.predict.search import search as walk
from trnbench.predict.search.plain import NEARLY, PlainRanking
from trnbench.predict.search.question import question_of
from trnbench.predict.search.search import SearchHooks, search
from trnbench.predict.settled import with_habits
from trnbench.predict.setup import train_setup
from trnbench.program.points import Points

SAID = PartialLayout(global_batch=64, sequence=4096, sequence_parallel=True, zero=1)


def knobs(one: Any) -> int:
    """Number of knobs that a layout needs."""
    degrees = sum(getattr(one, name) > 1 for name in ("tp", "pp", "cp", "ep", "vpp"))
    return int(degrees + (one.recompute != "none") + (one.schedule == "zb-h1") + (one.zero > 1))


@pytest.fixture(scope="module")
def looked():
    """A cluster's result, and every layout that was priced with its time."""
    setup = train_setup(open_catalog(environment={}), "llama2-7b", "p4d.24xlarge", 4)
    layout, _ = with_habits(setup.model, setup.stack, SAID, setup.ranks)
    every: list[tuple[float, Layout]] = []

    def see(seen):
        every.extend((seen.step_time_s[n], seen.layout(n)) for n in range(len(seen)))

    asked = question_of(setup, layout, (4,), plainer=True)
    return search(asked, top=1, hooks=SearchHooks(watch=see)), every, asked


def test_no_simpler_layout_is_nearly_as_fast(looked):
    result, every, _ = looked
    cluster = result.by_nodes[4]
    best = cluster.best.step_time_s
    assert cluster.simplest.step_time_s <= NEARLY * best
    near = [one for time_s, one in every if time_s <= NEARLY * best]
    assert knobs(cluster.simplest.layout) == min(map(knobs, near))
    assert knobs(cluster.simplest.layout) < max(map(knobs, near))


def test_the_usual_layout_has_the_fewest_stages_that_fit(looked):
    result, every, _ = looked
    usual = result.by_nodes[4].usual.layout
    plain = [
        one for _, one in every if one.cp == one.vpp == 1 and one.schedule == "1f1b" and one.tp == 8
    ]
    repeats = not any(one.recompute != "full" for one in plain)
    fewest = min(one.pp for one in plain if repeats or one.recompute != "full")
    assert (usual.tp, usual.pp, usual.cp, usual.vpp) == (8, fewest, 1, 1)


def test_the_search_is_the_same_without_them(looked):
    result, _, asked = looked
    alone = search(replace(asked, plainer=False), top=1)
    assert alone.best == result.best
    assert alone.by_nodes[4].simplest is None
    assert result.preferring_simple.best == result.by_nodes[4].simplest


@pytest.mark.parametrize("model", ["llama2-7b", "mixtral-8x7b", "llama3.1-70b"])
@pytest.mark.parametrize("in_rows", [True, False])
def test_bounds_leave_out_none_of_them(model, in_rows, monkeypatch):
    monkeypatch.setattr(walk, "LARGE", 0 if in_rows else walk.LARGE)
    setup = train_setup(open_catalog(environment={}), model, "p5.48xlarge", 16)
    layout, _ = with_habits(setup.model, setup.stack, SAID, setup.ranks)
    asked = question_of(setup, layout.changed(zero=None, global_batch=256), (8, 16), plainer=True)
    every, best = search(asked, top=1), search(asked, top=1, best="of each")
    for nodes, cluster in every.by_nodes.items():
        found = best.by_nodes[nodes]
        assert tuple(found.ranked) == tuple(cluster.ranked)
        assert (found.simplest, found.usual) == (cluster.simplest, cluster.usual)
    assert best.tally.outpaced > best.tally.priced > 0


def test_layouts_nearly_as_fast_as_the_best_count_beside_those_asked_for():
    plain = dict.fromkeys(("tp", "pp", "cp", "ep", "vpp"), 1)
    whole: Any = SimpleNamespace(**plain, recompute="none", schedule="1f1b", zero=0)
    first = np.zeros(1, dtype=np.int64)
    ranking = PlainRanking(1)
    assert ranking.worst(np.array([2.0])) == np.inf
    points = Points(shape=(1,), index=(first,))
    run: Any = SimpleNamespace(whole=whole, schedule="1f1b")
    ranking.add(0, run, points, (first, np.array([10.0]), np.ones(1)))
    assert ranking.worst(np.array([10.0])) == pytest.approx(10.3)
    assert ranking.worst(np.array([11.0])) == 11
