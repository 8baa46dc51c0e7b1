"""Quotes: one cluster bought in one way, with intervals, the bill, and reasons where it is no."""

from __future__ import annotations

import numpy as np

from trnbench.facts.records import replace
from trnbench.facts.units import DAY_S, Dimension, show
from trnbench.facts.workload.layout import RANK_DEGREES
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.money.billing import Bill, known_availability
from trnbench.money.cost import RunPhase, TrainingCost, TrainingJob, training_cost
from trnbench.money.market import Market
from trnbench.money.objective import Candidate
from trnbench.predict.search.question import question_of
from trnbench.predict.search.result import ClusterResult
from trnbench.predict.search.search import search
from trnbench.show.row import Interval
from trnbench.verbs.quotes.answer import Quote
from trnbench.verbs.quotes.markets import Explored, Portion
from trnbench.verbs.train.answer import RunPart, Searched, TrainAnswer
from trnbench.verbs.train.beside import with_others
from trnbench.verbs.train.step_answers import batch_words, blank_answer, settled_answers


def quote(
    explored: Explored,
    candidate: Candidate,
    *,
    rank: int = 0,
    engine: str = "analytic",
    layouts: tuple[PartialLayout, ...] | None = None,
) -> Quote:
    """Return a candidate in full: its steps timed with intervals, and what it costs so.

    `rank` takes the next best layouts instead of the fastest, `layouts` those given. A candidate
    without an option is bought in the cheapest way.
    """
    layouts = layouts or explored.layouts(candidate.nodes, rank=rank)
    if layouts is None or explored.market is None:
        raise ValueError(f"no such layout on {candidate.nodes} nodes of {explored.name}")
    steps = tuple(
        _step(explored, place, candidate.nodes, layout, engine=engine)
        for place, layout in enumerate(layouts)
    )
    blank = blank_quote(explored, candidate.nodes, steps)
    blank = replace(blank, main=explored.main(candidate.nodes))
    refused = tuple(dict.fromkeys(reason for step in steps for reason in step.reasons))
    if refused:
        return blank.refused(refused)
    cost = _cost(explored.market, _phases(explored.portions, steps), candidate)
    return _with_parts(_priced(blank, explored.market, cost), explored.portions)


def bought_quote(explored: Explored, candidate: Candidate) -> Quote:
    """A candidate's days and bill without intervals, and without its steps."""
    market = explored.market
    if market is None:
        raise ValueError(f"no clusters of {explored.name}")
    (place,) = np.flatnonzero(market.nodes == candidate.nodes)
    phases = [
        RunPhase(tokens=tokens, tokens_per_s=float(per_s[place])) for tokens, per_s in market.speeds
    ]
    blank = blank_quote(explored, candidate.nodes, ())
    return _priced(blank, market, _cost(market, phases, candidate))


def quote_of_none(explored: Explored, nodes: int, *, headroom: float | None) -> Quote:
    """Return the refusal of a run on a cluster: reasons, and the layout that comes nearest."""
    steps = []
    reasons: list[str] = []
    for place, portion in enumerate(explored.portions):
        result = explored.searches[place] if explored.searches else None
        cluster = result.by_nodes.get(nodes) if result else None
        near = cluster.best or cluster.nearest if cluster else None
        if near is None:
            setup = replace(explored.setup, nodes=nodes)
            unknown = blank_answer(setup, portion.layout, portion.assumed)
            steps.append(replace(unknown, label=portion.label))
            if result is not None and not result.complete:
                reasons.append("interrupted before it was looked at")
            elif result is not None:
                reasons += result.reasons or ("no layout is valid on this number of nodes",)
            continue
        layout = PartialLayout.of(near.layout)
        step = _step(explored, place, nodes, layout)
        steps.append(step)
        part = f"part {portion.label}: " if portion.label else ""
        reasons += [f"{part}{reason}" for reason in step.reasons]
        if not step.reasons and cluster is not None and cluster.nearest is not None:
            asked = question_of(explored.setup, portion.layout, (nodes,), headroom=headroom)
            reasons.append(
                f"needs {cluster.nearest.ratio:.2f}x of what is left by {asked.kept_free}"
            )
    if nodes in explored.refused:
        reasons = [explored.refused[nodes]]
    blank = blank_quote(explored, nodes, tuple(steps))
    return blank.refused(tuple(dict.fromkeys(reasons)))


def _step(
    explored: Explored, place: int, nodes: int, layout: PartialLayout, *, engine: str = "analytic"
) -> TrainAnswer:
    """Return the training step of a part of the run, as the train use case answers it."""
    portion = explored.portions[place]
    setup = explored.setup_on(nodes, portion)
    blank = replace(blank_answer(setup, layout, portion.assumed), label=portion.label)
    (answer,) = settled_answers(setup, blank, (engine,), between=portion.between)
    asked, cluster = portion.at(nodes), explored.searches[place].by_nodes[nodes]
    tally, plain, best = cluster.tally, asked.plain, cluster.best
    return replace(
        answer,
        chosen=tuple(name for name, value in layout.plain.items() if plain[name] != value),
        notes=(
            *answer.notes,
            *(
                batch_words(
                    setup,
                    asked,
                    portion.assumed,
                    best.paced(1 / setup.pace),
                    headroom=explored.headroom,
                )
                if best
                else ()
            ),
            *_within_rows(cluster),
        ),
        searched=Searched(legal=tally.legal, feasible=tally.feasible),
        preferred=explored.prefer,
    )


