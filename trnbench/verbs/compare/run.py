"""The comparison use case: a run on several instance types, on an equal footing.

    nodes       every type at each of the given numbers of nodes
    deadline    every type at the nodes, of those looked at, that cost the least in time
    cost        the baseline as before; the others as fast as they come for no more money

A cluster is bought in the cheapest way that keeps the footing.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from trnbench.engines.analytic.step.engines import keep_forms
from trnbench.errors import EnvironmentFault, InputError
from trnbench.facts.calibration.training_stack import TrainingStack, stacks_fitted_on
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.processes.children import forked
from trnbench.facts.records import Record, replace
from trnbench.facts.units import counted, significant
from trnbench.money.draws import DrawnPurchase
from trnbench.money.market import candidates
from trnbench.money.objective import Candidate, Limits, cheapest_first, nearest, ranked
from trnbench.money.sensitivity import break_even_speed
from trnbench.predict.assumption import Assumption
from trnbench.predict.common_draws import CommonDraws
from trnbench.predict.settled import UNSAID
from trnbench.predict.setup import TrainSetup, family_of, train_setup
from trnbench.verbs.asking.function import verb_of
from trnbench.verbs.asking.use_case import Watch
from trnbench.verbs.compare.answer import CompareAnswer, ComparedQuote, OtherStack
from trnbench.verbs.compare.question import CompareQuestion
from trnbench.verbs.quotes.answer import Quote, quotes_assumed
from trnbench.verbs.quotes.capacity import capacity_checks
from trnbench.verbs.quotes.draws import (
    cost_ratio,
    outcomes,
    time_ratio,
    with_confidence,
)
from trnbench.verbs.quotes.markets import Explored, explore_all, looked
from trnbench.verbs.quotes.pilots import with_pilots
from trnbench.verbs.quotes.rivals import Rival, judged, on_time, rivals_of
from trnbench.verbs.quotes.run import quote, quote_of_none
from trnbench.verbs.quotes.text import time_text
from trnbench.verbs.quotes.tipping import TippingWorld, tippings

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Thing = TypeVar("Thing")
Found = TypeVar("Found")


def each(work: Callable[[Thing], Found], things: Sequence[Thing], workers: int) -> list[Found]:
    """Return the results of `work`, in the order of its arguments.

    This process does its share; the others are forked from it, know what it knows, and send what
    they found. More than one worker is only for a process that has no threads of its own.
    """
    together = min(workers, len(things))
    if together < 2 or not hasattr(os, "fork"):
        return [work(one) for one in things]
    from multiprocessing import Pipe

    others = []
    found: list[Found] = [*things]  # type: ignore[list-item]
    try:
        for number in range(1, together):
            mine, its = Pipe(duplex=False)
            with closing(its):
                child = forked(_send, its, work, things[number::together])
            others.append((child, mine))
        found[::together] = [work(one) for one in things[::together]]
        for number, (_, mine) in enumerate(others, start=1):
            found[number::together] = _received(mine)
        return found
    finally:
        for child, mine in others:
            mine.close()
            child.kill()
            child.join()


def _send(its: Connection, work: Callable[[Thing], Found], things: Sequence[Thing]) -> None:
    try:
        its.send([work(one) for one in things])
    except Exception as error:  # whatever it is, it is raised where its answer is waited for
        its.send(error)


def _received(mine: Connection) -> list[Found]:
    try:
        told = mine.recv()
    except EOFError:
        raise EnvironmentFault("a part was ended from outside, for want of memory?") from None
    if isinstance(told, Exception):
        raise told
    return told  # type: ignore[no-any-return]


ROWS_TO_SHARE = 24
"""Rows that are worth another process: one makes fewer in less time than it takes to start."""
LISTED = 5
"""So many cluster sizes are counted up, as 1, 2, 4 ... 512 if they are more."""


_Place: TypeAlias = tuple[str, int | None]
"""A row's instance type, and its number of nodes where these are the footing."""


