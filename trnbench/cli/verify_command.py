"""`trnbench verify`: did a launched run go as predicted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.printing import keeping
from trnbench.cli.progress import ProgressLine

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog


@keeping()
def verify(
    out: Output,
    catalog: Catalog,
    *,
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="What `trnbench launch` has written.")
    ],
    logs: Annotated[
        list[Path], typer.Argument(metavar="LOG...", help="Logs of its run, or CSV files of steps.")
    ],
) -> int:
    """Say whether a launched run goes as predicted, or by how much it is faster or slower.

    The median step of each log, once it is warm, is held against the 80 % interval that was written
    beside the job. Exit 1 where one lies outside.

    Rows of --json: id, measured_s, predicted_s, low_s, high_s, difference, verdict. Its summary:
    as_predicted, largest_terms, explain, remarks.
    """
    from trnbench.verbs.verify import run as use_case
    from trnbench.verbs.verify.text import verify_report

    request = use_case.verify.request(folder, logs, catalog=catalog)
    with ProgressLine(quiet=out.quiet) as progress:
        found = use_case.run(catalog, request, progress=progress)
    for remark in found.remarks:
        out.narrate(remark)
    out.write(verify_report(found, use_case.inputs_of(request)))
    return ExitCode.DONE if found.as_predicted else ExitCode.ANSWER_IS_NO
