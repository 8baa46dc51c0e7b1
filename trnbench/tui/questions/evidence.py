"""The questions about measurements, claims and kept runs."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

from trnbench.errors import TrnbenchError
from trnbench.facts.records import replace
from trnbench.show.report import columns
from trnbench.tui.work_process import TableFound

if TYPE_CHECKING:
    from trnbench.facts.catalog.search import Catalog
    from trnbench.tui.work_process import WorkHooks
    from trnbench.verbs.asking.option import Given
    from trnbench.verbs.runs.run import AnsweredRun

LENGTHS = ("tokens", "samples", "phase")
EVIDENCE_COLUMNS = columns(
    *("id", "error", "measured_s", "predicted_s", "low_s", "high_s", "set", "fitted", "model"),
    *("nodes", "size_bytes", "calibration", "reason"),
)
CLAIM_COLUMNS = columns("verdict", "claim", "says", "text")


class EvidenceFound(TableFound):
    """Measurements and their predictions; `words`: the errors as the command prints them."""

    words: str


def evidence_rows(catalog: Catalog, sets: tuple[str, ...], hooks: WorkHooks) -> EvidenceFound:
    """The shipped measurements, each with its prediction."""
    from trnbench.show.text_table import PLAIN
    from trnbench.verbs.asking.command_lines import CommandQuestion
    from trnbench.verbs.validate.run import validate
    from trnbench.verbs.validate.text import validation_report

    sections = validate(set=sets, catalog=catalog, progress=hooks.progress)
    report = validation_report(sections, {"sets": sets})
    brief = validation_report(sections, {}, brief=True)
    hooks.keep(catalog, CommandQuestion(verb="validate", options={"set": sets}), report, good=True)
    answers = [row for section in sections for row in section.rows]
    # What could not be predicted stands last: there is nothing to see in it but the reason.
    order = sorted(range(len(answers)), key=lambda number: answers[number].error is None)
    return EvidenceFound(
        report=replace(
            report,
            rows=tuple(report.rows[number] for number in order),
            columns=EVIDENCE_COLUMNS,
            people=None,
        ),
        answers=tuple(answers[number] for number in order),
        # Without the verdict, which is said above the rows.
        words=brief.people(brief, PLAIN).partition("\n\n")[2] if brief.people else "",
    )


def claim_rows(catalog: Catalog, price_date: datetime.date, hooks: WorkHooks) -> TableFound:
    """The claims of vendors, with verdicts."""
    from trnbench.verbs.claims.question import ClaimsQuestion
    from trnbench.verbs.claims.run import run
    from trnbench.verbs.claims.text import claims_report

    question = ClaimsQuestion(price_date=price_date).settled(catalog)
    report = claims_report(run(catalog, question, progress=hooks.progress), question.inputs())
    return TableFound(report=replace(report, columns=CLAIM_COLUMNS, people=None))


RUN_COLUMNS = columns(
    *("started_at", "verb", "headline", "tag", "model", "instances", "seconds", "id", "version")
)


class RunsFound(TableFound):
    """Kept runs; `said`: the faults of those that cannot be read."""

    said: tuple[str, ...] = ()


def kept_runs(catalog: Catalog, hooks: WorkHooks) -> RunsFound:
    """The kept runs, newest first."""
    from trnbench.verbs.runs.question import RunsListQuestion
    from trnbench.verbs.runs.run import list_runs
    from trnbench.verbs.runs.text import list_report

    said: list[str] = []
    runs = list_runs(catalog, RunsListQuestion(), say=said.append)
    report = list_report(runs, {})
    shown = replace(report, columns=RUN_COLUMNS, people=None)
    return RunsFound(report=shown, answers=tuple(runs), said=tuple(map(str, said)))


def kept_answer_text(catalog: Catalog, name: str, hooks: WorkHooks) -> str:
    """Text of a kept answer."""
    from trnbench.show.formats import render
    from trnbench.show.text_table import PLAIN
    from trnbench.verbs.runs.run import answered_run
    from trnbench.verbs.runs.text import shown_report

    one = answered_run(name)
    return render(shown_report(one.run, one.answer), "table", PLAIN).decode()


def difference_text(catalog: Catalog, names: tuple[str, str], hooks: WorkHooks) -> str:
    """Differences of two kept answers, neither of them computed again."""
    from trnbench.show.formats import render
    from trnbench.show.text_table import PLAIN
    from trnbench.verbs.runs.diff import diff_runs
    from trnbench.verbs.runs.diff_text import diff_report

    difference = diff_runs(*names, None)
    text = render(diff_report(difference), "table", PLAIN).decode()
    return f"{text}\ntrnbench runs diff {names[0]} {names[1]}   asks both again, part by part"


def opened_run(catalog: Catalog, name: str, hooks: WorkHooks) -> AnsweredRun:
    from trnbench.verbs.runs.run import answered_run

    return answered_run(name)


def scenario_of_options(options: Given) -> Given | None:
    """The options of `compare`; None where the form of a scenario has no room for them."""
    from trnbench.tui.questions.scenarios import compare_question
    from trnbench.verbs.compare.scenario import NEEDED, scenario_options

    shown = {option.name for option in scenario_options().values()}
    needed = {scenario_options()[key].name for key in NEEDED}
    if not needed <= options.keys() <= shown or options.keys().isdisjoint(LENGTHS):
        return None
    try:
        nodes = compare_question(options).run.nodes
    except TrnbenchError:
        return None
    return options if len(nodes) < 2 else None