class _Row(Record, eq=False):
    """A row, its time and cost draw by draw, its type's best plans, and it with other stacks."""

    quote: Quote
    drawn: DrawnPurchase | None
    rivals: tuple[Rival, ...]
    others: tuple[OtherStack, ...]


def compare_run(
    catalog: Catalog,
    request: CompareQuestion,
    *,
    watch: Watch | None = None,
    explored: Sequence[Explored] | None = None,
) -> CompareAnswer:
    """Return time and cost of a training run on several instance types, a row for each.

    Each is in its best layout: knobs that are not given are searched. The model may be FLEET:JOB, a
    job of a fleet. Without a model, a length or instance types usual ones are taken, and the answer
    says which. Once `cancel` is true, what was found is answered; `workers` is how many processes
    may search at once.

    >>> from trnbench import compare
    >>> answer = compare("llama2-7b", tokens="300B", on="trn1.32xlarge", nodes=4, tp=8, pp=1)
    >>> [(one.quote.instance, one.quote.nodes) for one in answer.compared]
    [('trn1.32xlarge', 4)]
    """
    # `explored`: what `explore_all` said of this very run, if it has been asked already.
    run = request.run
    baseline = catalog.find("instances", request.baseline or run.instances[0]).name
    named = [catalog.find("instances", name).name for name in run.instances]
    if baseline not in named:
        raise InputError(f"the baseline {baseline} is not among the instances compared")
    if explored is None:
        explored = explore_all(catalog, run, watch=watch)
    by_name = {one.name: one for one in explored}
    draws = CommonDraws()
    rows: dict[_Place, _Row] = {}

    def row(place: _Place) -> _Row:
        name, nodes = place
        known = by_name[name]
        base = rows.get((baseline, nodes)) if request.equal_cost else None
        asked = nodes or (request.baseline_nodes if name == baseline else None)
        found, rivals = row_of_market(request, known, asked, base.quote if base else None)
        same = [one.drawn for one in rivals if found.is_of(one.way)]
        drawn = same[0] if same else outcomes(by_name, [found], draws)[0]
        if drawn is not None and found.feasible and not rivals:
            rivals = (Rival(way=_way(found), drawn=drawn),)
        return _Row(
            quote=_warned(found, drawn, request),
            drawn=drawn,
            rivals=rivals,
            others=() if name in run.what_if.moved else _other_stacks(catalog, known, found),
        )

    places = [
        (name, nodes)
        for name in by_name
        for nodes in (run.counts_of(name) if request.by_nodes else (None,))
    ]
    first = [place for place in places if request.equal_cost and place[0] == baseline]
    for group in (first, [place for place in places if place not in first]):
        shared = watch is not None and len(group) >= ROWS_TO_SHARE
        made = each(row, group, watch.workers if watch is not None and shared else 1)
        rows.update(zip(group, made, strict=True))
    drawn = [rows[place].drawn for place in places]
    rivals = {
        name: [one for place in places if place[0] == name for one in rows[place].rivals]
        for name in by_name
    }
    found = judged([rows[place].quote for place in places], drawn, rivals, request.limits)
    quotes = found.quotes
    beside = {place: n for n, place in enumerate(places)}
    own = dict(run.sizes).get(baseline)

    def first_of(nodes: int | None) -> int | None:
        """Place of the baseline that a row is compared with."""
        return beside.get((baseline, nodes if own is None or nodes is None else own))

    compared = [
        _compared(by_name[name], quotes, drawn, beside[name, nodes], first_of(nodes))
        for name, nodes in places
    ]
    return CompareAnswer(
        model=run.model,
        assumed=(
            *(Assumption(name=name, value=value, why=UNSAID) for name, value in request.assumed),
            *run.what_if.assumed,
            *quotes_assumed(quotes),
        ),
        footing=_footing(request, baseline),
        baseline=baseline,
        compared=tuple(compared),
        verdict=with_pilots(found, by_name, draws),
        draws=draws.count,
        seed=draws.seed,
        deadline_s=request.limits.deadline_s,
        confidence=run.confidence,
        other_stacks=tuple(other for place in places for other in rows[place].others),
        capacity=capacity_checks(catalog, quotes) if run.check_capacity else (),
        sensitivity=tippings(tipping_world(request, explored)) if request.sensitivity else None,
        looked={one.name: looked(one) for one in explored},
        unseen=tuple(name for name in named if name not in by_name),
    )


