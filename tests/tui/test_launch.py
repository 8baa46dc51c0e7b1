"""Rows that are launched from the terminal UI: what is shown, what is written, what is refused."""

from __future__ import annotations

import shlex
from zipfile import ZipFile

import pytest
from textual.widgets import Input, OptionList

from trnbench.cli.main import main
from trnbench.errors import TrnbenchError
from trnbench.facts.records import replace
from trnbench.tui.asking import Asking
from trnbench.tui.launch_screen import ChoiceLine, LaunchScreen
from trnbench.tui.widgets.panels import ErrorPanel, TextPanel
from trnbench.tui.widgets.result_table import ResultTable
from trnbench.tui.work_process import TableFound, WorkHooks, WorkRefusal

pytestmark = [pytest.mark.asyncio, pytest.mark.xdist_group("tui_launch")]
LAYOUT = {"tp": 4, "pp": 1, "dp": 1024, "zero": 3, "recompute": "full"}
HOOKS = WorkHooks(lambda progress: None, lambda: None)


@pytest.fixture
def at_once(silent, unplotted, monkeypatch, catalog):
    """The launch screen's questions, answered where they are asked."""

    def ask(self, topic, question, *arguments):
        try:
            self.answered(topic, question(catalog, *arguments, HOOKS))
        except TrnbenchError as error:
            self.refused(topic, WorkRefusal(error.message, error.hint).message, error.hint or "")

    monkeypatch.setattr(Asking, "ask", ask)


def launched(app):
    assert isinstance(app.screen, LaunchScreen)
    names = app.screen.query_one(OptionList)
    return [names.get_option_at_index(i).id for i in range(names.option_count)]


@pytest.mark.slow
async def test_files_of_a_row_are_shown_written_and_come_again_from_the_copied_command(
    made, at_once, canned, until, home, monkeypatch
):
    app = made()
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: bool(app.view.query(ResultTable).first().source.keys))
        found = canned.found()
        row = {**found.report.rows[2], **LAYOUT}
        report = replace(found.report, rows=(row,))
        one = replace(found, report=report, answers=found.answers[2:3], winner=0)
        app.view.answered("compare", one)
        await pilot.pause()
        await pilot.press("L")
        await until(pilot, lambda: isinstance(app.screen, LaunchScreen) and launched(app))
        assert "job.sbatch" in launched(app)
        shown = app.screen.query_one(TextPanel)
        await until(pilot, lambda: shown.text.startswith("# Meta Llama 3.1 70B on 64 x trn2"))
        await pilot.press("s")
        await until(pilot, lambda: "cluster.yaml" in launched(app))
        assert not list(home.glob("launch*"))
        await pilot.press("w")
        await until(pilot, lambda: isinstance(app.focused, Input))
        await pilot.press("enter")
        folder = home / "launch-llama3.1-70b-64xtrn2.48xlarge"
        await until(pilot, lambda: folder.is_dir())
        names = launched(app)
        written = {path.name: path.read_bytes() for path in folder.iterdir()}
        assert set(written) == set(names)
        await pilot.press("end")
        await until(pilot, lambda: shown.text.strip() == written[names[-1]].decode().strip())
        await pilot.press("y")
        # What has files is not written over.
        (folder / "job.sbatch").write_text("mine")
        await pilot.press("w")
        await until(pilot, lambda: isinstance(app.focused, Input))
        await pilot.press("enter")
        panel = app.screen.query_one(ErrorPanel)
        await until(pilot, lambda: "has files" in panel.text)
        assert (folder / "job.sbatch").read_text() == "mine"
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.view)
    words = shlex.split(app.clipboard)
    assert words[:2] == ["trnbench", "launch"]
    assert words[-2:] == ["-o", folder.name]
    assert main([*words[1:-1], str(home / "again"), "--quiet"]) == 0
    again = {path.name: path.read_bytes() for path in (home / "again").iterdir()}
    assert again == written


async def test_rows_that_cannot_run_are_not_launched(made, at_once, canned, until):
    app = made()
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: bool(app.view.query(ResultTable).first().source.keys))
        await pilot.press("L")
        assert app.screen is app.view
        app.view.answered("compare", canned.found())
        await pilot.pause()
        await pilot.press("G", "L")
        await pilot.pause()
        assert app.view.table.row["days"] is None
        assert app.screen is app.view


async def test_why_nothing_would_be_written_is_said(made, at_once, canned, until, catalog):
    app = made()
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.view is not None)
        row = canned.compare_row("trn2.48xlarge", 64, 45.0, 2.47e6, job="dpo")
        app.push_screen(LaunchScreen(row, app.folder))
        await until(pilot, lambda: isinstance(app.screen, LaunchScreen))
        line = app.screen.query(ChoiceLine).first()
        await until(pilot, lambda: bool(line.chosen))
        panel = app.screen.query_one(TextPanel)
        await until(pilot, lambda: "nothing would be written" in panel.text)
        assert not launched(app)


@pytest.mark.parametrize(("view", "by"), [("layouts", "key"), ("plan", "palette")])
async def test_rows_of_other_views_are_launched_and_a_browser_gets_an_archive(
    made, at_once, canned, until, monkeypatch, view, by
):
    app = made(view)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.current_mode == view and app.view is not None)
        row = {**canned.compare_row("trn2.48xlarge", 64, 45.0, 2.47e6), **LAYOUT}
        found = replace(canned.found().report, rows=(row,))
        app.view.show_table(TableFound(report=found), "instance")
        await pilot.pause()
        if by == "key":
            await pilot.press("L")
        else:
            offered = {one.title: one.callback for one in app.get_system_commands(app.view)}
            await offered["do: Launch"]()
            await until(pilot, lambda: bool(app.screen.query(OptionList)))
        await until(pilot, lambda: isinstance(app.screen, LaunchScreen) and launched(app))
        sent = {}
        monkeypatch.setattr(type(app), "is_web", True)
        monkeypatch.setattr(
            app, "deliver_binary", lambda data, save_filename: sent.update({save_filename: data})
        )
        await pilot.press("w")
        (name,) = sent
        assert name == "launch-llama3.1-70b-64xtrn2.48xlarge.zip"
        with ZipFile(sent[name]) as archive:
            assert sorted(archive.namelist()) == sorted(launched(app))
            assert b"64" in archive.read("job.sbatch")
    assert not list(app.folder.glob("launch*"))


async def test_the_best_pilot_is_launched_without_a_scheduler_if_there_is_one(
    made, at_once, canned, until
):
    app = made("plan")
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.current_mode == "plan" and app.view is not None)
        await pilot.press("P")
        assert app.screen is app.view
        app.view.pilot = {
            **canned.compare_row("trn2.48xlarge", 2, 45.0, 2.47e6),
            **LAYOUT,
            "dp": 32,
        }
        offered = {one.title: one.callback for one in app.get_system_commands(app.view)}
        await offered["do: Pilot"]()
        await until(pilot, lambda: bool(app.screen.query(OptionList)))
        await until(pilot, lambda: isinstance(app.screen, LaunchScreen) and launched(app))
        assert app.screen.query(ChoiceLine).last().chosen == "torchrun"
        await pilot.press("w")
        await until(pilot, lambda: bool(app.screen.query(Input)))
        assert app.screen.query_one(Input).value == "pilot-llama3.1-70b-2xtrn2.48xlarge"


async def test_views_without_a_job_offer_no_launch(made, silent, unplotted, until):
    app = made("matrix")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.view is not None)
        offered = [one.title for one in app.get_system_commands(app.view)]
        assert not [title for title in offered if title.startswith("launch")]
        await pilot.press("L")
        assert app.screen is app.view
