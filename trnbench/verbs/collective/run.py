"""The collective use case: sweeps over sizes on clusters, by either engine, and a check of data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from trnbench.engines.analytic.collective.sweep import Sweep, sweep
from trnbench.engines.emulate.collective.data import DataCheck, check_data, most_checked
from trnbench.engines.emulate.collective.play import PlayedCollective, play
from trnbench.engines.emulate.collective.streams import ChunkStream, play_selected, play_together
from trnbench.errors import InputError
from trnbench.facts.arrays import IntArray
from trnbench.facts.calibration.collective_stack import CollectiveStack, load_stack, stack_of
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.hardware.fabric import Torus
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.numbers.formats import format_named
from trnbench.facts.records import replace
from trnbench.facts.workload.choices import Op
from trnbench.facts.workload.library import Place
from trnbench.machine.legality import PlacementVerdict, cluster_verdict, verdict
from trnbench.machine.message_plan.algorithm import Refusal
from trnbench.machine.message_plan.placed import Placed
from trnbench.machine.message_plan.plan import MessagePlan, chunks_of
from trnbench.machine.message_plan.select import Selected, algorithm_named
from trnbench.machine.placement import Placement, place
from trnbench.predict.setup import strangers
from trnbench.program.collective import Collective, bus_factor
from trnbench.show.trace import TraceSpan
from trnbench.verbs.asking.function import verb_of
from trnbench.verbs.asking.use_case import Progress, quiet
from trnbench.verbs.collective.answer import CollectiveAnswer, LinkLoad, Plane
from trnbench.verbs.collective.groups import (
    choice_at,
    link_loads,
    plane_of,
    replica_groups,
    selected_of,
)
from trnbench.verbs.collective.question import AUTO, CollectiveQuestion

MAX_TRACED = 500_000
"""Messages a trace may hold: beyond that no viewer opens it."""
CHECK_ELEMENTS = 65_537
"""Elements of a data check where sizes are larger: a prime, so that parts are uneven."""


def run(
    catalog: Catalog, question: CollectiveQuestion, *, progress: Progress = quiet
) -> tuple[CollectiveAnswer, ...]:
    """Return times of operations on clusters, one answer for each size and engine.

    Sizes are bytes, or texts such as "1KiB"; from 1 KiB to 1 GiB, each 4 times the one before,
    unless given. A `suite` brings operations, places and sizes. Answers are grouped by place and
    operation; `progress` hears of each one that is done.

    >>> from trnbench import collective
    >>> (answer,) = collective("all-reduce", on="trn2.48xlarge:4", min_size="1GiB")
    >>> f"{answer.busbw_bytes_per_s / 1e9:.0f} GB/s over {answer.ranks} ranks"
    '176 GB/s over 256 ranks'
    """
    if question.trace and (len(question.ops), len(question.places), len(question.sizes_bytes)) != (
        *(1, 1, 1),
    ):
        raise InputError(
            "a trace shows one operation of one size on one place",
            hint="give --min-size and --max-size the same size",
        )
    total = len(question.places) * len(question.ops)
    answers: list[CollectiveAnswer] = []
    for i, where in enumerate(question.places):
        for j, op in enumerate(question.ops):
            progress(i * len(question.ops) + j, total, f"{op} on {where.instance}:{where.nodes}")
            answers += _answers(catalog, question, where, op)
    return tuple(answers)


collective = verb_of("collective", CollectiveQuestion, run)


def _answers(
    catalog: Catalog, question: CollectiveQuestion, where: Place, op: Op
) -> Iterator[CollectiveAnswer]:
    platform = load_platform(catalog, where.instance)
    stack = (
        load_stack(catalog, question.stack)
        if question.stack
        else stack_of(catalog, platform.instance.name)
    )
    blank = CollectiveAnswer(
        op=op,
        instance=platform.instance.name,
        nodes=where.nodes,
        ranks=0,
        group_size=0,
        size_bytes=0.0,
        elements=0,
        number_format=question.number_format,
        engine="",
        stack=stack.name,
        evidence=stack.provenance.weakest(),
        warnings=strangers(catalog, platform, (stack,)),
    )
    support = cluster_verdict(platform, where.nodes)
    if not support.legal:
        yield from _refused(question, blank, support)
        return
    placement = place(
        platform, nodes=where.nodes, logical_size=question.logical_size, faults=question.faults
    )
    groups = replica_groups(placement, question.ranks, question.groups)
    streams = _beside(placement, stack, question)
    for refused in (groups, streams):
        if isinstance(refused, PlacementVerdict):
            ranks = question.ranks or placement.ranks
            yield from _refused(question, replace(blank, ranks=ranks), refused)
            return
    assert not isinstance(groups, PlacementVerdict)
    assert not isinstance(streams, PlacementVerdict)
    blank = replace(blank, ranks=int(groups.size), group_size=int(groups.shape[1]))
    yield from _sizes(question, placement, stack, op, groups, streams, blank)


def _sizes(
    question: CollectiveQuestion,
    placement: Placement,
    stack: CollectiveStack,
    op: Op,
    groups: IntArray,
    streams: Sequence[ChunkStream],
    blank: CollectiveAnswer,
) -> Iterator[CollectiveAnswer]:
    element = format_named(question.number_format).bytes_per_element
    wanted = None if question.algorithm == AUTO else algorithm_named(question.algorithm)
    selected: tuple[Selected, ...] | Refusal | None = None
    swept: Sweep | None = None
    for i, size_bytes in enumerate(question.sizes_bytes):
        exchange = Collective(
            op=op, ranks=blank.group_size, size_bytes=size_bytes, element_bytes=element
        )
        support = verdict(placement, exchange, groups)
        here = replace(
            blank,
            size_bytes=size_bytes,
            elements=exchange.elements,
            warnings=(*blank.warnings, *support.warnings),
        )
        if not support.legal:
            yield from _refused(question.but(sizes_bytes=(size_bytes,)), here, support)
            continue
        if selected is None:
            selected = selected_of(
                stack, placement, op, groups, algorithm=wanted, symmetric=not question.beside
            )
        if isinstance(selected, Refusal):
            no = PlacementVerdict(reasons=(selected.reason,))
            yield from _refused(question.but(sizes_bytes=(size_bytes,)), here, no)
            continue
        if swept is None:
            swept = sweep(selected, np.array(question.sizes_bytes))
        yield from _by_engine(question, selected, swept, i, streams, here)


def _by_engine(
    question: CollectiveQuestion,
    selected: Sequence[Selected],
    swept: Sweep,
    i: int,
    streams: Sequence[ChunkStream],
    here: CollectiveAnswer,
) -> Iterator[CollectiveAnswer]:
    size_bytes = here.size_bytes
    choice = choice_at(selected, size_bytes)
    here = replace(
        here,
        bound_s=float(swept.bound_s[i]),
        algorithm=choice.algorithm.label,
        tuning=choice.tuning_name,
        passed_over=choice.passed_over,
        check=_check(question, choice.placed, here) if question.check else None,
    )
    play_it = "emulate" in question.engines or question.links or question.trace
    played = play_selected(selected, size_bytes)[1] if play_it else None
    if streams:
        # When it ends while the others run beside it from the same moment on.
        ends_s = play_together([_stream(choice, size_bytes), *streams]).end_s
        here = replace(here, together_s=ends_s[0])
    links: tuple[LinkLoad, ...] = ()
    tori: tuple[Plane, ...] = ()
    if played is not None and question.links:
        links = link_loads(choice.placed, played.link_busy, played.link_bytes)
        tori = tuple(_tori(choice.placed, played))
    for engine in question.engines:
        time_s = float(swept.time_s[i]) if engine == "analytic" or played is None else played.time_s
        speed = size_bytes / time_s if time_s > 0 else None
        factor = bus_factor(choice.placed.op, choice.placed.ranks)
        yield replace(
            here,
            engine=engine,
            time_s=time_s,
            algbw_bytes_per_s=speed,
            busbw_bytes_per_s=None if speed is None else speed * factor,
            bound_by=swept.bound_by[i] if engine == "analytic" else None,
            links=links,
            tori=tori,
            spans=_spans(choice, size_bytes) if question.trace else (),
        )


def _refused(
    question: CollectiveQuestion, here: CollectiveAnswer, support: PlacementVerdict
) -> Iterator[CollectiveAnswer]:
    others = f"; possible: {', '.join(support.alternatives)}" if support.alternatives else ""
    reasons = tuple(f"{reason}{others}" for reason in support.reasons)
    element = format_named(question.number_format).bytes_per_element
    for size_bytes in question.sizes_bytes:
        for engine in question.engines:
            yield replace(
                here,
                size_bytes=size_bytes,
                elements=int(size_bytes // element),
                engine=engine,
                reasons=reasons,
            )


def _beside(
    placement: Placement, stack: CollectiveStack, question: CollectiveQuestion
) -> list[ChunkStream] | PlacementVerdict:
    streams = []
    for neighbour in question.beside:
        groups = replica_groups(placement, question.ranks, neighbour.groups)
        if isinstance(groups, PlacementVerdict):
            return groups
        exchange = Collective(
            op=neighbour.op, ranks=int(groups.shape[1]), size_bytes=neighbour.size_bytes
        )
        support = verdict(placement, exchange, groups)
        if not support.legal:
            return support
        selected = selected_of(stack, placement, neighbour.op, groups, symmetric=False)
        if isinstance(selected, Refusal):
            return PlacementVerdict(reasons=(selected.reason,))
        streams.append(_stream(choice_at(selected, neighbour.size_bytes), neighbour.size_bytes))
    return streams


def _stream(choice: Selected, size_bytes: float) -> ChunkStream:
    phases = len(choice.placed.plan.phases)
    chunks = int(chunks_of(choice.tuning, phases, np.array([size_bytes]))[0])
    return ChunkStream(
        placed=choice.placed, tuning=choice.tuning, size_bytes=size_bytes, chunks=chunks
    )


def _check(question: CollectiveQuestion, placed: Placed, here: CollectiveAnswer) -> str:
    elements = max(min(here.elements, CHECK_ELEMENTS, most_checked(placed.plan)), 1)
    check = _checked(placed.plan, elements, question.seed or 0)
    if check.passed:
        return "ok" if elements == here.elements else f"ok ({elements:,} el.)"
    return f"FAILED ({check.wrong_elements:,} wrong)"


@lru_cache(maxsize=32)
def _checked(plan: MessagePlan, elements: int, seed: int) -> DataCheck:
    return check_data(plan, elements, seed=seed)


def _tori(placed: Placed, played: PlayedCollective) -> Iterator[Plane]:
    fabric = placed.placement.fabric
    for number, up in enumerate(fabric.levels):
        level = up.level
        if isinstance(level, Torus) and len(level.shape) == 2:
            shape = (level.shape[0], level.shape[1])
            yield plane_of(level.name, shape, fabric.torus_link[number], played.link_busy)


def _spans(choice: Selected, size_bytes: float) -> tuple[TraceSpan, ...]:
    messages = choice.placed.messages
    if messages > MAX_TRACED:
        raise InputError(
            f"a trace of this collective would hold {messages:,} messages; at most {MAX_TRACED:,} "
            "fit: take fewer ranks"
        )
    played = play(choice.placed, choice.tuning, size_bytes, with_events=True)
    return tuple(
        TraceSpan(
            process=f"rank {event.source}",
            lane="sends",
            name=f"to rank {event.target}",
            start_s=event.start_s,
            end_s=event.end_s,
            arguments={"bytes": event.size_bytes, "phase": event.phase, "round": event.round_},
        )
        for event in played.events
    )
