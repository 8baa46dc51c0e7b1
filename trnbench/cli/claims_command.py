"""`trnbench claims`: what vendors claim, and what specs, price lists and the model say of it."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.printing import printing
from trnbench.cli.progress import ProgressLine
from trnbench.facts.parsing import date

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog


@printing
def claims(
    out: Output,
    catalog: Catalog,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[CLAIM]...", help="Only these claims.")
    ] = None,
    price_date: Annotated[
        datetime.date | None,
        typer.Option(
            parser=date("--price-date"),
            metavar="YYYY-MM-DD",
            help="At the prices of one day; default: of every day on which one changed.",
        ),
    ] = None,
    region: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="At the prices of one region; default: the cheapest usual one."
        ),
    ] = None,
) -> int:
    """Try claims of performance and cost on the specs, the price lists and the model.

    A claim holds, holds only if (a figure, machine, run or price is chosen), does not, or cannot be
    told. What turns on prices is tried again whenever one changed; announced price cuts and
    discounts are tried on their own days.
    """
    from trnbench import app
    from trnbench.report.claims import claims_report

    with ProgressLine(quiet=out.quiet) as progress:
        found = app.claims(
            names or (), price_date=price_date, region=region, catalog=catalog, progress=progress
        )
    inputs = {
        "claims": list(names or ()),
        "price_date": price_date and price_date.isoformat(),
        "region": region,
    }
    out.write(claims_report(found, inputs))
    return ExitCode.DONE
