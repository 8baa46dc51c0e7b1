"""`trnbench workload`: the models and suites that trnbench knows, and how to add one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trnbench.cli.diagnostics import ExitCode, help_alone
from trnbench.cli.names import completes
from trnbench.cli.output import STDOUT, OutputFormat, chosen_output
from trnbench.cli.printing import printing
from trnbench.errors import InputError

if TYPE_CHECKING:
    from trnbench.catalog.search import Catalog
    from trnbench.cli.output import Output

application = typer.Typer(
    help="Models and benchmark suites: list, show, validate, import.",
    callback=help_alone,
    invoke_without_command=True,
    rich_markup_mode=None,
)

_COMPLETES = completes(("models", "matrix", "collective", "training"))


@application.command("list")
@printing
def list_workloads(out: Output, catalog: Catalog) -> None:
    """List models and suites, and where each comes from."""
    from trnbench import app
    from trnbench.report.catalog_reports import list_report

    out.write(list_report("workload-list", app.listed(catalog, app.WORKLOAD_SECTIONS)))


@application.command("show")
@printing
def show_workload(
    out: Output,
    catalog: Catalog,
    name: Annotated[str, typer.Argument(metavar="NAME", autocompletion=_COMPLETES)],
) -> None:
    """Show one model with its parameter counts, or one suite; models come before suites."""
    from trnbench import app
    from trnbench.report.sheet import sheet_report

    out.write(sheet_report("workload-show", app.sheet(catalog, name, app.WORKLOAD_SECTIONS)))


@application.command("validate")
@printing
def validate_workloads(
    out: Output,
    catalog: Catalog,
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files or folders.")],
) -> int:
    """Check workload files and list all their faults; exit code 2 if there are any."""
    from trnbench import app
    from trnbench.report.catalog_reports import check_report

    checks = app.check_files(catalog, paths, app.WORKLOAD_SECTIONS)
    out.write(check_report("workload-validate", checks))
    return ExitCode.MALFORMED if any(check.faults for check in checks) else ExitCode.DONE


@application.command("import")
def import_workload(
    config: Annotated[Path, typer.Argument(metavar="CONFIG_JSON", help="A config.json.")],
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the model; default: the output's stem.")
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Write to FILE; - is stdout.")
    ] = STDOUT,
) -> None:
    """Turn a Hugging Face config.json into a model file."""
    from trnbench import app

    chosen = name or (Path(output).stem if output != STDOUT else None)
    if chosen is None:
        raise InputError("the model needs a name: give --name, or --output NAME.toml")
    if output.endswith(".toml") and Path(output).stem != chosen:
        raise InputError(
            f"--name {chosen} contradicts --output {output}: a model file has its model's name"
        )
    out = chosen_output(OutputFormat.TABLE, False, output, False)
    out.write_bytes(app.import_model(config, chosen).encode())
