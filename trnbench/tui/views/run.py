"""Benchmark suites: run a suite, watch and stop the run, keep its rows."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.widget import Widget
from textual.widgets import ProgressBar, RichLog

from trnbench.facts.units import counted
from trnbench.show.report import Report
from trnbench.tui.questions.benchmarks import ENGINES, SuiteRun, run_suite, suite_question, suites
from trnbench.tui.view import View
from trnbench.tui.widgets.frame import offered
from trnbench.tui.widgets.result_table import ResultTable
from trnbench.tui.widgets.table_model import TableSource
from trnbench.tui.widgets.table_pane import TablePane
from trnbench.tui.work_process import WorkProgress

WORK = "suite"


class RunView(View):
    """Suites to the left, progress and log below, results to the right."""

    NAME: ClassVar[str] = "run"
    DEFAULT_CSS = """
    RunView .suites { width: 44; border-right: vkey $panel; }
    RunView.-narrow .suites { width: 26; }
    RunView ProgressBar { height: 1; width: 100%; padding: 0 1; }
    RunView Bar { width: 1fr; }
    RunView RichLog { height: 8; border-top: hkey $panel; scrollbar-size-vertical: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        offered("r", "again", "Run", "run.start", "Run the marked suite"),
        offered("n", "engine", "Engine", "run.engine", "Analytic, simulated, or both"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._engine = 0
        self._job = ""
        self._results: SuiteRun | None = None
        self._started = 0.0
        self._last = ""

    def body(self) -> Iterable[Widget]:
        """Suites, results, progress and log."""
        yield Horizontal(
            Vertical(TablePane(id="run-suites"), classes="suites"),
            Vertical(
                TablePane(id="run-results"),
                ProgressBar(total=1, show_eta=False, id="run-progress"),
                RichLog(max_lines=1000, wrap=True, id="run-log"),
                classes="main",
            ),
        )

    @property
    def unfinished(self) -> str:
        lane = self.lane(WORK)
        return f"{self._job} is running" if lane is not None and lane.busy else ""

    @property
    def report(self) -> Report | None:
        """The results, wherever the cursor is."""
        return self._table.report if self._results is not None else None

    @property
    def _suites(self) -> ResultTable:
        return self.query_one("#run-suites", ResultTable)

    @property
    def _table(self) -> ResultTable:
        return self.query_one("#run-results", ResultTable)

    def begin(self) -> None:
        """List the suites."""
        report = suites(self.trnbench.catalog)
        self._suites.show(TableSource.of(report, "suite"))
        self.query_one("#run-suites-pane", TablePane).say("r runs the marked suite")
        self.query_one("#run-results-pane", TablePane).say(
            "r runs the suite that is marked on the left"
        )

    def focus_main(self) -> None:
        self.set_focus(self._suites)

    def command(self) -> str:
        """The command line of the results, or of the marked suite."""
        done = self._results
        (kind, name), engine = self._marked, ENGINES[self._engine]
        if done is not None:
            kind, name, engine = done.kind, done.name, done.engine
        return suite_question(kind, name, engine).line

    def facts(self) -> tuple[str, ...]:
        return ("modelled", f"engine {ENGINES[self._engine]}")

    def answered(self, topic: str, value: object) -> None:
        """Show the results."""
        assert isinstance(value, SuiteRun)
        self._results = value
        self._table.show(TableSource.of(value.report))
        elapsed = time.monotonic() - self._started
        word = "done" if value.complete else "stopped"
        self._log(
            f"{self._job}: {word}, {counted(len(value.report.rows), 'row')} in {elapsed:.1f} s"
        )
        ready = "" if value.complete else ", those that were ready"
        self.query_one("#run-results-pane", TablePane).say(f"{value.kind} {value.name}{ready}")
        if value.complete:
            bar = self.query_one(ProgressBar)
            bar.update(total=1, progress=1)

    def refused(self, topic: str, message: str, hint: str) -> None:
        super().refused(topic, message, hint)
        self._log(f"{self._job}: {message}")

    def cancelled(self, topic: str) -> None:
        self._log(f"{self._job}: stopped")

    def progressed(self, topic: str, progress: WorkProgress) -> None:
        """Draw progress."""
        self.query_one(ProgressBar).update(total=max(progress.total, 1), progress=progress.done)
        if progress.what != self._last:
            self._last = progress.what
            self._log(f"{progress.done + 1}/{progress.total} {progress.what}")

    def action_again(self) -> None:
        """Run the marked suite."""
        kind, name = self._marked
        engine = ENGINES[self._engine]
        self._job = f"{kind} {name}, {engine}"
        self._started, self._last = time.monotonic(), ""
        self.query_one(ProgressBar).update(total=1, progress=0)
        self._log(f"{self._job}: started")
        self.ask(WORK, run_suite, kind, name, engine)

    def action_engine(self) -> None:
        self._engine = (self._engine + 1) % len(ENGINES)
        self.state_facts()
        self.say(f"engine: {ENGINES[self._engine]}")

    @on(ResultTable.Chosen)
    def _chosen(self, event: ResultTable.Chosen) -> None:
        if event.table is self._suites:
            self.action_again()

    @property
    def _marked(self) -> tuple[str, str]:
        kind, _, name = (self._suites.key or "matrix/llama").partition("/")
        return kind, name

    def _log(self, text: str) -> None:
        self.query_one(RichLog).write(text)
