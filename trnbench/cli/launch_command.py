"""`trnbench launch`: the files that start a layout, with what was predicted of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.cli.derived_options import asks
from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.printing import into_folder
from trnbench.cli.watching import ProgressLine
from trnbench.verbs.launch.question import LaunchQuestion, LaunchShowing

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.facts.catalog.search import Catalog
    from trnbench.verbs.launch.run import Launched


@into_folder
@asks(LaunchQuestion, LaunchShowing)
def launch(out: Output, catalog: Catalog, question: LaunchQuestion, showing: LaunchShowing) -> int:
    """Write the files that start a layout: configuration, job, environment, README, prediction.

    Degrees and modes that are not given are chosen: the fastest layout that fits, by the
    framework's calibration on the instance. Paths, images and subnets go into values.env.
    """
    from trnbench.verbs.launch.folders import refuse_full, write_launch
    from trnbench.verbs.launch.run import pairs, run
    from trnbench.verbs.launch.text import launch_report, pairs_report

    into, force = showing.into, showing.force
    if showing.listed:
        instances = tuple(name for name, _ in question.places)
        on = question.said().get("on")
        out.write(pairs_report(pairs(catalog, instances), {"on": on}))
        return ExitCode.DONE
    question = question.settled(catalog)
    if into is not None:
        refuse_full(into, force=force)
    with ProgressLine(quiet=out.quiet) as progress:
        answer = run(catalog, question, progress=progress)
    out.write(launch_report(answer, question.inputs()))
    if answer.folder is None:
        return ExitCode.ANSWER_IS_NO
    if into is not None:
        write_launch(into, answer, question.inputs(), force=force)
        out.narrate(f"written: {into}; {into / 'README.md'} says how to start it")
    else:
        out.narrate("nothing is written without -o FOLDER")
    say_empty(out, answer)
    return ExitCode.DONE


def say_empty(out: Output, answer: Launched) -> None:
    """Name the values that stay to be filled in."""
    if answer.folder is not None and answer.folder.empty:
        named = ", ".join(value.name for value in answer.folder.empty)
        out.narrate(f"to fill in, in values.env: {named}")
