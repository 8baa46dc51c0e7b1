"""What works in every view: help, palette, jump, copy, pictures, scenarios, small terminals."""

from __future__ import annotations

import pytest
import pytest_asyncio
from textual import events
from textual.app import App
from textual.binding import Binding
from textual.geometry import Size
from textual.screen import Screen
from textual.widgets import Input, OptionList, Static

from trnbench.facts.records import replace
from trnbench.show.report import Report, columns
from trnbench.show.row import Row
from trnbench.tui.app import TrnbenchApp, known_bindings
from trnbench.tui.dialogs import AskPath, Confirm, JumpScreen
from trnbench.tui.help import GuideScreen, HelpScreen
from trnbench.tui.picker import Choices, Palette, Picker
from trnbench.tui.settings import config_path, state_path
from trnbench.tui.views import PLACES, VIEWS
from trnbench.tui.widgets.bars import StackedBars
from trnbench.tui.widgets.chart import Chart
from trnbench.tui.widgets.field import Field, Form
from trnbench.tui.widgets.frame import Crumbs, KeyLine, ViewBar
from trnbench.tui.widgets.panels import ErrorPanel, PictureSwitch, TextPanel
from trnbench.tui.widgets.plot import Plot
from trnbench.tui.widgets.result_table import ResultTable
from trnbench.tui.widgets.table_model import TableSource
from trnbench.tui.widgets.table_pane import TablePane
from trnbench.tui.work_process import TableFound
from trnbench.verbs.compare.scenario import read_scenario

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


@pytest.mark.slow
async def test_help_lists_every_key_with_its_id(opened):
    app, pilot = opened
    await pilot.press("question_mark")
    assert isinstance(app.screen, HelpScreen)
    text = app.screen.text.plain
    bindings = list(known_bindings())
    assert len(bindings) > 40
    assert text.startswith("Compare\n")
    for binding in bindings:
        assert (binding.tooltip or binding.description) in text
    await pilot.press("i")
    text = app.screen.text.plain
    for binding in bindings:
        assert binding.id is not None
        assert binding.id in text
    await pilot.press("escape")
    assert app.view is app.screen


async def test_every_binding_has_an_id_of_its_own_and_a_description():
    seen: dict[str | None, Binding] = {}
    for binding in known_bindings():
        assert binding.description
        assert seen.setdefault(binding.id, binding) is binding
    for owner in (TrnbenchApp, ResultTable):
        assert all(isinstance(one, Binding) and one.id for one in owner.BINDINGS)


@pytest.mark.slow
async def test_the_palette_groups_its_verbs(opened):
    app, _ = opened
    titles = [command.title for command in app.get_system_commands(app.screen)]
    assert {title.partition(":")[0] for title in titles} == {
        *("view", "compare", "do", "export", "copy", "scenario", "theme", "help", "app")
    }
    order = [title.partition(":")[0] for title in titles]
    assert order[: len(VIEWS) + 1] == [*["view"] * len(VIEWS), "compare"]
    assert sum(title.startswith("view:") for title in titles) == len(VIEWS)
    assert titles[0] == "view: Compare"
    assert titles[-1] == "app: quit"


@pytest.mark.slow
async def test_the_palette_takes_what_is_typed_with_blanks_and_quits_only_if_asked(opened):
    app, pilot = opened
    # At once: the second key does not wait for a list that is painted.
    await pilot.press("ctrl+p", "enter")
    assert app.current_mode == "compare"
    assert app.is_running
    await pilot.press("ctrl+p", *"export: svg")
    line = app.screen.query_one(Input)
    assert line.value == "export: svg"
    assert app.screen.query_one(OptionList).get_option_at_index(0).id.startswith("export: SVG")
    await pilot.press("escape", "ctrl+p", *"matrix", "enter")
    await pilot.pause()
    assert app.current_mode == "matrix"


@pytest.mark.slow
async def test_a_click_beside_what_a_tiny_screen_shows_is_nobodys(opened):
    app, pilot = opened
    await pilot.press("ctrl+p")
    await pilot.resize_terminal(10, 3)
    for kind in (events.MouseDown, events.MouseUp):
        app.post_message(kind(None, 9, 9, 0, 0, 1, False, False, False))
    for target in (app, app.screen):
        target.post_message(events.Click(None, 9, 9, 0, 0, 1, False, False, False))
    await pilot.pause()
    assert isinstance(app.screen, Palette)


