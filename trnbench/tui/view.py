"""A view: a screen of the application whose commands and rows can be copied or saved."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Horizontal, Vertical
from textual.geometry import Size
from textual.widget import Widget
from textual.widgets import Input, Static

from trnbench.facts.records import replace
from trnbench.show.figures import FIGURES
from trnbench.show.report import Report
from trnbench.show.row import Row
from trnbench.tui.asking import Asking
from trnbench.tui.views import PLACE_OF, PLACES, VIEWS
from trnbench.tui.widgets.chart import Chart
from trnbench.tui.widgets.field import Field, FieldSpec, Form
from trnbench.tui.widgets.frame import (
    Crumbs,
    KeyLine,
    StatusLine,
    ViewBar,
    fitted,
    hidden,
    offered,
)
from trnbench.tui.widgets.panels import ErrorPanel, Picture, PictureSwitch, TextPanel
from trnbench.tui.widgets.result_table import ResultTable
from trnbench.tui.widgets.table_model import TableSource, TableState
from trnbench.tui.widgets.table_pane import TablePane
from trnbench.tui.work_process import TableFound

if TYPE_CHECKING:
    from trnbench.verbs.asking.question import Question

SMALLEST = (60, 16)
"""Columns and lines below which nothing can be shown properly."""

PICTURE, SORT, COLUMNS = "~picture", "~sort", "~columns"
"""Keys of a session's state besides the texts of fields."""


FORM_HINT = "F2 lists, up/down steps, Esc leaves"


