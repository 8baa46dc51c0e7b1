"""`trnbench tui`: the terminal UI. Imports it when it is wanted, not before."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from trnbench.cli.diagnostics import say
from trnbench.errors import EnvironmentFault, InputError
from trnbench.facts.parsing import duration, whole

WEB_DRIVER = "textual.drivers.web_driver:WebDriver"
"""What textual-serve tells the process of a tab to paint with."""
IDLE_S = 1800.0


def tui(
    view: Annotated[
        str | None,
        typer.Argument(
            metavar="[VIEW]",
            help="compare, plan, layouts, memory, schedule, matrix, collective, evidence, "
            "run or runs.",
        ),
    ] = None,
    spec_dir: Annotated[
        list[Path] | None,
        typer.Option("--spec-dir", metavar="DIR", help="Look here first for specs and workloads."),
    ] = None,
    no_keep: Annotated[
        bool, typer.Option("--no-keep", help="Leave the answers out of `trnbench runs`.")
    ] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="In a browser: print an address and wait.")
    ] = False,
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="With --serve: reachable as; default: 127.0.0.1."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            parser=whole("--port", most=65535),
            metavar="N",
            help="With --serve: default: 8000.",
        ),
    ] = None,
    idle: Annotated[
        float | None,
        typer.Option(
            parser=duration("--idle"),
            metavar="TIME",
            help="With --serve: end a tab that nobody uses for so long; default: 30min.",
        ),
    ] = None,
) -> int:
    """Open the terminal UI: compare cost and speed of training, and see why.

    Keys: ? lists all of them, ctrl+p searches commands, q leaves.
    """
    if no_keep:
        from trnbench.store.place import KEEP_VARIABLE

        # The process that answers, and with --serve that of a tab, take it from the environment.
        os.environ[KEEP_VARIABLE] = "0"
    if serve:
        from trnbench.tui.serve import Served
        from trnbench.tui.serve import serve as served

        asked = Served(
            host=host or "127.0.0.1",
            port=port or 8000,
            idle_s=idle or IDLE_S,
            view=view,
            spec_dirs=spec_dir or (),
        )
        return served(asked, say)
    if any(one is not None for one in (host, port, idle)):
        raise InputError("--host, --port and --idle go with --serve")
    if os.environ.get("TEXTUAL_DRIVER") != WEB_DRIVER:
        _refuse_no_terminal()
    # Nothing that is made before the first picture becomes garbage; the application turns it on.
    gc.disable()
    from trnbench.tui.app import run

    return run(spec_dir or [], view)


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
