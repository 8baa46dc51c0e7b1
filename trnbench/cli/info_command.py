"""`trnbench info`: versions, folders and what was found in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trnbench.cli.printing import printing
from trnbench.errors import InputError

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog


@printing
def info(
    out: Output,
    catalog: Catalog,
    support: Annotated[
        bool,
        typer.Option(
            "--support",
            help="Which kinds of models run with which stack on which instance, and how that is "
            "known.",
        ),
    ] = False,
    jobs: Annotated[
        bool,
        typer.Option("--jobs", help="Which jobs run with which stack, and who refuses what."),
    ] = False,
    init: Annotated[
        bool,
        typer.Option("--init", help="Write a trnbench.toml of all defaults, as remarks, for you."),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Let --init replace a file that is there.")
    ] = False,
) -> None:
    """Show versions, the folders searched, what was found in them, and your defaults.

    Defaults stand in trnbench.toml: in your config folder, then in the working folder, then in
    TRNBENCH_* variables; what a command line says wins.
    """
    if init or force:
        return _init(out, init=init, force=force)
    from trnbench import app
    from trnbench.report.catalog_reports import info_report
    from trnbench.report.support import jobs_report, support_report

    if support and jobs:
        raise InputError("--support and --jobs are two tables; give one of them")
    if support:
        out.write(support_report(app.support(catalog=catalog)))
    elif jobs:
        out.write(jobs_report(app.jobs_supported(catalog=catalog)))
    else:
        out.write(info_report(app.info(catalog)))
    return None


def _init(out: Output, *, init: bool, force: bool) -> None:
    """Write the user's file of defaults."""
    from trnbench.app.configuration import configuration, template
    from trnbench.facts.catalog.whole_file import write_whole

    if not init:
        raise InputError("--force goes with --init")
    path = configuration().files[0]
    if path.exists() and not force:
        raise InputError(f"{path} is there already", hint="--force replaces it")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, template().encode())
    out.narrate(f"defaults written to {path}, all as remarks")
