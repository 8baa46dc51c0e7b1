"""`trnbench runs`: what was asked before, with its answers."""

from __future__ import annotations

import datetime
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trnbench.cli.asking import ASK
from trnbench.cli.diagnostics import ExitCode, help_alone, say
from trnbench.cli.names import completes
from trnbench.cli.output import OutputFormat
from trnbench.cli.printing import printing
from trnbench.cli.progress import ProgressLine
from trnbench.errors import InputError
from trnbench.facts.parsing import date, one_of, whole

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog

application = typer.Typer(
    help="Answers that were given before: list, show, compare, export, remove, check, recover.",
    callback=help_alone,
    invoke_without_command=True,
    rich_markup_mode=None,
)

Ids = Annotated[
    list[str],
    typer.Argument(metavar="RUN...", help="Ids or their beginnings, tags, or `last`."),
]
Redact = Annotated[
    bool,
    typer.Option(
        "--redact-prices", help="Leave out prices, discounts, bills and ratios that tell them."
    ),
]


@application.command("list")
@printing
def list_runs(
    out: Output,
    catalog: Catalog,
    verb: Annotated[str | None, typer.Option(metavar="VERB", help="Answers of this verb.")] = None,
    model: Annotated[
        str | None, typer.Option(help="About this model.", autocompletion=completes(("models",)))
    ] = None,
    instance: Annotated[
        str | None,
        typer.Option(help="About this instance type.", autocompletion=completes(("instances",))),
    ] = None,
    tag: Annotated[str | None, typer.Option(metavar="TEXT", help="Kept under this tag.")] = None,
    since: Annotated[
        datetime.date | None,
        typer.Option(parser=date("--since"), metavar="YYYY-MM-DD", help="From this day on (UTC)."),
    ] = None,
    until: Annotated[
        datetime.date | None,
        typer.Option(parser=date("--until"), metavar="YYYY-MM-DD", help="To this day (UTC)."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(parser=whole("--limit"), metavar="N", help="The newest N; default: all."),
    ] = None,
) -> int:
    """List kept answers, newest first: which question, about what, and the answer in a line."""
    from trnbench.app.keeping import KEPT_VERBS
    from trnbench.app.runs import list_runs as kept
    from trnbench.report.runs import list_report
    from trnbench.store.runs import RunFilter

    after = None
    if until is not None and until < datetime.date.max:  # which no day follows
        after = until + datetime.timedelta(days=1)
    wanted = RunFilter(
        verb=None if verb is None else one_of("--verb", KEPT_VERBS)(verb),
        model=model,
        instance=instance,
        tag=tag,
        since=None if since is None else since.isoformat(),
        until=None if after is None else after.isoformat(),
    )
    runs = kept(catalog, wanted, limit=limit, say=say)
    inputs: dict[str, object] = {"verb": verb, "model": model, "instance": instance, "tag": tag}
    inputs |= {"since": wanted.since, "until": until and until.isoformat(), "limit": limit}
    out.write(list_report(runs, inputs))
    return ExitCode.DONE


@application.command("show")
@printing
def show_run(
    out: Output,
    catalog: Catalog,
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="An id or its beginning, a tag, or `last`.")
    ],
    redact_prices: Redact = False,
) -> int:
    """Show one kept answer: the question, when it was asked, and its rows."""
    from trnbench.app.runs import answered_run, redacted
    from trnbench.report.runs import shown_report

    found = answered_run(run)
    told = redacted(found) if redact_prices else found
    out.write(shown_report(told.run, told.answer))
    return ExitCode.DONE


@application.command("diff")
@functools.partial(printing, reports=True)
def diff(
    out: Output,
    catalog: Catalog,
    first: Annotated[str, typer.Argument(metavar="RUN", help="As for show, or a JSON file.")],
    second: Annotated[str, typer.Argument(metavar="RUN", help="What it is held against.")],
) -> int:
    """Say what moved between two answers, and why: prices, calibration, specs, question, code.

    Both are asked again with one of these exchanged at a time; what remains is the program's.
    """
    from trnbench.app.run_diff import diff_runs
    from trnbench.report.run_diff import diff_report

    with ProgressLine(quiet=out.quiet) as progress:
        found = diff_runs(first, second, ASK.get(), progress=progress)
    out.write(diff_report(found))
    return ExitCode.DONE


@application.command("export")
@printing
def export(out: Output, catalog: Catalog, runs: Ids, redact_prices: Redact = False) -> int:
    """Write kept answers with their questions as one JSON document."""
    from trnbench import __version__
    from trnbench.app.runs import export_runs
    from trnbench.report.runs import export_text

    if out.format not in (OutputFormat.TABLE, OutputFormat.JSON):
        raise InputError("an export is JSON; leave out --format, or name a file .json")
    exported = export_runs(runs, redact=redact_prices)
    if not redact_prices and any(one["own_prices"] for one in exported):
        out.narrate(
            "prices or discounts of your own are inside; --redact-prices leaves out what tells them"
        )
    out.write_bytes(export_text(exported, __version__).encode())
    return ExitCode.DONE


@application.command("remove")
@printing
def remove(out: Output, catalog: Catalog, runs: Ids) -> int:
    """Forget kept answers; what is printed is gone."""
    from trnbench.app.runs import remove_runs
    from trnbench.report.runs import removed_report

    out.write(removed_report(remove_runs(runs)))
    return ExitCode.DONE


@application.command("check")
@printing
def check(out: Output, catalog: Catalog) -> int:
    """Read every kept answer and study against its digest, size and shape; name the damaged."""
    from trnbench.app.runs import check_runs
    from trnbench.report.runs import checked_report

    count, found = check_runs()
    out.write(checked_report(count, found))
    return ExitCode.ANSWER_IS_NO if found else ExitCode.DONE


@application.command("recover")
@printing
def recover(
    out: Output,
    catalog: Catalog,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]", help="A damaged file of runs; default: the one put aside last."
        ),
    ] = None,
) -> int:
    """Bring what can be read of a damaged file into the file of kept answers; name what is lost.

    The damaged file stays as it is.
    """
    from trnbench.app.runs import recover_runs
    from trnbench.report.runs import recovered_report

    source, recovered = recover_runs(file, say=say)
    out.write(recovered_report(source, recovered))
    return ExitCode.ANSWER_IS_NO if recovered.lost else ExitCode.DONE