@pytest.mark.slow
async def test_letters_lead_to_places(opened):
    app, pilot = opened
    await pilot.press("a")
    assert isinstance(app.screen, JumpScreen)
    await pilot.press("c")
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


@pytest.mark.slow
async def test_rows_chart_and_report_are_written_and_the_guide_is_opened(opened, home, until):
    app, pilot = opened
    await pilot.press("e")
    (rows,) = home.glob("trnbench-compare-2*.csv")
    (chart,) = home.glob("trnbench-compare-cost-*.svg")
    assert rows.read_text().startswith("instance,nodes,")
    assert "cost to train" in chart.read_text()
    assert "trn2.48xlarge:64" in chart.read_text()
    app.view.query_one(PictureSwitch).turn_to("why")
    await pilot.pause()
    await pilot.press("e")
    (drawn,) = home.glob("trnbench-compare-why-*.svg")
    assert "url(" not in drawn.read_text().replace("url(#", "")
    await pilot.press("r")
    (page,) = home.glob("trnbench-compare-*.html")
    assert "trn2.48xlarge" in page.read_text()
    await pilot.press("f1")
    assert isinstance(app.screen, GuideScreen)
    await pilot.press("escape")
    assert app.screen is app.view


@pytest.mark.slow
async def test_columns_are_chosen_and_kept_for_the_next_session(opened, until):
    app, pilot = opened
    await pilot.press("C")
    await until(pilot, lambda: isinstance(app.screen, Picker))
    app.screen.marked[:] = ["instance", "mfu"]
    await pilot.press("enter")
    await until(pilot, lambda: app.view.table.shown.columns == ("instance", "mfu"))
    assert app.view.texts()["~columns"] == "instance mfu"
    assert "cheapest_probability" in app.view.table.all_columns
    app.view.table.choose_columns(())
    assert len(app.view.table.shown.columns) > 20


@pytest.mark.slow
async def test_the_question_is_a_card_of_the_job_and_folds_all_else(opened):
    app, pilot = opened
    form = app.view.query_one(Form)

    def shown():
        return [one.spec.key for one in form.children if isinstance(one, Field) and one.display]

    card = ["job", "model", "tokens", "deadline", "instances", "price_date", "purchase"]
    assert shown() == card
    # What says something is in sight, wherever it came from.
    form.put({"tp": "8", "discount": "18%"})
    form.look()
    await pilot.pause()
    assert {*shown()} - {*card} == {"tp", "discount"}
    assert app.view.scenario["tp"] == 8
    form.put({"tp": "", "discount": "", "job": "lora"})
    form.look()
    await pilot.pause()
    assert shown() == ["job", "model", "samples", "adapter_rank", *card[3:5], "purchase"]
    command = app.view.command()
    assert "--samples 50K" in command
    assert "--job lora" in command
    assert "--tokens" not in command
    form.put({"job": ""})
    form.look()
    await pilot.pause()
    assert (shown(), form.texts["tokens"]) == (card, "2T")
    await pilot.press("f", *["tab"] * len(card), "enter")
    await pilot.pause()
    assert len(shown()) == len(form.fields) > 60
    await pilot.press("enter")
    await pilot.pause()
    assert shown() == card


@pytest.mark.slow
async def test_with_ascii_alone_nothing_else_is_written(made, silent, until, canned):
    app = made(ascii_only=True)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.view is not None)
        app.view.answered("compare", canned.found())
        await until(pilot, lambda: bool(app.view.query_one("#picture-cost-time").query("Plot")))
        for _ in app.view.query_one(PictureSwitch)._pictures:
            await pilot.press("c")
            lines = [app_filtered(app, one).text for one in app.screen._compositor.render_strips()]
            assert "".join(lines).isascii()
            assert {len(line) for line in lines} == {120}


async def test_a_browser_gets_every_export_under_a_name_of_its_own(opened, monkeypatch):
    app, _ = opened
    names = []
    monkeypatch.setattr(TrnbenchApp, "is_web", True)
    monkeypatch.setattr(
        app, "deliver_binary", lambda data, save_filename: names.append(save_filename)
    )
    for _ in range(3):
        app.export_svg()
    assert len(set(names)) == 3


async def test_a_picture_of_the_screen(opened, home):
    app, _ = opened
    app.export_svg()
    (path,) = home.glob("trnbench-compare-*.svg")
    assert path.read_text().startswith("<svg")


