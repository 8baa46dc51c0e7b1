"""The other side of `tui.work`: a process that answers questions one after the other.

Started by `tui.work` with the number of its descriptor. Never imports textual, writes to no
terminal. The newest question wins: it ends the one that is being answered at its next step.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, TypeAlias

from trnbench.errors import TrnbenchError, unhandled
from trnbench.facts.records import Record
from trnbench.tui.keeping import STOOD_S, AnswerKeeper, AskedAnswer

if TYPE_CHECKING:
    from trnbench.facts.catalog.search import Catalog
    from trnbench.show.report import Report
    from trnbench.verbs.asking.command_lines import CommandQuestion

INTERVAL_S = 0.1
"""Seconds between two reports of progress, at least."""
NICENESS = 10
"""The terminal comes first where processors are few."""


class Ask(Record, kw_only=False):
    """A question, and its number."""

    generation: int
    question: WorkQuestion


class CancelAsk(Record, kw_only=False):
    """Drop the question of this number, and all before it."""

    generation: int


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

    def keep(
        self, catalog: Catalog, question: CommandQuestion, report: Report, *, good: bool
    ) -> None:
        """Keep an answer once it is shown; `good`: the command line would exit with 0."""
        self.answers.append(
            AskedAnswer(catalog=catalog, question=question, report=report, good=good)
        )

    def note(self, done: int, total: int, what: str) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + INTERVAL_S
            self._tell(WorkProgress(done, total, what))


WorkQuestion: TypeAlias = Callable[[WorkHooks], object]
"""A function of the hooks that can be pickled, such as a partial function."""


class _Server:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.waiting: Ask | None = None
        self.dropped = 0
        self.keeper = AnswerKeeper()
        self.asked_at = self.kept_at = time.monotonic()

    def serve(self) -> None:
        """Answer until the other side is gone."""
        while True:
            if self.waiting is None:
                self.take(self.connection.recv())
                continue
            ask, self.waiting = self.waiting, None
            if ask.generation > self.dropped:
                self.serve_one(ask)
            else:
                self.connection.send((ask.generation, Cancelled()))

    def serve_one(self, ask: Ask) -> None:
        """Answer a question; keep the answer unless a newer question came meanwhile."""
        began, start = datetime.now(tz=UTC), time.monotonic()
        stood = self.asked_at - self.kept_at >= STOOD_S
        hooks = WorkHooks(
            lambda progress: self.connection.send((ask.generation, progress)),
            lambda: self.check(ask.generation),
        )
        self.connection.send((ask.generation, self.answer(ask, hooks)))
        seconds = time.monotonic() - start
        while self.connection.poll():
            self.take(self.connection.recv())
        if hooks.answers and self.waiting is None:
            for text in self.keeper.keep(hooks.answers, began, seconds, stood=stood):
                self.connection.send((ask.generation, WorkNotice(text)))
            self.kept_at = time.monotonic()

    def take(self, message: Ask | CancelAsk) -> None:
        match message:
            case Ask():
                self.waiting = message
                self.asked_at = time.monotonic()
            case CancelAsk():
                self.dropped = message.generation
            case unknown:
                unhandled(unknown, "effect on questions")

    def answer(self, ask: Ask, hooks: WorkHooks) -> Outcome:
        try:
            return WorkAnswer(ask.question(hooks), in_part=hooks.in_part)
        except _Dropped:
            return Cancelled()
        except TrnbenchError as error:
            return WorkRefusal(error.message, error.hint)
        except Exception as error:
            import traceback

            return Failure(f"{type(error).__name__}: {error}", traceback.format_exc())

    def check(self, generation: int) -> None:
        while self.connection.poll():
            self.take(self.connection.recv())
        if self.waiting is not None or self.dropped >= generation:
            raise _Dropped


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
