"""The search use case: every layout of a model on clusters of an instance type, the best first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trnbench.app.knobs import layout_of
from trnbench.app.layout_defaults import refuse_senseless
from trnbench.app.use_case import Cancel, Progress, never, quiet
from trnbench.facts.calibration.collective_stack import CollectiveStack, load_stack
from trnbench.facts.calibration.hosts import load_job_rates
from trnbench.facts.calibration.training_stack import TrainingEfficiency, TrainingStack
from trnbench.facts.catalog.search import Catalog, open_catalog
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.workload.layout import Value
from trnbench.facts.workload.library import load_model
from trnbench.facts.workload.model import Model
from trnbench.predict.search.question import SearchQuestion
from trnbench.predict.search.result import SearchResult
from trnbench.predict.search.runs import Seen
from trnbench.predict.search.search import SearchHooks, search
from trnbench.predict.setup import collectives_of, training_efficiency

__all__ = ["SearchResult", "Seen", "search_layouts"]


def search_layouts(
    *,
    model: str | Model,
    instance: str | Platform,
    nodes: int | Sequence[int],
    global_batch: int,
    sequence: int,
    precision: str,
    catalog: Catalog | None = None,
    stack: str | TrainingStack | None = None,
    efficiency: TrainingEfficiency | None = None,
    collectives: str | CollectiveStack | None = None,
    logical_size: int | None = None,
    memory_headroom: float | None = None,
    whole_nodes: bool = True,
    top: int = 20,
    progress: Progress = quiet,
    cancel: Cancel = never,
    watch: Callable[[Seen], None] = lambda seen: None,
    **knobs: Value | str | None,
) -> SearchResult:
    """Return the `top` layouts of least step time on each number of `nodes`, and what was counted.

    Model, instance and stacks are names or records; unasked, stacks are those of the instance.
    `knobs` (tp=8, recompute="full", ...) fix what is not to be searched. Every legal layout is
    looked at, several numbers of nodes at once as one grid. `progress` hears of (layouts done,
    legal layouts, what they are), `watch` of every layout priced; once `cancel` is true the search
    ends with what it has.

    >>> from trnbench import search_layouts
    >>> cluster = {"model": "llama2-7b", "instance": "trn1.32xlarge", "nodes": (1, 2), "tp": 8}
    >>> found = search_layouts(**cluster, global_batch=256, sequence=4096, precision="bf16-master")
    >>> found.legal > found.feasible > 0
    True
    """
    catalog = catalog or open_catalog()
    platform = load_platform(catalog, instance) if isinstance(instance, str) else instance
    if efficiency is None:
        efficiency = training_efficiency(catalog, platform, stack)
    known = load_model(catalog, model) if isinstance(model, str) else model
    layout = layout_of(global_batch=global_batch, sequence=sequence, precision=precision, **knobs)
    refuse_senseless(known, layout)
    question = SearchQuestion(
        model=known,
        platform=platform,
        efficiency=efficiency,
        collectives=_collectives(catalog, platform, efficiency.stack, collectives),
        rates=load_job_rates(catalog),
        nodes=(nodes,) if isinstance(nodes, int) else tuple(nodes),
        layout=layout,
        headroom=memory_headroom,
        logical_size=logical_size,
        whole_nodes=whole_nodes,
    )
    return search(
        question, top=top, hooks=SearchHooks(progress=progress, cancel=cancel, watch=watch)
    )


def _collectives(
    catalog: Catalog,
    platform: Platform,
    stack: TrainingStack,
    named: str | CollectiveStack | None,
) -> CollectiveStack:
    if isinstance(named, CollectiveStack):
        return named
    if named is not None:
        return load_stack(catalog, named)
    return collectives_of(catalog, platform, stack)
