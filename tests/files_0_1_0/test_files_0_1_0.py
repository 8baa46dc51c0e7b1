"""Files that version 0.1.0 wrote or read still load, and give the answers they gave then.

`answers.json` holds a few figures of each; `make snapshots` rewrites it where a model of time or
memory was changed on purpose. The files themselves are never rewritten.
"""

from __future__ import annotations

import datetime
import json
import os
import shlex
from pathlib import Path

import pytest

from trnbench.calibration.training_stack import load_training_stack
from trnbench.catalog.search import open_catalog
from trnbench.cli.main import main
from trnbench.scenario import read_scenario, scenario_text
from trnbench.tui.app import TrnbenchApp
from trnbench.tui.settings import config_path, state_path
from trnbench.tui.widgets.field import Form

HERE = Path(__file__).parent
ANSWERS = HERE / "answers.json"
SPECS = HERE / "specs"
SCENARIO = (
    *("compare", "llama2-7b", "--tokens", "300B", "--on", "trn1.32xlarge,p5.48xlarge"),
    *("--sequence", "4096", "--global-batch", "1024", "--deadline", "60d"),
    *("--region", "us-east-1", "--discount", "18%", "--price-date", "2026-11-21"),
)
STEP = ("--sequence", "4096", "--tp", "8", "--global-batch", "256")
COMMANDS = {
    "a matrix suite": ("matrix", "--suite", "old-matrix"),
    "a collective suite": ("collective", "--suite", "old-collective"),
    "a training suite": ("train", "--suite", "old-training"),
    "a calibration of chip and stack": ("train", "llama3.1-8b", "--on", "trn1.32xlarge:2", *STEP),
    "an imported model": ("train", "old-model", "--on", "trn2.48xlarge:4", *STEP),
    "a scenario": SCENARIO,
}
FIGURES = (
    *("time_s", "step_time_s", "low_step_time_s", "high_step_time_s", "memory_bytes"),
    *("days", "cost_usd"),
)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    for name in ("DATA", "CONFIG", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    monkeypatch.delenv("TRNBENCH_SPEC_PATH", raising=False)


@pytest.mark.parametrize("what", COMMANDS)
def test_it_gives_the_answers_it_gave(what, capfdbinary):
    code = main([*COMMANDS[what], "--spec-dir", str(SPECS), "--json"])
    rows = json.loads(capfdbinary.readouterr().out)["rows"]
    found = [{key: row[key] for key in FIGURES if row.get(key) is not None} for row in rows]
    assert found
    answers = json.loads(ANSWERS.read_text()) if ANSWERS.exists() else {}
    if os.environ.get("TRNBENCH_UPDATE_GOLDEN"):
        answers[what] = {"code": code, "rows": found}
        ANSWERS.write_text(json.dumps(answers, indent=1) + "\n")
    assert code == answers[what]["code"]
    assert len(found) == len(answers[what]["rows"])
    for row, before in zip(found, answers[what]["rows"], strict=True):
        assert row == pytest.approx(before, rel=1e-9)


@pytest.mark.parametrize("path", sorted(SPECS.glob("*/*.toml")), ids=lambda path: path.stem)
def test_it_has_no_faults(path, capfdbinary):
    verb = "spec" if path.parent.name == "calibration" else "workload"
    assert main([verb, "validate", str(path), "--spec-dir", str(SPECS)]) == 0, capfdbinary


def test_correlations_written_as_text_are_read():
    correlated = load_training_stack(open_catalog([SPECS]), "nxd-trn1").correlated
    assert correlated["kernels.attention_forward_share", "factor"] == 0.69
    assert correlated["overlaps.tensor", 'releases."2.24"'] == 0.24
    assert len(correlated) == 8


def test_a_scenario_is_read_whole(tmp_path):
    scenario = read_scenario(HERE / "scenario.toml")
    assert scenario.deadline_s == 60 * 24 * 3600
    assert (scenario.tokens, scenario.discount) == (3e11, 0.18)
    again = tmp_path / "again.toml"
    again.write_text(scenario_text(scenario), encoding="utf-8")
    assert read_scenario(again) == scenario


@pytest.mark.slow
@pytest.mark.asyncio
async def test_the_terminal_ui_opens_as_it_was_left(monkeypatch):
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    monkeypatch.setattr("trnbench.tui.view.View.ask", lambda self, topic, *question: None)
    monkeypatch.setattr("trnbench.tui.view.View.warm", lambda self, topic, *modules: None)
    for path, of in ((config_path(), "tui_config.toml"), (state_path(), "tui_state.toml")):
        path.parent.mkdir(parents=True)
        path.write_bytes((HERE / of).read_bytes())
    app = TrnbenchApp(open_catalog(), folder=HERE, today=datetime.date(2026, 11, 21))
    async with app.run_test(size=(160, 50)) as pilot:
        while app.view is None or not app.view.query(Form):
            await pilot.pause()
        texts = app.view.query_one(Form).texts
        assert (texts["model"], texts["instance"], texts["nodes"]) == (
            *("llama2-7b", "trn1.32xlarge", "4"),
        )
        await pilot.press("y")
        copied = shlex.split(app.clipboard)
        for pair in (("--tp", "8"), ("--pp", "4"), ("--zero", "1"), ("--recompute", "full")):
            assert copied[copied.index(pair[0]) + 1] == pair[1]
        assert app.theme == "nord"
        await pilot.press("f1")
        assert type(app.screen).__name__ == "HelpScreen"
        await pilot.press("escape", "1")
        while app.view is None or "deadline" not in app.view.query_one(Form).texts:
            await pilot.pause()
        app.take_scenario(read_scenario(HERE / "scenario.toml"))
        await pilot.pause()
        await pilot.press("y")
        assert sorted(shlex.split(app.clipboard)[1:]) == sorted(SCENARIO)