@pytest.mark.slow
async def test_the_command_is_copied(opened):
    app, pilot = opened
    await pilot.press("y")
    assert app.clipboard.startswith("trnbench compare llama3.1-70b --tokens 2T --on trn1.32xlarge,")
    # Nothing tells whether the terminal took it, so it stands in a file, too.
    assert state_path().with_name("copied.txt").read_text() == f"{app.clipboard}\n"
    (note,) = app._notifications
    assert str(state_path().with_name("copied.txt")) in note.message
    assert "copied" not in note.title


@pytest.mark.slow
async def test_scenarios_are_saved_and_loaded(opened, home, until):
    app, pilot = opened
    app.view.query_one(Form).put({"nodes": "64", "model": "llama3.1-8b"})
    for field in app.view.query_one(Form).fields.values():
        field.look()
    await pilot.press("w")
    await until(pilot, lambda: isinstance(app.focused, Input))
    await pilot.press("enter")
    saved = read_scenario(home / "scenario.toml")
    assert (saved["model"], saved["nodes"], saved["tokens"]) == ("llama3.1-8b", (64,), 2e12)
    app.view.query_one(Form).put({"nodes": "8"})
    app.view.query_one(Form).fields["nodes"].look()
    await pilot.press("o")
    await until(pilot, lambda: isinstance(app.focused, Input))
    await pilot.press("enter")
    await until(pilot, lambda: app.view.query_one(Form).texts["nodes"] == "64")


@pytest.mark.slow
async def test_names_are_picked_from_a_list_and_an_edit_is_taken_back(opened, until):
    app, pilot = opened
    form = app.view.query_one(Form)
    before = form.texts["instances"]
    await pilot.press("i")
    await until(pilot, lambda: isinstance(app.screen, Picker))
    await pilot.press(*"p5", "down", "space", "enter")
    await until(pilot, lambda: form.texts["instances"] == f"{before}, p5.4xlarge")
    await until(pilot, lambda: app.screen is app.view)
    await pilot.press("m")
    await until(pilot, lambda: isinstance(app.screen, Picker))
    await pilot.press(*"8b", "enter")
    await until(pilot, lambda: form.texts["model"] == "llama3.1-8b")
    assert str(app.view.query_one(Crumbs).content).startswith("llama3.1-8b, 2T")
    await pilot.press("u", "u")
    await until(pilot, lambda: form.texts["instances"] == before)
    assert form.texts["model"] == "llama3.1-70b"
    await pilot.press("u")
    assert any("no edit" in note.message for note in app._notifications)


@pytest.mark.slow
async def test_the_newest_edit_is_taken_back_first_whether_it_can_be_used_or_not(opened):
    app, pilot = opened
    form = app.view.query_one(Form)
    model, tokens = form.texts["model"], form.texts["tokens"]
    form.fields["model"].put("llama3.1-8b")
    await pilot.press("f", "tab", "tab", *"lots", "escape")
    assert form.fields["tokens"].reason
    assert form.texts["model"] == "llama3.1-8b"
    await pilot.press("u")
    assert (form.fields["tokens"].text, form.fields["tokens"].reason) == (tokens, "")
    assert form.texts["model"] == "llama3.1-8b"
    await pilot.press("u")
    assert form.texts["model"] == model
    await pilot.press("u")
    assert any("no edit" in note.message for note in app._notifications)


@pytest.mark.slow
async def test_a_filter_is_named_and_escape_ends_it(opened):
    app, pilot = opened
    pane, line = app.view.query_one(TablePane), app.view.query_one(TablePane).query_one(Input)
    await pilot.press("slash", *"trn2", "enter")
    await pilot.pause()
    assert "filter: trn2 (2 of 5)" in app.view.query_one(TablePane).told
    assert not line.display
    await pilot.press("slash", "end", "backspace", "enter")
    await pilot.pause()
    assert "filter: trn (4 of 5)" in app.view.query_one(TablePane).told
    for leave in (("escape",), ("slash", "x", "escape")):
        await pilot.press(*leave)
        await pilot.pause()
        assert not pane.filtered
        assert len(app.view.report.rows) == 5
        assert "5 rows" in app.view.query_one(TablePane).told
        assert isinstance(app.focused, ResultTable)


