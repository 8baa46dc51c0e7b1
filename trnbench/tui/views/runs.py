"""Kept answers: the list, the text of an answer, and two answers beside each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on
from textual.binding import BindingType

from trnbench.tui.cluster_view import cluster_of
from trnbench.tui.questions.evidence import (
    RunsFound,
    difference_text,
    kept_answer_text,
    kept_runs,
    opened_run,
    scenario_of_options,
)
from trnbench.tui.view import View
from trnbench.tui.widgets.frame import offered
from trnbench.tui.widgets.panels import Picture, PictureSwitch, TextPanel
from trnbench.tui.widgets.result_table import ResultTable
from trnbench.tui.widgets.table_pane import TablePane

if TYPE_CHECKING:
    from trnbench.store.runs import KeptRun
    from trnbench.verbs.runs.run import AnsweredRun


class RunsView(View):
    """A table of kept runs, the answer of a run, and the differences of two."""

    NAME: ClassVar[str] = "runs"
    GUIDE = "history"
    BINDINGS: ClassVar[list[BindingType]] = [
        offered("enter", "choose", "Open", "runs.open", "Ask it again in its own view"),
        offered("c", "turn", "Chart", "runs.chart", "The answer, or the difference"),
        offered("d", "differ", "Compare", "runs.differ", "Hold two pinned runs together"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._texts: dict[str, str] = {}

    def pictures(self) -> Mapping[str, Picture]:
        return {"answer": TextPanel(), "difference": TextPanel()}

    def action_again(self) -> None:
        self.ask("runs", kept_runs)

    def on_screen_resume(self) -> None:
        """List the runs that other views have kept since."""
        if self.lane("runs") is not None:
            self.action_again()

    def command(self) -> str:
        """The command line of the list, or of an action on a run."""
        pair = self._pair()
        if self.picture == "difference" and len(pair) == 2:
            return f"trnbench runs diff {pair[0]} {pair[1]}"
        here = self._here()
        return "trnbench runs list" if here is None else here.command

    def facts(self) -> tuple[str, ...]:
        return ("kept answers", "y copies the command of the marked one")

    def answered(self, topic: str, value: object) -> None:
        """Show runs, an answer, a difference, or go where a run is opened."""
        match topic:
            case "runs" if isinstance(value, RunsFound):
                self.show_table(value, "id")
                self.query_one(TablePane).say("; ".join(value.said))
            case "answer":
                self._texts[topic] = str(value)
                self.draw()
            case "difference":
                self._texts[topic] = str(value)
                self.query_one(PictureSwitch).turn_to(topic)
            case _:
                self._open(cast("AnsweredRun", value))

    def action_differ(self) -> None:
        """Show the differences of two pinned runs, or of the pinned and the marked run."""
        names = self._pair()
        if len(names) == 2:
            self.ask("difference", difference_text, names)
        else:
            self.notify("pin two runs with space, or one and mark another", severity="warning")

    def drawn(self, picture: str) -> object:
        """The text that was answered last."""
        return self._texts.get(picture)

    def turned(self) -> None:
        """Draw, and ask for the answer of the run under the cursor."""
        super().turned()
        here = self._here()
        if here is not None and "answer" in self.visible_pictures:
            self.ask("answer", kept_answer_text, here.id)

    def follow(self) -> None:
        self.turned()

    @on(ResultTable.Chosen)
    def _chosen(self, event: ResultTable.Chosen) -> None:
        self.ask("open", opened_run, str(event.row["id"]))

    def _open(self, one: AnsweredRun) -> None:
        """Ask a kept question again in its own view, where there is such a view."""
        run = one.run
        scenario = None
        if run.verb in ("compare", "plan"):
            scenario = scenario_of_options(dict(run.options))
        row = next((row for row in one.answer.rows if row.get("nodes") is not None), None)
        if scenario is not None:
            self.app.call_later(self.trnbench.take_scenario, scenario)
        elif run.verb == "train" and row is not None:
            self.trnbench.choose_cluster(cluster_of(row))
        else:
            self.notify("no view has all its options; y copies its command", title=run.verb)

    def _here(self) -> KeptRun | None:
        return cast("KeptRun | None", self.query_one(ResultTable).answer)

    def _pair(self) -> tuple[str, ...]:
        """The pinned runs, or the pinned and the marked run, the older first."""
        table = self.query_one(ResultTable)
        rows = [line.row for line in table.pinned]
        if len(rows) == 1 and table.row is not None and table.row["id"] != rows[0]["id"]:
            rows.append(table.row)
        return tuple(str(row["id"]) for row in sorted(rows, key=lambda row: str(row["started_at"])))
