"""Whole runs on given clusters: every part as `train` answers a step, its bill, and all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trnbench.facts.catalog.search import Catalog
from trnbench.facts.records import replace
from trnbench.money.market import cheapest
from trnbench.show.report import Report, columns
from trnbench.show.row import Row
from trnbench.show.text_table import Style
from trnbench.verbs.asking.use_case import Progress, Watch, quiet
from trnbench.verbs.compare.text import CONVENTIONS as OF_RUNS
from trnbench.verbs.quotes.answer import Quote
from trnbench.verbs.quotes.markets import explore_all
from trnbench.verbs.quotes.notes import (
    availability_lines,
    evidence_lines,
    grouped,
    price_lines,
    warning_lines,
)
from trnbench.verbs.quotes.question import RunRequest
from trnbench.verbs.quotes.run import quote, quote_of_none
from trnbench.verbs.quotes.text import chain_text, run_text, sentence
from trnbench.verbs.train.answer import RunPart, TrainAnswer
from trnbench.verbs.train.question import TrainQuestion
from trnbench.verbs.train.tables import parts_table
from trnbench.verbs.train.text import CONVENTIONS as STEP_CONVENTIONS
from trnbench.verbs.train.text import layout_of_answer, train_report


def quotes_of_runs(
    catalog: Catalog, question: TrainQuestion, *, progress: Progress = quiet
) -> tuple[Quote, ...]:
    """Return the runs of a question, each on its cluster by every engine, bought the cheapest way.

    Their steps are the parts, each in the fastest layout where knobs are left open.
    """
    return tuple(
        found
        for run in question.runs
        for found in _quotes(catalog, run, question.engines, Watch(progress=progress))
    )


def _quotes(
    catalog: Catalog, run: RunRequest, engines: tuple[str, ...], watch: Watch
) -> tuple[Quote, ...]:
    (explored,) = explore_all(catalog, run, watch=watch)
    (nodes,) = run.node_counts
    if explored.market is None:
        none = quote_of_none(explored, nodes, headroom=run.headroom)
        return tuple(
            replace(none, steps=tuple(_as_answered(step, engine) for step in none.steps))
            for engine in engines
        )
    (way,) = cheapest(explored.market)
    return tuple(quote(explored, way, engine=engine) for engine in engines)


def _as_answered(step: TrainAnswer, engine: str) -> TrainAnswer:
    """Return a part of a run that cannot be, of which nothing was chosen where none fits."""
    fits = step.searched is not None and step.searched.feasible
    return replace(step, engine=engine, chosen=step.chosen if fits else ())


WHOLE = (
    *("instance", "nodes", "tokens", "samples", "days", "low_days", "high_days", "goodput"),
    *("cost_usd", "low_cost_usd", "high_cost_usd", "usd_per_million_tokens", "purchase", "region"),
    *("usd_per_hour", "price_date", "billed_hours", "memory_peak_bytes", "fit_probability"),
    *("feasible", "reasons"),
)
"""What is said of a run, of what a row of `compare` says."""
CONVENTIONS = {
    "run_share": "of the run's time; days and cost_usd of a part are this share of the run's",
    **{name: OF_RUNS[name] for name in ("days", "cost_usd")},
}


def train_run_report(quotes: Sequence[Quote], inputs: Mapping[str, object]) -> Report:
    """Return the report of runs: a row a part, and what a run takes in the summary."""
    steps = [step for one in quotes for step in one.steps]
    report = train_report(steps, inputs)
    unpaid = RunPart(tokens=None, share=None).row()
    days = columns("days", "cost_usd") if any(one.elapsed_s for one in quotes) else ()
    return replace(
        report,
        rows=tuple({**unpaid, **row} for row in report.rows),
        columns=(*report.columns, *days),
        summary={
            **report.summary,
            "verdict": "; ".join(sentence(one) for one in quotes),
            "runs": [_whole(one) for one in quotes],
            "conventions": {**STEP_CONVENTIONS, **CONVENTIONS},
        },
        people=lambda _, style: _draw(quotes, style),
    )


def _whole(quote: Quote) -> Row:
    return {"engine": quote.step.engine, **{name: quote.row()[name] for name in WHOLE}}


def _draw(quotes: Sequence[Quote], style: Style) -> str:
    blocks = [style.strong(run_text(quotes[0].step.model, quotes[0]))]
    several = len({quote.step.engine for quote in quotes}) > 1
    for bought in quotes:
        by = f"{bought.step.engine}: " if several else ""
        lines = [f"{by}{sentence(bought)}", *chain_text(bought)]
        blocks += [style.lines(lines), parts_table(bought, style)]
        for number, step in enumerate(bought.steps, start=1):
            name = f"part {number}: {step.label}" if step.label else bought.instance
            blocks.append(style.titled(name, layout_of_answer(step, style)))
    groups = {
        "Limits and warnings": warning_lines(quotes),
        "Price": price_lines(quotes),
        "Availability": availability_lines(quotes),
        "Evidence": evidence_lines(quotes),
        "Details": [*dict.fromkeys(note for quote in quotes for note in quote.notes)],
    }
    return "\n\n".join(block for block in (*blocks, grouped(groups, style)) if block)
