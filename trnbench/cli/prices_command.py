"""`trnbench prices`: rates by day, and rates read anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.cli.derived_options import asks
from trnbench.cli.diagnostics import ExitCode, command_group
from trnbench.cli.output import OutputFormat
from trnbench.cli.printing import printing
from trnbench.errors import InputError
from trnbench.verbs.prices.question import PriceHistoryQuestion, RefreshQuestion

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog

application = command_group("Prices: show what was paid when, refresh from AWS or from a file.")


@application.command("show")
@printing
@asks(PriceHistoryQuestion)
def show_prices(out: Output, catalog: Catalog, question: PriceHistoryQuestion) -> int:
    """List and draw the rates of an instance type, and the claims that turned on them."""
    from trnbench.verbs.prices.run import run
    from trnbench.verbs.prices.text import history_report

    question = question.settled(catalog)
    history = run(catalog, question)
    out.write(history_report(history, question.inputs()))
    return ExitCode.DONE if history.rows else ExitCode.ANSWER_IS_NO


@application.command("refresh")
@printing
@asks(RefreshQuestion)
def refresh(out: Output, catalog: Catalog, question: RefreshQuestion) -> int:
    """Read rates and add them, dated and with their source, to your own price lists.

    What is there stays as it is; newer rates come before older ones, yours before shipped ones.
    Nothing is asked of the network but by --source aws. No account number and no ARN is kept.
    """
    from trnbench.verbs.prices.run import refresh_prices, write_rates
    from trnbench.verbs.prices.text import policy_report, refresh_report

    if question.policy:
        from trnbench.facts.prices.feed.aws_calls import policy as document

        if out.format in (OutputFormat.TABLE, OutputFormat.JSON):
            out.write_bytes(f"{document()}\n".encode())
        else:
            out.write(policy_report())
        return ExitCode.DONE
    if question.source is None:
        raise InputError("from where? --source aws, or --source FILE")
    rates = refresh_prices(
        question.source,
        regions=question.regions,
        on=question.instances,
        day=question.made,
        catalog=catalog,
    )
    if not question.dry_run:
        rates = write_rates(rates, question.source, catalog=catalog)
    out.write(refresh_report(rates, question.inputs(), dry_run=question.dry_run))
    return ExitCode.ENVIRONMENT if rates.failures else ExitCode.DONE