@pytest.mark.slow
async def test_digits_lead_to_places_tab_goes_on_inside_and_escape_goes_up(
    made, silent, unplotted, until
):
    assert [name for views in PLACES.values() for name in views] == [*VIEWS]
    app = made()

    async def at(pilot, *steps):
        for key, name in steps:
            await pilot.press(key)
            await until(pilot, lambda name=name: name == app.view.NAME)
            assert name in str(app.view.query_one(Crumbs).content)

    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.view is not None)
        await at(pilot, ("tab", "plan"), ("2", "layouts"), ("tab", "memory"), ("tab", "schedule"))
        await at(pilot, ("tab", "layouts"), ("shift+tab", "schedule"), ("escape", "layouts"))
        await at(pilot, ("escape", "compare"), ("4", "evidence"), ("tab", "runs"))
        # A place is as it was left.
        await at(pilot, ("3", "matrix"), ("4", "runs"), ("1", "compare"))
        await pilot.press("escape")
        assert app.view.NAME == "compare"
        assert app.is_running


@pytest.mark.slow
async def test_enter_goes_deeper_and_escape_back_to_the_row_it_came_from(opened, until):
    app, pilot = opened
    # The cursor begins at the chosen row.
    await pilot.press("enter")
    await until(pilot, lambda: app.view.NAME == "layouts")
    told = str(app.view.query_one(Crumbs).content)
    assert told.startswith("llama3.1-70b, 2T > trn2.48xlarge x 64 > layouts")
    await pilot.press("escape")
    await until(pilot, lambda: app.view.NAME == "compare")
    assert app.view.table.row["instance"] == "trn2.48xlarge"


@pytest.mark.slow
async def test_the_mouse_turns_charts_and_shows_more_columns(opened):
    app, pilot = opened
    switch = app.view.query_one(PictureSwitch)
    await pilot.click(PictureSwitch, offset=(2 + len("[cost]  d"), 0))
    assert switch.shown == "days"
    column = app.view.table.column
    pane = app.view.query_one(TablePane)
    await pilot.click(TablePane, offset=(5, pane.region.height - 1))
    assert app.view.table.column == column + 1


@pytest.mark.slow
async def test_a_session_opens_as_the_last_was_left_but_with_every_row(
    made, silent, unplotted, until
):
    app = made()
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.view is not None)
        app.view.query(ResultTable).first().filter_by("trn2")
        await pilot.press("c", "c", "q")
    again = made()
    async with again.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: again.view is not None)
        await until(pilot, lambda: again.view.query_one(PictureSwitch).shown == "cost/time")
        # What hides some would be forgotten by then.
        assert not again.view.table.state.words


async def test_a_broken_scenario_file_is_told(opened, home, until):
    app, pilot = opened
    (home / "scenario.toml").write_text('modell = "x"\n', encoding="utf-8")
    await pilot.press("o")
    await until(pilot, lambda: isinstance(app.focused, Input))
    await pilot.press("enter")
    await pilot.pause()
    assert any("did you mean 'model'" in note.message for note in app._notifications)


async def test_a_broken_configuration_is_told_and_left_alone(made, silent, until, monkeypatch):
    path = config_path()
    path.parent.mkdir(parents=True)
    path.write_text('[keys]\n"table.srt" = "o"\n', encoding="utf-8")
    notices = []
    monkeypatch.setattr(
        "trnbench.tui.app.TrnbenchApp.notify", lambda _, text, **__: notices.append(text)
    )
    app = made()
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: any("table.sort" in text for text in notices))


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


@pytest.mark.parametrize("size", [(60, 20), (80, 24)])
async def test_small_terminals_have_room_for_count_and_chart(made, silent, until, canned, size):
    app = made()
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.view is not None and bool(app.view.query(Plot)))
        app.view.answered("compare", canned.found())
        bars = app.view.query_one("#picture-cost", StackedBars)
        assert "no price: trn2-ultraserver, p5.48xlarge" in bars.data.missing
        assert next(bar.label for bar in bars.data.bars) == "trn2.48xlarge:64"
        await pilot.press("c", "c")
        plot = app.view.query(Plot).first()
        await until(pilot, lambda: plot.room[1] >= 2)
        assert "5 rows" in app.view.query_one(TablePane).told
        shown = str(app.view.query_one(ViewBar).content)
        assert shown.startswith(" 1 Decide")
        assert "[Compare]" in shown
        assert "4 Trus" in shown
        assert len(shown.rstrip()) <= size[0]
        missing = app.view.query_one("#picture-cost-time", Chart).data.missing
        assert missing == "not drawn: no price: trn2-ultraserver; cannot run: p5.48xlarge"


