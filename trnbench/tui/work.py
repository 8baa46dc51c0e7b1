"""Questions answered in a process of their own, so that no key ever waits for one.

A lane is one such process and the thread that listens to it. The newest question of a lane
replaces the one before; one that is not dropped in time is ended with its process, and the next
question gets a new one. Every answer carries the number of its question: stale ones are dropped.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from subprocess import Popen
from typing import IO, TypeAlias

from trnbench.facts.processes.children import python_words, started
from trnbench.facts.records import Record
from trnbench.tui.work_process import (
    Cancelled,
    Outcome,
    WorkMessage,
    WorkNotice,
    WorkProgress,
    WorkQuestion,
)

GRACE_S = 0.2
"""A question that is to end has so long to end by itself."""
LAST_WORDS = 4_000
"""Number of kept characters of a dying process's last words."""
_COMMAND = "trnbench.tui.work_process:main"


class Crash(Record, kw_only=False):
    """The process died: its exit code, and the last it said."""

    code: int
    said: str


News: TypeAlias = WorkProgress | Outcome | WorkNotice | Crash
Tell: TypeAlias = Callable[[str, int, News], None]
"""Called from a thread with the lane, the number of the question, and its news."""


class WorkLane:
    """One process that answers the newest question; a thread calls `tell` with its news.

    `modules` are imported by the process before it listens.
    """

    def __init__(self, name: str, tell: Tell, *, modules: tuple[str, ...] = ()) -> None:
        self.name = name
        self._tell = tell
        self._modules = modules
        self._lock = threading.Lock()
        self._to_send = threading.Condition(self._lock)
        self._outbox: list[bytes] = []
        self.generation = 0
        """Number of the newest question; messages with another number are stale."""
        self._pending: WorkMessage | None = None
        self._answered = 0
        self._process: Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._starting = False
        self._replacing = False
        self._closed = False

    @property
    def busy(self) -> bool:
        return self.generation > self._answered

    @property
    def process_id(self) -> int | None:
        return None if self._process is None else self._process.pid

    def warm(self) -> None:
        with self._lock:
            if self._connection is None and not self._starting:
                self._start()

    def ask(self, question: WorkQuestion) -> int:
        """Ask, in place of the question before, and return the question's number."""
        with self._lock:
            was_busy = self.busy
            # News of older questions may still come: their number tells them apart.
            self.generation += 1
            self._pending = self.generation, question
            if self._connection is not None:
                self._outbox.clear()  # the newest question ends those before it
                self._send(self._pending)
                if was_busy:
                    self._end_soon(self.generation - 1)
            elif not self._starting:
                self._start()
            return self.generation

    def cancel(self) -> None:
        """Drop the question under way; its process ends within 0.3 s if need be."""
        with self._lock:
            if not self.busy:
                return
            self._pending = None
            if self._connection is not None:
                self._send((self.generation, None))
                self._end_soon(self.generation)

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._closed = True
            self._pending = None
            if self._process is not None:
                _kill(self._process)

    def _start(self) -> None:
        self._starting = True
        name = f"trnbench-{self.name}"
        threading.Thread(target=self._live, name=name, daemon=True).start()

    def _send(self, message: WorkMessage) -> None:
        # A thread sends: a process that computes or writes a long answer reads messages late.
        self._outbox.append(bytes(ForkingPickler.dumps(message)))
        self._to_send.notify()

    def _write(self, connection: Connection) -> None:
        """Send messages to a process until it is gone, and keep nobody waiting meanwhile."""
        while True:
            with self._to_send:
                while self._connection is connection and not self._outbox:
                    self._to_send.wait()
                if self._connection is not connection:
                    return
                message = self._outbox.pop(0)
            try:
                connection.send_bytes(message)
            except OSError:
                # The listening thread finds the process dead and says so.
                return

    def _end_soon(self, generation: int) -> None:
        timer = threading.Timer(GRACE_S, self._end, (generation, self._process))
        timer.daemon = True
        timer.start()

    def _end(self, generation: int, process: Popen[bytes] | None) -> None:
        with self._lock:
            # An answer, or another process, may have come while the timer ran.
            if self._answered < generation and process is not None and process is self._process:
                self._replacing = True
                _kill(process)

    def _live(self) -> None:
        """Start a process and listen to it until it ends."""
        here, there = Pipe()
        with tempfile.TemporaryFile() as said:
            words = python_words(_COMMAND, str(there.fileno()), *self._modules)
            process = started(words, stderr=said, passed=there)
            there.close()
            with self._lock:
                self._process, self._connection, self._starting = process, here, False
                if self._closed:
                    _kill(process)
                elif self._pending is not None:
                    self._send(self._pending)
            writer = threading.Thread(target=self._write, args=(here,), daemon=True)
            writer.start()
            self._listen(here)
            code = process.wait()
            self._ended(code, said)
        writer.join()
        here.close()

    def _listen(self, connection: Connection) -> None:
        while True:
            try:
                generation, news = connection.recv()
            except (EOFError, OSError):
                return
            with self._lock:
                if not isinstance(news, WorkProgress):
                    self._answered = max(self._answered, generation)
                fresh = generation == self.generation
            if fresh:
                self._tell(self.name, generation, news)

    def _ended(self, code: int, said: IO[bytes]) -> None:
        with self._lock:
            self._process = self._connection = None
            self._outbox.clear()
            self._to_send.notify_all()
            if self._closed:
                return
            generation, was_busy = self.generation, self.busy
            replacing, self._replacing = self._replacing, False
            if replacing and (self._pending is not None or not was_busy):
                # For the newest question; or the question was answered while its process was being
                # ended, and the next question is to find a process that is ready.
                if not was_busy:
                    self._pending = None
                self._start()
                return
            self._answered = generation
        if replacing:
            self._tell(self.name, generation, Cancelled())
        elif was_busy or code:
            said.seek(0)
            text = said.read().decode(errors="replace")[-LAST_WORDS:]
            self._tell(self.name, generation, Crash(code, text))


def _kill(process: Popen[bytes]) -> None:
    # A process leads its own group, so that its children end with it.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
