"""`trnbench spec`: the hardware and prices that trnbench knows."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trnbench.cli.diagnostics import ExitCode, help_alone
from trnbench.cli.names import completes
from trnbench.cli.output import STDOUT
from trnbench.cli.printing import printing
from trnbench.facts.catalog.search import SPEC_SECTIONS, sections_of
from trnbench.facts.catalog.whole_file import make_folder, write_whole
from trnbench.facts.records import replace

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog

application = typer.Typer(
    help="Chips, instances, prices and calibrations: list, show, compare, validate, new.",
    callback=help_alone,
    invoke_without_command=True,
    rich_markup_mode=None,
)

_COMPLETES = completes(("instances", "chips"))


def _kinds(incomplete: str) -> list[str]:
    return [name for name in SPEC_SECTIONS if name.startswith(incomplete)]


@application.command("list")
@printing
def list_specs(
    out: Output,
    catalog: Catalog,
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="KIND",
            help=f"One of {', '.join(SPEC_SECTIONS)}; default: all.",
            autocompletion=_kinds,
        ),
    ] = None,
) -> None:
    """List chips, instances, price lists and calibrations, and where each comes from."""
    from trnbench import app
    from trnbench.report.catalog_reports import list_report

    out.write(list_report("spec-list", app.listed(catalog, sections_of(kind, app.SPEC_SECTIONS))))


@application.command("show")
@printing
def show_spec(
    out: Output,
    catalog: Catalog,
    name: Annotated[str, typer.Argument(metavar="NAME", autocompletion=_COMPLETES)],
) -> None:
    """Show one spec: every value with kind and source, the topology, conflicts between sources."""
    from trnbench import app
    from trnbench.show.sheet import sheet_report

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
    from trnbench.report.catalog_reports import diff_report

    out.write(diff_report(*app.diff(catalog, names)))


@application.command("new")
@printing
def new_spec(
    out: Output,
    catalog: Catalog,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it.")],
    like: Annotated[
        str,
        typer.Option(
            metavar="INSTANCE",
            help="A known instance that it is like, but for what is given here.",
            autocompletion=completes(("instances",)),
        ),
    ],
    chip: Annotated[
        str | None, typer.Option(help="Its chip.", autocompletion=completes(("chips",)))
    ] = None,
    chips: Annotated[
        str | None, typer.Option(metavar="N", help="Chips of one instance, joined by a switch.")
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(
            metavar="NxRATE",
            help="Network adapters of one instance, and what each carries one way: 8x400Gbit/s.",
        ),
    ] = None,
    oversubscribed: Annotated[
        str | None,
        typer.Option(
            metavar="N:1", help="What adapters carry over what the spine carries for them: 2:1."
        ),
    ] = None,
    rail_optimised: Annotated[
        bool,
        typer.Option(
            "--rail-optimised",
            help="Adapter i of every instance is on leaf switch i; only other traffic crosses the "
            "spine.",
        ),
    ] = False,
    usd_per_hour: Annotated[
        str | None, typer.Option(metavar="USD", help="What an hour of one instance costs.")
    ] = None,
    capex: Annotated[
        str | None,
        typer.Option(metavar="USD", help="Or work that out: what one instance costs to buy,"),
    ] = None,
    years: Annotated[
        str | None, typer.Option(metavar="N", help="for how many years of 8,760 hours,")
    ] = None,
    power: Annotated[
        str | None, typer.Option(metavar="POWER", help="what it draws, such as 10.2kW,")
    ] = None,
    usd_per_kwh: Annotated[
        str | None, typer.Option(metavar="USD", help="what a kWh costs,")
    ] = None,
    pue: Annotated[
        str | None,
        typer.Option(metavar="N", help="its site's power over its own, if that is paid too,"),
    ] = None,
    staff_usd_per_year: Annotated[
        str | None, typer.Option(metavar="USD", help="and a year of who looks after one.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace files of this name that are there.")
    ] = False,
) -> None:
    """Write a small file for a cluster of your own, which is like a known one.

    It goes to the folder of your own data files, which is always searched; -o - prints it, -o
    FOLDER/instances/NAME.toml writes it there, for --spec-dir FOLDER. An hourly rate goes beside it
    into prices/, of kind assumed.
    """
    from trnbench.app.own_cluster import asked_for, new_cluster
    from trnbench.report.catalog_reports import new_cluster_report

    asked = asked_for(
        name,
        like=like,
        changes={
            "--chip": chip,
            "--chips": chips,
            "--network": network,
            "--oversubscribed": oversubscribed,
        },
        rails=rail_optimised,
        money={
            "--usd-per-hour": usd_per_hour,
            "--capex": capex,
            "--years": years,
            "--power": power,
            "--usd-per-kwh": usd_per_kwh,
            "--pue": pue,
            "--staff-usd-per-year": staff_usd_per_year,
        },
    )
    file = None if out.destination == STDOUT else Path(out.destination)
    found = new_cluster(catalog, asked, file=file, today=datetime.date.today(), force=force)
    for warning in found.warnings:
        out.narrate(f"trnbench: warning: {warning}")
    if out.said and file is None:
        # A rate is a file of its own, whose place a comment tells.
        texts = [f"# {'/'.join(made.path.parts[-2:])}\n{made.text}" for made in found.files]
        out.write_bytes("\n".join(texts).encode())
        return
    for made in found.files:
        make_folder(made.path.parent)
        write_whole(made.path, made.text.encode())
    paths = [made.path for made in found.files]
    spec_dir = None if file is None else file.parent.parent
    replace(out, destination=STDOUT).write(
        new_cluster_report(asked.name, paths, spec_dir, found.terms, found.usd_per_hour)
    )


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
