"""The process: `trnbench` and `python -m trnbench`."""

import os
import sys
import warnings

from trnbench.facts.processes import SELDOM
from trnbench.facts.processes.ending import Requests

INTERRUPTED = 130
"""As `cli.diagnostics` says it, whose imports an interrupt may cut short."""


def run() -> None:
    """Run the process's command line and exit; an interrupt is one from the first import on.

    SIGTERM is an interrupt too, and so is SIGHUP unless it is ignored. Open files are cleaned up,
    partial results of a long job are written, and the exit code is 128 plus the signal.
    """
    _open_missing_streams()
    # What overflows is told as what has no number, not as a line of numpy's source.
    warnings.simplefilter("ignore", RuntimeWarning)
    # Threads of matrix products wait for the next one in a loop, some hundredths of a second after
    # each and once numpy is imported. A millisecond is enough between the products of a training.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "22")
    import gc

    # Records live as long as the process: it looks for cycles seldom, and not when it ends.
    gc.set_threshold(*SELDOM)
    try:
        with Requests():
            from trnbench.cli.main import main

            code = main()
    except KeyboardInterrupt:
        code = INTERRUPTED
    finally:
        gc.freeze()
    raise SystemExit(code)


def _open_missing_streams() -> None:
    """Let a stream that the caller has closed lead nowhere, so that writing to it is no fault."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


if __name__ == "__main__":
    run()
