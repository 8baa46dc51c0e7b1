"""Pilots worth measuring before a purchase: a short run of the job on few machines.

A pilot runs the layout of a quote with as few replicas as fit, for `STEPS` steps after compilation.
It measures what the draws leave open: the chip's and the stack's numbers, and how far the stack is
from them. What it cannot tell is how far two configurations of one stack lie apart: the pilot has a
scatter of its own. The bill is that of the cheapest way to have the machines so long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from trnbench.facts.arrays import FloatArray, median
from trnbench.facts.records import Record, replace
from trnbench.facts.units import HOUR_S
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.money.billing import charges
from trnbench.money.decision import regret_after_usd
from trnbench.money.market import Market
from trnbench.money.purchase import Tariff
from trnbench.predict.common_draws import CommonDraws
from trnbench.predict.setup import TrainSetup
from trnbench.predict.step import drawn_times_s, first_that_fits
from trnbench.show.row import Cell, Row
from trnbench.verbs.quotes.answer import Quote
from trnbench.verbs.quotes.lead import RISKED, Pilot, Verdict
from trnbench.verbs.quotes.markets import Explored
from trnbench.verbs.quotes.rivals import Judged

STEPS = 20
"""Steps of a pilot after compilation: enough for a mean that noise of single steps hardly moves."""
BOUGHT = ("on-demand", "capacity-block", "quote")
"""Purchase options of a pilot."""
SCHEDULER = "torchrun"
"""How a pilot is started unless somebody says otherwise: without any scheduler."""
MOST_TYPES = 3
"""Pilots are tried on so many instance types, likeliest first."""


def with_pilots(found: Judged, explored: Mapping[str, Explored], draws: CommonDraws) -> Verdict:
    """The verdict with the pilots that are worth more than they cost, the best one first.

    Where the lead is clear and little is risked none is looked for.
    """
    verdict = found.verdict
    leading, risked = verdict.leading, verdict.regret_usd
    if leading is None or risked is None or len(found.costs) < 2:
        return verdict
    if verdict.verdict_is == "clear" and risked < RISKED * leading.mean_usd:
        return verdict
    named = [one for one in verdict.chances if one in verdict.named or one.cheapest >= RISKED]
    quotes = [found.quotes[one.place] for one in named]
    tried = [
        Undecided(
            explored=explored[quote.instance],
            nodes=quote.nodes,
            layout=quote.step.layout,
            part=quote.main,
        )
        for quote in quotes
    ]
    return replace(verdict, pilots=worth_measuring(tried, found.costs, risked, draws))


class Undecided(Record, eq=False):
    """A cluster that may be bought, and the layout of the part of the run that takes longest."""

    explored: Explored
    nodes: int
    layout: PartialLayout
    part: int


def worth_measuring(
    tried: Sequence[Undecided], costs: FloatArray, risked: float, draws: CommonDraws
) -> tuple[Pilot, ...]:
    """The pilots that save more of the regret `risked` than they cost, the best one first.

    `costs` are the bills between which the choice lies, a row each; `tried` is likeliest first.
    """
    pilots = []
    for one in tried[:MOST_TYPES]:
        cluster = _smallest(one)
        made = _pilot(one.explored, *cluster, costs, draws) if cluster is not None else None
        if made is not None and risked - made.regret_after_usd > made.cost_usd:
            pilots.append(made)
    return tuple(sorted(pilots, key=lambda made: made.regret_after_usd + made.cost_usd))


def pilot_row(verdict: Verdict, quotes: Sequence[Quote]) -> Row | None:
    """The best pilot of a verdict on quotes as a row that can be launched; None without one."""
    best = next(iter(verdict.pilots), None)
    like = next((one for one in quotes if best and one.instance == best.instance), None)
    if best is None or like is None:
        return None
    samples = best.steps * best.layout.degree("global_batch")
    length: dict[str, Cell] = {"samples": samples, "phases": []}
    if like.tokens is not None:
        length["tokens"] = samples * best.layout.sample_tokens
    return {**like.row(), "nodes": best.nodes, **best.layout.given, **length}


def _smallest(one: Undecided) -> tuple[TrainSetup, PartialLayout] | None:
    """The fewest nodes, a power of two, that hold the layout with fewer replicas."""
    explored, layout = one.explored, one.layout
    each = explored.setup.ranks // explored.setup.nodes
    sizes = [
        nodes
        for nodes in (2**power for power in range((one.nodes - 1).bit_length()))
        if nodes * each % layout.replica_ranks == 0
    ]
    setups = [explored.setup_on(nodes, explored.portions[one.part]) for nodes in sizes]
    layouts = [with_replicas(layout, nodes * each // layout.replica_ranks) for nodes in sizes]
    place = first_that_fits(setups, [smaller.complete() for smaller in layouts])
    return None if place is None else (setups[place], layouts[place])


def with_replicas(layout: PartialLayout, replicas: int) -> PartialLayout:
    """The layout with so many replicas, each with as many micro-batches as before."""
    batch = max(layout.degree("global_batch") // layout.degree("dp"), layout.degree("micro_batch"))
    return layout.changed(dp=replicas, global_batch=batch * replicas)


def _pilot(
    explored: Explored,
    setup: TrainSetup,
    layout: PartialLayout,
    costs: FloatArray,
    draws: CommonDraws,
) -> Pilot | None:
    """The pilot on a cluster; None where it cannot be bought for a short time."""
    market, nodes = explored.market, setup.nodes
    if market is None:
        return None
    row = f"pilot on {nodes} x {explored.name}"
    measured = drawn_times_s(setup, layout.complete(), draws, row=row)
    wall_s = market.operations(nodes).start_s.value + STEPS * median(measured)
    bought = _bought(market, nodes, wall_s)
    if bought is None:
        return None
    tariff, cost_usd = bought
    return Pilot(
        instance=explored.name,
        nodes=nodes,
        steps=STEPS,
        hours=wall_s / HOUR_S,
        cost_usd=cost_usd,
        regret_after_usd=regret_after_usd(costs, np.log(measured)),
        layout=layout,
        option=tariff.option,
    )


def _bought(market: Market, nodes: int, wall_s: float) -> tuple[Tariff, float] | None:
    """The cheapest way to have machines for a short time, and its USD."""
    priced = [
        (tariff, float(charges(market.offers, tariff, wall_s=wall_s, nodes=nodes).cost_usd))
        for tariff in _short(market.offers.tariffs)
    ]
    known = [one for one in priced if np.isfinite(one[1])]
    return min(known, key=lambda one: one[1], default=None)


def _short(tariffs: Sequence[Tariff]) -> list[Tariff]:
    return [one for one in tariffs if one.option in BOUGHT]
