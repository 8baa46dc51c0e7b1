"""The entry point: one Typer application, run so that every outcome has its exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from trnbench import __version__
from trnbench.cli import (
    calibrate_command,
    claims_command,
    collective_command,
    compare_command,
    info_command,
    matrix_command,
    numerics_command,
    plan_command,
    spec_command,
    train_command,
    tui_command,
    validate_command,
    workload_command,
)
from trnbench.cli.diagnostics import DEBUG_VARIABLE, guarded, help_alone

EPILOG = (
    "Exit codes: 0 done; 1 the answer is no (it does not fit, is not legal, has no price, a check "
    "failed); 2 malformed input; 3 environment; 70 a bug in trnbench; 130 interrupted."
)

application = typer.Typer(
    name="trnbench",
    help="Benchmark and plan training on AWS Trainium: does it fit, how fast, how much, how sure?",
    epilog=EPILOG,
    invoke_without_command=True,
    rich_markup_mode=None,  # Rich costs 40 ms, and help has to appear at once
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
application.add_typer(spec_command.application, name="spec")
application.add_typer(workload_command.application, name="workload")
application.command("matrix")(matrix_command.matrix)
application.command("collective")(collective_command.collective)
application.command("train")(train_command.train)
application.command("compare")(compare_command.compare)
application.command("plan")(plan_command.plan)
application.command("numerics")(numerics_command.numerics)
application.command("validate")(validate_command.validate)
application.command("claims")(claims_command.claims)
application.command("tui")(tui_command.tui)
application.command("calibrate")(calibrate_command.calibrate)
application.command("info")(info_command.info)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"trnbench {__version__}")
        raise typer.Exit


@application.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
) -> None:
    """Take the options that stand before the verb; `main` has acted on --debug already."""
    help_alone(context)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    command = typer.main.get_command(application)
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given or bool(os.environ.get(DEBUG_VARIABLE))
    return guarded(
        lambda: command.main(args=given, prog_name="trnbench", standalone_mode=False), debug=debug
    )
