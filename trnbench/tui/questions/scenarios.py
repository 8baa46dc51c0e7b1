"""The questions about a scenario: a comparison, a plan, and the files that start a row."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trnbench.facts.records import Record, replace
from trnbench.facts.units import DAY_S
from trnbench.show.report import Report, columns
from trnbench.show.row import Row
from trnbench.tui.work_process import TableFound
from trnbench.verbs.quotes.charts import ClusterPoint

if TYPE_CHECKING:
    from trnbench.facts.catalog.search import Catalog
    from trnbench.tui.work_process import WorkHooks
    from trnbench.verbs.asking.option import Given
    from trnbench.verbs.asking.use_case import Watch
    from trnbench.verbs.compare.question import CompareQuestion
    from trnbench.verbs.launch.folders import LaunchChoices
    from trnbench.verbs.plan.answer import PlanAnswer
    from trnbench.verbs.plan.question import PlanQuestion
    from trnbench.verbs.quotes.lead import Verdict
    from trnbench.verbs.quotes.markets import Explored
    from trnbench.verbs.quotes.question import RunRequest

COMPARE_COLUMNS = (
    *columns("instance", "nodes"),
    *columns("days", "cost_usd", interval=True),
    *columns("purchase", "cheapest_probability", "on_time_probability", "mean_cost_usd", "marks"),
    *columns("basis", "price_date", "mfu", "tokens_per_s"),
    *columns("usd_per_million_tokens", "relative_time", "relative_cost", interval=True),
    *columns("break_even_mfu", "step_time_s", "bottleneck", "tp", "pp", "dp", "micro_batch"),
    *columns("memory_bytes", "memory_available_bytes", "fit_probability", "usd_per_hour"),
    *columns("region", "evidence", "feasible"),
)
"""Columns, the most important first: the rightmost go out of view in a narrow window."""

SPEC_COLUMNS = columns(
    *("instance", "chips", "chip", "memory_bytes", "peak_bf16_flop_per_s", "usd_per_hour"),
    *("purchase", "region", "price_date"),
)


class CompareFound(TableFound):
    """The quotes of a comparison, and every cluster that was looked at."""

    points: tuple[ClusterPoint, ...]
    one_size: bool
    """True where only clusters of the asked size were looked at."""
    verdict: str
    """The result in a sentence."""
    winner: int | None
    """Place of the row that the verdict calls the cheapest."""
    rests_on: tuple[str, ...]
    """Basis of the speed and the price of each row, in words."""
    deadline_s: float | None
    pilot: Row | None = None
    """The best pilot as a row that can be launched."""


def compare_question(scenario: Given) -> CompareQuestion:
    """The question of a scenario."""
    from trnbench.verbs.compare.question import CompareQuestion

    question = CompareQuestion.read(scenario)
    return question.but(run=with_own_prices(question.run))


def with_own_prices(run: RunRequest) -> RunRequest:
    """A run with the own prices that count: those of a file only where the run asks for them."""
    from trnbench.verbs.quotes.buying import IF_ASKED

    prices = tuple(
        text.removesuffix(IF_ASKED)
        for text in run.bought.prices
        if not text.endswith(IF_ASKED) or text.partition("=")[0].strip() in run.instances
    )
    return run.but(bought=run.bought.but(prices=prices))


def supposed(catalog: Catalog, run: RunRequest) -> RunRequest:
    """A run whose suppositions are about its own instance types; others are refused."""
    return run.but(what_if=run.what_if.settled_on(catalog, run.instances))


def watch_of(hooks: WorkHooks) -> Watch:
    """The hooks by which a search reports progress and is cancelled."""
    from trnbench.verbs.asking.use_case import Watch

    workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    return Watch(progress=hooks.note, cancel=hooks.ended, workers=workers)


def compare_rows(catalog: Catalog, scenario: Given, hooks: WorkHooks) -> CompareFound:
    """The comparison, and the clusters searched for it."""
    from trnbench.verbs.compare.run import compare_run
    from trnbench.verbs.compare.text import compare_report, compare_verdict_text
    from trnbench.verbs.quotes.markets import explore_all
    from trnbench.verbs.quotes.notes import basis_text
    from trnbench.verbs.quotes.pilots import pilot_row

    question = compare_question(scenario)
    question = question.but(run=supposed(catalog, question.run))
    explored = explore_all(catalog, question.run, watch=watch_of(hooks))
    answer = compare_run(catalog, question, explored=explored)
    report = compare_report(answer, question.inputs())
    if answer.complete:
        hooks.keep(catalog, ("compare", question), report, good=answer.positive)
    return CompareFound(
        report=replace(report, columns=COMPARE_COLUMNS, people=None, charts=()),
        whole=replace(report, people=None),
        answers=tuple(row.quote for row in answer.compared),
        points=tuple(point for quote in explored for point in _points(quote)),
        one_size=question.by_nodes,
        verdict=_with_advice(compare_verdict_text(answer), answer.verdict),
        winner=answer.verdict.recommended,
        rests_on=tuple(basis_text(row.quote) for row in answer.compared),
        deadline_s=answer.deadline_s,
        pilot=pilot_row(answer.verdict, [row.quote for row in answer.compared]),
    )


def _with_advice(words: str, verdict: Verdict) -> str:
    from trnbench.verbs.quotes.verdict import advice_text

    return " ".join(filter(None, (words, advice_text(verdict))))


def compare_points(catalog: Catalog, scenario: Given, hooks: WorkHooks) -> tuple[ClusterPoint, ...]:
    """Clusters of every size of every instance type."""
    from trnbench.verbs.quotes.markets import explore_all

    run = supposed(catalog, compare_question(scenario).run).but(nodes=())
    explored = explore_all(catalog, run, watch=watch_of(hooks))
    return tuple(point for quote in explored for point in _points(quote))


def _points(explored: Explored) -> Iterator[ClusterPoint]:
    """Yield the clusters of an instance type, each bought in its cheapest way."""
    from trnbench.money.market import cheapest

    if explored.market is None:
        return
    for bought in cheapest(explored.market):
        best = explored.searches[0].by_nodes[bought.nodes].best
        yield ClusterPoint(
            instance=explored.name,
            nodes=bought.nodes,
            days=bought.elapsed_s / DAY_S,
            cost_usd=bought.cost_usd,
            tokens_per_s=best.tokens_per_s if best else 0.0,
        )


def spec_report(catalog: Catalog, instances: Sequence[str]) -> Report:
    """The specs of instances, before anything is computed: chips, memory, prices."""
    return Report(
        verb="spec-list",
        inputs={"instances": list(instances)},
        rows=tuple(_spec_row(catalog, name) for name in instances),
        columns=SPEC_COLUMNS,
    )


def _spec_row(catalog: Catalog, name: str) -> Row:
    from trnbench.facts.hardware.library import load_platform
    from trnbench.facts.prices.price import find_prices
    from trnbench.show.sheet import first_price

    platform = load_platform(catalog, name)
    chips, chip = platform.instance.chips, platform.chip
    price = first_price(listed) if (listed := find_prices(catalog, name)) else None
    return {
        "instance": platform.instance.name,
        "chips": chips,
        "chip": chip.name,
        "memory_bytes": chips * chip.memory.capacity_per_chip_bytes,
        "peak_bf16_flop_per_s": chips * chip.peak_flop_per_s("bf16"),
        "usd_per_hour": price.usd_per_hour if price else None,
        "purchase": price.option if price else None,
        "region": price.region if price else None,
        "price_date": price.date_to.isoformat() if price else None,
    }


PLAN_COLUMNS = (
    *columns("instance", "nodes"),
    *columns("days", "cost_usd", interval=True),
    *columns("purchase", "cheapest_probability", "on_time_probability", "mean_cost_usd", "marks"),
    *columns("blocks_days", "region", "goodput", "mfu", "fit_probability"),
    *columns("usd_per_hour", "price_date", "tp", "pp", "dp", "micro_batch", "evidence"),
)


class PlanFound(TableFound):
    """A plan; its rows are the purchases that no other beats in both time and money."""

    plan: PlanAnswer
    verdict: str
    words: str
    pilot: Row | None = None


def plan_question(asked: Given) -> PlanQuestion:
    """The question of a scenario and a plan's own limits; nodes leave out the most nodes."""
    from trnbench.verbs.plan.question import PlanQuestion

    question = PlanQuestion.read(
        {
            name: value
            for name, value in asked.items()
            if name != "max_nodes" or not asked.get("nodes")
        }
    )
    return question.but(run=with_own_prices(question.run))


