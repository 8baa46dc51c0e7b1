"""Kept runs in the terminal UI: listed, shown, held together, and opened in their view."""

from __future__ import annotations

from typing import Any

import pytest

from trnbench.cli.main import main
from trnbench.tui.questions.evidence import (
    difference_text,
    kept_answer_text,
    kept_runs,
    opened_run,
    scenario_of_options,
)
from trnbench.tui.scenario_view import texts_of
from trnbench.tui.widgets.result_table import ResultTable

HOOKS: Any = None
"""None of these questions tells of its progress."""
TRAIN = ("train", "llama2-7b", "--on", "trn1.32xlarge:4", "--tp", "8", "-q")


@pytest.fixture
def kept(monkeypatch, tmp_path, capsys):
    """Three kept runs; returns their ids by tag."""
    monkeypatch.setenv("TRNBENCH_KEEP", "1")
    monkeypatch.setenv("TRNBENCH_RUNS", str(tmp_path / "runs.db"))
    assert main([*TRAIN, "--tag", "first"]) == 0
    assert main([*TRAIN, "--global-batch", "2048", "--tag", "second"]) == 0
    assert main(["matrix", "512x512x512", "--on", "trainium1", "-q", "--tag", "third"]) == 0
    capsys.readouterr()


@pytest.mark.slow
@pytest.mark.asyncio
async def test_runs_are_listed_held_together_and_opened(kept, made, silent, until, catalog):
    found = kept_runs(catalog, HOOKS)
    assert [row["tag"] for row in found.report.rows] == ["third", "second", "first"]
    app = made("runs")
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.view is not None and app.view.NAME == "runs")
        view = app.view
        view.answered("runs", found)
        await pilot.pause()
        table = view.query_one(ResultTable)
        assert len(table.shown.lines) == 3
        asked = []
        view.ask = lambda topic, question, *arguments: asked.append((topic, *arguments))
        table.focus()
        _, second, first = (str(row["id"]) for row in found.report.rows)
        await pilot.press("down", "space")
        assert [line.row["id"] for line in table.pinned] == [second]
        await pilot.press("down", "d")
        assert {*asked[-1][1]} == {second, table.row["id"]}
        view.answered("difference", difference_text(catalog, (first, second), HOOKS))
        await pilot.pause()
        assert view.picture == "difference"
        await pilot.press("enter")
        assert asked[-1] == ("open", table.row["id"])
        view.answered("open", opened_run(catalog, first, HOOKS))
        await until(pilot, lambda: app.current_mode == "layouts")
        assert app.cluster.job["nodes"] == "4"
        assert app.cluster.layout["tp"] == "8"


def test_an_answer_and_a_difference_are_told_as_on_the_command_line(kept, catalog):
    assert "trnbench train llama2-7b" in kept_answer_text(catalog, "first", HOOKS)
    told = difference_text(catalog, ("first", "second"), HOOKS)
    assert "--global-batch: not given -> 2048" in told
    assert "trnbench runs diff first second" in told


def test_what_a_comparison_asked_is_a_scenario_or_has_no_view():
    options = {
        **{"model": "llama2-7b", "tokens": "300B", "on": "trn1.32xlarge,p5.48xlarge"},
        **{"deadline": "60d", "price_date": "2026-11-21", "discount": "18%", "nodes": "4"},
        "price": ["p5.48xlarge=30"],
    }
    scenario = scenario_of_options(options)
    assert scenario is not None
    assert {key: text for key, text in texts_of(scenario).items() if text} == {
        **{"model": "llama2-7b", "tokens": "300B", "instances": "trn1.32xlarge, p5.48xlarge"},
        **{"deadline": "60d", "price_date": "2026-11-21", "discount": "18%", "nodes": "4"},
        "prices": "p5.48xlarge=30",
    }
    slower = {**options, "speed": ["p5.48xlarge=-10%"]}
    assert scenario_of_options(slower) == slower
    assert texts_of(slower)["speed"] == "p5.48xlarge=-10%"
    phases = {**options, "phase": ["90%@8k", "10%@64k,cp=8"]}
    assert scenario_of_options(phases) == phases
    assert texts_of(phases)["phases"] == "90%@8k; 10%@64k,cp=8"
    assert scenario_of_options({**options, "tp": "8"}) is not None
    for more in ({"nodes": "4,8"}, {"discount": "much"}):
        assert scenario_of_options({**options, **more}) is None
