"""The asking half of a view: its lanes, news of questions, and whether answers are current."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from textual import on
from textual.message import Message
from textual.screen import Screen

from trnbench.errors import unhandled
from trnbench.tui.widgets.field import Field, Form
from trnbench.tui.widgets.frame import SizedNow, StatusLine
from trnbench.tui.widgets.panels import ErrorPanel
from trnbench.tui.widgets.result_table import ResultTable
from trnbench.tui.widgets.table_pane import TablePane
from trnbench.tui.work import Crash, News, WorkLane
from trnbench.tui.work_process import (
    Cancelled,
    Failure,
    WorkAnswer,
    WorkNotice,
    WorkProgress,
    WorkRefusal,
)

LAST_LINES = 5
"""Of a traceback that are shown."""
ASKED = "working on the new answer (x cancels)"
CANCELLED = "cancelled, F5 asks again"
REFUSED = "the new question was refused"


class WorkNews(Message):
    """Something new about question `generation` of a lane."""

    def __init__(self, lane: str, generation: int, news: News) -> None:
        super().__init__()
        self.lane = lane
        self.generation = generation
        self.news = news


class Asking(SizedNow, Screen[None]):
    """A screen that asks in other processes; the topic of its own name fills its table.

    A table whose rows are not of the question as it stands is marked, with the reason below it.
    """

    NAME: ClassVar[str] = ""

    def __init__(self) -> None:
        super().__init__(name=self.NAME)
        self._lanes: dict[str, WorkLane] = {}
        self._asked: dict[str, float] = {}
        self._behind = ""
        self.begun = False

    @property
    def trnbench(self) -> Any:  # noqa: ANN401 - the app itself imports this module
        return self.app

    @abstractmethod
    def answered(self, topic: str, value: object) -> None:
        """Show an answer, the newest of its topic."""

    def say(self, activity: str) -> None:
        self.query_one(StatusLine).say(activity)

    def ask(self, topic: str, question: Callable[..., object], *arguments: object) -> None:
        """Ask in place of the last question of this topic.

        The question is called in another process, with the catalogue, the arguments and hooks.
        """
        if topic not in self._lanes:
            self._lanes[topic] = WorkLane(topic, self._tell)
        self._asked[topic] = time.monotonic()
        self._lanes[topic].ask(partial(question, self.trnbench.catalog, *arguments))
        self._stands(topic, ASKED)
        self.say(f"{topic} ...")

    def warm(self, topic: str, *modules: str) -> None:
        """Start the process that will answer a topic, while the screen is being painted."""
        self._lanes[topic] = WorkLane(topic, self._tell, modules=modules)
        self._lanes[topic].warm()

    def lane(self, topic: str) -> WorkLane | None:
        return self._lanes.get(topic)

    def _tell(self, lane: str, generation: int, news: News) -> None:
        self.post_message(WorkNews(lane, generation, news))

    def on_work_news(self, message: WorkNews) -> None:
        """Show news of the newest question; news of older ones is dropped."""
        message.stop()
        if not self.is_attached:
            return
        topic = message.lane
        if message.generation != self._lanes[topic].generation:
            return
        panel = self.query_one(ErrorPanel)
        match message.news:
            case WorkProgress(done, total, what) as progress:
                self.say(f"{topic}: {done:,}/{total:,} {what} (x cancels)")
                self.progressed(topic, progress)
            case WorkAnswer(value, in_part):
                panel.clear()
                cancelled = "cancelled after " if in_part else ""
                elapsed_s = time.monotonic() - self._asked[topic]
                self._ended(topic, f"{cancelled}{elapsed_s:.1f} s", "")
                self.answered(topic, value)
                self.mark()
            case WorkNotice(text):
                self.notify(text, severity="warning", markup=False, timeout=10)
            case Cancelled():
                self._ended(topic, "cancelled", CANCELLED)
                self.cancelled(topic)
            case WorkRefusal(text, hint):
                self._ended(topic, "refused", REFUSED)
                self.refused(topic, text, hint or "")
            case Failure(text, traceback):
                self._ended(topic, "failed", "the new question failed")
                last = "\n".join(traceback.strip().splitlines()[-LAST_LINES:-1])
                panel.say(f"{topic} failed, a bug in trnbench: {text}", last)
            case Crash(code, said):
                self._ended(topic, "crashed", "the new question crashed, F5 asks again")
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
        self.query_one(ErrorPanel).say(message, hint)

    def action_cancel(self) -> None:
        busy = [lane for lane in self._lanes.values() if lane.busy]
        for lane in busy:
            lane.cancel()
        if not busy:
            self.say("nothing is running")

    def on_unmount(self) -> None:
        for lane in self._lanes.values():
            lane.close()

    @property
    def all_fields(self) -> list[Field]:
        """The fields of the forms, also those that are folded."""
        return [field for form in self.query(Form) for field in form.fields.values()]

    def _ended(self, topic: str, said: str, behind: str) -> None:
        self.say(f"{topic}: {said}")
        self._stands(topic, behind)

    def _stands(self, topic: str, behind: str) -> None:
        if topic == self.NAME:
            self._behind = behind
            self.mark()

    @on(Field.Judged)
    def mark(self) -> None:
        """Mark the table if its rows do not answer the form, and say why not."""
        panes = list(self.query(TablePane))
        if not panes:
            return
        bad = next((field.spec.label for field in self.all_fields if field.reason), None)
        behind = f"{bad} cannot be used as typed" if bad else self._behind
        table = panes[0].query_one(ResultTable)
        table.stale = bool(behind) and table.answers_something
        before = "previous answer; " if table.stale else ""
        panes[0].stand(f"{before}{behind}" if behind else "")
