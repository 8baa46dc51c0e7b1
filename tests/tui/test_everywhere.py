"""What works in every view: help, palette, jump, copy, pictures, scenarios, small terminals."""

from __future__ import annotations

from dataclasses import replace

import pytest
import pytest_asyncio
from textual import events
from textual.binding import Binding
from textual.command import CommandPalette
from textual.widgets import Input, Static

from trnbench.scenario import read_scenario
from trnbench.tui.app import VIEWS, TrnbenchApp, known_bindings
from trnbench.tui.dialogs import JumpScreen
from trnbench.tui.help import HelpScreen
from trnbench.tui.settings import config_path
from trnbench.tui.widgets.field import Form
from trnbench.tui.widgets.panels import ErrorPanel
from trnbench.tui.widgets.result_table import ResultTable

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def opened(made, silent, unplotted, until, canned):
    """The Compare view with rows."""
    app = made()
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.view is not None)
        await until(pilot, lambda: bool(app.view.query(ResultTable).first().source.keys))
        app.view.answered("compare", canned.found())
        await pilot.pause()
        yield app, pilot


async def test_help_lists_every_key_with_its_id(opened):
    app, pilot = opened
    await pilot.press("question_mark")
    assert isinstance(app.screen, HelpScreen)
    text = app.screen.text.plain
    bindings = list(known_bindings())
    assert len(bindings) > 40
    for binding in bindings:
        assert binding.id is not None
        assert binding.id in text
        assert (binding.tooltip or binding.description) in text
    await pilot.press("escape")
    assert app.view is app.screen


async def test_every_binding_has_an_id_of_its_own_and_a_description():
    seen: dict[str | None, Binding] = {}
    for binding in known_bindings():
        assert binding.description
        assert seen.setdefault(binding.id, binding) is binding
    for owner in (TrnbenchApp, ResultTable):
        assert all(isinstance(one, Binding) and one.id for one in owner.BINDINGS)


async def test_the_palette_groups_its_verbs(opened):
    app, pilot = opened
    titles = [command.title for command in app.get_system_commands(app.screen)]
    assert {title.partition(":")[0] for title in titles} == {
        *("view", "export", "copy", "scenario", "compute", "theme", "help", "app")
    }
    assert sum(title.startswith("view:") for title in titles) == len(VIEWS)
    await pilot.press("ctrl+p")
    assert isinstance(app.screen, CommandPalette)
    await pilot.press("escape")


async def test_letters_lead_to_places(opened):
    app, pilot = opened
    await pilot.press("a")
    assert isinstance(app.screen, JumpScreen)
    await pilot.press("b")
    await pilot.pause()
    assert app.focused is app.view.query_one(Form).fields["tokens"].query_one(Input)


async def test_visible_rows_are_written_in_their_order(opened, home):
    app, pilot = opened
    await pilot.press("right", "right", "s", "s")
    begins = {"csv": "instance,nodes,", "json": "{", "markdown": "| instance | nodes |"}
    for output_format, begin in begins.items():
        app.export_rows(app.view.report, "compare", output_format)
        (path,) = home.glob("trnbench-compare-*")
        text = path.read_text()
        assert text.startswith(begin)
        order = [text.index(row["instance"]) for row in app.view.report.rows]
        assert order == sorted(order)
        path.unlink()


async def test_a_picture_of_the_screen(opened, home):
    app, _ = opened
    app.export_svg()
    (path,) = home.glob("trnbench-compare-*.svg")
    assert path.read_text().startswith("<svg")


async def test_the_command_is_copied(opened):
    app, pilot = opened
    await pilot.press("y")
    assert app.clipboard.startswith("trnbench compare llama3.1-70b --tokens 2T --on trn1.32xlarge,")


async def test_scenarios_are_saved_and_loaded(opened, home, until):
    app, pilot = opened
    app.view.query_one(Form).put({"nodes": "64", "model": "llama3.1-8b"})
    for field in app.view.query_one(Form).fields.values():
        field.look()
    await pilot.press("w")
    await until(pilot, lambda: isinstance(app.focused, Input))
    await pilot.press("enter")
    saved = read_scenario(home / "scenario.toml")
    assert (saved.model, saved.nodes, saved.tokens) == ("llama3.1-8b", 64, 2e12)
    app.view.query_one(Form).put({"nodes": "8"})
    app.view.query_one(Form).fields["nodes"].look()
    await pilot.press("o")
    await until(pilot, lambda: isinstance(app.focused, Input))
    await pilot.press("enter")
    await until(pilot, lambda: app.view.query_one(Form).texts["nodes"] == "64")


async def test_a_broken_scenario_file_is_told(opened, home, until):
    app, pilot = opened
    (home / "scenario.toml").write_text('modell = "x"\n', encoding="utf-8")
    await pilot.press("o")
    await until(pilot, lambda: isinstance(app.focused, Input))
    await pilot.press("enter")
    await pilot.pause()
    assert any("did you mean 'model'" in note.message for note in app._notifications)


async def test_a_broken_configuration_is_told_and_left_alone(made, silent, until):
    path = config_path()
    path.parent.mkdir(parents=True)
    path.write_text('[keys]\n"table.srt" = "o"\n', encoding="utf-8")
    app = made()
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.view is not None)
        assert any("table.sort" in note.message for note in app._notifications)