def tipping_world(request: CompareQuestion, explored: Sequence[Explored]) -> TippingWorld:
    """What moves of a comparison's inputs are answered from."""
    return TippingWorld(
        run=request.run,
        limits=request.limits,
        explored=tuple(explored),
        sizes=request.run.node_counts if request.by_nodes else (None,),
        late=request.deadline_s is None,
    )


compare = verb_of("compare", CompareQuestion, compare_run)


def row_of_market(
    request: CompareQuestion,
    explored: Explored,
    nodes: int | None,
    baseline: Quote | None = None,
) -> tuple[Quote, tuple[Rival, ...]]:
    """Return the quote of an instance type, on so many nodes if these are the footing.

    Beside it stand the plans of the type that keep the limits and may be its best. With a
    `baseline` the quote is to cost no more than that.
    """
    ways = candidates(explored.market) if explored.market else []
    if nodes is not None:
        ways = [way for way in ways if way.nodes == nodes]
    if not ways:
        none = quote_of_none(
            explored, nodes or explored.nearest_nodes, headroom=request.run.headroom
        )
        return none, ()
    if baseline is not None:
        return _at_equal_cost(explored, ways, baseline), ()
    limits = request.limits
    if limits.deadline_s is not None:
        ways = with_confidence(explored, ways, request.run.confidence)
    rivals = rivals_of(explored, ranked(ways, limits, "cost"), CommonDraws())
    if rivals:
        return quote(explored, rivals[0].way), rivals
    soonest = nearest(ways, limits) or ways[0]
    found = quote(explored, soonest)
    end_s = soonest.sure_elapsed_s
    confidence = request.run.confidence
    sure = "" if confidence is None else f" with {100 * confidence:g}% confidence"
    late = (
        f"misses the deadline of {time_text(limits.deadline_s or 0.0)}: "
        f"{time_text(soonest.elapsed_s if end_s is None else end_s)} at the fastest{sure}, on "
        f"{counted(soonest.nodes, 'node')}"
    )
    if request.deadline_s is None:
        return replace(found, warnings=(*found.warnings, late)), ()
    return found.refused((late,)), ()


def _way(row: Quote) -> Candidate:
    """The way in which a quote is bought."""
    return Candidate(
        instance=row.instance,
        nodes=row.nodes,
        option=row.bill.tariff.option if row.bill else None,
        elapsed_s=row.elapsed_s.value if row.elapsed_s else math.inf,
        cost_usd=row.cost_usd.value if row.cost_usd else None,
    )


def _warned(found: Quote, drawn: DrawnPurchase | None, request: CompareQuestion) -> Quote:
    """Return a quote that keeps the deadline by its estimate, with a warning if it may miss it."""
    deadline_s, elapsed = request.limits.deadline_s, found.elapsed_s
    held = None if drawn is None else on_time(drawn, request.limits)
    if request.run.confidence is not None or deadline_s is None or elapsed is None or held is None:
        return found
    if elapsed.value > deadline_s or elapsed.high <= deadline_s:
        return found
    late = (
        f"meets the deadline of {time_text(deadline_s)} with {100 * held:.0f} % probability; "
        "--confidence 80% sizes the cluster for 80 %"
    )
    return replace(found, warnings=(*found.warnings, late))


