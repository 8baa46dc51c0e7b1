"""Starting other processes: the one place that does, so that all are safe and none is left behind.

A Python child finds modules where they are installed, never in the folder that somebody happens to
be in. Every child ends with its parent, even when that is killed and can tell nobody.
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
"""Where the kernel cannot end a process with its parent, it looks so often for its parent."""
_BEGIN = "from trnbench.facts.processes.children import begin; begin()"
_TOOL = (
    "import ctypes, os, signal, sys\n"
    "try: ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)\n"
    "except (AttributeError, OSError): pass\n"
    "if os.getppid() == int(sys.argv[1]): os.execv(sys.argv[2], sys.argv[2:])"
)
"""Ends with its parent, and becomes another program, which goes on doing so."""
_END_WITH_PARENT = 1
"""What Linux calls PR_SET_PDEATHSIG."""


def python_words(entry: str, *words: str) -> list[str]:
    """Return the command line of a child that calls a function, `module:name`, with words.

    The child of this process alone: it ends with the thread that starts it.
    """
    return [sys.executable, "-P", "-c", _BEGIN, str(os.getpid()), entry, *words]


def safe_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a child, whose own children find no module where they are."""
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
    """Start a command line in a session of its own, where no Ctrl-C comes; it may keep `passed`."""
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
    """Return the lines that a tool prints; none where it is not there, fails or takes longer."""
    tool = shutil.which(words[0])
    if tool is None:
        return []
    command = [sys.executable, "-I", "-S", "-c", _TOOL, str(os.getpid()), tool, *words[1:]]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=longest_s)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


def forked(target: Callable[..., None], *arguments: object) -> BaseProcess:
    """Return a started copy of this process that calls a function and ends."""
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
    """Return a pool of copies of this process; each calls `begin` before it does anything."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    return ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("fork"),
        initializer=partial(_as_copy, os.getpid(), begin, *arguments),
    )


def how_ended(code: int, said: str = "") -> str:
    """Return how a process ended that was not to: its signal or exit code, and its last line."""
    if code < 0:
        return f"was killed by signal {-code}"
    last = [line.strip() for line in said.splitlines() if line.strip()][-1:]
    return f"ended with exit code {code}: {(last or ['it said nothing'])[0][:200]}"


def begin() -> None:
    """Be the child that `python_words` describes: end with the parent, and call the function."""
    parent, entry, *words = sys.argv[1:]
    end_with(int(parent))
    sys.argv[:] = ["trnbench", *words]
    module, _, name = entry.partition(":")
    getattr(import_module(module), name)()


def end_with(parent: int, *, kernel: bool = True) -> None:
    """End this process when its parent of this number ends, or now if it has ended already.

    `kernel`: where it can see to it, it does; elsewhere a thread looks.
    """
    if not (kernel and _ends_by_kernel()):
        threading.Thread(target=_look_for, args=(parent,), daemon=True).start()
    if os.getppid() != parent:
        _end()


def _as_copy(parent: int, target: Callable[..., None], *arguments: object) -> None:
    end_with(parent)
    # The one who asks hears a Ctrl-C, and says what is to be done.
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