def evidence_facts(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return, for the status line, the calibrations of rows, and their weakest evidence."""
    facts = []
    for key, words in (("basis", "speed"), ("evidence", "weakest evidence")):
        figure = FIGURES[key]
        bases = (figure.words.get(str(row[key]), str(row[key])) for row in rows if row.get(key))
        kinds = dict.fromkeys(bases)
        facts += [f"{words}: {', '.join(kinds)}"] if kinds else []
    return tuple(facts)


class View(Asking):
    """Base of the views.

    A view declares the fields of its form, its pictures, the columns that a baseline compares
    (`DELTAS`) and those whose best value is marked (`BEST`, 1 for the largest, -1 for the
    smallest); it asks with `ask`, and shows in `answered` what came of it.
    """

    AUTO_FOCUS = ""
    DELTAS: ClassVar[frozenset[str]] = frozenset()
    BEST: ClassVar[Mapping[str, int]] = {}
    GUIDE: ClassVar[str] = "tui"
    """Page of the guide that is about the view."""
    RANKED: ClassVar[bool] = False
    """True where the first row is the best: a new question then begins there."""
    _verdict = ""
    _whole: Report | None = None
    _shown_inputs: Mapping[str, object] | None = None
    BINDINGS: ClassVar[list[BindingType]] = [
        offered("f", "form", "Question", "view.form", "Edit the question"),
        offered(
            "escape",
            "back",
            "Back",
            "view.leave",
            "A step back: out of a filter or a form, then up to the row's view",
        ),
        hidden("tab", "within(1)", "Next", "view.next", "The next view of this place"),
        hidden("shift+tab", "within(-1)", "Previous", "view.previous", "The view before"),
        hidden("u", "undo", "Undo", "view.undo", "Take the newest edit of a form back"),
        hidden("f5", "again", "Again", "view.again", "Ask again"),
        hidden("x", "cancel", "Cancel", "view.cancel", "Stop computing"),
        hidden("e", "export_all", "Export", "view.export", "Visible rows as CSV, chart as SVG"),
        hidden("r", "report", "Report", "view.report", "The answer as an HTML page"),
        hidden("f1", "guide", "Guide", "view.guide", "The page of the guide for this view"),
        hidden("y", "copy_command", "Copy", "view.copy", "Copy the command for this view"),
    ]

    def compose(self) -> ComposeResult:
        self._fit()
        yield ViewBar(self.NAME)
        yield Crumbs()
        yield Static("", classes="verdict -none", markup=False)
        with Container(classes="body"):
            yield from self.body()
        yield ErrorPanel()
        yield StatusLine()
        yield KeyLine()
        yield Static(
            f"terminal too small: trnbench needs {SMALLEST[0]} x {SMALLEST[1]}",
            classes="too-small",
            markup=False,
        )

    def fields(self) -> Sequence[FieldSpec]:
        """The fields of the form; none in a view without a question."""
        return ()

    def make_form(self) -> Form | None:
        fields = self.fields()
        return Form(fields, id=f"{self.NAME}-form") if fields else None

    def pictures(self) -> Mapping[str, Picture]:
        """The pictures below the table, by name."""
        return {}

    def drawn(self, picture: str) -> object:
        """Content of a picture now; None leaves it as it is."""
        return None

    def body(self) -> Iterable[Widget]:
        side = self.side()
        main = Vertical(*self.main(), classes="main")
        yield main if side is None else Horizontal(side, main)

    def side(self) -> Widget | None:
        """The widgets on the left: the form, where there is one."""
        form = self.make_form()
        if form is None:
            return None
        side = Vertical(form, classes="side")
        side.border_title = "question"
        side.border_subtitle = FORM_HINT
        return side

    def main(self) -> Iterable[Widget]:
        return TablePane(id=f"{self.NAME}-table"), PictureSwitch(self.pictures())

    def show_table(self, found: TableFound, *columns: str, chosen: int | None = None) -> None:
        """Show rows, keyed by these columns; the cursor begins at the place of the chosen row."""
        source = TableSource.of(found.report, *columns, answers=found.answers)
        key = None if chosen is None else source.keys[chosen]
        fresh = found.report.inputs != self._shown_inputs
        self._shown_inputs = found.report.inputs
        self._whole = found.whole or found.report
        self.query_one(ResultTable).show(
            replace(source, deltas=self.DELTAS, best=self.BEST, chosen=key),
            fresh=fresh and self.RANKED,
        )
        if fresh and key is not None:
            self.query_one(ResultTable).go_to(key)
        self.state_facts()

    @property
    def picture(self) -> str:
        return self.query_one(PictureSwitch).shown

    @property
    def visible_pictures(self) -> tuple[str, ...]:
        return self.query_one(PictureSwitch).visible_pictures

    def room(self, picture: str) -> Size:
        """Columns and lines of a picture, less the bar that scrolls."""
        size = self.query_one(PictureSwitch).of(picture).size
        return Size(size.width - 2, size.height)

    def draw(self) -> None:
        for switch in self.query(PictureSwitch):
            for name in switch.visible_pictures:
                drawn: Any = self.drawn(name)
                if drawn is not None:
                    switch.of(name).show(drawn)

    def turned(self) -> None:
        """Draw a picture as soon as it is shown."""
        self.draw()

    def follow(self) -> None:
        """Draw the picture of the row that the cursor has come to."""
        self.draw()

    @on(PictureSwitch.Turned)
    def _turned(self) -> None:
        self.turned()

    @on(ResultTable.Highlighted)
    def _highlighted(self) -> None:
        self.follow()

    @on(TextPanel.Resized)
    def _resized(self) -> None:
        self.draw()

    def on_resize(self, event: events.Resize) -> None:
        if self._verdict:
            self.verdict(self._verdict)

    @abstractmethod
    def command(self) -> str:
        """The command line that reproduces the view."""

    def line(self, verb: str, question: Question) -> str:
        """The command line of a question."""
        from trnbench.verbs.asking.command_lines import command_question

        return command_question(verb, question).line

    def trail(self) -> Sequence[str]:
        """The question and the row that one has come by, before the name of the view."""
        return ()

    def details(self) -> str:
        """The rest of the question, behind where one is."""
        return ""

    def verdict(self, text: str) -> None:
        """Say the answer in words, as far as its lines have room for whole sentences."""
        self._verdict = text
        line = self.query_one(".verdict", Static)
        line.set_class(not text, "-none")
        most = 2 if self.has_class("-low") else 3 if self.has_class("-short") else 4
        line.update(fitted(text, self.size.width - 2, most))

    @property
    def copied(self) -> str:
        """Name of the text that the copy key takes."""
        return "command of this view"

    def facts(self) -> tuple[str, ...]:
        """Sources of the numbers, the most important first."""
        return ("modelled",)

    @property
    def unfinished(self) -> str:
        """Work that leaving now would lose, in words; empty if none."""
        return ""

    def texts(self) -> dict[str, str]:
        """Texts of fields and arrangement of rows, restored at the next start."""
        texts = {key: text for form in self.query(Form) for key, text in form.told.items()}
        for switch in self.query(PictureSwitch):
            texts[PICTURE] = switch.shown
        if self.table is not None:
            state = self.table.state
            texts[SORT] = f"{'-' if state.descending else ''}{state.sort or ''}"
            texts[COLUMNS] = " ".join(self.table.chosen_columns)
        return texts

    def restore(self, texts: dict[str, str]) -> None:
        """Write the state of an earlier session into the fields."""
        for form in self.query(Form):
            form.put({key: text for key, text in texts.items() if key[:1] != PICTURE[0]})
        for switch in self.query(PictureSwitch):
            switch.turn_to(texts.get(PICTURE, ""))
        if self.table is not None:
            sort = texts.get(SORT, "")
            state = TableState(sort=sort.removeprefix("-") or None, descending=sort[:1] == "-")
            self.table.choose_state(state)
            self.table.choose_columns(texts.get(COLUMNS, "").split())

    @property
    def table(self) -> ResultTable | None:
        """The table whose rows are exported: that with the cursor, or the first."""
        if isinstance(self.focused, ResultTable):
            return self.focused
        return next(iter(self.query(ResultTable)), None)

    @property
    def report(self) -> Report | None:
        table = self.table
        return table.report if table is not None and table.source.keys else None

    @abstractmethod
    def action_again(self) -> None:
        """Ask the question of the form."""

    def begin(self) -> None:
        """Ask the first question; the form holds the texts of an earlier session."""
        self.action_again()

    def _fit(self) -> None:
        """Take the classes of the terminal's size before there is anything to style anew."""
        breakpoints = (self.app.HORIZONTAL_BREAKPOINTS, self.app.VERTICAL_BREAKPOINTS)
        for size, kinds in zip(self.app.size, breakpoints, strict=True):
            reached = [name for least, name in sorted(kinds or []) if size >= least]
            self.add_class(*reached[-1:], update=False)

    @on(events.ScreenResume)
    def _style_once(self, event: events.ScreenResume) -> None:
        # The mount has just styled every widget: a second pass would double the time.
        event.refresh_styles = event.refresh_styles and self.begun

    def on_mount(self) -> None:
        """Restore an earlier session's state, and ask once the screen has been painted."""
        texts = self.trnbench.texts_of(self.NAME)
        if texts:
            self.restore(dict(texts))
        self.app.theme_changed_signal.subscribe(self, lambda _: self.draw())
        self.state_facts()
        self.focus_main()
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        self.begun = True
        for form in self.query(Form):
            form.look()
        self.begin()
        # After the first paint: it brings numpy along.
        for chart in self.query(Chart):
            chart.load()

    def state_facts(self) -> None:
        """Write the status line and the subject of the view anew."""
        self.query_one(Crumbs).say((*self.trail(), VIEWS[self.NAME][0].lower()), self.details())
        self.query_one(StatusLine).state((*self.facts(), *self.trnbench.specs_facts))

    # Keys that every view has

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the form only in a view with a form, the way back only where a way back exists."""
        if action == "back":
            return self._typing or self._filtered is not None or self.NAME in self.trnbench.above
        if action == "form":
            return bool(self.query(Form)) and not self._typing
        return True

    def action_within(self, by: int) -> None:
        views = PLACES[PLACE_OF[self.NAME]]
        self.trnbench.action_view(views[(views.index(self.NAME) + by) % len(views)])

    def action_choose(self) -> None:
        if self.table is not None:
            self.table.action_choose()

    def action_turn(self, by: int = 1) -> None:
        self.query_one(PictureSwitch).turn(by)

    @property
    def _typing(self) -> bool:
        """True while a form or a filter has the keys."""
        at = self.focused
        return isinstance(at, Input) or (at is not None and isinstance(at.parent, Form))

    def action_undo(self) -> None:
        """Take the newest edit of a form back, valid or not."""
        newest = max(self.all_fields, key=lambda field: field.newest_edit, default=None)
        if newest is None or not newest.newest_edit:
            self.notify("no edit to take back", timeout=2)
            return
        newest.undo()
        self.notify(f"{newest.spec.label} is as before", timeout=2)

    def action_pick(self, key: str) -> None:
        self.query_one(Form).fields[key].action_pick()

    @on(Field.Wanted)
    def _pick(self, event: Field.Wanted) -> None:
        """Let the value of a field be chosen from the known values."""
        from trnbench.tui.picker import Picker

        field, spec = event.field, event.field.spec
        assert spec.known is not None
        marked = [word.strip() for word in field.text.split(",")]

        def taken(names: tuple[str, ...] | None) -> None:
            if names:
                field.put(", ".join(names))
                field.look()

        self.app.push_screen(Picker(spec.label, spec.known(), marked, several=spec.several), taken)

    def action_form(self) -> None:
        form = next(iter(self.query(Form)), None)
        if form is not None:
            self.open_form(form)

    def open_form(self, form: Form) -> None:
        """Put the cursor into a form; a narrow terminal then shows nothing else."""
        self.add_class("-editing")
        self.set_focus(form.first)

    def action_back(self) -> None:
        """A step back: every row of a filtered table, the table of a form, the view above."""
        if self._filtered is not None:
            self._filtered.clear_filter()
            return
        if not self._typing and not self.has_class("-editing"):
            self.trnbench.action_view(self.trnbench.above[self.NAME])
            return
        for field in self.all_fields:
            field.look()
            if field.reason and self.has_class("-narrow"):
                # The form is out of sight now, and its reasons with it.
                said = f"{field.reason}; {field.good_text or 'nothing'} still counts"
                self.notify(said, title=field.spec.label, severity="warning", markup=False)
        self.remove_class("-editing")
        self.focus_main()

    @property
    def _filtered(self) -> TablePane | None:
        """The table whose filter Escape ends: the cursor is in its line, or among its rows."""
        pane = None if self.focused is None else self.focused.parent
        if isinstance(pane, TablePane) and (pane.filtered or isinstance(self.focused, Input)):
            return pane
        return None

    def focus_main(self) -> None:
        if self.table is not None:
            self.set_focus(self.table)

    def action_export(self, output_format: str) -> None:
        self.trnbench.export_rows(self.report, self.NAME, output_format)

    def action_export_all(self) -> None:
        """Write the visible rows as CSV, and the chosen picture as SVG."""
        self.trnbench.export_both(self.report, self.NAME, self.drawing())

    def drawing(self) -> tuple[str, object]:
        """Name and content of the chosen picture."""
        for switch in self.query(PictureSwitch):
            return switch.shown, getattr(switch.picture, "drawn", None)
        return "", None

    def action_report(self) -> None:
        """Write the answer as a page to hand on."""
        asked = self.table is not None and self.table.answers_something
        whole = self._whole if asked else None
        self.trnbench.export_report(whole, self.NAME, self.command())

    def action_guide(self) -> None:
        from trnbench.tui.help import GuideScreen

        self.app.push_screen(GuideScreen(self.GUIDE))

    def action_copy_command(self) -> None:
        self.trnbench.copy_command(self.command(), self.copied)

    @on(ViewBar.Wanted)
    def _elsewhere(self, event: ViewBar.Wanted) -> None:
        app = self.trnbench
        app.action_place(event.name) if event.name in PLACES else app.action_view(event.name)


class LaunchingView(View):
    """A view whose rows have all that a training job needs to be started."""

    BINDINGS: ClassVar[list[BindingType]] = [
        hidden(
            "L",
            "launch",
            "Launch",
            "view.launch",
            "Files that start the marked row (Compare, Layouts, Plan)",
        ),
        hidden("P", "launch(True)", "Pilot", "view.pilot", "Files of the best pilot run"),
    ]
    pilot: Row | None = None
    """The best pilot of the answer, if one is worth its cost."""

    def launch_row(self) -> Row | None:
        """The row to launch: the row under the cursor, if runnable."""
        row = None if self.table is None else self.table.row
        return row if row is not None and row.get("step_time_s") else None

    def action_launch(self, pilot: bool = False) -> None:
        """Show the files that start the row, or the pilot of the answer."""
        from trnbench.tui.launch_screen import LaunchScreen

        row = self.pilot if pilot else self.launch_row()
        if row is None:
            lacking = (
                "pilot is known to be worth its cost" if pilot else "row that can run is marked"
            )
            self.notify(f"no {lacking}: nothing to launch", severity="warning")
        else:
            self.app.push_screen(LaunchScreen(dict(row), self.trnbench.folder, pilot=pilot))
