"""A whole run on given clusters as `train` tells it: part by part, and what all of it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trnbench.facts.records import replace
from trnbench.show.report import Report, columns
from trnbench.show.row import Row
from trnbench.show.text_table import Style
from trnbench.verbs.compare.text import CONVENTIONS as OF_RUNS
from trnbench.verbs.quotes.answer import Quote
from trnbench.verbs.quotes.notes import (
    availability_lines,
    evidence_lines,
    grouped,
    price_lines,
    warning_lines,
)
from trnbench.verbs.quotes.text import chain_text, run_text, sentence
from trnbench.verbs.train.answer import RunPart
from trnbench.verbs.train.tables import parts_table
from trnbench.verbs.train.text import CONVENTIONS as STEP_CONVENTIONS
from trnbench.verbs.train.text import layout_of_answer, train_report

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
    """Return what all parts of a run take together."""
    return {"engine": quote.step.engine, **{name: quote.row()[name] for name in WHOLE}}


def _draw(quotes: Sequence[Quote], style: Style) -> str:
    blocks = [style.strong(run_text(quotes[0].step.model, quotes[0]))]
    several = len({quote.step.engine for quote in quotes}) > 1
    for quote in quotes:
        by = f"{quote.step.engine}: " if several else ""
        lines = [f"{by}{sentence(quote)}", *chain_text(quote)]
        blocks += [style.lines(lines), parts_table(quote, style)]
        for number, step in enumerate(quote.steps, start=1):
            name = f"part {number}: {step.label}" if step.label else quote.instance
            blocks.append(style.titled(name, layout_of_answer(step, style)))
    groups = {
        "Limits and warnings": warning_lines(quotes),
        "Price": price_lines(quotes),
        "Availability": availability_lines(quotes),
        "Evidence": evidence_lines(quotes),
        "Details": [*dict.fromkeys(note for quote in quotes for note in quote.notes)],
    }
    return "\n\n".join(block for block in (*blocks, grouped(groups, style)) if block)
