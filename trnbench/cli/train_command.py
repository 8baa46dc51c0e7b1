"""`trnbench train`: one training step of a model on a cluster: does it fit, how long, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trnbench.cli.derived_options import asks
from trnbench.cli.diagnostics import ExitCode
from trnbench.cli.printing import keeping
from trnbench.cli.watching import Interrupts, ProgressLine
from trnbench.errors import InputError
from trnbench.facts.catalog.whole_file import write_whole
from trnbench.verbs.train.question import FUNCTIONAL, TrainQuestion, TrainShowing

if TYPE_CHECKING:
    from trnbench.cli.output import Output
    from trnbench.engines.emulate.schedule.timeline import Timeline
    from trnbench.facts.catalog.search import Catalog


@keeping(reports=True, plots=True)
@asks(TrainQuestion, TrainShowing)
def train(out: Output, catalog: Catalog, question: TrainQuestion, showing: TrainShowing) -> int:
    """Time one training step: does it fit, how fast, where do time and memory go, how sure is it.

    Degrees and modes that are not given are chosen: the fastest layout that fits. MFU counts
    model FLOP, with causal attention and nothing twice, over the tensor units' peak.

    With --tokens or --phase the whole run: each part's step, memory, days and cost, and all of it.

    With --engine functional a small text model is trained on emulated ranks, on generated text;
    degrees that are not given are 1.
    """
    if showing.memory and showing.plot:
        raise InputError("--memory has a chart of its own: give --plot or --memory, one of the two")
    if showing.memory and len(question.engines) > 1:
        raise InputError("--memory shows one played step: give --engine analytic or emulate")
    if showing.plot:
        out.refuse_plot()
    if question.engines == FUNCTIONAL:
        return _with_numbers(out, catalog, question, showing)
    question = question.but(timeline=showing.plot or showing.trace is not None).settled(catalog)
    if question.config is not None:
        from trnbench.verbs.train.configured import config_words

        out.narrate(config_words(question.config, question.layout))
    if question.parts:
        return _whole_runs(out, catalog, question)
    return _steps(out, catalog, question, showing)


def _steps(out: Output, catalog: Catalog, question: TrainQuestion, showing: TrainShowing) -> int:
    from trnbench.verbs.train.memory_text import memory_report
    from trnbench.verbs.train.run import run
    from trnbench.verbs.train.text import train_report

    with ProgressLine(quiet=out.quiet) as progress:
        answers = run(catalog, question, progress=progress)
    if showing.trace is not None:
        _write_trace(out, showing.trace, answers[0].timeline)
    if showing.memory:
        out.write(memory_report(answers, question.inputs()))
    else:
        out.write(train_report(answers, question.inputs(), plot=showing.plot))
    good = all(answer.feasible for answer in answers)
    return ExitCode.DONE if good else ExitCode.ANSWER_IS_NO


def _whole_runs(out: Output, catalog: Catalog, question: TrainQuestion) -> int:
    from trnbench.verbs.train.whole_run import quotes_of_runs, train_run_report

    with ProgressLine(quiet=out.quiet) as progress:
        quotes = quotes_of_runs(catalog, question, progress=progress)
    out.write(train_run_report(quotes, question.inputs()))
    good = all(quote.feasible for quote in quotes)
    return ExitCode.DONE if good else ExitCode.ANSWER_IS_NO


def _write_trace(out: Output, path: Path, played: Timeline | None) -> None:
    from trnbench.verbs.train.schedule_chart import schedule_trace

    if played is None:
        out.narrate("no trace: nothing was played")
        return
    content, holds = schedule_trace(played)
    write_whole(path, content)
    out.narrate(f"trace: {path} (open it at ui.perfetto.dev)")
    if holds is not None:
        out.narrate(f"the trace holds {holds}")


def _with_numbers(
    out: Output, catalog: Catalog, question: TrainQuestion, showing: TrainShowing
) -> int:
    """Train, print, and return the exit code; an interrupted run prints what is done."""
    if showing.memory:
        raise InputError("--memory plays the closed form; --engine functional measures its own")
    if showing.trace is not None:
        raise InputError("--trace acts on the played schedule; it needs --engine emulate or both")
    if showing.plot:
        raise InputError("--plot draws a schedule; --engine functional draws its losses anyway")
    from trnbench.verbs.train.functional import run_functional
    from trnbench.verbs.train.functional_text import functional_report

    asked = question.functional
    with Interrupts() as interrupts, ProgressLine(quiet=out.quiet) as progress:
        trained = run_functional(catalog, asked, progress=progress, cancel=interrupts.asked)
    out.write(functional_report(trained, asked.inputs()))
    if trained.interrupted:
        return ExitCode.INTERRUPTED
    return ExitCode.ANSWER_IS_NO if trained.reasons else ExitCode.DONE