def _at_equal_cost(explored: Explored, ways: Sequence[Candidate], baseline: Quote) -> Quote:
    """Return the fastest way that costs no more than the baseline, else the cheapest."""
    if baseline.cost_usd is None:
        found = quote(explored, cheapest_first(ways)[0])
        return found.refused((f"{baseline.instance}, the baseline, has no price to be equal to",))
    budget = baseline.cost_usd.value
    kept = ranked(ways, Limits(budget_usd=budget), "time")
    if kept:
        return quote(explored, kept[0])
    cheapest = cheapest_first(ways)[0]
    found = quote(explored, cheapest)
    if cheapest.cost_usd is None:
        return found.refused((f"no price of {explored.name}, so none that is equal",))
    return found.refused(
        (
            f"{significant(cheapest.cost_usd)} USD at the cheapest, on "
            f"{counted(cheapest.nodes, 'node')}, is more than the baseline's {significant(budget)}",
        )
    )


def _compared(
    explored: Explored,
    quotes: Sequence[Quote],
    drawn: Sequence[DrawnPurchase | None],
    place: int,
    base: int | None,
) -> ComparedQuote:
    row = quotes[place]
    if base is None:
        return ComparedQuote(quote=row, time=None, cost=None, break_even_mfu=None)
    target, step, even = quotes[base].cost_usd, row.step.step, None
    if place != base and target and explored.market and row.cost_usd and step:
        speed = break_even_speed(explored.market, row.nodes, target.value)
        even = None if speed is None else speed * step.mfu
    return ComparedQuote(
        quote=row,
        time=time_ratio(quotes, drawn, place, base),
        cost=cost_ratio(quotes, drawn, place, base),
        break_even_mfu=even,
    )


def _other_stacks(catalog: Catalog, known: Explored, row: Quote) -> tuple[OtherStack, ...]:
    """Return rows with other stacks that were measured on the instance, in the same layouts."""
    if known.market is None or row.elapsed_s is None:
        return ()
    found = []
    family, own = family_of(known.setup.model), known.setup.stack.name
    for stack in stacks_fitted_on(catalog, row.instance):
        if stack.name == own or stack.basis_on(row.instance, family) != "measured":
            continue
        other = replace(known, setup=_with_stack(catalog, known.setup, stack))
        layouts = tuple(step.layout for step in row.steps)
        found.append(
            OtherStack(stack=stack.short_name, quote=quote(other, _way(row), layouts=layouts))
        )
        # Searches keep what they have placed, and no search has seen this stack.
        keep_forms(other.setup.memo.engines)
    return tuple(found)


def _with_stack(catalog: Catalog, setup: TrainSetup, stack: TrainingStack) -> TrainSetup:
    return train_setup(
        catalog,
        setup.model,
        setup.platform,
        setup.nodes,
        stack=stack,
        logical_size=setup.logical_size,
        assume_supported=setup.assume_supported,
        release=setup.release,
    )


def _footing(request: CompareQuestion, baseline: str) -> str:
    run = request.run
    own = (run.nodes or run.all_sized) and request.baseline_nodes is None
    tried = _listed(run.node_counts) if own else f"1, 2, 4 ... {max(run.node_counts):,}"
    if not own and len(run.node_counts) < LISTED:
        tried = _listed(run.node_counts)
    alone = "" if run.all_sized else "".join(f"; {name}: {n:,}" for name, n in run.sizes)
    tried = f"(sizes tried: {tried}{alone})"
    deadline_s = request.limits.deadline_s
    if request.baseline_nodes is not None:
        footing = f"on {counted(request.baseline_nodes, 'node')}"
    elif deadline_s is None:
        several = "s" * (run.node_counts != (1,))
        footing = f"on {_listed(run.node_counts)} node{several}"
        footing = "on the nodes of --on" if run.all_sized else footing
    else:
        usual = "" if request.deadline_s else " (default; set --deadline)"
        sure = "" if run.confidence is None else f" with {100 * run.confidence:g}% confidence"
        time = f"that finishes in {time_text(deadline_s)}{usual}{sure}"
        footing = f"on its cheapest cluster {time} {tried}"
    if request.equal_cost:
        return f"{baseline} {footing}, the others as fast as its cost buys"
    return f"each {footing}"


def _listed(counts: Sequence[int]) -> str:
    return ", ".join(f"{count:,}" for count in counts)
