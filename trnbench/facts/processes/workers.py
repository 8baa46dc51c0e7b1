"""Python processes that answer calls; a lost process fails only its own call."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from queue import SimpleQueue
from subprocess import Popen, TimeoutExpired
from typing import IO, Any, TypeAlias, TypeVar

from trnbench.facts.processes.children import how_ended, python_words, started

GRACE_S = 2.0
"""Time for an idle process to end by itself."""
T = TypeVar("T")
_Call: TypeAlias = tuple["Future[Any]", Callable[..., Any], tuple[Any, ...]]


class WorkerLost(Exception):
    """A process ended before its answer; the message says how."""


class Workers(Executor):
    """Processes, up to `count`, started on demand, with additions to their environment.

    Each process has a thread of its own, because it ends with the thread that started it.
    """

    def __init__(self, count: int, environment: Mapping[str, str] | None = None) -> None:
        self._count = count
        self._environment = dict(environment or {})
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._busy: set[_Worker] = set()
        self._lock = threading.Lock()
        self._closed = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:  # noqa: ANN401
        """Have a process call an importable function, with positional arguments."""
        if self._closed or kwargs:
            raise RuntimeError("closed workers are asked" if self._closed else f"named: {kwargs}")
        future: Future[T] = Future()
        self._calls.put((future, fn, args))
        if len(self._threads) < self._count:
            thread = threading.Thread(target=self._serve, daemon=True)
            self._threads.append(thread)
            thread.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes; with `cancel_futures` also the busy ones, at once."""
        with self._lock:
            self._closed = True
            # A busy process cannot be asked to end: its death ends the call with an EOFError.
            if cancel_futures:
                for worker in self._busy:
                    worker.kill()
        # A None for each thread, behind all calls: every thread takes exactly one.
        for _ in self._threads:
            self._calls.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def _serve(self) -> None:
        worker: _Worker | None = None
        while (call := self._calls.get()) is not None:
            future, function, arguments = call
            if self._closed:
                future.cancel()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                worker = worker or _Worker(self._environment)
                good, value = self._asked(worker, function, arguments)
            except (EOFError, OSError):
                good, value = False, WorkerLost(worker.end() if worker else "cannot be started")
                worker = None
            except Exception as error:  # what cannot be sent, or is not understood here
                good, value = False, error
            if good:
                future.set_result(value)
            else:
                future.set_exception(value)
        if worker is not None:
            worker.end()

    def _asked(
        self, worker: _Worker, function: Callable[..., Any], arguments: tuple[Any, ...]
    ) -> tuple[bool, Any]:
        # Under the lock a call is either seen by `shutdown`, which kills, or sees its mark.
        with self._lock:
            if self._closed:
                raise EOFError
            self._busy.add(worker)
        try:
            worker.connection.send((function, arguments))
            answer: tuple[bool, Any] = worker.connection.recv()
            return answer
        finally:
            with self._lock:
                self._busy.discard(worker)


class _Worker:
    """One process, and the pipe to it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.connection, there = Pipe()
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        try:
            folders = [folder for folder in sys.path if folder]
            words = python_words(
                "trnbench.facts.processes.workers:main", str(there.fileno()), *folders
            )
            self._process: Popen[bytes] = started(
                words, stderr=self._said, passed=there, environment=environment
            )
        except OSError:
            self._said.close()
            self.connection.close()
            raise
        finally:
            there.close()

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> str:
        """End the process; the result describes how it ended."""
        # An idle process reads the end of the connection and leaves by itself.
        self.connection.close()
        try:
            code = self._process.wait(GRACE_S)
        except TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._said.seek(0)
        with self._said:
            return how_ended(code, self._said.read().decode(errors="replace"))


def main() -> None:
    """Answer calls from the connection whose descriptor is the first word, until it is closed.

    The other words are folders of the caller's modules; they come after the installed ones, because
    none may shadow a library.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = Connection(int(sys.argv[1]))
    sys.path += [folder for folder in sys.argv[2:] if folder not in sys.path]
    try:
        while True:
            function, arguments = connection.recv()
            try:
                answer = True, function(*arguments)
            except Exception as error:  # it is raised where the answer is waited for
                answer = False, error
            connection.send(answer)
    except (EOFError, ConnectionResetError, BrokenPipeError):
        os._exit(0)
