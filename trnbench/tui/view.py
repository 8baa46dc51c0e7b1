"""A view: one screen of the application, the lanes it asks, and what can be taken away from it."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal, Vertical
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Footer, Input, Static

from trnbench.answers.row import Row
from trnbench.errors import unhandled
from trnbench.report.report import Report
from trnbench.tui.found import TableFound
from trnbench.tui.widgets.chart import Chart
from trnbench.tui.widgets.field import Field, FieldSpec, Form
from trnbench.tui.widgets.frame import StatusLine, ViewBar
from trnbench.tui.widgets.panels import ErrorPanel
from trnbench.tui.widgets.result_table import ResultTable
from trnbench.tui.widgets.switch import PictureSwitch
from trnbench.tui.widgets.table_model import TableSource
from trnbench.tui.widgets.table_pane import TablePane
from trnbench.tui.work import Crash, News, WorkLane
from trnbench.tui.work_process import (
    Cancelled,
    Failure,
    WorkAnswer,
    WorkProgress,
    WorkRefusal,
)

if TYPE_CHECKING:
    from trnbench.tui.application import Application

SMALLEST = (60, 16)
"""Columns and lines below which nothing can be shown properly."""
LAST_LINES = 5
"""Of a traceback that are shown."""


def hidden(key: str, action: str, label: str, id: str, tooltip: str = "") -> Binding:
    """Return a binding that only the list of keys shows, not the line below the view."""
    return Binding(key, action, label, show=False, id=id, tooltip=tooltip)


def evidence_facts(found: Sequence[Row]) -> tuple[str, ...]:
    """Return, for the status line, the calibrations of rows, and their weakest evidence."""
    facts = []
    for key, words in (("basis", "calibration"), ("evidence", "weakest evidence")):
        kinds = dict.fromkeys(str(row[key]) for row in found if row.get(key))
        facts += [f"{words}: {', '.join(kinds)}"] if kinds else []
    return tuple(facts)


class WorkNews(Message):
    """Something new about question `generation` of a lane."""

    def __init__(self, lane: str, generation: int, news: News) -> None:
        super().__init__()
        self.lane = lane
        self.generation = generation
        self.news = news


class View(Screen[None]):
    """Base of the views.

    A view declares the fields of its form, its pictures and the columns that a baseline compares
    (`DELTAS`); it asks with `ask`, and shows in `answered` what came of it.
    """

    AUTO_FOCUS = None
    NAME: ClassVar[str] = ""
    DELTAS: ClassVar[frozenset[str]] = frozenset()
    DEFAULT_CSS = """
    View > .body { height: 1fr; }
    View > .too-small { display: none; width: 100%; height: 100%; content-align: center middle; }
    View.-tiny-wide > *, View.-tiny-high > * { display: none; }
    View.-tiny-wide > .too-small, View.-tiny-high > .too-small { display: block; }
    View.-tiny-wide > ErrorPanel.-shown, View.-tiny-high > ErrorPanel.-shown { display: none; }
    View .side { width: 38; border-right: vkey $panel; }
    View.-wide .side { width: 54; }
    View.-short TablePane { height: 2fr; }
    View.-short PictureSwitch { height: 3fr; }
    View.-medium PictureSwitch, View.-tall PictureSwitch { height: 2fr; }
    View.-narrow .side { display: none; width: 1fr; border-right: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        # Priority: what is typed right after it has to find the form open.
        Binding("f", "form", "Form", id="view.form", tooltip="Edit what is asked", priority=True),
        Binding("escape", "leave", "Back", id="view.leave", tooltip="Leave form or filter"),
        hidden("x", "cancel", "Cancel", "view.cancel", "Stop computing"),
        hidden("e", "export('csv')", "Export", "view.export", "Visible rows to a CSV file"),
        hidden("y", "copy_command", "Copy", "view.copy", "Copy the command for this view"),
    ]

    def __init__(self) -> None:
        super().__init__(name=self.NAME)
        self._lanes: dict[str, WorkLane] = {}
        self._asked: dict[str, float] = {}

    @property
    def trnbench(self) -> Application:
        """The application."""
        return cast("Application", self.app)

    def compose(self) -> ComposeResult:
        """Yield the frame with the view's own body."""
        yield ViewBar(self.trnbench.view_names, self.NAME)
        with Container(classes="body"):
            yield from self.body()
        yield ErrorPanel()
        yield StatusLine()
        yield Footer(compact=True, show_command_palette=False)
        yield Static(
            f"terminal too small: trnbench needs {SMALLEST[0]} x {SMALLEST[1]}",
            classes="too-small",
            markup=False,
        )

    def fields(self) -> Sequence[FieldSpec]:
        """Return the fields of the form; none where the view asks for nothing."""
        return ()

    def pictures(self) -> Mapping[str, Widget]:
        """Return the pictures below the table, by the names they are chosen by."""
        return {}

    def body(self) -> Iterable[Widget]:
        """Return the widgets of the view itself: its side, and the rest."""
        side = self.side()
        main = Vertical(*self.main(), classes="main")
        yield main if side is None else Horizontal(side, main)

    def side(self) -> Widget | None:
        """Return the widgets on the left: the form, where there is one."""
        fields = self.fields()
        return Vertical(Form(fields, id=f"{self.NAME}-form"), classes="side") if fields else None

    def main(self) -> Iterable[Widget]:
        """Return the table and the pictures."""
        pictures = PictureSwitch(self.pictures(), id=f"{self.NAME}-pictures")
        return TablePane(id=f"{self.NAME}-table"), pictures

    @abstractmethod
    def answered(self, topic: str, value: object) -> None:
        """Show an answer, the newest of its topic."""

    def stale(self, topic: str) -> None:
        """Mark the table as the answer of an earlier question; pictures stay as they are."""
        if topic == self.NAME and self.table is not None:
            self.table.stale = True

    def show_table(self, found: TableFound, *columns: str) -> None:
        """Show rows, keyed by these columns."""
        self.query_one(ResultTable).show(
            TableSource.of(found.report, *columns, answers=found.answers, deltas=self.DELTAS)
        )
        self.state_facts()

    @property
    def picture(self) -> str:
        """The name of the picture that is shown."""
        return self.query_one(PictureSwitch).shown

    @abstractmethod
    def command(self) -> str:
        """Return the command line that reproduces what is shown."""

    def facts(self) -> tuple[str, ...]:
        """Return where the numbers come from, the most important first."""
        return ("modelled",)

    @property
    def unfinished(self) -> str:
        """What would be lost by leaving now, in words; empty if nothing would."""
        return ""

    def texts(self) -> dict[str, str]:
        """Return the texts of fields, restored at the next start."""
        return {key: text for form in self.query(Form) for key, text in form.texts.items()}

    def restore(self, texts: dict[str, str]) -> None:
        """Write what an earlier session left."""
        for form in self.query(Form):
            form.put(texts)

    @property
    def table(self) -> ResultTable | None:
        """The table whose rows are exported: that with the cursor, or the first."""
        if isinstance(self.focused, ResultTable):
            return self.focused
        return next(iter(self.query(ResultTable)), None)

    @property
    def report(self) -> Report | None:
        """The rows that are visible, in their order."""
        table = self.table
        return table.report if table is not None and table.source.keys else None

    @abstractmethod
    def begin(self) -> None:
        """Ask the first question; the form has what an earlier session left."""

    def on_mount(self) -> None:
        """Restore what an earlier session left, and ask once the screen has been painted."""
        texts = self.trnbench.texts_of(self.NAME)
        if texts:
            self.restore(dict(texts))
        self.state_facts()
        self.focus_main()
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        for form in self.query(Form):
            form.look()
        self.begin()
        # After the first paint: it brings numpy along.
        for chart in self.query(Chart):
            chart.load()

    def state_facts(self) -> None:
        """Write the status line anew."""
        self.query_one(StatusLine).state((*self.facts(), *self.trnbench.specs_facts))

    def say(self, activity: str) -> None:
        """Write the current activity into the status line."""
        self.query_one(StatusLine).say(activity)

    # Asking

    def ask(self, topic: str, question: Callable[..., object], *arguments: object) -> None:
        """Ask in place of what was last asked of this topic.

        The question is called in another process, with the catalogue, the arguments and hooks.
        """
        if topic not in self._lanes:
            self._lanes[topic] = WorkLane(topic, self._tell)
        self._asked[topic] = time.monotonic()
        self._lanes[topic].ask(partial(question, self.trnbench.catalog, *arguments))
        self.stale(topic)
        self.say(f"{topic} ...")

    def warm(self, topic: str, *modules: str) -> None:
        """Start the process that will answer a topic, while the screen is being painted."""
        self._lanes[topic] = WorkLane(topic, self._tell, modules=modules)
        self._lanes[topic].warm()

    def lane(self, topic: str) -> WorkLane | None:
        """Return the lane of a topic, once something was asked."""
        return self._lanes.get(topic)

    def _tell(self, lane: str, generation: int, news: News) -> None:
        self.post_message(WorkNews(lane, generation, news))

    def on_work_news(self, message: WorkNews) -> None:
        """Show news of the newest question; news of older ones is dropped."""
        message.stop()
        topic = message.lane
        if message.generation != self._lanes[topic].generation:
            return
        panel = self.query_one(ErrorPanel)
        match message.news:
            case WorkProgress(done, total, what) as progress:
                self.say(f"{topic}: {done:,}/{total:,} {what} (x cancels)")
                self.progressed(topic, progress)
            case WorkAnswer(value):
                panel.clear()
                self.say(f"{topic}: {time.monotonic() - self._asked[topic]:.1f} s")
                self.answered(topic, value)
            case Cancelled():
                self.say(f"{topic}: cancelled")
                self.cancelled(topic)
            case WorkRefusal(text, hint):
                self.say(f"{topic}: refused")
                self.refused(topic, text, hint or "")
            case Failure(text, traceback):
                self.say(f"{topic}: failed")
                last = "\n".join(traceback.strip().splitlines()[-LAST_LINES:-1])
                panel.say(f"{topic} failed, a bug in trnbench: {text}", last)
            case Crash(code, said):
                self.say(f"{topic}: crashed")
                words = said.strip().splitlines()[-1:] or ["it said nothing"]
                panel.say(
                    f"{topic}: the process that computes died (exit code {code}); "
                    "the next question starts another",
                    words[0],
                )
            case unknown:
                unhandled(unknown, "display")

    def progressed(self, topic: str, progress: WorkProgress) -> None:
        """Show how far a question is."""

    def cancelled(self, topic: str) -> None:
        """Show that a question was cancelled."""

    def refused(self, topic: str, message: str, hint: str) -> None:
        """Show that a question was malformed."""
        self.query_one(ErrorPanel).say(message, hint)

    def on_unmount(self) -> None:
        """End the processes."""
        for lane in self._lanes.values():
            lane.close()

    # Keys that every view has

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the form only where there is one, the way back only from where there is one."""
        if action == "leave":
            return isinstance(self.focused, Input)
        if action == "form":
            return bool(self.query(Form)) and not isinstance(self.focused, Input)
        return True

    def action_turn(self, by: int = 1) -> None:
        """Show the next picture."""
        self.query_one(PictureSwitch).turn(by)

    def action_cancel(self) -> None:
        """Cancel whatever is being computed."""
        busy = [lane for lane in self._lanes.values() if lane.busy]
        for lane in busy:
            lane.cancel()
        if not busy:
            self.say("nothing is running")

    def action_form(self) -> None:
        """Go to the form."""
        form = next(iter(self.query(Form)), None)
        if form is not None:
            self.open_form(form)

    def open_form(self, form: Form) -> None:
        """Put the cursor into a form; a narrow terminal then shows nothing else."""
        if self.has_class("-narrow"):
            self.query_one(".side").display = True
            self.query_one(".main").display = False
        self.set_focus(form.first)

    def on_resize(self) -> None:
        """Show form and results side by side as soon as there is room."""
        if not self.has_class("-narrow"):
            self._close_form()

    def _close_form(self) -> None:
        for part in self.query(".side, .main"):
            part.styles.clear_rule("display")

    def action_leave(self) -> None:
        """Leave filter or form for the table."""
        if isinstance(self.focused, Input) and isinstance(self.focused.parent, TablePane):
            self.focused.parent.leave_filter()
            return
        for field in self.query(Field):
            field.look()
            if field.reason and self.has_class("-narrow"):
                # The form is out of sight now, and its reasons with it.
                said = f"{field.reason}; {field.good_text or 'nothing'} still counts"
                self.notify(said, title=field.spec.label, severity="warning", markup=False)
        self._close_form()
        self.call_after_refresh(self.focus_main)

    def focus_main(self) -> None:
        """Put the cursor where the view is read."""
        if self.table is not None:
            self.table.focus()

    def action_export(self, output_format: str) -> None:
        """Write the visible rows to a file."""
        self.trnbench.export_rows(self.report, self.NAME, output_format)

    def action_copy_command(self) -> None:
        """Copy the command line that reproduces the view."""
        self.trnbench.copy_text(self.command(), "command")

    @on(ViewBar.Wanted)
    def _elsewhere(self, event: ViewBar.Wanted) -> None:
        self.trnbench.action_view(event.name)
