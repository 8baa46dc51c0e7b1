"""Whole runs on given clusters: every part of a run as `train` answers a step, and its bill."""

from __future__ import annotations

from trnbench.facts.catalog.search import Catalog
from trnbench.facts.records import replace
from trnbench.money.market import cheapest
from trnbench.verbs.asking.use_case import Progress, quiet
from trnbench.verbs.quotes.answer import Quote
from trnbench.verbs.quotes.markets import explore_all
from trnbench.verbs.quotes.question import RunRequest
from trnbench.verbs.quotes.run import quote, quote_of_none
from trnbench.verbs.quotes.searching import Watch
from trnbench.verbs.train.answer import TrainAnswer
from trnbench.verbs.train.question import TrainQuestion


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
