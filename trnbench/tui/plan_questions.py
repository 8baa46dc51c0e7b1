"""The question of the Plan view, answered in a process of its own; without textual."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.facts.records import Record, replace
from trnbench.scenario import Scenario
from trnbench.show.report import columns
from trnbench.tui.compare_questions import compare_request, watch_of
from trnbench.tui.found import TableFound

if TYPE_CHECKING:
    from trnbench.answers.plan import PlanAnswer
    from trnbench.app.plan_request import PlanRequest
    from trnbench.facts.catalog.search import Catalog
    from trnbench.money.objective import Objective
    from trnbench.tui.work_process import WorkHooks

COLUMNS = (
    *columns("instance", "nodes"),
    *columns("days", "cost_usd", interval=True),
    *columns("purchase", "blocks_days", "region", "goodput", "mfu", "fit_probability"),
    *columns("usd_per_hour", "price_date", "tp", "pp", "dp", "micro_batch", "evidence"),
)


class PlanLimits(Record):
    """What a plan asks beyond a comparison; None leaves it open."""

    budget_usd: float | None
    objective: Objective | None
    confidence: float | None
    max_nodes: int | None
    confirm: int | None


class PlanFound(TableFound):
    """A plan; its rows are the purchases that no other beats in both time and money."""

    plan: PlanAnswer
    verdict: str
    words: str


def plan_request(scenario: Scenario, limits: PlanLimits) -> PlanRequest:
    """Return the request for the use case."""
    from trnbench.app.plan_request import PlanRequest
    from trnbench.app.run_request import MAX_NODES

    run = compare_request(scenario).run
    return PlanRequest(
        run=run.but(confidence=limits.confidence, max_nodes=limits.max_nodes or MAX_NODES),
        deadline_s=scenario.deadline_s,
        budget_usd=limits.budget_usd,
        objective=limits.objective,
        confirm=limits.confirm or 0,
    )


def plan_rows(
    catalog: Catalog, scenario: Scenario, limits: PlanLimits, hooks: WorkHooks
) -> PlanFound:
    """Return the plan, with the words that its command prints."""
    from trnbench.app.command_lines import plan_question
    from trnbench.app.plan_request import inputs_of
    from trnbench.app.verbs.plan import plan_run
    from trnbench.report.plan import plan_report
    from trnbench.report.verdict import plan_verdict_text
    from trnbench.show.text_table import Style

    request = plan_request(scenario, limits)
    answer = plan_run(catalog, request, watch=watch_of(hooks))
    report = plan_report(answer, inputs_of(request))
    if answer.complete:
        hooks.keep(catalog, plan_question(request), report, good=answer.best is not None)
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
