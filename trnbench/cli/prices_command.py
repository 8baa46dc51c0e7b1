"""`trnbench prices`: rates by day, and rates read anew."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from trnbench.cli.diagnostics import ExitCode, help_alone
from trnbench.cli.names import completes
from trnbench.cli.output import OutputFormat
from trnbench.cli.printing import printing
from trnbench.errors import InputError
from trnbench.facts.parsing import date, names

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog

application = typer.Typer(
    help="Prices: show what was paid when, refresh from AWS or from a file.",
    callback=help_alone,
    invoke_without_command=True,
    rich_markup_mode=None,
)


@application.command("show")
@printing
def show_prices(
    out: Output,
    catalog: Catalog,
    instance: Annotated[
        str,
        typer.Argument(metavar="INSTANCE", autocompletion=completes(("instances",))),
    ],
    since: Annotated[
        datetime.date | None,
        typer.Option(
            parser=date("--since"), metavar="YYYY-MM-DD", help="Only what was read from then on."
        ),
    ] = None,
) -> int:
    """List and draw the rates of an instance type, and the claims that turned on them."""
    from trnbench import app
    from trnbench.report.prices import history_report

    history = app.price_history(instance, since=since, catalog=catalog)
    inputs = {"instance": history.prices.name, "since": since and since.isoformat()}
    out.write(history_report(history, inputs))
    return ExitCode.DONE if history.rows else ExitCode.ANSWER_IS_NO


@application.command("refresh")
@printing
def refresh(
    out: Output,
    catalog: Catalog,
    source: Annotated[
        str | None,
        typer.Option(
            metavar="aws|FILE",
            help="aws asks Amazon, by boto3 and its credentials; a FILE is an offer file of AWS, "
            "the JSON of ec2instances.info, SkyPilot's vms.csv, or a CSV with the columns "
            "instance,region,purchase,usd_per_hour,date_from,source.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would change, and write nothing.")
    ] = False,
    policy: Annotated[
        bool, typer.Option("--policy", help="Print what the AWS account has to allow, and end.")
    ] = False,
    region: Annotated[
        str | None,
        typer.Option(metavar="NAME,...", help="Regions to ask for; default: the usual ones."),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="INSTANCE,...",
            help="Instance types to ask for; default: all of AWS.",
            autocompletion=completes(("instances",), several=True),
        ),
    ] = None,
    made: Annotated[
        datetime.date | None,
        typer.Option(
            "--date",
            parser=date("--date"),
            metavar="YYYY-MM-DD",
            help="When a file was made that does not say; default: the file's own date.",
        ),
    ] = None,
) -> int:
    """Read rates and add them, dated and with their source, to your own price lists.

    What is there stays as it is; newer rates come before older ones, yours before shipped ones.
    Nothing is asked of the network but by --source aws. No account number and no ARN is kept.
    """
    from trnbench import app
    from trnbench.report.prices import refresh_report

    if policy:
        from trnbench.facts.prices.feed.aws_calls import policy as document
        from trnbench.report.prices import policy_report

        if out.format in (OutputFormat.TABLE, OutputFormat.JSON):
            out.write_bytes(f"{document()}\n".encode())
        else:
            out.write(policy_report())
        return ExitCode.DONE
    if source is None:
        raise InputError("from where? --source aws, or --source FILE")
    found = app.refresh_prices(
        source,
        regions=names("--region", region) if region else (),
        on=names("--on", on) if on else (),
        day=made,
        catalog=catalog,
    )
    if not dry_run:
        found = app.write_rates(found, source, catalog=catalog)
    inputs = {"source": source, "dry_run": dry_run}
    out.write(refresh_report(found, inputs, dry_run=dry_run))
    return ExitCode.ENVIRONMENT if found.failures else ExitCode.DONE
