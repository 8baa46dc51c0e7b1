"""`trnbench study`: one verb in every combination of some options, resumable, on many workers."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trnbench.cli.asking import ASK, WORDS
from trnbench.cli.diagnostics import ExitCode, help_alone, say
from trnbench.cli.interrupts import Interrupts, processors
from trnbench.cli.names import completes
from trnbench.cli.output import STDOUT
from trnbench.cli.printing import printing
from trnbench.cli.progress import ProgressLine
from trnbench.errors import EnvironmentFault
from trnbench.facts.parsing import short_text, whole
from trnbench.facts.units import counted

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog

application = typer.Typer(
    help="Studies, one verb over many options: run, show.",
    callback=help_alone,
    invoke_without_command=True,
    rich_markup_mode=None,
)
PARQUET = ".parquet"
StudyFile = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="A study file, or the name of a shipped one.",
        autocompletion=completes(("studies",)),
    ),
]


@application.command("run")
@printing
def run_command(
    out: Output,
    catalog: Catalog,
    file: StudyFile,
    workers: Annotated[
        int | None,
        typer.Option(
            parser=whole("--workers", most=1024),
            metavar="N",
            help="Processes on this machine; default: one for each processor.",
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Instead: the workers of a Dask cluster, tcp://..."),
    ] = None,
    retry: Annotated[
        bool, typer.Option("--retry", help="Ask cells again that failed before.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Ask more than 100,000 cells all the same.")
    ] = False,
    no_keep: Annotated[
        bool, typer.Option("--no-keep", help="Keep neither cells nor answer: it cannot go on.")
    ] = False,
    tag: Annotated[
        str | None,
        typer.Option(
            parser=short_text("--tag"), metavar="TEXT", help="Keep the answer under this name."
        ),
    ] = None,
) -> int:
    """Ask every cell of a study that is not answered yet, and keep each when it is done.

    A study that was stopped goes on where it was; Ctrl-C loses nothing. It is the same study as
    long as its cells, the data files and the program are the same.
    """
    from datetime import UTC, datetime

    from trnbench.app.keeping import GivenAnswer, kept_or_said
    from trnbench.app.keeping import keep as keep_answer
    from trnbench.app.study import StudyEffort, kept_study, run_study, study_named
    from trnbench.app.study_options import check_options
    from trnbench.cli.main import options_of
    from trnbench.report.study import StudyView, study_report
    from trnbench.store.place import keeps

    study = study_named(catalog, file)
    check_options(study, options_of)
    before = kept_study(catalog, study, say=say)
    effort = StudyEffort(
        workers=workers or processors(),
        scheduler=scheduler,
        retry=retry,
        confirmed=yes,
        keep=keeps() and not no_keep,
    )
    known = sum(key in before.kept for key in before.keys)
    where = scheduler or counted(effort.workers, "worker")
    out.narrate(f"{study.name}: {counted(len(before.cells), 'cell')}, {known:,} known; on {where}")
    began = time.time()
    with Interrupts() as interrupts, ProgressLine(quiet=out.quiet) as progress:
        answer = run_study(
            before,
            ASK.get(),
            effort,
            say=say,
            progress=progress,
            cancel=interrupts.asked,
        )
    report = study_report(study, tuple(answer.each()), StudyView())
    out.write(report)
    if answer.lost and not answer.complete and not interrupts.asked():
        raise EnvironmentFault(
            f"{counted(answer.open_count, 'cell')} of {study.name} left open: the worker "
            f"{answer.lost}",
            hint="the same command asks them again",
        )
    if not answer.complete:
        goes_on = "the same command goes on from here" if effort.keep else "nothing of it is kept"
        out.narrate(f"stopped; {goes_on}")
        return ExitCode.INTERRUPTED
    code = ExitCode.ANSWER_IS_NO if report.summary["failed"] else ExitCode.DONE
    if effort.keep:

        def keep_it() -> None:
            given = GivenAnswer(
                report=report,
                options={"file": study.provenance.path if study.name != file else file},
                command=shlex.join(("trnbench", *WORDS.get())),
                started_at=datetime.fromtimestamp(began, tz=UTC),
                seconds=time.time() - began,
                exit_code=code,
                inputs=[Path(study.provenance.path)],
                tag=tag,
                id=answer.id,
            )
            keep_answer(catalog, given, say=say)

        kept_or_said(keep_it, say, "trnbench: this answer is")
    return code


@application.command("show")
@printing
def show_command(
    out: Output,
    catalog: Catalog,
    file: StudyFile,
    rows: Annotated[
        str | None, typer.Option(metavar="AXIS", help="A pivot: this axis down.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(metavar="AXIS", help="A pivot: this axis across.")
    ] = None,
    figure: Annotated[
        str | None, typer.Option(metavar="KEY", help="A pivot: of this figure, step_time_s.")
    ] = None,
    best: Annotated[
        str | None, typer.Option(metavar="KEY", help="Only the row that is best in this figure.")
    ] = None,
    by: Annotated[
        str | None, typer.Option(metavar="AXIS", help="With --best: one for each of this axis.")
    ] = None,
    plot: Annotated[bool, typer.Option("--plot", help="Shade the pivot as a heat map.")] = False,
) -> int:
    """Show what came of a study so far: all cells, a pivot, or the best by group.

    -o FILE.parquet writes the rows for other tools; that needs pyarrow.
    """
    from trnbench.app.study import kept_study, study_named
    from trnbench.app.study_options import check_options
    from trnbench.cli.main import options_of
    from trnbench.report.study import StudyView, study_report

    view = StudyView(rows=rows, columns=columns, figure=figure, best=best, by=by)
    if plot:
        out.refuse_plot()
    study = study_named(catalog, file)
    check_options(study, options_of)
    answer = kept_study(catalog, study, say=say, required=True)
    report = study_report(study, tuple(answer.each()), view, plot=plot)
    if out.destination != STDOUT and out.destination.endswith(PARQUET):
        from trnbench.show.parquet import write_parquet

        write_parquet(Path(out.destination), report)
    else:
        out.write(report)
    return ExitCode.DONE if answer.kept else ExitCode.ANSWER_IS_NO
