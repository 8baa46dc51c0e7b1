"""The application by keyboard alone, with real answers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from textual.widgets import Input

from trnbench.tui.settings import config_path, read_state, state_path
from trnbench.tui.view import View
from trnbench.tui.widgets.bars import StackedBars
from trnbench.tui.widgets.chart import Chart
from trnbench.tui.widgets.field import Form
from trnbench.tui.widgets.panels import ErrorPanel, PictureSwitch, TextPanel
from trnbench.tui.widgets.result_table import ResultTable
from trnbench.tui.widgets.table_pane import TablePane

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

SMALL = {
    "compare": {
        "model": "llama2-7b",
        "tokens": "10B",
        "nodes": "4",
        "instances": "trn1.32xlarge, p5.48xlarge",
    },
    "layouts": {
        "model": "llama2-7b",
        "instance": "trn1.32xlarge",
        "nodes": "2",
        "global_batch": "64",
        "sequence": "4096",
    },
}


@pytest.fixture
def small(home):
    """A session before this one left jobs that are planned at once."""
    lines = []
    for view, texts in SMALL.items():
        lines += [f"[{view}]", *(f'{key} = "{text}"' for key, text in texts.items())]
    path = state_path()
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture
def no_charts(monkeypatch):
    """Clusters of other sizes, which only charts show, are not searched."""
    ask = View.ask
    monkeypatch.setattr(
        View, "ask", lambda view, topic, *what: topic == "charts" or ask(view, topic, *what)
    )


def table(app):
    return app.view.query(ResultTable).first()


def planned(app):
    return lambda: any(row.get("days") for row in table(app).source.report.rows)


def filled(app):
    return lambda: app.view is not None and bool(table(app).source.keys)


async def test_comparing_with_real_answers(made, small, no_charts, until):
    app = made()
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, planned(app))
        shown = table(app)
        before, lines = shown.report.rows, shown.shown.lines
        rows = rows_of(app.view.command())
        assert [row["instance"] for row in rows] == ["trn1.32xlarge", "p5.48xlarge"]
        assert json.loads(json.dumps(before)) == rows
        for row, line in zip(rows, lines, strict=True):
            assert line.cells[0] == row["instance"]
            days = line.cells[2].removeprefix("*").partition("(")[0]
            assert float(days) == pytest.approx(row["days"], rel=5e-3)

        # A bad text says why, and the last good answer stays.
        await pilot.press("f", "tab", "tab", "end", "backspace", *"zz", "enter")
        field = app.view.query_one(Form).fields["tokens"]
        assert "10zz" in field.reason
        assert field.good_text == "10B"
        assert shown.report.rows == before
        # ... marked as not of what is typed.
        assert shown.stale
        assert "tokens cannot be used" in app.view.query_one(TablePane).told

        # A worker that dies leaves the application alive.
        lane = app.view.lane("compare")
        await until(pilot, lambda: lane.process_id is not None)
        os.kill(lane.process_id, signal.SIGKILL)
        panel = app.view.query_one(ErrorPanel)
        await until(pilot, lambda: panel.display)
        assert "died" in panel.text

        # A good text marks what is shown as stale until it is planned anew.
        await pilot.press("backspace", "backspace", *"0B", "enter")
        assert field.reason == ""
        assert shown.stale
        await until(pilot, lambda: not shown.stale)
        assert shown.report.rows[0]["tokens"] == 1e11
        assert not panel.display


def rows_of(command):
    """Return the rows that a command line prints."""
    arguments = [sys.executable, "-m", *command.split(), "--json"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    return json.loads(done.stdout)["rows"]


@pytest.mark.soak
async def test_every_picture_of_the_comparison(made, silent, until, canned):
    app = made()
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, filled(app))
        app.view.answered("compare", canned.found())
        switch = app.view.query_one(PictureSwitch)
        seen = []
        for _ in range(8):
            seen.append(switch.shown)
            await pilot.press("c")
        assert seen[:5] == ["cost", "days", "cost/time", "step time", "memory"]
        assert seen[5:] == ["speed", "difference", "why"]
        # The cursor begins at the winner.
        await pilot.press("up", "up", "up", "space", "down", "down", "space")
        switch.turn_to("difference")
        await pilot.pause()
        told = app.view.query_one("#picture-difference", TextPanel).text
        assert told.startswith("A: trn1.32xlarge:256\nB: trn2.48xlarge:64\n")
        await pilot.press("space", "up", "space")
        switch.turn_to("step time")
        await pilot.press("up", "up", "down")
        await pilot.pause()
        bars = app.view.query_one("#picture-step-time", StackedBars).data
        # The row without a plan has no step time, so no bar.
        assert [bar.strong for bar in bars.bars] == [False, True, False, False]
        assert bars.bars[1].total == pytest.approx(table(app).row["step_time_s"])


@pytest.mark.soak
async def test_sort_filter_pin_and_baseline(made, silent, unplotted, until, canned):
    app = made()
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, filled(app))
        app.view.answered("compare", canned.found())
        shown = table(app)
        await pilot.press("right", "right", "s", "s")
        days = [row["days"] for row in shown.report.rows]
        assert days == [48.0, 46.0, 45.0, 43.5, None]
        assert shown.shown.headings[2].startswith("days \u2193")
        key = shown.key
        await pilot.press("b", "space")
        assert shown.state.baseline == key
        assert shown.state.pinned == {key}
        await pilot.press("slash", *"p5")
        assert [row["instance"] for row in shown.report.rows] == ["p5.48xlarge"]
        await pilot.press("escape")
        assert app.focused is shown


async def test_layouts_by_hand_and_their_schedule(made, small, until):
    app = made("layouts")
    async with app.run_test(size=(140, 45)) as pilot:
        await until(pilot, filled(app))
        assert table(app).report.rows[0]["rank"] == 1
        await pilot.press("E")
        verdict = app.view.query_one(".verdict")
        await until(pilot, lambda: "by hand" in str(verdict.content))
        assert "fits" in str(verdict.content)
        tp = app.view.query_one("#layouts-hand", Form).fields["tp"].query_one(Input)
        tp.value = ""
        await pilot.press(*"3", "enter")
        await until(pilot, lambda: "NO:" in str(verdict.content))
        assert "32 heads" in str(verdict.content)
        tp.value = str(table(app).row["tp"])
        await pilot.press("enter", "escape", "d")
        await until(pilot, lambda: app.view.NAME == "schedule")
        chart = app.view.query_one("#picture-gantt", TextPanel)
        await until(pilot, lambda: "stage 0" in chart.text)
        whole = chart.text
        assert "forward" in whole
        await pilot.press("plus", "plus")
        await until(pilot, lambda: chart.text != whole)
        title = app.view.query_one(".verdict")
        assert "drawn:" in str(title.content)
        await pilot.press("n")
        await until(pilot, lambda: "links" in chart.text)


@pytest.mark.soak
async def test_a_plan_and_the_memory_of_its_cluster(made, small, until):
    app = made("plan")
    app.scenario = {**SMALL["compare"], "instances": "trn1.32xlarge", "nodes": ""}
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: filled(app)() and "$" in shown_verdict(app))
        rows = rows_of(app.view.command())
        assert json.loads(json.dumps(table(app).source.report.rows)) == rows
        assert table(app).row["chosen_plan"]
        panels = {}
        for name in ("purchase", "what if", "break-even", "needs", "in words"):
            await pilot.press("c")
            panel = app.view.query_one(f"#picture-{name.replace(' ', '-')}", TextPanel)
            panels[name] = panel.text
        assert "failures expected" in panels["purchase"]
        assert "price x 0.8" in panels["what if"]
        assert panels["break-even"] == "none for this plan"  # of a single type
        assert "Quotas to request" in panels["needs"]
        assert panels["in words"].startswith("1 x trn1.32xlarge takes ")
        await pilot.press("enter")
        await until(pilot, lambda: app.view.NAME == "layouts")
        await pilot.press("tab")
        await until(pilot, lambda: app.view.NAME == "memory" and filled(app)())
        assert app.view.command().endswith(" --memory")
        assert table(app).row["peak"]
        area = app.view.query_one("#picture-timeline", TextPanel)
        await until(pilot, lambda: "weights" in area.text)
        assert "a rank of" in str(app.view.query_one(".verdict").content)


def shown_verdict(app):
    return str(app.view.query_one(".verdict").content)


@pytest.mark.soak
async def test_matrix_products(made, until):
    app = made("matrix")
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, filled(app))
        assert {row["chip"] for row in table(app).report.rows} == {"trainium1", "trainium2"}
        assert any(series.joined for series in app.view.query_one(Chart).data.series)
        await pilot.press("c")
        heat = app.view.query_one(TextPanel)
        await until(pilot, lambda: "trainium2 bf16" in heat.text)
        await pilot.press("c")
        engines = app.view.query_one(StackedBars)
        await until(pilot, lambda: engines.data is not None)
        assert "tensor" in [bar.label for bar in engines.data.bars]


@pytest.mark.soak
async def test_collectives_round_by_round(made, until):
    app = made("collective")
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, filled(app))
        await pilot.press("slash", *"ultraserver", "enter", "end", "c")
        links = app.view.query_one(TextPanel)
        await until(pilot, lambda: "busiest links" in links.text)
        assert "all " in links.text
        assert links.text.count("to other planes") == 4
        whole = links.text
        await pilot.press("n")
        await until(pilot, lambda: links.text != whole)
        assert "round 1 of" in links.text


@pytest.mark.soak
async def test_evidence_and_claims(made, until):
    app = made("evidence")
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("n", "n", "n")
        await until(pilot, filled(app))
        assert app.view.command() == "trnbench validate --set kernels"
        assert any(row["error"] is not None for row in table(app).report.rows)
        await pilot.press("c")
        assert "largest" in app.view.query_one("#picture-errors", TextPanel).text


async def test_leaving_keeps_the_state_for_the_next_start(made, silent, unplotted, until):
    app = made("matrix")
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.view is not None)
        await pilot.press("f", *"\b")
        app.view.query_one(Form).put({"chips": "trainium3"})
        await pilot.press("escape", "q")
    kept = read_state(state_path())
    assert kept.view == "matrix"
    assert kept.texts["matrix"]["chips"] == "trainium3"
    again = made(None)
    async with again.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: again.view is not None)
        await until(pilot, lambda: again.view.query_one(Form).texts["chips"] == "trainium3")


async def test_keys_are_given_to_other_keys_by_id(made, silent, unplotted, until):
    path = config_path()
    path.parent.mkdir(parents=True)
    path.write_text('[keys]\n"app.help" = "f9"\n', encoding="utf-8")
    app = made()
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.view is not None)
        await pilot.press("f9")
        assert type(app.screen).__name__ == "HelpScreen"