@pytest.mark.slow
async def test_resizing_never_breaks_and_too_small_says_so(opened):
    app, pilot = opened
    for size in ((80, 24), (200, 60), (60, 16), (160, 50)):
        await pilot.resize_terminal(*size)
        await pilot.pause()
        assert not app.view.query_one(".too-small").display
        assert app.view.query(ResultTable).first().display
    await pilot.resize_terminal(59, 30)
    await pilot.pause()
    assert app.view.query_one(".too-small").display
    assert not app.view.query_one(".body").display
    await pilot.resize_terminal(120, 15)
    await pilot.pause()
    assert app.view.query_one(".too-small").display


async def test_a_narrow_terminal_shows_the_form_on_demand(opened):
    app, pilot = opened
    await pilot.resize_terminal(80, 24)
    await pilot.pause()
    assert not app.view.query_one(".side").display
    await pilot.press("f")
    await pilot.pause()
    assert app.view.query_one(".side").display
    assert isinstance(app.focused, Input)
    await pilot.press("escape")
    await pilot.pause()
    assert app.view.query_one(".main").display
    assert isinstance(app.focused, ResultTable)


async def test_pictures_are_drawn_without_colour(made, silent, until, canned, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    app = made()
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.view is not None)
        app.view.answered("compare", canned.found())
        chart = app.view.query_one("#compare-cost")
        await until(pilot, lambda: bool(chart.query("PlotWidget")))
        await pilot.press(*"cccccc")
        styles = [
            segment.style
            for strip in app.screen._compositor.render_strips()
            for segment in app_filtered(app, strip)
        ]
    colours = [style.color for style in styles if style is not None and style.color is not None]
    assert colours
    assert all(len(set(colour.get_truecolor())) == 1 for colour in colours)


def app_filtered(app, strip):
    for line_filter in app.get_line_filters():
        strip = strip.apply_filter(line_filter, app.screen.background_colors[1])
    return strip


@pytest.mark.slow
async def test_pictures_are_drawn_in_every_kind_of_theme(made, silent, until, canned):
    app = made()
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.view is not None)
        app.view.answered("compare", canned.found())
        chart = app.view.query_one("#compare-cost")
        await until(pilot, lambda: bool(chart.query("PlotWidget")))
        for theme in ("ansi-dark", "ansi-light"):
            app.theme = theme
            await pilot.press(*"cccccc")
            assert app.theme == theme


async def test_leaving_a_running_suite_asks_first(made, silent, until, monkeypatch):
    app = made("run")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.view is not None)
        monkeypatch.setattr(
            "trnbench.tui.views.run.RunView.unfinished", property(lambda view: "matrix is running")
        )
        await pilot.press("q", "n")
        assert app.view is app.screen
        await pilot.press("q", "y")
    assert app._exit


async def test_keys_that_come_together_are_taken_in_their_order(opened):
    app, pilot = opened
    await pilot.press("f")
    for key in ("tab", "end", "backspace", "z", "z", "tab", "4", "2", "backspace"):
        app.post_message(events.Key(key, key if len(key) == 1 else None))
    await pilot.pause()
    fields = app.view.query_one(Form).fields
    assert (fields["model"].text, fields["tokens"].text) == ("llama3.1-70b", "2zz")
    assert fields["sequence"].text == "4"


async def test_the_command_names_the_baseline(opened):
    app, pilot = opened
    await pilot.press("down", "b", "y")
    assert app.clipboard.endswith(" --baseline trn1n.32xlarge")


async def test_the_status_line_tells_calibrations_and_the_weakest_evidence_apart(opened, canned):
    app, _ = opened
    found = canned.found()
    rows = [
        {**row, "basis": basis}
        for row, basis in zip(found.report.rows, ("measured", *4 * ["transferred"]), strict=True)
    ]
    app.view.answered("compare", replace(found, report=replace(found.report, rows=tuple(rows))))
    assert app.view.facts()[:4] == (
        "modelled",
        "USD, prices of 2026-11-21",
        "calibration: measured, transferred",
        "weakest evidence: assumed",
    )


async def test_a_small_terminal_hides_errors_and_a_narrow_one_tells_of_bad_texts(opened):
    app, pilot = opened
    panel = app.view.query_one(ErrorPanel)
    panel.say("this went wrong")
    await pilot.resize_terminal(59, 15)
    await pilot.pause()
    assert not panel.display
    await pilot.resize_terminal(80, 24)
    await pilot.pause()
    assert panel.display
    await pilot.press("f", *"zz", "escape")
    assert any("llama3.1-70b still counts" in note.message for note in app._notifications)


async def test_notes_are_broken_into_lines_and_so_is_the_count(opened, canned):
    app, pilot = opened
    await pilot.resize_terminal(80, 24)
    found = canned.found()
    rows = tuple({**row, "notes": ("word " * 40,)} for row in found.report.rows)
    summary = {"footing": "on the fewest nodes, of powers of two up to 512, that finish in time"}
    report = replace(found.report, rows=rows, summary=summary)
    app.view.answered("compare", replace(found, report=report))
    await pilot.press("C")
    await pilot.pause()
    why = app.view.query_one("#compare-why")
    assert why.query_one(Static).size.width <= why.size.width
    assert why.query_one(Static).size.height > len(why.text.splitlines())
    assert app.view.query_one(".count").size.height == 2


async def test_ctrl_c_says_how_to_leave(opened):
    app, pilot = opened
    await pilot.press("ctrl+c")
    assert any("ctrl+q leaves" in note.message for note in app._notifications)
    assert not app._exit
