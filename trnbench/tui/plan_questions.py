"""The question of the Plan view, answered in a process of its own; without textual."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.facts.records import replace
from trnbench.show.report import columns
from trnbench.tui.compare_questions import watch_of, with_own_prices
from trnbench.tui.found import TableFound

if TYPE_CHECKING:
    from trnbench.facts.catalog.search import Catalog
    from trnbench.tui.work_process import WorkHooks
    from trnbench.verbs.asking.option import Given
    from trnbench.verbs.plan.answer import PlanAnswer
    from trnbench.verbs.plan.question import PlanQuestion

COLUMNS = (
    *columns("instance", "nodes"),
    *columns("days", "cost_usd", interval=True),
    *columns("purchase", "blocks_days", "region", "goodput", "mfu", "fit_probability"),
    *columns("usd_per_hour", "price_date", "tp", "pp", "dp", "micro_batch", "evidence"),
)


class PlanFound(TableFound):
    """A plan; its rows are the purchases that no other beats in both time and money."""

    plan: PlanAnswer
    verdict: str
    words: str


def plan_question(asked: Given) -> PlanQuestion:
    """The question of a scenario and a plan's own limits; nodes leave out the most nodes."""
    from trnbench.verbs.plan.question import PlanQuestion

    question = PlanQuestion.read(
        {name: one for name, one in asked.items() if name != "max_nodes" or not asked.get("nodes")}
    )
    return question.but(run=with_own_prices(question.run))


def plan_rows(catalog: Catalog, asked: Given, hooks: WorkHooks) -> PlanFound:
    """The plan, with the words that its command prints."""
    from trnbench.show.text_table import Style
    from trnbench.verbs.asking.command_lines import command_question
    from trnbench.verbs.plan.run import plan_run
    from trnbench.verbs.plan.text import plan_report, plan_verdict_text

    question = plan_question(asked)
    answer = plan_run(catalog, question, watch=watch_of(hooks))
    report = plan_report(answer, question.inputs())
    if answer.complete:
        hooks.keep(
            catalog, command_question("plan", question), report, good=answer.best is not None
        )
    words = report.people(report, Style(width=WORDS_WIDTH)) if report.people else ""
    quotes = answer.front or ((answer.nearest,) if answer.nearest is not None else ())
    return PlanFound(
        report=replace(report, columns=COLUMNS, people=None),
        answers=tuple(quotes),
        plan=answer,
        verdict=plan_verdict_text(answer),
        words=words,
    )


WORDS_WIDTH = 100
"""Columns of the plan in words."""
