"""`trnbench validate`: predicted against measured, row by row, with error statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.cli.derived_options import asks
from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.output import OutputFormat
from trnbench.cli.printing import keeping
from trnbench.cli.watching import ProgressLine
from trnbench.errors import InputError
from trnbench.verbs.validate.question import ValidateQuestion, ValidateShowing

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog


_TABLES = (OutputFormat.TABLE, OutputFormat.CSV)


@keeping(reports=True, plots=True)
@asks(ValidateQuestion, ValidateShowing, ahead_of="tp")
def validate(
    out: Output, catalog: Catalog, question: ValidateQuestion, showing: ValidateShowing
) -> int:
    """Compare predictions with measurements, and say how wrong they are.

    First what the predictions of steps rest on, and how wrong each is; --set and --details list
    rows. A shipped row that a calibration was fitted to is predicted without its configuration.
    """
    from trnbench.verbs.asking.measured_files import unread
    from trnbench.verbs.validate.run import run
    from trnbench.verbs.validate.text import validation_report

    if showing.template:
        alone = question == ValidateQuestion() and showing == ValidateShowing(template=True)
        if not alone or out.format not in _TABLES:
            raise InputError("--template writes a CSV file; it goes with -o and --quiet alone")
        return _template(out)
    if showing.plot:
        out.refuse_plot()
    with ProgressLine(quiet=out.quiet) as progress:
        sections = run(catalog, question, progress=progress)
    remarks = [remark for section in sections for remark in section.remarks]
    for remark in dict.fromkeys([*unread(question.evidence), *remarks]):
        out.narrate(remark)
    told = {"sets": [section.name for section in sections], "fail_above": showing.fail_above}
    whole = showing.details or showing.plot or question.sets or question.evidence
    report = validation_report(
        sections, question.inputs() | told, plot=showing.plot, brief=not whole
    )
    report, regressed = showing.held.beside(report)
    out.write(report)
    errors = [section.summary.errors.get("all") for section in sections]
    if not any(section.summary.errors or section.summary.fit for section in sections):
        row = sections[0].rows[0]
        out.narrate(f"no row could be predicted; {row.id}: {row.reason}")
        return ExitCode.ANSWER_IS_NO
    limit = showing.fail_above
    failed = limit is not None and any(error and error.mape > limit for error in errors)
    return ExitCode.ANSWER_IS_NO if failed or regressed else ExitCode.DONE


def _template(out: Output) -> int:
    """Write an empty file of measured steps, and say on the side what its columns mean."""
    from trnbench.evidence.columns import COLUMNS, template_csv

    for column in COLUMNS:
        example = f" (such as {column.example})" if column.example else ""
        out.narrate(f"{column.name}: {column.help}{example}")
    out.write_bytes(template_csv().encode())
    return ExitCode.DONE
