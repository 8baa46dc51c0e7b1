"""`trnbench tui`: the terminal UI. Imports it when it is wanted, not before."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from trnbench.errors import EnvironmentFault


def tui(
    view: Annotated[
        str | None,
        typer.Argument(
            metavar="[VIEW]",
            help="Open with: compare, layouts, matrix, collective, schedule, evidence or run.",
        ),
    ] = None,
    spec_dir: Annotated[
        list[Path] | None,
        typer.Option("--spec-dir", metavar="DIR", help="Look here first for specs and workloads."),
    ] = None,
) -> None:
    """Open the terminal UI: compare cost and speed of training, and see why.

    Keys: ? lists all of them, ctrl+p searches commands, q leaves.
    """
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
    from trnbench.tui.app import run

    run(spec_dir or [], view)