def plan_rows(catalog: Catalog, asked: Given, hooks: WorkHooks) -> PlanFound:
    """The plan, with the words that its command prints."""
    from trnbench.show.text_table import Style
    from trnbench.verbs.plan.run import plan_run
    from trnbench.verbs.plan.text import plan_report, plan_verdict_text
    from trnbench.verbs.quotes.pilots import pilot_row

    question = plan_question(asked)
    question = question.but(run=supposed(catalog, question.run))
    answer = plan_run(catalog, question, watch=watch_of(hooks))
    report = plan_report(answer, question.inputs())
    if answer.complete:
        hooks.keep(catalog, ("plan", question), report, good=answer.best is not None)
    words = report.people(report, Style(width=WORDS_WIDTH)) if report.people else ""
    quotes = answer.front or ((answer.nearest,) if answer.nearest is not None else ())
    return PlanFound(
        report=replace(report, columns=PLAN_COLUMNS, people=None, charts=()),
        whole=replace(report, people=None),
        answers=tuple(quotes),
        plan=answer,
        verdict=_with_advice(plan_verdict_text(answer), answer.verdict),
        words=words,
        pilot=pilot_row(answer.verdict, answer.front),
    )


WORDS_WIDTH = 100
"""Columns of the plan in words."""


class LaunchFiles(Record):
    """The files that start a row, by name; without any, the reasons.

    `written` is the folder they were written to, `empty` the values that the user fills in there.
    """

    texts: Mapping[str, str]
    reasons: tuple[str, ...]
    empty: tuple[str, ...]
    command: str
    written: str = ""