@pytest.mark.slow
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


@pytest.mark.slow
async def test_pictures_are_drawn_without_colour(made, silent, until, canned, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    app = made()
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.view is not None)
        app.view.answered("compare", canned.found())
        chart = app.view.query_one("#picture-cost-time")
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
        chart = app.view.query_one("#picture-cost-time")
        await until(pilot, lambda: bool(chart.query("PlotWidget")))
        for theme in ("ansi-dark", "ansi-light"):
            app.theme = theme
            await pilot.press(*"cccccc")
            assert app.theme == theme


@pytest.mark.slow
async def test_leaving_asks_only_where_a_saved_scenario_has_newer_edits(opened, until):
    app, pilot = opened
    app.kept_as_saved(app.view.scenario)
    app.view.query_one(Form).put({"nodes": "8"})
    app.view.query_one(Form).look()
    await pilot.press("q")
    await until(pilot, lambda: isinstance(app.screen, Confirm))
    await pilot.press("n")
    assert app.view is app.screen
    app.kept_as_saved(app.view.scenario)
    await pilot.press("q")
    assert app._exit


@pytest.mark.slow
async def test_keys_that_come_together_are_taken_in_their_order(opened):
    app, pilot = opened
    await pilot.press("f")
    for key in ("tab", "tab", "end", "backspace", "z", "z", "tab", "4", "2", "backspace"):
        app.post_message(events.Key(key, key if len(key) == 1 else None))
    await pilot.pause()
    fields = app.view.query_one(Form).fields
    assert (fields["model"].text, fields["tokens"].text) == ("llama3.1-70b", "2zz")
    assert fields["deadline"].text == "4"


@pytest.mark.slow
async def test_the_command_names_the_baseline(opened):
    app, pilot = opened
    await pilot.press("home", "down", "b", "y")
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
        "speed: measured, carried over",
        "weakest evidence: assumed",
    )


@pytest.mark.slow
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
    await pilot.press("f", "tab", *"zz", "escape")
    assert any("llama3.1-70b still counts" in note.message for note in app._notifications)


@pytest.mark.slow
@pytest.mark.parametrize("over", [None, "ctrl+p"], ids=["a view", "a dialog"])
async def test_sizes_that_a_screen_learns_late_lead_to_no_more_of_them(opened, over, monkeypatch):
    app, pilot = opened
    if over:
        await pilot.press(over)
    laid_out = []
    lay_out = Screen._on_resize

    async def counted(screen, event):
        laid_out.append(event.size)
        if len(laid_out) < 30:  # else it never ends
            await lay_out(screen, event)

    monkeypatch.setattr(Screen, "_on_resize", counted)
    with app.batch_update():  # as while another view is opened
        for size in (Size(60, 20), Size(100, 30), Size(60, 20)):
            app.screen.post_message(events.Resize(size, size))
            app.screen.call_later(lambda: None)
        await pilot.pause()
    assert len(laid_out) <= 3
    assert app.screen.size == app.size


@pytest.mark.slow
async def test_notes_are_broken_into_lines(opened, canned):
    app, pilot = opened
    await pilot.resize_terminal(80, 24)
    found = canned.found()
    rows = tuple({**row, "notes": ("word " * 40,)} for row in found.report.rows)
    summary = {"footing": "on the fewest nodes, of powers of two up to 512, that finish in time"}
    report = replace(found.report, rows=rows, summary=summary)
    app.view.answered("compare", replace(found, report=report))
    app.view.query_one(PictureSwitch).turn_to("why")
    await pilot.pause()
    why = app.view.query_one("#picture-why")
    assert why.query_one(Static).size.width <= why.size.width
    assert why.query_one(Static).size.height > len(why.text.splitlines())


async def test_ctrl_c_says_how_to_leave_and_leaves_when_pressed_twice(opened):
    app, pilot = opened
    await pilot.press("ctrl+c")
    assert any("ctrl+q does" in note.message for note in app._notifications)
    assert not app._exit
    await pilot.press("ctrl+c")
    assert app._exit


@pytest.mark.slow
async def test_a_dialog_ends_once_however_often_its_key_is_pressed(opened):
    app, pilot = opened
    stack = len(app.screen_stack)
    for dialog in (Confirm("Sure?"), HelpScreen({}, {}, ""), Palette({})):
        app.push_screen(dialog)
        await pilot.pause()
        assert len(app.screen_stack) == stack + 1
        dialog.dismiss()
        dialog.dismiss()
        await pilot.pause()
        assert len(app.screen_stack) == stack


