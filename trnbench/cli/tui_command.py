"""`trnbench tui`: the terminal UI. Imports it when it is wanted, not before."""

from __future__ import annotations

import gc
import os
import sys
from functools import partial
from pathlib import Path

from trnbench.cli.derived_options import asks
from trnbench.cli.diagnostics import say
from trnbench.cli.output import SPEC_DIRS
from trnbench.errors import EnvironmentFault, InputError
from trnbench.facts import parsing
from trnbench.verbs.asking.question import Question, option

WEB_DRIVER = "textual.drivers.web_driver:WebDriver"
"""What textual-serve tells the process of a tab to paint with."""
IDLE_S = 1800.0


class TuiQuestion(Question):
    """Options of the terminal UI, and the address at which browsers reach it."""

    view: str | None = option(
        "compare, plan, what_if, layouts, memory, schedule, matrix, collective, evidence or runs.",
        metavar="[VIEW]",
        argument=True,
    )
    spec_dirs: tuple[Path, ...] = SPEC_DIRS
    ascii: bool = option("Draw with ASCII alone, as where TERM is linux.")
    no_keep: bool = option("Leave the answers out of `trnbench runs`.")
    serve: bool = option("In a browser: print an address and wait.")
    host: str | None = option("With --serve: reachable as; default: 127.0.0.1.", metavar="ADDRESS")
    port: int | None = option(
        "With --serve: default: 8000.", read=partial(parsing.whole, most=65535)
    )
    idle_s: float | None = option(
        "With --serve: end an unused tab after this time; default: 30min.",
        read=parsing.duration,
    )

    def __post_init__(self) -> None:
        given = any(value is not None for value in (self.host, self.port, self.idle_s))
        if given and not self.serve:
            raise InputError("--host, --port and --idle go with --serve")


@asks(TuiQuestion)
def tui(question: TuiQuestion) -> int:
    """Open the terminal UI: compare cost and speed of training, and see why.

    Keys: ? lists all of them, ctrl+p searches commands, q leaves.
    """
    if question.no_keep:
        from trnbench.store.place import KEEP_VARIABLE

        # The process that answers, and with --serve that of a tab, take it from the environment.
        os.environ[KEEP_VARIABLE] = "0"
    if question.serve:
        from trnbench.tui.serve import Served
        from trnbench.tui.serve import serve as served

        asked = Served(
            host=question.host or "127.0.0.1",
            port=question.port or 8000,
            idle_s=question.idle_s or IDLE_S,
            view=question.view,
            spec_dirs=question.spec_dirs,
            ascii_only=question.ascii,
        )
        return served(asked, say)
    if os.environ.get("TEXTUAL_DRIVER") != WEB_DRIVER:
        _refuse_no_terminal()
    # Nothing that is made before the first picture becomes garbage; the application turns it on.
    gc.disable()
    from trnbench.tui.app import run

    return run(question.spec_dirs, question.view, ascii_only=question.ascii)


def _refuse_no_terminal() -> None:
    """Refuse where nothing can be painted; a browser's tab is no terminal, and can."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise EnvironmentFault(
            "the terminal UI needs a terminal, and stdin or stdout is none",
            hint="`trnbench compare` and the other commands print the same numbers",
        )
    if os.environ.get("TERM") in ("dumb", ""):
        raise EnvironmentFault(
            "the terminal UI needs a terminal that can move its cursor; TERM is dumb",
            hint="`trnbench compare` and the other commands print the same numbers",
        )
