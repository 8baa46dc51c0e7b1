"""Machines for a run: every cluster of an instance type searched, and how it is sold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from trnbench.errors import InputError
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.library import load_reliability
from trnbench.facts.records import MAX_SIZE, Record, field, replace
from trnbench.facts.units import Dimension, counted, show
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.money.checkpoint import checkpoint_bytes
from trnbench.money.failures import Compiling, derived
from trnbench.money.market import Market, cluster_limit
from trnbench.money.price_terms import PriceTerms
from trnbench.money.purchase import load_offers
from trnbench.predict.assumption import Assumption
from trnbench.predict.common_draws import CommonDraws
from trnbench.predict.compile_time import compile_each_s, warm_time_s
from trnbench.predict.search.question import question_of
from trnbench.predict.search.result import Found, SearchResult, Tally, joined
from trnbench.predict.settled import (
    TAKEN,
    Prefer,
    assumptions,
    implied,
    modes_between,
    refuse_senseless,
    with_habits,
)
from trnbench.predict.setup import TrainSetup
from trnbench.predict.step import predict_between
from trnbench.verbs.asking.run_parts import Part, part_text
from trnbench.verbs.asking.use_case import Watch
from trnbench.verbs.quotes.question import RunRequest, price_terms
from trnbench.verbs.quotes.searching import search_all
from trnbench.verbs.quotes.what_if import WhatIf


class Portion(Record):
    """A part of a run with its layout: `assumed` names what took a default, `label` the part.

    `batches` are the batch on each number of nodes, one that the ranks divide well where it is
    open; the layout's is that of the fewest nodes.
    """

    layout: PartialLayout
    assumed: tuple[str, ...]
    tokens: float
    samples: float
    batches: Mapping[int, int]
    label: str = ""
    between: tuple[str, ...] = ()
    """Modes of recompute whose mean is meant, for software that repeats half of a pass."""
    paces: Mapping[int, float] = field(default_factory=dict)
    """Multiple of predicted times that is supposed on each number of nodes; none of 1."""

    def pace(self, nodes: int) -> float:
        """Multiple of predicted times, that of the nearest number of nodes where none is known."""
        if not self.paces:
            return 1.0
        return self.paces[min(self.paces, key=lambda known: abs(known - nodes))]

    def at(self, nodes: int) -> PartialLayout:
        return self.layout.changed(global_batch=self.batches[nodes])


class Explored(Record, eq=False):
    """An instance type, the run's parts as they would be laid out on it, and what was found.

    `searches`, one a part, are of the same numbers of nodes. `market` holds the clusters on which
    all parts run, None if there are none. `refused` are cluster sizes that no network joins.
    """

    setup: TrainSetup
    portions: tuple[Portion, ...]
    searches: tuple[SearchResult, ...]
    market: Market | None
    refused: Mapping[int, str]
    headroom: float | None = None
    prefer: Prefer = "fast"

    @property
    def name(self) -> str:
        return self.setup.platform.instance.name

    @property
    def complete(self) -> bool:
        return all(result.complete for result in self.searches)

    @property
    def nearest_nodes(self) -> int:
        """The number of nodes on which the model runs, or comes nearest to it."""
        misses = [
            (cluster.nearest.ratio, nodes)
            for result in self.searches
            for nodes, cluster in result.by_nodes.items()
            if cluster.nearest is not None
        ]
        counts = [nodes for result in self.searches for nodes in result.by_nodes]
        return min(misses)[1] if misses else max(counts, default=min(self.refused, default=1))

    def setup_on(self, nodes: int, portion: Portion) -> TrainSetup:
        """The set-up of a part of the run on a cluster, at the speed that is supposed."""
        return replace(self.setup, nodes=nodes, pace=portion.pace(nodes))

    def layouts(self, nodes: int, *, rank: int = 0) -> tuple[PartialLayout, ...] | None:
        """Return the layouts of the parts on a cluster, or None where one cannot be laid out.

        `rank` counts up from the fastest layout of the part that takes longest.
        """
        found = []
        for number, result in enumerate(self.searches):
            ranked = result.by_nodes[nodes].ranked
            place = rank if number == self.main(nodes) else 0
            if place >= len(ranked):
                return None
            found.append(PartialLayout.of(ranked[place].layout))
        return tuple(found)

    def assumed(self, nodes: int) -> tuple[Assumption, ...]:
        """Assumptions of the steps on a cluster."""
        found: list[Assumption] = []
        for portion, layout in zip(self.portions, self.layouts(nodes) or (), strict=False):
            asked = portion.at(nodes).plain
            chosen = [name for name, value in layout.plain.items() if asked[name] != value]
            software = self.setup.stack.short_name
            taken = TAKEN[self.prefer]
            found += assumptions(layout, portion.assumed, chosen, software, taken=taken)
            found += implied(self.setup, layout)
        return tuple(dict.fromkeys(found))

    def main(self, nodes: int) -> int:
        """Return the index of the slowest part on a cluster; the first where one does not run."""
        times = []
        for portion, result in zip(self.portions, self.searches, strict=True):
            best = result.by_nodes[nodes].best if nodes in result.by_nodes else None
            if best is None:
                return 0
            times.append(portion.tokens / best.tokens_per_s)
        return times.index(max(times))


def explore_all(
    catalog: Catalog, request: RunRequest, *, top: int = 1, watch: Watch | None = None
) -> tuple[Explored, ...]:
    """Return the prices of each instance type for a run, and every cluster's `top` layouts.

    Instance types that a cancelled search never saw are left out.
    """
    terms = price_terms(catalog, request)
    names = [catalog.find("instances", name).name for name in request.instances]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InputError(f"the instance {twice[0]} is named twice")
    drafts: list[_Draft] = []
    for name in names:
        draft = _draft(catalog, request, terms, name)
        shared = draft.setup.beside(one.setup for one in drafts)
        drafts.append(replace(draft, setup=shared))
    questions = [
        (
            name,
            layout,
            question_of(
                draft.setup,
                layout,
                counts,
                headroom=request.headroom,
                plainer=request.prefer == "simple",
            ),
        )
        for name, draft in zip(names, drafts, strict=True)
        for layout, counts in draft.clusters.items()
    ]
    results = search_all(
        [(name, question) for name, _, question in questions], top=top, watch=watch or Watch()
    )
    found = {
        (name, layout): result for (name, layout, _), result in zip(questions, results, strict=True)
    }
    explored = []
    for name, draft in zip(names, drafts, strict=True):
        own = [
            [found.get((name, layout)) for layout in draft.layouts(portion)]
            for portion in draft.portions
        ]
        searches = tuple(
            joined([result for result in part if result is not None], draft.counts)
            for part in own
            if part and None not in part
        )
        if len(searches) == len(own) or not draft.counts:
            portions = tuple(
                _paced(draft.setup, portion, result, request.what_if)
                for portion, result in zip(draft.portions, searches, strict=False)
            )
            if request.prefer == "simple":
                searches = tuple(result.preferring_simple for result in searches)
            searches = tuple(
                result.paced(portion.paces) if portion.paces else result
                for portion, result in zip(portions, searches, strict=True)
            )
            draft = replace(draft, portions=portions or draft.portions)
            explored.append(
                Explored(
                    setup=draft.setup,
                    portions=draft.portions,
                    searches=searches,
                    market=_market(catalog, request, terms, draft, searches),
                    refused=draft.refused,
                    headroom=request.headroom,
                    prefer=request.prefer,
                )
            )
    return tuple(explored)


def _paced(setup: TrainSetup, portion: Portion, result: SearchResult, supposed: WhatIf) -> Portion:
    """A part of a run with the multiples of predicted times that are supposed on each cluster.

    A supposed MFU holds on every cluster, so on each it is another multiple.
    """
    name = setup.platform.instance.name
    speed, mfu = supposed.speeds.get(name), supposed.mfus.get(name)
    if speed is None and mfu is None:
        return portion
    paces = {}
    for nodes, cluster in result.by_nodes.items():
        if (best := cluster.best) is None:
            continue
        slower = _tokens_per_s(replace(setup, nodes=nodes), portion, best) / best.tokens_per_s
        known = best.mfu * slower
        paces[nodes] = known / mfu if mfu is not None else 1 / (speed or 1.0)
        if known > paces[nodes]:
            raise InputError(
                f"--speed {name} is above its peak: {known:.1%} MFU is predicted on "
                f"{counted(nodes, 'node')}; give at most +{math.floor(100 * (1 / known - 1))}%"
            )
    return replace(portion, paces=paces)


class _Draft(Record):
    """An instance type before its search: `counts` are the clusters that a network joins."""

    setup: TrainSetup
    portions: tuple[Portion, ...]
    counts: tuple[int, ...]
    refused: Mapping[int, str]

    def layouts(self, portion: Portion) -> tuple[PartialLayout, ...]:
        return tuple(dict.fromkeys(portion.at(nodes) for nodes in self.counts))

    @property
    def clusters(self) -> Mapping[PartialLayout, tuple[int, ...]]:
        """The numbers of nodes that go with each layout."""
        found: dict[PartialLayout, dict[int, None]] = {}
        for portion in self.portions:
            for nodes in self.counts:
                found.setdefault(portion.at(nodes), {})[nodes] = None
        return {layout: tuple(counts) for layout, counts in found.items()}


def _draft(catalog: Catalog, request: RunRequest, terms: PriceTerms, instance: str) -> _Draft:
    setup = request.software.setup(catalog, request.model, instance)
    setup = replace(setup, draws=CommonDraws())
    sizes = request.counts_of(instance)
    most = max(sizes)
    if most * setup.ranks >= MAX_SIZE:
        raise InputError(
            f"{most:,} nodes of {instance} are {most * setup.ranks:,} ranks; "
            f"at most {MAX_SIZE - 1:,} can be laid out"
        )
    apart = request.layout.number("generation_nodes") or 0
    limits = {
        n: cluster_limit(setup.platform.instance, n)
        if n > apart
        else f"--generation-nodes {apart} leaves no node of {n} to train"
        for n in sizes
    }
    ended = setup.software.warning if setup.software else None
    if request.supported_only and ended is not None:
        limits = dict.fromkeys(limits, f"{ended} (--supported-only)")
    if request.buyable_only and not load_offers(catalog, setup.platform.instance, terms).tariffs:
        limits = dict.fromkeys(limits, "it has no published price (--buyable-only)")
    return _Draft(
        setup=setup,
        portions=tuple(_portion(setup, request, part, sizes) for part in request.parts),
        counts=tuple(nodes for nodes, limit in limits.items() if limit is None),
        refused={nodes: limit for nodes, limit in limits.items() if limit is not None},
    )


def _portion(setup: TrainSetup, request: RunRequest, part: Part, sizes: Sequence[int]) -> Portion:
    given = request.layout.changed(**part.layout.said)
    refuse_senseless(setup.model, given)
    if part.sequence is not None:
        if setup.model.recommender is not None:
            raise InputError(f"{setup.model.name} is a recommender: it has no sequence")
        given = given.changed(sequence=part.sequence)
    if part.tokens is not None and setup.model.recommender is not None:
        raise InputError(f"{setup.model.name} is a recommender: say how many samples, not tokens")
    each, apart = setup.ranks // setup.nodes, given.number("generation_nodes") or 0
    batches: dict[int, int] = {}
    layout: PartialLayout = given
    assumed: tuple[str, ...] = ()
    for nodes in sorted(sizes, reverse=True):
        layout, assumed = with_habits(setup.model, setup.stack, given, max(nodes - apart, 1) * each)
        batches[nodes] = layout.degree("global_batch")
    batch, sequence = layout.degree("global_batch"), layout.sample_tokens
    tokens = part.tokens if part.tokens is not None else (part.samples or 0.0) * sequence
    samples = tokens / sequence
    if samples < batch:
        length = f"{samples:,.4g} samples" if part.tokens is None else f"{tokens:,.4g} tokens"
        step = show(batch * sequence, Dimension.COUNT)
        raise InputError(
            f"{length} are less than one step ({batch:,} x {sequence:,} = {step} tokens)",
            hint="give a longer run, or a smaller --global-batch",
        )
    return Portion(
        layout=layout,
        assumed=assumed,
        tokens=tokens,
        samples=samples,
        batches=batches,
        between=modes_between(setup.stack, given),
        label=part_text(part, show(tokens, Dimension.COUNT)) if len(request.parts) > 1 else "",
    )


def _market(
    catalog: Catalog,
    request: RunRequest,
    terms: PriceTerms,
    draft: _Draft,
    searches: tuple[SearchResult, ...],
) -> Market | None:
    setup, portions = draft.setup, draft.portions
    instance = setup.platform.instance
    counts = [
        nodes
        for nodes in (searches[0].by_nodes if searches else ())
        if all(result.by_nodes[nodes].best is not None for result in searches)
    ]
    if not counts:
        return None
    speeds = tuple(
        (
            portion.tokens,
            np.array(
                [
                    _tokens_per_s(
                        replace(setup, nodes=nodes, pace=portion.pace(nodes)), portion, best
                    )
                    for nodes in counts
                    if (best := result.by_nodes[nodes].best) is not None
                ]
            ),
        )
        for portion, result in zip(portions, searches, strict=True)
    )
    return Market(
        instance=instance,
        nodes=np.array(counts),
        speeds=speeds,
        checkpoint_bytes=max(checkpoint_bytes(setup.model, one.layout) for one in portions),
        offers=load_offers(catalog, instance, terms),
        reliability=load_reliability(catalog, setup.platform.chip.name),
        stated=request.stated,
        compiling=_compiling(request, setup, searches, counts),
        interval_s=request.checkpoint_interval_s,
    )


def _compiling(
    request: RunRequest,
    setup: TrainSetup,
    searches: tuple[SearchResult, ...],
    counts: Sequence[int],
) -> tuple[Compiling, ...]:
    """Seconds of compiling a part of the run on each cluster, as the cache is kept."""
    best = [result.by_nodes[nodes].best for nodes in counts for result in searches]
    each = compile_each_s(setup, [one.layout for one in best if one is not None])
    if not each or setup.graph_compiler is None:
        return ()
    warm, cache = warm_time_s(setup.graph_compiler), request.compile_cache
    cold = np.array(each).reshape(len(counts), len(searches), -1).mean(axis=1)
    ends = [(derived(*of_cluster), derived(*warm)) for of_cluster in cold.tolist()]
    return tuple(
        Compiling(first=one[cache == "filled"], again=one[cache != "lost"]) for one in ends
    )


def _tokens_per_s(setup: TrainSetup, portion: Portion, best: Found) -> float:
    """Return the speed of a cluster's best layout, the mean where one of modes is meant."""
    if not portion.between:
        return best.tokens_per_s
    # The search priced the layout without recompute; half of it is between two modes.
    modes = [replace(best.layout, recompute=mode) for mode in portion.between]
    step = predict_between(setup, modes).step
    return best.tokens_per_s * best.step_time_s / step.step_time_s if step else best.tokens_per_s


def looked(explored: Explored) -> Tally:
    return Tally.sum([result.tally for result in explored.searches])
