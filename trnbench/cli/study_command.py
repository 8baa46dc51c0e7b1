"""`trnbench study`: one verb in every combination of some options, resumable, on many workers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from trnbench.cli.asking import ASK
from trnbench.cli.derived_options import asks
from trnbench.cli.diagnostics import ExitCode, command_group, say
from trnbench.cli.output import STDOUT
from trnbench.cli.printing import keep_answer, printing
from trnbench.cli.watching import Interrupts, ProgressLine, processors
from trnbench.errors import EnvironmentFault
from trnbench.facts.units import counted
from trnbench.verbs.study.question import StudyEffort, StudyView

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog

application = command_group("Studies, one verb over many options: run, show.")
PARQUET = ".parquet"


@application.command("run")
@printing
@asks(StudyEffort)
def run_command(out: Output, catalog: Catalog, effort: StudyEffort) -> int:
    """Answer every open cell of a study, and keep each answer as soon as it is done.

    A study that was stopped goes on where it was; Ctrl-C loses nothing. It is the same study as
    long as its cells, the data files and the program are the same.
    """
    from trnbench.cli.main import options_of
    from trnbench.store.place import keeps
    from trnbench.verbs.study.checks import check_options
    from trnbench.verbs.study.run import kept_study, run_study, study_named
    from trnbench.verbs.study.text import study_report

    study = study_named(catalog, effort.file)
    check_options(study, options_of)
    before = kept_study(catalog, study, say=say)
    workers = effort.workers or processors()
    effort = effort.but(workers=workers, no_keep=effort.no_keep or not keeps())
    answered = sum(key in before.kept for key in before.keys)
    where = effort.scheduler or counted(workers, "worker")
    out.narrate(
        f"{study.name}: {counted(len(before.cells), 'cell')}, {answered:,} known; on {where}"
    )
    began = time.time()
    with Interrupts() as interrupts, ProgressLine(quiet=out.quiet) as progress:
        answer = run_study(
            before, ASK.get(), effort, say=say, progress=progress, cancel=interrupts.asked
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
        goes_on = (
            "nothing of it is kept" if effort.no_keep else "the same command goes on from here"
        )
        out.narrate(f"stopped; {goes_on}")
        return ExitCode.INTERRUPTED
    code = ExitCode.ANSWER_IS_NO if report.summary["failed"] else ExitCode.DONE
    if not effort.no_keep:
        source = study.provenance.path
        about = {
            "options": {"file": source if study.name != effort.file else effort.file},
            "inputs": [Path(source)],
            "tag": effort.tag,
            "id": answer.id,
        }
        keep_answer(catalog, report, code, began, lambda: about)
    return code


@application.command("show")
@printing
@asks(StudyView)
def show_command(out: Output, catalog: Catalog, view: StudyView) -> int:
    """Show what came of a study so far: all cells, a pivot, or the best by group.

    -o FILE.parquet writes the rows for other tools; that needs pyarrow.
    """
    from trnbench.cli.main import options_of
    from trnbench.verbs.study.checks import check_options
    from trnbench.verbs.study.run import kept_study, study_named
    from trnbench.verbs.study.text import study_report

    if view.plot:
        out.refuse_plot()
    study = study_named(catalog, view.file)
    check_options(study, options_of)
    answer = kept_study(catalog, study, say=say, required=True)
    report = study_report(study, tuple(answer.each()), view)
    if out.destination != STDOUT and out.destination.endswith(PARQUET):
        from trnbench.show.formats import write_parquet

        write_parquet(Path(out.destination), report)
    else:
        out.write(report)
    return ExitCode.DONE if answer.kept else ExitCode.ANSWER_IS_NO
