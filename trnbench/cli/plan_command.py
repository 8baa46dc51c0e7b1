"""`trnbench plan`: which machines, how many, in which layout, bought how."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trnbench.cli.derived_options import asks
from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.printing import keeping
from trnbench.cli.watching import watching
from trnbench.errors import InputError
from trnbench.verbs.plan.question import PlanQuestion, PlanShowing

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog
    from trnbench.show.row import Row


@keeping(reports=True, plots=True)
@asks(PlanQuestion, PlanShowing)
def plan(out: Output, catalog: Catalog, question: PlanQuestion, showing: PlanShowing) -> int:
    """Plan a training run: the answer first, then the alternatives and what would change it.

    Every valid layout on every cluster size of every instance type, bought in every way; spot
    (interruptible) only with --purchase spot.
    """
    from trnbench.verbs.plan.run import plan_run
    from trnbench.verbs.plan.text import plan_report
    from trnbench.verbs.quotes import pilots

    into, scheduler = showing.into, showing.scheduler
    if showing.plot:
        out.refuse_plot()
    if into is not None or scheduler is not None or showing.pilot is not None:
        _refuse(showing)
    question = question.settled(catalog)
    with watching(out) as watch:
        answer = plan_run(catalog, question, watch=watch)
    out.write(plan_report(answer, question.inputs(), plot=showing.plot, details=showing.details))
    if into is None or answer.best is None or scheduler is None:
        launched = True
    else:
        launched = _launched(out, catalog, answer.best.row(), into, scheduler)
    if showing.pilot is not None:
        row = pilots.pilot_row(answer.verdict, answer.front)
        if row is None:
            out.narrate("no pilot is written: none is worth its cost")
        elif not _launched(out, catalog, row, showing.pilot, scheduler or pilots.SCHEDULER):
            launched = False
        else:
            calibrate = f"trnbench calibrate {showing.pilot} LOG"
            out.narrate(f"its log narrows the next answer: `{calibrate}`, then this command again")
    if not answer.complete or watch.cancel():
        return ExitCode.INTERRUPTED
    return ExitCode.DONE if answer.best is not None and launched else ExitCode.ANSWER_IS_NO


def _refuse(showing: PlanShowing) -> None:
    """Refuse what cannot be launched before anything is planned."""
    # Most plans write no files, and start without what writes them.
    from trnbench.verbs.launch.folders import known_scheduler, refuse_full

    into, scheduler = showing.into, showing.scheduler
    if into is not None and scheduler is None:
        raise InputError("--launch FOLDER and --with SCHEDULER go together")
    if scheduler is not None:
        if into is None and showing.pilot is None:
            raise InputError("--with SCHEDULER needs --launch FOLDER or --pilot FOLDER")
        known_scheduler(scheduler)
    for folder in (into, showing.pilot):
        if folder is not None:
            refuse_full(folder, force=False)


def _launched(out: Output, catalog: Catalog, row: Row, folder: Path, scheduler: str) -> bool:
    """Write the files that start a row, or say why there are none."""
    from trnbench.cli.launch_command import say_empty
    from trnbench.verbs.launch.folders import launch_row, write_launch

    try:
        answer, question = launch_row(catalog, row, scheduler=scheduler)
    except InputError as error:
        out.narrate(f"nothing is launched: {error.message}")
        return False
    if answer.folder is None:
        out.narrate(f"nothing is launched: {'; '.join(answer.step.reasons)}")
        return False
    write_launch(folder, answer, question.inputs())
    out.narrate(f"written: {folder}; {folder / 'README.md'} says how to start it")
    say_empty(out, answer)
    return True
