"""The other side of `tui.work`: a process that answers questions, and keeps the answers.

Started by `tui.work` with the number of its descriptor. Never imports textual, writes to no
terminal. The newest question wins: it ends the one that is being answered at its next step.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from importlib import import_module
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, TypeAlias

from trnbench.errors import TrnbenchError
from trnbench.facts.records import Record
from trnbench.show.report import Report

if TYPE_CHECKING:
    from trnbench.facts.catalog.search import Catalog
    from trnbench.show.report import Report
    from trnbench.verbs.asking.command_lines import CommandQuestion
    from trnbench.verbs.asking.question import Question


class TableFound(Record):
    """A report, and the typed answer behind each of its rows; `whole` is what its command says."""

    report: Report
    answers: tuple[Any, ...] = ()
    whole: Report | None = None


STOOD_S = 2.0
"""An answer that stood for less is replaced by the next."""


class AskedAnswer(Record):
    """An answer to a question of the command line; `good`: the command would exit with 0."""

    catalog: Catalog
    question: CommandQuestion
    report: Report
    good: bool


class AnswerKeeper:
    """Keeps the answers of a topic, question by question.

    Kept once they are on their way to the screen: no key waits for it. One that was replaced at
    once, as by a number half typed, is replaced in the file of runs too.
    """

    def __init__(self) -> None:
        self._ids: tuple[str, ...] = ()
        self._last: list[object] = []
        self._told: set[str] = set()

    def keep(
        self, answers: Sequence[AskedAnswer], began: datetime, seconds: float, *, stood: bool
    ) -> Iterator[str]:
        """Keep the answer to a question, unless kept last; yield the messages for the user.

        `stood`: the answer before is kept beside it.
        """
        from trnbench.store.place import keeps
        from trnbench.verbs.asking.command_lines import with_folders
        from trnbench.verbs.runs.keeping import GivenAnswer, keep, kept_answer, kept_or_said

        if not keeps():
            return
        content: list[object] = [(kept.question, kept_answer(kept.report)) for kept in answers]
        if content == self._last:
            return
        said: list[str] = []

        def keep_them() -> None:
            ids: list[str] = []
            for kept in answers:
                given = GivenAnswer(
                    report=kept.report,
                    options=kept.question.given,
                    command=with_folders(kept.question.line, kept.catalog),
                    started_at=began,
                    seconds=seconds,
                    exit_code=0 if kept.good else 1,
                    replaces=() if ids or stood else self._ids,
                )
                ids.append(keep(kept.catalog, given, say=said.append))
            self._ids, self._last = tuple(ids), content

        kept_or_said(keep_them, said.append, "answers are")
        yield from (text for text in said if text not in self._told)
        self._told.update(said)


INTERVAL_S = 0.1
"""Seconds between two reports of progress, at least."""
NICENESS = 10
"""The terminal comes first where processors are few."""


class WorkProgress(Record, kw_only=False):
    """Progress of a question: `done` of `total` steps, and the name of the next step."""

    done: int
    total: int
    what: str


class WorkAnswer(Record, kw_only=False):
    """The answer of a question; `in_part` if the question was cancelled before its end."""

    value: object
    in_part: bool = False


class WorkRefusal(Record, kw_only=False):
    """Fault of a malformed question, with the reason and the accepted values."""

    message: str
    hint: str | None


class Failure(Record, kw_only=False):
    """A bug: the raised exception and its traceback."""

    message: str
    traceback: str


class Cancelled(Record, kw_only=False):
    """The question was dropped on request."""


class WorkNotice(Record, kw_only=False):
    """Something to be said beside an answer that is shown."""

    text: str


Outcome: TypeAlias = WorkAnswer | WorkRefusal | Failure | Cancelled


class _Dropped(Exception):
    """A newer question came in, or this question was cancelled."""


class WorkHooks:
    """Through which a question reports its progress; `progress` may end it.

    `answers`: what of it is to be kept, as from the command line. `in_part`: the question knows
    that it was cancelled, and answers with what it has.
    """

    def __init__(self, tell: Callable[[WorkProgress], None], check: Callable[[], None]) -> None:
        self.answers: list[AskedAnswer] = []
        self.in_part = False
        self._tell = tell
        self._check = check
        self._next = 0.0

    def progress(self, done: int, total: int, what: str) -> None:
        """Report the progress of the question; raise if a newer or cancelled question ends it."""
        self._check()
        self.note(done, total, what)

    def ended(self) -> bool:
        """True once the question was cancelled or replaced; a part of the answer may still come."""
        try:
            self._check()
        except _Dropped:
            self.in_part = True
        return self.in_part

    def keep(self, catalog: Catalog, asked: VerbAsked, report: Report, *, good: bool) -> None:
        """Keep an answer once it is shown; `good`: the command line would exit with 0."""
        from trnbench.verbs.asking.command_lines import CommandQuestion, command_question

        question = asked if isinstance(asked, CommandQuestion) else command_question(*asked)
        self.answers.append(
            AskedAnswer(catalog=catalog, question=question, report=report, good=good)
        )

    def note(self, done: int, total: int, what: str) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + INTERVAL_S
            self._tell(WorkProgress(done, total, what))


WorkQuestion: TypeAlias = Callable[[WorkHooks], object]
"""A function of the hooks that can be pickled, such as a partial function."""
VerbAsked: TypeAlias = "tuple[str, Question] | CommandQuestion"
"""A verb and its question, or both as the command line has them."""
WorkMessage: TypeAlias = tuple[int, WorkQuestion | None]
"""A numbered question; without one, the question of the number is dropped, and all before it."""


class _Server:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.waiting: tuple[int, WorkQuestion] | None = None
        self.dropped = 0
        self.keeper = AnswerKeeper()
        self.asked_at = self.kept_at = time.monotonic()

    def serve(self) -> None:
        """Answer until the other side is gone."""
        while True:
            if self.waiting is None:
                self.take(self.connection.recv())
                continue
            (generation, question), self.waiting = self.waiting, None
            if generation > self.dropped:
                self.serve_one(generation, question)
            else:
                self.connection.send((generation, Cancelled()))

    def serve_one(self, generation: int, question: WorkQuestion) -> None:
        """Answer a question; keep the answer unless a newer question came meanwhile."""
        began, start = datetime.now(tz=UTC), time.monotonic()
        stood = self.asked_at - self.kept_at >= STOOD_S
        hooks = WorkHooks(
            lambda progress: self.connection.send((generation, progress)),
            lambda: self.check(generation),
        )
        self.connection.send((generation, answer(question, hooks)))
        seconds = time.monotonic() - start
        self.take_all()
        if hooks.answers and self.waiting is None:
            for text in self.keeper.keep(hooks.answers, began, seconds, stood=stood):
                self.connection.send((generation, WorkNotice(text)))
            self.kept_at = time.monotonic()

    def take(self, message: WorkMessage) -> None:
        generation, question = message
        if question is None:
            self.dropped = generation
        else:
            self.waiting = generation, question
            self.asked_at = time.monotonic()

    def take_all(self) -> None:
        while self.connection.poll():
            self.take(self.connection.recv())

    def check(self, generation: int) -> None:
        self.take_all()
        if self.waiting is not None or self.dropped >= generation:
            raise _Dropped


def answer(question: WorkQuestion, hooks: WorkHooks) -> Outcome:
    """The outcome of a question; its faults are outcomes, too."""
    try:
        return WorkAnswer(question(hooks), in_part=hooks.in_part)
    except _Dropped:
        return Cancelled()
    except TrnbenchError as error:
        return WorkRefusal(error.message, error.hint)
    except Exception as error:
        import traceback

        return Failure(f"{type(error).__name__}: {error}", traceback.format_exc())


def main() -> None:
    """Serve the connection whose descriptor is the first argument; import the modules named."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    connection = Connection(int(sys.argv[1]))
    for module in sys.argv[2:]:
        import_module(module)
    try:
        _Server(connection).serve()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
