"""One question has one answer: compare, plan, Python, the terminal UI and the report, by seeds."""

from __future__ import annotations

import random
from typing import Any

import pytest

import trnbench
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.terminal_text import shown
from trnbench.show.formats import headline
from trnbench.show.page import html_page, markdown_page
from trnbench.tui.questions.scenarios import compare_rows, plan_rows
from trnbench.tui.work_process import WorkHooks
from trnbench.verbs.compare.question import CompareQuestion
from trnbench.verbs.compare.run import compare_run
from trnbench.verbs.compare.text import compare_report
from trnbench.verbs.plan.question import PlanQuestion
from trnbench.verbs.plan.run import plan_run
from trnbench.verbs.plan.text import plan_report

FIGURES = (
    *("days", "low_days", "high_days", "cost_usd", "low_cost_usd", "high_cost_usd"),
    *("cheapest_probability", "on_time_probability", "mean_cost_usd", "regret_usd"),
)
VERDICT = ("verdict", "verdict_is", "recommended", "recommended_nodes", "regret_usd", "pilots")
OTHERS = ("trn1.32xlarge", "p4d.24xlarge", "p5.48xlarge")


def asked(seed: int) -> dict[str, Any]:
    """Options of a question; Trn2 is in all of them."""
    drawn = random.Random(seed)
    return {
        "model": drawn.choice(("llama2-7b", "llama3.1-8b", "tinyllama-1.1b")),
        "tokens": drawn.choice(("20B", "60B", "150B")),
        "on": f"trn2.48xlarge,{drawn.choice(OTHERS)}",
        "max_nodes": "8",
        "deadline": drawn.choice(("15d", "30d", "60d")),
        "price_date": "2026-11-21",
        **drawn.choice(({}, {"speed": ("trn2.48xlarge=-10%",)}, {"discount": "18%"})),
        **{"tp": "8", "pp": "1", "cp": "1", "vpp": "1", "zero": "1", "micro_batch": "1"},
    }


def told(report: Any) -> tuple[Any, Any]:
    """Figures of the best row of each instance type, and the verdict."""
    rows = {
        row["instance"]: {key: row[key] for key in FIGURES}
        for row in report.rows
        if row["cheapest_probability"] is not None and row["feasible"]
    }
    return rows, {key: report.summary[key] for key in VERDICT}


def agree(seed: int) -> None:
    catalog, given = open_catalog(environment={}), asked(seed)
    question = CompareQuestion.asked(catalog, given)
    report = compare_report(compare_run(catalog, question), question.inputs())
    first = told(report)
    planning = PlanQuestion.asked(catalog, given)
    planned = plan_report(plan_run(catalog, planning), planning.inputs())
    if first[1]["verdict_is"] == "none":
        assert planned.summary["verdict_is"] == "none"
    else:
        assert told(planned) == first
    answer = trnbench.compare(catalog=catalog, **given)
    assert told(compare_report(answer, question.inputs())) == first
    hooks = WorkHooks(lambda _: None, lambda: None)
    assert told(compare_rows(catalog, question.said(), hooks).report) == first
    assert told(plan_rows(catalog, planning.said(), hooks).report) == told(planned)
    for page in (html_page(report, ""), markdown_page(report, "")):
        assert shown(headline(report)).replace(">", "&gt;") in page.decode().replace(
            ">99", "&gt;99"
        )


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 4])
def test_all_fronts_tell_the_same(seed):
    agree(seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5, 25))
def test_all_fronts_tell_the_same_on_twenty_questions(seed):
    agree(seed)
