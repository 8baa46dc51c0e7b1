"""The collective use case: sweeps over sizes on clusters, by either engine, and a check of data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np

from trnbench.analytic.collective_sweep import Sweep, sweep
from trnbench.answers.collective import CollectiveAnswer, LinkLoad, TorusLoad
from trnbench.answers.trace import TraceSpan
from trnbench.app.replica_groups import replica_groups
from trnbench.arrays import IntArray
from trnbench.catalog.provenance import Kind
from trnbench.catalog.search import Catalog
from trnbench.emulate.collective import PlayedCollective, play
from trnbench.emulate.collective_data import DataCheck, check_data
from trnbench.emulate.collective_streams import ChunkStream, play_selected, play_together
from trnbench.errors import InputError
from trnbench.mapping.fabric import LinkFault
from trnbench.mapping.legality import PlacementVerdict, cluster_verdict, verdict
from trnbench.mapping.message_plan.algorithm import Refusal
from trnbench.mapping.message_plan.placed import Placed
from trnbench.mapping.message_plan.plan import MessagePlan
from trnbench.mapping.message_plan.ring_orders import neighbour_pairs
from trnbench.mapping.message_plan.select import (
    Selected,
    algorithm_named,
    chunks_of,
    select,
    selected_for,
)
from trnbench.mapping.placement import Placement, place
from trnbench.numerics.formats import format_named
from trnbench.program.collective import Collective, bus_factor
from trnbench.spec.collective_efficiency import CollectiveStack, load_stack, stack_of
from trnbench.spec.fabric import Torus
from trnbench.spec.library import load_platform
from trnbench.workload.library import load_collective_suite
from trnbench.workload.operation import Op

MAX_SIZES = 10_000
LARGEST_BYTES = 2.0**60
MAX_TRACED = 500_000
"""Messages a trace may hold: beyond that no viewer opens it."""
MOST_CHECKED = 64_000_000
CHECK_ELEMENTS = 65_537
"""Elements of a data check where sizes are larger: a prime, so that parts are uneven."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """So many instances of a type."""

    instance: str
    nodes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """Another collective that runs at the same time; `groups` as in a request."""

    op: Op
    size_bytes: float
    groups: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRequest:
    """What to run: every operation on every place at every size by every engine.

    `groups`: "16" for consecutive groups of 16 ranks, "16@32" for groups whose ranks are 32 apart,
    or lists such as "0-7;8-15"; all ranks in one group unless given.
    """

    ops: tuple[Op, ...]
    places: tuple[Place, ...]
    sizes_bytes: tuple[float, ...]
    engines: tuple[str, ...] = ("analytic",)
    ranks: int | None = None
    groups: str | None = None
    algorithm: str | None = None
    stack: str | None = None
    logical_size: int | None = None
    number_format: str = "fp32"
    faults: tuple[LinkFault, ...] = ()
    links: bool = False
    check: bool = False
    seed: int = 0
    trace: bool = False
    beside: tuple[Neighbour, ...] = ()


def sizes_between(smallest: float, largest: float, factor: float) -> tuple[float, ...]:
    """Return sizes from the smallest to the largest, each `factor` times the one before, bytes."""
    if not smallest > 0:
        raise InputError("the smallest size must be positive")
    if largest < smallest:
        raise InputError("the largest size is below the smallest")
    if largest > LARGEST_BYTES:
        raise InputError("the largest size is above 1 EiB")
    if not 1 < factor < math.inf:
        raise InputError("the factor between sizes must be above 1, and finite")
    if round(smallest) < 1:
        raise InputError("sizes are whole bytes; the smallest must be at least 1 byte")
    count = math.floor(math.log(largest / smallest, factor) + 1e-9) + 1
    if count > MAX_SIZES:
        raise InputError(f"{count:,} sizes are too many; at most {MAX_SIZES:,}: raise the factor")
    return tuple(float(round(smallest * factor**i)) for i in range(count))


def suite_requests(catalog: Catalog, name: str) -> CollectiveRequest:
    """Return what a suite asks for."""
    suite = load_collective_suite(catalog, name)
    return CollectiveRequest(
        ops=suite.operations,
        places=tuple(Place(instance=p.instance, nodes=p.nodes) for p in suite.places),
        sizes_bytes=sizes_between(suite.min_size_bytes, suite.max_size_bytes, suite.factor),
    )


def inputs_of(request: CollectiveRequest) -> dict[str, object]:
    """Return the request as plain data, for outputs that repeat what was asked."""
    plain = {f.name: getattr(request, f.name) for f in fields(request)}
    return plain | {
        "places": [f"{place.instance}:{place.nodes}" for place in request.places],
        "faults": [f"{f.source}-{f.target}={f.factor}" for f in request.faults],
        "beside": [f"{n.op}:{n.size_bytes:.0f}:{n.groups or ''}" for n in request.beside],
    }


def run(
    catalog: Catalog,
    request: CollectiveRequest,
    *,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> tuple[CollectiveAnswer, ...]:
    """Return the answers, grouped by place and operation; `progress` hears of each one done."""
    if request.trace and (len(request.ops), len(request.places), len(request.sizes_bytes)) != (
        *(1, 1, 1),
    ):
        raise InputError(
            "a trace shows one operation of one size on one place",
            hint="give --min-size and --max-size the same size",
        )
    total = len(request.places) * len(request.ops)
    answers: list[CollectiveAnswer] = []
    for i, where in enumerate(request.places):
        for j, op in enumerate(request.ops):
            progress(i * len(request.ops) + j, total, f"{op} on {where.instance}:{where.nodes}")
            answers += _answers(catalog, request, where, op)
    return tuple(answers)


def _answers(
    catalog: Catalog, request: CollectiveRequest, where: Place, op: Op
) -> Iterator[CollectiveAnswer]:
    platform = load_platform(catalog, where.instance)
    stack = (
        load_stack(catalog, request.stack)
        if request.stack
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
        number_format=request.number_format,
        engine="",
        stack=stack.name,
        evidence=_evidence(stack),
    )
    found = cluster_verdict(platform, where.nodes)
    if not found.legal:
        yield from _refused(request, blank, found)
        return
    placement = place(
        platform,
        nodes=where.nodes,
        logical_size=request.logical_size,
        faults=request.faults,
    )
    groups = replica_groups(placement, request.ranks, request.groups)
    beside = _beside(placement, stack, request)
    for refused in (groups, beside):
        if isinstance(refused, PlacementVerdict):
            ranks = request.ranks or placement.ranks
            yield from _refused(request, replace(blank, ranks=ranks), refused)
            return
    assert not isinstance(groups, PlacementVerdict)
    assert not isinstance(beside, PlacementVerdict)
    blank = replace(blank, ranks=int(groups.size), group_size=int(groups.shape[1]))
    yield from _sizes(request, placement, stack, op, groups, beside, blank)


def _sizes(
    request: CollectiveRequest,
    placement: Placement,
    stack: CollectiveStack,
    op: Op,
    groups: IntArray,
    beside: Sequence[ChunkStream],
    blank: CollectiveAnswer,
) -> Iterator[CollectiveAnswer]:
    element = format_named(request.number_format).bytes_per_element
    wanted = algorithm_named(request.algorithm) if request.algorithm else None
    selected: tuple[Selected, ...] | Refusal | None = None
    swept: Sweep | None = None
    for i, size_bytes in enumerate(request.sizes_bytes):
        exchange = Collective(
            op=op, ranks=blank.group_size, size_bytes=size_bytes, element_bytes=element
        )
        found = verdict(placement, exchange, groups)
        here = replace(
            blank, size_bytes=size_bytes, elements=exchange.elements, warnings=found.warnings
        )
        if not found.legal:
            yield from _refused(replace(request, sizes_bytes=(size_bytes,)), here, found)
            continue
        if selected is None:
            selected = select(
                stack,
                placement,
                op,
                groups,
                algorithm=wanted,
                pairs=_pairs(placement, op, groups),
                symmetric=not request.beside,
            )
        if isinstance(selected, Refusal):
            no = PlacementVerdict(reasons=(selected.reason,))
            yield from _refused(replace(request, sizes_bytes=(size_bytes,)), here, no)
            continue
        if swept is None:
            swept = sweep(selected, np.array(request.sizes_bytes))
        yield from _by_engine(request, selected, swept, i, beside, here)


def _by_engine(
    request: CollectiveRequest,
    selected: Sequence[Selected],
    swept: Sweep,
    i: int,
    beside: Sequence[ChunkStream],
    here: CollectiveAnswer,
) -> Iterator[CollectiveAnswer]:
    size_bytes = here.size_bytes
    choice = _choice(selected, size_bytes)
    here = replace(
        here,
        bound_s=float(swept.bound_s[i]),
        algorithm=choice.algorithm.label,
        tuning=choice.tuning_name,
        passed_over=choice.passed_over,
        check=_check(request, choice.placed, here) if request.check else None,
    )
    play_it = "emulate" in request.engines or request.links or request.trace
    played = play_selected(selected, size_bytes)[1] if play_it else None
    if beside:
        here = replace(here, together_s=_together(choice, size_bytes, beside))
    loads = _loads(choice.placed, played) if played is not None and request.links else ((), ())
    for engine in request.engines:
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
            links=loads[0],
            tori=loads[1],
            spans=_spans(choice, size_bytes) if request.trace else (),
        )


def _refused(
    request: CollectiveRequest, here: CollectiveAnswer, found: PlacementVerdict
) -> Iterator[CollectiveAnswer]:
    others = f"; possible: {', '.join(found.alternatives)}" if found.alternatives else ""
    reasons = tuple(f"{reason}{others}" for reason in found.reasons)
    element = format_named(request.number_format).bytes_per_element
    for size_bytes in request.sizes_bytes:
        for engine in request.engines:
            yield replace(
                here,
                size_bytes=size_bytes,
                elements=int(size_bytes // element),
                engine=engine,
                reasons=reasons,
            )


def _beside(
    placement: Placement, stack: CollectiveStack, request: CollectiveRequest
) -> list[ChunkStream] | PlacementVerdict:
    streams = []
    for neighbour in request.beside:
        groups = replica_groups(placement, request.ranks, neighbour.groups)
        if isinstance(groups, PlacementVerdict):
            return groups
        exchange = Collective(
            op=neighbour.op, ranks=int(groups.shape[1]), size_bytes=neighbour.size_bytes
        )
        found = verdict(placement, exchange, groups)
        if not found.legal:
            return found
        pairs = _pairs(placement, neighbour.op, groups)
        selected = select(stack, placement, neighbour.op, groups, pairs=pairs, symmetric=False)
        if isinstance(selected, Refusal):
            return PlacementVerdict(reasons=(selected.reason,))
        streams.append(_stream(_choice(selected, neighbour.size_bytes), neighbour.size_bytes))
    return streams


def _pairs(placement: Placement, op: Op, groups: IntArray) -> IntArray | None:
    return neighbour_pairs(placement.fabric, groups[0]) if op == "permute" else None


def _choice(selected: Sequence[Selected], size_bytes: float) -> Selected:
    return selected[int(selected_for(selected, np.array([size_bytes]))[0])]


def _stream(choice: Selected, size_bytes: float) -> ChunkStream:
    phases = len(choice.placed.plan.phases)
    chunks = int(chunks_of(choice.tuning, phases, np.array([size_bytes]))[0])
    return ChunkStream(
        placed=choice.placed, tuning=choice.tuning, size_bytes=size_bytes, chunks=chunks
    )


def _together(choice: Selected, size_bytes: float, beside: Sequence[ChunkStream]) -> float:
    """Return when a collective ends while others run beside it from the same moment on."""
    return play_together([_stream(choice, size_bytes), *beside]).end_s[0]


def _check(request: CollectiveRequest, placed: Placed, here: CollectiveAnswer) -> str:
    numbers = placed.ranks * (placed.ranks if placed.plan.items else 1)
    elements = max(min(here.elements, CHECK_ELEMENTS, MOST_CHECKED // numbers), 1)
    found = _checked(placed.plan, elements, request.seed)
    if found.passed:
        return "ok" if elements == here.elements else f"ok ({elements:,} el.)"
    return f"FAILED ({found.wrong_elements:,} wrong)"


@lru_cache(maxsize=32)
def _checked(plan: MessagePlan, elements: int, seed: int) -> DataCheck:
    return check_data(plan, elements, seed=seed)


def _loads(
    placed: Placed, played: PlayedCollective
) -> tuple[tuple[LinkLoad, ...], tuple[TorusLoad, ...]]:
    fabric = placed.placement.fabric
    links = [
        LinkLoad(
            name=placed.link_name(i),
            level=fabric.links[i % fabric.links_per_node].level,
            busy=float(played.link_busy[i]),
            size_bytes=float(played.link_bytes[i]),
        )
        for i in np.argsort(-played.link_busy, kind="stable")
        if played.link_bytes[i] > 0
    ]
    return tuple(links), tuple(_tori(placed, played))


def _tori(placed: Placed, played: PlayedCollective) -> Iterator[TorusLoad]:
    fabric = placed.placement.fabric
    for number, up in enumerate(fabric.levels):
        level = up.level
        if not isinstance(level, Torus) or len(level.shape) != 2:
            continue
        rows, columns = level.shape
        wired = fabric.torus_link[number]

        def busy(chip: int, other: int, axis: int, wired: IntArray = wired) -> float:
            there, back = wired[chip, axis, 0], wired[other, axis, 1]
            return float(max(played.link_busy[link] for link in (there, back) if link >= 0))

        chips = [divmod(chip, columns) for chip in range(rows * columns)]
        yield TorusLoad(
            level=level.name,
            shape=(rows, columns),
            right=tuple(
                busy(r * columns + c, r * columns + (c + 1) % columns, 1) for r, c in chips
            ),
            below=tuple(busy(r * columns + c, (r + 1) % rows * columns + c, 0) for r, c in chips),
        )


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
            arguments={
                "bytes": event.size_bytes,
                "phase": event.phase,
                "round": event.round_,
            },
        )
        for event in played.events
    )


def _evidence(stack: CollectiveStack) -> Kind:
    return stack.provenance.weakest()
