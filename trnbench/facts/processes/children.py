"""Start of child processes: the only place, so that all are safe and none is left behind.

A Python child imports installed modules, never from the current folder. Every child ends with its
parent, even with a killed one.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncio.subprocess import Process as AsyncProcess
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

LOOK_S = 0.2
"""Polling interval for the parent where the kernel cannot end a child with its parent."""
_BEGIN = "from trnbench.facts.processes.children import begin; begin()"
_TOOL = (
    "import ctypes, os, signal, sys\n"
    "try: ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)\n"
    "except (AttributeError, OSError): pass\n"
    "if os.getppid() == int(sys.argv[1]): os.execv(sys.argv[2], sys.argv[2:])"
)
"""Asks the kernel for a death signal with the parent, which survives the exec of another program.
"""
_END_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux's prctl."""


def python_words(entry: str, *words: str) -> list[str]:
    """Command line of a child that calls a function, `module:name`, with words.

    For children of this process only: the child ends with the thread that starts it.
    """
    return [sys.executable, "-P", "-c", _BEGIN, str(os.getpid()), entry, *words]


def safe_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment of a child, whose own children import no module from the current folder."""
    return {**os.environ, "PYTHONSAFEPATH": "1", **(more or {})}


def started(
    words: Sequence[str],
    *,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.DEVNULL,
    stderr: IO[Any],
    passed: Connection | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a command line out of reach of Ctrl-C; `passed` stays open in the child."""
    return subprocess.Popen(
        words,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=() if passed is None else (passed.fileno(),),
        env=safe_environment(environment),
        start_new_session=True,
    )


async def started_with_pipes(words: Sequence[str], environment: Mapping[str, str]) -> AsyncProcess:
    """Start a command line whose three streams are pipes of the running event loop."""
    from asyncio.subprocess import PIPE, create_subprocess_exec

    return await create_subprocess_exec(
        *words,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env=safe_environment(environment),
        start_new_session=True,
    )


def said_by(words: Sequence[str], *, longest_s: float) -> list[str]:
    """Output lines of a tool; empty if the tool is missing, fails, or exceeds `longest_s`."""
    tool = shutil.which(words[0])
    if tool is None:
        return []
    # A small Python first, which asks the kernel for the death signal and becomes the tool: code
    # between fork and exec (`preexec_fn`) is unsafe in a process with threads.
    command = [sys.executable, "-I", "-S", "-c", _TOOL, str(os.getpid()), tool, *words[1:]]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=longest_s)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


def forked(target: Callable[..., None], *arguments: object) -> BaseProcess:
    """A started copy of this process that calls a function and ends."""
    import multiprocessing

    child = multiprocessing.get_context("fork").Process(
        target=_as_copy, args=(os.getpid(), target, *arguments)
    )
    with warnings.catch_warnings():
        # Threads of numerical libraries, of which a fork is warned, take part in nothing.
        warnings.simplefilter("ignore", DeprecationWarning)
        child.start()
    return child


def forked_pool(
    workers: int, begin: Callable[..., None], *arguments: object
) -> ProcessPoolExecutor:
    """A pool of copies of this process; each calls `begin` first."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    return ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("fork"),
        initializer=partial(_as_copy, os.getpid(), begin, *arguments),
    )


def how_ended(code: int, said: str = "") -> str:
    """Description of an unexpected end: signal or exit code, and the last line of output."""
    if code < 0:
        return f"was killed by signal {-code}"
    last = [line.strip() for line in said.splitlines() if line.strip()][-1:]
    return f"ended with exit code {code}: {(last or ['it said nothing'])[0][:200]}"


def begin() -> None:
    """Entry point of the child of `python_words`: end with the parent, call the function."""
    parent, entry, *words = sys.argv[1:]
    end_with(int(parent))
    sys.argv[:] = ["trnbench", *words]
    module, _, name = entry.partition(":")
    getattr(import_module(module), name)()


def end_with(parent: int, *, kernel: bool = True) -> None:
    """End this process when its parent ends, or now if the parent has ended already.

    The kernel does this where supported; elsewhere, or without `kernel`, a thread polls.
    """
    if not (kernel and _ends_by_kernel()):
        threading.Thread(target=_look_for, args=(parent,), daemon=True).start()
    # The parent may have ended before the kernel was asked.
    if os.getppid() != parent:
        _end()


def _as_copy(parent: int, target: Callable[..., None], *arguments: object) -> None:
    end_with(parent)
    # Only the parent hears a Ctrl-C, and says what is to be done.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    target(*arguments)


def _ends_by_kernel() -> bool:
    if sys.platform != "linux":
        return False
    import ctypes

    try:
        answer = ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    except (AttributeError, OSError):
        return False
    return bool(answer == 0)


def _look_for(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    _end()


def _end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
