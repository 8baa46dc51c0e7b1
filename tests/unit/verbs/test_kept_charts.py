"""Figures of a kept answer are drawn from its rows: bills, days, parts of steps, memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trnbench.facts.records import replace
from trnbench.show.charts.record import GREY, SENSITIVITY
from trnbench.store.runs import KeptAnswer
from trnbench.verbs.runs.charts import kept_charts

FILE = Path(__file__).parents[2] / "golden" / "compare.json"


@pytest.fixture
def answer():
    told = json.loads(FILE.read_text())
    return KeptAnswer(
        inputs=told["inputs"], rows=(*told["rows"],), summary=told["summary"], columns=()
    )


def test_a_kept_comparison_has_the_charts_of_its_rows(answer):
    charts: Any = kept_charts(answer)
    cost, days, step, memory = charts
    assert [one.title for one in (cost, days)] == ["cost to train", "days to train"]
    rows = sorted(answer.rows, key=lambda row: row["cost_usd"])
    for chart, key in ((cost, "cost_usd"), (days, "days")):
        spans = [(bar.estimate.low, bar.estimate.value, bar.estimate.high) for bar in chart.bars]
        for span, row in zip(spans, rows, strict=True):
            assert span == pytest.approx([row[f"low_{key}"], row[key], row[f"high_{key}"]])
        # The winner alone is in colour.
        assert [bar.hue == GREY for bar in chart.bars] == [not bar.strong for bar in chart.bars]
        winners = [bar.label for bar in chart.bars if bar.strong]
        best = answer.summary
        assert winners == [f"{best['recommended']}:{best['recommended_nodes']}"]
    # 60 days, the deadline; no bar of a bill has one.
    assert {bar.limit for bar in days.bars} == {60.0}
    assert {bar.limit for bar in cost.bars} == {None}
    for bar, row in zip(step.bars, answer.rows, strict=True):
        assert bar.total == pytest.approx(row["step_time_s"])
    for bar, row in zip(memory.bars, answer.rows, strict=True):
        assert bar.total == pytest.approx(row["memory_bytes"])
        assert bar.limit == row["memory_available_bytes"]


def test_a_kept_tornado_is_drawn_again_and_moved_plans_are_not(answer):
    move = {"moved": "price", "instance": "a", "now": "", "down": 0.8, "down_to": "b"}
    told = {"sensitivity": [{**move, "up": None, "up_to": None}]}
    kept = replace(answer, summary=told)
    (tornado,) = (one for one in kept_charts(kept) if one.title == SENSITIVITY)
    assert tornado.bars[0].text == "-20 %"
    plain = replace(answer, summary={"sensitivity": [{"moved": "price", "factor": 0.8}]})
    assert SENSITIVITY not in [one.title for one in kept_charts(plain)]


@pytest.mark.parametrize("rows", [(), ({"loss": 1.0},), ({"instance": "a", "nodes": 1},)])
def test_answers_without_clusters_or_figures_have_no_charts(answer, rows):
    assert kept_charts(replace(answer, rows=rows, summary={}, inputs={})) == ()
