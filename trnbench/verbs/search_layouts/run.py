"""The search use case: every layout of a model on clusters of an instance type, the best first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trnbench.facts import parsing
from trnbench.facts.calibration.collective_stack import CollectiveStack, load_stack
from trnbench.facts.calibration.hosts import load_job_rates
from trnbench.facts.calibration.training_stack import TrainingEfficiency, TrainingStack
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.records import replace
from trnbench.facts.workload.library import load_model
from trnbench.facts.workload.model import Model
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.predict.search.question import SearchQuestion
from trnbench.predict.search.result import SearchResult
from trnbench.predict.search.runs import Seen
from trnbench.predict.search.search import SearchHooks, search
from trnbench.predict.settled import assumptions, refuse_senseless, searched_for
from trnbench.predict.setup import collectives_of, training_efficiency
from trnbench.verbs.asking.function import verb_of
from trnbench.verbs.asking.knobs import KNOB_OPTIONS
from trnbench.verbs.asking.question import Question, group, option
from trnbench.verbs.asking.use_case import Cancel, Progress, never, quiet


def _needed(help: str, **about: Any) -> Any:  # noqa: ANN401 - the type of the field
    return option(help, default=None, required=True, **about)


class LayoutsQuestion(Question):
    """A model on numbers of nodes of an instance type; what the layout leaves open is searched."""

    model: str | Model = _needed("Model: its name, or a record.")
    instance: str | Platform = _needed("Instance type: its name, or a platform.")
    nodes: tuple[int, ...] = _needed("Numbers of nodes: one, or several.", read=parsing.whole)
    layout: PartialLayout = group(KNOB_OPTIONS)
    stack: str | TrainingStack | None = option(
        "Training stack: its name, or a record; default: the instance's."
    )
    efficiency: TrainingEfficiency | None = option(
        "Instead of a stack: the efficiencies themselves."
    )
    collectives: str | CollectiveStack | None = option(
        "Collective stack: its name, or a record; default: the training stack's."
    )
    logical_size: int | None = option("Logical core size; default: the chip's.")
    memory_headroom: float | None = option(
        "Memory per rank to leave free; default: the most that may be needed.", read=parsing.share
    )
    whole_nodes: bool = option("Only layouts that use every rank of the nodes.", default=True)
    top: int = option("Layouts of each number of nodes to return.", default=20)
    best: int | None = option(
        "Price only this number of layouts, the fastest; the others are counted."
    )


def run(
    catalog: Catalog,
    question: LayoutsQuestion,
    *,
    progress: Progress = quiet,
    cancel: Cancel = never,
    watch: Callable[[Seen], None] | None = None,
) -> SearchResult:
    """Return the `top` layouts of least step time on each number of `nodes`, and what was counted.

    Knobs (tp=8, recompute="full", ...) fix what is not to be searched; batch, sequence and
    precision have to be given. Every valid layout is considered, several numbers of nodes at once
    as one grid. `best=3` answers the three fastest on all numbers of nodes. Layouts that a bound of
    their time leaves out are not priced (`tally.outpaced` counts them). `progress` hears of
    (layouts done, valid layouts, what they are), `watch` of every priced layout. Once `cancel` is
    true the search ends with what it has.

    >>> from trnbench import search_layouts
    >>> cluster = {"model": "llama2-7b", "instance": "trn1.32xlarge", "nodes": (1, 2), "tp": 8}
    >>> found = search_layouts(**cluster, global_batch=256, sequence=4096, precision="bf16-master")
    >>> found.legal > found.feasible > 0
    True
    """
    instance, model = question.instance, question.model
    platform = load_platform(catalog, instance) if isinstance(instance, str) else instance
    model = load_model(catalog, model) if isinstance(model, str) else model
    efficiency = question.efficiency or training_efficiency(catalog, platform, question.stack)
    refuse_senseless(model, question.layout)
    asked = SearchQuestion(
        model=model,
        platform=platform,
        efficiency=efficiency,
        collectives=_collectives(catalog, platform, efficiency.stack, question.collectives),
        rates=load_job_rates(catalog),
        nodes=question.nodes,
        layout=question.layout,
        headroom=question.memory_headroom,
        logical_size=question.logical_size,
        whole_nodes=question.whole_nodes,
    )
    hooks = SearchHooks(progress=progress, cancel=cancel, watch=watch)
    if question.best is None:
        answer = search(asked, top=question.top, hooks=hooks)
    else:
        answer = search(asked, top=question.best, hooks=hooks, best="of all")
    if answer.best is None:
        return answer
    layout, best = asked.layout, PartialLayout.of(answer.best.layout)
    chosen = searched_for(layout)
    habitual = [name for name in layout.open if name not in chosen]
    software = asked.stack.short_name
    return replace(answer, assumed=assumptions(best, habitual, chosen, software))


search_layouts = verb_of("search_layouts", LayoutsQuestion, run)


def _collectives(
    catalog: Catalog, platform: Platform, stack: TrainingStack, named: str | CollectiveStack | None
) -> CollectiveStack:
    if isinstance(named, CollectiveStack):
        return named
    if named is not None:
        return load_stack(catalog, named)
    return collectives_of(catalog, platform, stack)