@pytest.mark.slow
async def test_a_file_that_is_there_is_replaced_only_if_the_user_says_so(opened, home, until):
    app, pilot = opened
    (home / "scenario.toml").write_text("mine", encoding="utf-8")
    for answer, kept in (("n", True), ("y", False)):
        await pilot.press("w")
        await until(pilot, lambda: isinstance(app.screen, AskPath))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press(answer)
        await until(pilot, lambda: not isinstance(app.screen, Confirm))
        assert ((home / "scenario.toml").read_text(encoding="utf-8") == "mine") is kept
    await pilot.press("w")  # what was written here is replaced without a question
    await until(pilot, lambda: isinstance(app.screen, AskPath))
    await pilot.press("enter")
    await pilot.pause()
    assert not isinstance(app.screen, Confirm)


@pytest.mark.parametrize("path", ["~nosuchuser/x", "no/such/folder/x"])
async def test_a_path_that_cannot_be_written_is_told(opened, until, path):
    app, pilot = opened
    await pilot.press("w")
    await until(pilot, lambda: isinstance(app.screen, AskPath))
    app.screen.query_one(Input).value = path
    await pilot.press("enter")
    await until(pilot, lambda: bool(app._notifications))
    assert app.is_running


@pytest.mark.slow
async def test_the_palette_turns_no_page_that_is_not_there(opened):
    app, pilot = opened
    app.action_command_palette()
    keys = ("pagedown", "pageup", "up", "down", "home", "end", "enter")
    await pilot.press("pagedown", "pageup", *"no such command", *keys)
    assert app.is_running
    # The list itself, which a click gives the keys to.
    app.action_command_palette()
    await pilot.press(*"no such command", "tab", *keys[:-1])
    assert app.is_running


@pytest.mark.slow
async def test_a_palette_opens_while_the_one_before_is_leaving(opened):
    app, pilot = opened
    app.action_command_palette()
    await pilot.pause()
    app.screen.dismiss()
    app.action_command_palette()
    await pilot.pause()
    assert isinstance(app.screen, Palette)
    await pilot.press("escape")


def burst(app, *keys):
    """Send keys as a slow line delivers them: all before the first has done anything."""
    for key in keys:
        app.post_message(events.Key(key, key if len(key) == 1 else None))


@pytest.mark.slow
async def test_keys_wait_for_the_view_they_are_meant_for(made, silent, unplotted, until):
    app = made("matrix")
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.view is not None)
        # As a message of a view does: nobody waits until what it opens stands.
        app.switch_mode("layouts")
        burst(app, "f")
        await until(pilot, lambda: isinstance(app.focused, Input))
        await pilot.press("escape")
        burst(app, "4", "n", "n")
        await until(pilot, lambda: app.current_mode == "evidence")
        await until(pilot, lambda: app.view.command() == "trnbench validate --set collectives")


@pytest.mark.slow
async def test_the_application_leaves_once_a_view_that_was_opened_stands(
    made, silent, unplotted, until
):
    app = made("matrix")
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.view is not None)
        # As a message of a view does: nobody waits until what it opens stands.
        app.switch_mode("runs")
        await app.action_leave()
        assert app.view.NAME == "runs"
        assert app.view.query(ResultTable)


@pytest.mark.slow
async def test_names_are_picked_where_there_is_hardly_room(opened):
    app, pilot = opened
    for width in (10, 36, 39, 40, 41, 42):
        await pilot.resize_terminal(width, 10)
        app.push_screen(Picker("names", [("p5", "eight GPUs of a kind")], (), several=True))
        await pilot.press("p")
        assert isinstance(app.screen, Picker)
        app.screen.dismiss(None)
        await pilot.pause()
    assert app.is_running


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Choices, Picker])
async def test_a_list_without_room_turns_no_page(opened, kind):
    app, pilot = opened
    if kind is Picker:
        app.push_screen(
            Picker("names", [("p5", "eight"), ("p4d", "eight")], ("p4d",), several=True)
        )
    else:
        await app.screen.mount(Choices("p5", "p4d"))
    await pilot.pause()
    choices = app.screen.query_one(Choices)
    choices.styles.min_height = choices.styles.height = 0
    await pilot.pause()
    choices.highlighted = 1
    choices.focus()
    await pilot.press("pagedown", "pageup")
    choices.action_page_down()
    choices.action_page_up()
    assert choices.highlighted == 1 or kind is Picker
    assert app.is_running