def launch_ways(catalog: Catalog, row: Row, hooks: WorkHooks) -> LaunchChoices:
    """The frameworks and schedulers that can start a row."""
    from trnbench.verbs.launch.folders import launch_choices

    return launch_choices(catalog, row)


def launch_files(
    catalog: Catalog, row: Row, how: tuple[str, str], folder: Path | None, hooks: WorkHooks
) -> LaunchFiles:
    """The files for a framework and a scheduler; with a folder, write them there."""
    from trnbench.launch.folder import PREDICTION
    from trnbench.show.formats import render
    from trnbench.show.text_table import PLAIN
    from trnbench.verbs.asking.command_lines import command_question
    from trnbench.verbs.launch.folders import launch_row, write_launch
    from trnbench.verbs.launch.text import launch_report

    framework, scheduler = how
    answer, question = launch_row(
        catalog, row, stack=framework, scheduler=scheduler, progress=hooks.progress
    )
    inputs = question.inputs()
    if answer.folder is None:
        return LaunchFiles(texts={}, reasons=answer.step.reasons, empty=(), command="")
    if folder is not None:
        write_launch(folder, answer, inputs)
    prediction = render(launch_report(answer, inputs), "json", PLAIN).decode()
    return LaunchFiles(
        texts={**dict(sorted(answer.folder.texts.items())), PREDICTION: prediction},
        reasons=(),
        empty=tuple(value.name for value in answer.folder.empty),
        command=command_question("launch", question).line,
        written="" if folder is None else str(folder),
    )
