"""`trnbench runs`: what was asked before, with its answers."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from trnbench.cli.asking import ASK
from trnbench.cli.derived_options import asks
from trnbench.cli.diagnostics import ExitCode, command_group, say
from trnbench.cli.output import OutputFormat
from trnbench.cli.printing import printing
from trnbench.cli.watching import ProgressLine
from trnbench.errors import InputError
from trnbench.verbs.runs.question import (
    RecoverQuestion,
    RunDiffQuestion,
    RunsExportQuestion,
    RunShowQuestion,
    RunsListQuestion,
    RunsQuestion,
)

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog

application = command_group(
    "Answers that were given before: list, show, compare, export, remove, check, recover."
)


@application.command("list")
@printing
@asks(RunsListQuestion)
def list_runs(out: Output, catalog: Catalog, question: RunsListQuestion) -> int:
    """List kept answers, newest first: which question, about what, and the answer in a line."""
    from trnbench.verbs.runs import run, text

    runs = run.list_runs(catalog, question, say=say)
    out.write(text.list_report(runs, question.inputs()))
    return ExitCode.DONE


@application.command("show")
@functools.partial(printing, reports=True)
@asks(RunShowQuestion)
def show_run(out: Output, catalog: Catalog, question: RunShowQuestion) -> int:
    """Show one kept answer: the question, when it was asked, and its rows."""
    from trnbench.verbs.runs.run import answered_run, redacted
    from trnbench.verbs.runs.text import shown_report

    kept = answered_run(question.run)
    shown = redacted(kept) if question.redacted else kept
    out.write(shown_report(shown.run, shown.answer))
    return ExitCode.DONE


@application.command("diff")
@functools.partial(printing, reports=True)
@asks(RunDiffQuestion)
def diff(out: Output, catalog: Catalog, question: RunDiffQuestion) -> int:
    """Say what moved between two answers, and why: prices, calibration, specs, question, code.

    Both are asked again with one of these exchanged at a time; what remains is the program's.
    """
    from trnbench.verbs.runs.diff import diff_runs
    from trnbench.verbs.runs.diff_text import diff_report

    with ProgressLine(quiet=out.quiet) as progress:
        moved = diff_runs(question.first, question.second, ASK.get(), progress=progress)
    out.write(diff_report(moved))
    return ExitCode.DONE


@application.command("export")
@printing
@asks(RunsExportQuestion)
def export(out: Output, catalog: Catalog, question: RunsExportQuestion) -> int:
    """Write kept answers with their questions as one JSON document."""
    from trnbench import __version__
    from trnbench.verbs.runs.run import export_runs
    from trnbench.verbs.runs.text import export_text

    if out.format not in (OutputFormat.TABLE, OutputFormat.JSON):
        raise InputError("an export is JSON; leave out --format, or name a file .json")
    exported = export_runs(question.runs, redact=question.redacted)
    if not question.redacted and any(listed_run["own_prices"] for listed_run in exported):
        out.narrate(
            "prices or discounts of your own are inside; --redact-prices leaves out what tells them"
        )
    out.write_bytes(export_text(exported, __version__).encode())
    return ExitCode.DONE


@application.command("remove")
@printing
@asks(RunsQuestion)
def remove(out: Output, catalog: Catalog, question: RunsQuestion) -> int:
    """Forget kept answers; what is printed is gone."""
    from trnbench.verbs.runs.run import remove_runs
    from trnbench.verbs.runs.text import removed_report

    out.write(removed_report(remove_runs(question.runs)))
    return ExitCode.DONE


@application.command("check")
@printing
def check(out: Output, catalog: Catalog) -> int:
    """Read every kept answer and study against its digest, size and shape; name the damaged."""
    from trnbench.verbs.runs.run import check_runs
    from trnbench.verbs.runs.text import checked_report

    count, faults = check_runs()
    out.write(checked_report(count, faults))
    return ExitCode.ANSWER_IS_NO if faults else ExitCode.DONE


@application.command("recover")
@printing
@asks(RecoverQuestion)
def recover(out: Output, catalog: Catalog, question: RecoverQuestion) -> int:
    """Bring what can be read of a damaged file into the file of kept answers; name what is lost.

    The damaged file stays as it is.
    """
    from trnbench.verbs.runs.run import recover_runs
    from trnbench.verbs.runs.text import recovered_report

    source, recovered = recover_runs(question.file, say=say)
    out.write(recovered_report(source, recovered))
    return ExitCode.ANSWER_IS_NO if recovered.lost else ExitCode.DONE