async def test_a_plot_without_room_stands_still(opened):
    app, pilot = opened
    plot = Plot()
    await app.screen.mount(plot)
    plot.styles.height = 0
    await pilot.pause()
    plot.action_pan_up()
    plot.action_zoom_in()
    assert app.is_running


async def test_a_new_question_of_ranked_rows_begins_at_the_first_and_the_same_keeps_its_row(
    made, silent, unplotted, until, canned
):
    app = made("layouts")
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.view is not None)
        report = canned.ranked_report(30)
        app.view.show_table(TableFound(report=report), "name")
        await pilot.press("end")
        marked = app.view.table.key
        assert marked == "row 29"
        app.view.show_table(TableFound(report=report), "name")
        assert app.view.table.key == marked
        other = replace(report, inputs={"nodes": 4})
        app.view.show_table(TableFound(report=other), "name")
        assert app.view.table.cursor == 0


async def test_a_text_is_cut_where_it_has_no_room_and_a_number_never():
    class One(App[None]):
        def compose(self):
            yield ResultTable(id="one", open_filter=lambda: None)

    app = One()
    row: Row = {
        "name": "a",
        "nodes": 4,
        "headline": "b" * 50,
        "days": 9.5,
        "low_days": 9,
        "high_days": 10,
    }
    shown = (*columns("name", "nodes", "headline"), *columns("days", interval=True))
    report = Report(verb="test", inputs={}, rows=(row,), columns=shown)
    async with app.run_test(size=(48, 10)) as pilot:
        table = app.query_one(ResultTable)
        table.show(TableSource(report=report, keys=("a",)))
        await pilot.pause()
        # 48 less the last cell: two before the name, four, and two before each column.
        assert table.render_line(1).text.rstrip() == "> a         4  " + 29 * "b" + "..."
        assert table.hidden_columns == ("days",)
        table.column = 2
        table.action_column(0)
        assert "nodes" not in table.render_line(0).text  # makes room for the marked one
        table.action_column(1)
        assert table.render_line(1).text.rstrip().endswith("9.5 (9-10)")


@pytest.mark.slow
async def test_a_schedule_is_drawn_as_wide_as_its_place_after_a_resize_elsewhere(
    made, silent, unplotted, until, monkeypatch
):
    asked = []
    monkeypatch.setattr("trnbench.tui.view.View.ask", lambda self, *what: asked.append(what))
    app = made("schedule")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: asked)
        app.view._drawn = object()
        await pilot.press("4", "tab")
        await until(pilot, lambda: app.view.NAME == "runs")
        await pilot.resize_terminal(200, 60)
        await pilot.press("2")
        await until(pilot, lambda: app.view.NAME == "schedule")
        place = app.view.query_one("#picture-gantt", TextPanel)
        await until(pilot, lambda: asked[-1][-1][0] == place.size.width - 1)
        assert place.size.width < 160  # beside the form


@pytest.mark.slow
async def test_nothing_is_dim_in_a_theme_of_high_contrast(opened):
    app, pilot = opened

    def colours():
        strips = app.screen._compositor.render_strips()
        (drawn, *_) = (one for strip in strips for one in strip if "not drawn" in one.text)
        return drawn.style.color.triplet, drawn.style.bgcolor.triplet

    app.theme = "textual-dark"
    await pilot.pause()
    faint, _ = colours()
    assert max(faint) < 200
    app.theme = "high-contrast-dark"
    await pilot.pause()
    assert colours() == ((255, 255, 255), (0, 0, 0))


async def test_however_narrow_the_line_of_keys_has_help_and_the_way_out(opened):
    app, pilot = opened
    line = app.view.query_one(KeyLine)
    whole = line.render().plain
    assert " Layouts  c Chart  " in whole
    assert whole.endswith("  ? Help  q Quit")
    await pilot.resize_terminal(60, 20)
    await pilot.pause()
    told = line.render().plain
    assert len(told) <= 60 < len(whole)
    assert told.endswith("  ? Help  q Quit")
    assert whole.startswith(told.removesuffix("  ? Help  q Quit"))
    # A click is as good as the key.
    await pilot.click(KeyLine, offset=(1 + told.index("? Help"), 0))
    assert isinstance(app.screen, HelpScreen)
