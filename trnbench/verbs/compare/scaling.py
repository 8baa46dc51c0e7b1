"""The scaling use case: the layout that a comparison takes, with more and fewer replicas.

Everything but the replicas stays: their number is what the nodes leave. Strong scaling keeps the
global batch, weak scaling the batch of a node.
"""

from __future__ import annotations

from trnbench.errors import InputError
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.records import replace
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.money.objective import Candidate
from trnbench.verbs.compare.question import CompareQuestion
from trnbench.verbs.compare.run import row_of_market
from trnbench.verbs.compare.scaling_answer import Scaling, ScalingAnswer, ScalingCurve
from trnbench.verbs.quotes.answer import Quote
from trnbench.verbs.quotes.markets import Explored, explore_all
from trnbench.verbs.quotes.run import quote
from trnbench.verbs.quotes.searching import Watch


def scale_run(
    catalog: Catalog, request: CompareQuestion, scaling: Scaling, *, watch: Watch | None = None
) -> ScalingAnswer:
    """Return a curve for every instance type, over the numbers of nodes of the request."""
    if len(request.run.parts) > 1:
        raise InputError("a scaling curve is of one part of a run; give --tokens or --samples")
    if request.equal_cost:
        raise InputError("a scaling curve is over nodes, whatever they cost")
    explored = explore_all(catalog, request.run, watch=watch)
    return ScalingAnswer(
        model=request.run.model,
        scaling=scaling,
        curves=tuple(_curve(request, one, scaling) for one in explored),
        complete=len(explored) == len(request.run.instances)
        and all(one.complete for one in explored),
    )


def _curve(request: CompareQuestion, explored: Explored, scaling: Scaling) -> ScalingCurve:
    # With numbers of nodes as the footing, the largest cluster says which family it is.
    nodes = request.run.node_counts[-1] if request.by_nodes else None
    start = row_of_market(request, explored, nodes)
    if start.step.step is None:
        return ScalingCurve(instance=explored.name, nodes=start.nodes, family=None, points=(start,))
    family = start.step.layout
    points = tuple(_point(explored, start, count, scaling) for count in request.run.node_counts)
    return ScalingCurve(instance=explored.name, nodes=start.nodes, family=family, points=points)


def _point(explored: Explored, start: Quote, nodes: int, scaling: Scaling) -> Quote:
    family = start.step.layout
    ranks = nodes * start.step.ranks // start.nodes
    others = family.replica_ranks
    batch = family.degree("global_batch")
    reasons = []
    if nodes in explored.refused:
        reasons.append(explored.refused[nodes])
    if ranks % others:
        reasons.append(f"{ranks:,} ranks are no whole number of replicas of {others:,} ranks")
    if scaling == "weak":
        if batch * nodes % start.nodes:
            reasons.append(
                f"a batch of {batch:,} on {start.nodes:,} nodes leaves none for {nodes:,}"
            )
        batch = batch * nodes // start.nodes
    if reasons:
        none = family.changed(dp=None, global_batch=None)
        empty = replace(start.step, nodes=nodes, ranks=ranks, layout=none, step=None, memory=None)
        return replace(
            start, nodes=nodes, steps=(empty,), elapsed_s=None, wall=None, cost_usd=None, bill=None
        ).refused(tuple(reasons))
    layouts: tuple[PartialLayout, ...] = (family.changed(dp=ranks // others, global_batch=batch),)
    way = Candidate(instance=explored.name, nodes=nodes, option=None, elapsed_s=0.0, cost_usd=None)
    return quote(explored, way, layouts=layouts)
