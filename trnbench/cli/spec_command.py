"""`trnbench spec`: the hardware and prices that trnbench knows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trnbench.cli.diagnostics import ExitCode, help_alone
from trnbench.cli.names import completes
from trnbench.cli.printing import printing

if TYPE_CHECKING:
    from trnbench.catalog.search import Catalog
    from trnbench.cli.output import Output

application = typer.Typer(
    help="Chips, instances, prices and calibrations: list, show, compare, validate.",
    callback=help_alone,
    invoke_without_command=True,
    rich_markup_mode=None,
)

_COMPLETES = completes(("instances", "chips"))


@application.command("list")
@printing
def list_specs(out: Output, catalog: Catalog) -> None:
    """List chips, instances, price lists and calibrations, and where each comes from."""
    from trnbench import app
    from trnbench.report.catalog_reports import list_report

    out.write(list_report("spec-list", app.listed(catalog, app.SPEC_SECTIONS)))


@application.command("show")
@printing
def show_spec(
    out: Output,
    catalog: Catalog,
    name: Annotated[str, typer.Argument(metavar="NAME", autocompletion=_COMPLETES)],
) -> None:
    """Show one spec: every value with kind and source, the topology, conflicts between sources."""
    from trnbench import app
    from trnbench.report.sheet import sheet_report

    sections = ("instances", *(name for name in app.SPEC_SECTIONS if name != "instances"))
    out.write(sheet_report("spec-show", app.sheet(catalog, name, sections)))


@application.command("diff")
@printing
def diff_specs(
    out: Output,
    catalog: Catalog,
    names: Annotated[list[str], typer.Argument(metavar="NAME...", autocompletion=_COMPLETES)],
) -> None:
    """Line up two or more instances (or chips), with ratios to the first."""
    from trnbench import app
    from trnbench.report.comparison import diff_report

    out.write(diff_report(*app.diff(catalog, names)))


@application.command("validate")
@printing
def validate_specs(
    out: Output,
    catalog: Catalog,
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files or folders.")],
) -> int:
    """Check spec files and list all their faults; exit code 2 if there are any."""
    from trnbench import app
    from trnbench.report.catalog_reports import check_report

    checks = app.check_files(catalog, paths, app.SPEC_SECTIONS)
    out.write(check_report("spec-validate", checks))
    return ExitCode.MALFORMED if any(check.faults for check in checks) else ExitCode.DONE