def explained(explored: Explored, found: Quote) -> Quote:
    """The quote whose longest part has the layouts that explain the one that was chosen."""
    portion, nodes = explored.portions[found.main], found.nodes
    setup, cluster = (
        explored.setup_on(nodes, portion),
        explored.searches[found.main].by_nodes.get(nodes),
    )
    if found.step.step is None or not found.step.chosen or portion.between or cluster is None:
        return found
    if cluster.simplest is None:
        asked = question_of(
            setup, portion.at(nodes), (nodes,), headroom=explored.headroom, plainer=True
        )
        cluster = search(asked, top=1, best="of each").by_nodes[nodes].paced(setup.pace)
    steps = [*found.steps]
    steps[found.main] = with_others(setup, found.step, cluster)
    return replace(found, steps=tuple(steps))


def _within_rows(cluster: ClusterResult) -> tuple[str, ...]:
    """The best layout that the stack's rows cover, where the one taken lies beyond them."""
    within = cluster.within_rows
    if within is None:
        return ()
    layout = PartialLayout.of(within.layout)
    degrees = ", ".join(f"{name} {layout.degree(name)}" for name in RANK_DEGREES)
    time = show(within.step_time_s, Dimension.SECONDS)
    return (f"best layout within the stack's rows: {degrees}, {time} per step",)


def blank_quote(explored: Explored, nodes: int, steps: tuple[TrainAnswer, ...]) -> Quote:
    """A quote of these steps without days and bill."""
    portions = explored.portions
    recommender = explored.setup.model.recommender is not None
    software = explored.setup.software
    return Quote(
        instance=explored.name,
        nodes=nodes,
        steps=steps,
        main=0,
        tokens=None if recommender else sum(portion.tokens for portion in portions),
        samples=sum(portion.samples for portion in portions),
        notes=tuple(dict.fromkeys(note for step in steps for note in step.notes)),
        unsupported=software.warning if software is not None else None,
    )


def _phases(portions: tuple[Portion, ...], steps: tuple[TrainAnswer, ...]) -> list[RunPhase]:
    """Tokens of each part of a run, and its speed in tokens per second with its interval."""
    phases = []
    for portion, answer in zip(portions, steps, strict=True):
        step = answer.step
        if step is None:
            raise ValueError(f"a step that was found feasible is refused: {answer.reasons}")
        each = portion.layout.sample_tokens
        phases.append(
            RunPhase(
                tokens=portion.tokens,
                tokens_per_s=answer.per_s(step.step_time_s, each),
                low_tokens_per_s=answer.per_s(step.high_step_time_s, each),
                high_tokens_per_s=answer.per_s(step.low_step_time_s, each),
            )
        )
    return phases


def _cost(market: Market, phases: list[RunPhase], candidate: Candidate) -> TrainingCost:
    """USD and days of a run of these parts under the candidate's option."""
    offers = market.offers
    wanted = tuple(tariff for tariff in offers.tariffs if tariff.option == candidate.option)
    return training_cost(
        TrainingJob(phases=phases, nodes=candidate.nodes, checkpoint_bytes=market.checkpoint_bytes),
        replace(offers, tariffs=wanted) if wanted else offers,
        market.reliability,
        stated=market.stated_on(candidate.nodes),
        interval_s=market.interval_s,
    )


def _priced(blank: Quote, market: Market, cost: TrainingCost) -> Quote:
    bought = cost.bought()
    goodput = bought.goodput if bought else cost.unpriced
    paid = cost.bill()
    notes = cost.reasons()
    if bought is not None and isinstance(paid, Bill):
        notes = (*(f"price: {note}" for note in bought.tariff.notes), *paid.notes)
    if not np.isfinite(cost.elapsed_s):
        blank = blank.refused(("the run never ends",))
        notes = tuple(note for note in notes if note not in blank.reasons)
    return replace(
        blank,
        elapsed_s=replace(
            _span(cost.elapsed_s, cost.low_elapsed_s, cost.high_elapsed_s),
            known=bought is None or known_availability(market.offers, bought.tariff),
        ),
        wall=goodput.at(),
        cost_usd=(_span(cost.cost_usd, cost.low_cost_usd, cost.high_cost_usd) if bought else None),
        bill=paid if isinstance(paid, Bill) and bought else None,
        notes=(*blank.notes, *notes),
        unsold=cost.unsold(),
        warnings=paid.warnings if isinstance(paid, Bill) and bought else (),
    )


def _with_parts(quote: Quote, portions: tuple[Portion, ...]) -> Quote:
    """Return a quote whose steps say what part of the run, its days and its bill each is."""
    each = zip(quote.steps, portions, strict=True)
    work_s = [
        step.step.step_time_s * portion.samples / step.layout.degree("global_batch")
        for step, portion in each
        if step.step is not None
    ]
    steps = []
    for step, portion, taken_s in zip(quote.steps, portions, work_s, strict=True):
        share = taken_s / sum(work_s)
        elapsed, cost = quote.elapsed_s, quote.cost_usd
        part = RunPart(
            tokens=None if quote.tokens is None else portion.tokens,
            share=share,
            days=None if elapsed is None else share * elapsed.value / DAY_S,
            cost_usd=None if cost is None else share * cost.value,
        )
        steps.append(replace(step, part=part))
    return replace(quote, steps=tuple(steps))


def _span(value: object, low: object, high: object) -> Interval:
    return Interval(value=float(value), low=float(low), high=float(high))  # type: ignore[arg-type]
