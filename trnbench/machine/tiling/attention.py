"""Tile schedules of fused attention on one core: the tiles visited, and their order.

Two published pairs of kernels. `training` (neuronx-distributed; NKI samples' `flash_fwd` and
`flash_attn_bwd`): large tiles of 2,048 keys outside, query tiles inside, a running maximum per
large tile; P is transposed by the tensor engine. `library` (NKI library's `attention_cte` and
`attention_bwd`): a section of keys stays in SBUF while groups of 128 queries go by; P is transposed
by the DMA engines, so it needs a chip that can. Backward both visit 128 queries x 512 keys at a
time, with keys or queries outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, TypeAlias, get_args

from trnbench.facts.hardware.compute_unit import NeuronCores
from trnbench.facts.numbers.formats import format_named
from trnbench.facts.records import Record, replace

FusedKernel: TypeAlias = Literal["training", "library"]
FUSED_KERNELS: tuple[FusedKernel, ...] = get_args(FusedKernel)

QUERY_TILE = 128
KEY_TILE = 512
VALUE_TILE = 128
LARGE_TILE = 2048
# What the kernels are, as published: query tiles whose results stay in SBUF; keys beyond which
# there are sections, and their size; query tiles of a group; how an odd head is shared by two
# cores, and from how many queries on.
RESULT_TILES = 256
SECTION_ABOVE = 10240
SECTION = 8192
GROUP_TILES = 4
EARLY_PART = 0.65
SHARED_FROM = 1024
HALF_BITS = 16


class AttentionCall(Record):
    """Fused attention of a rank.

    Keys that several heads share are loaded again for each head; the library's backward kernel sums
    their gradients over the heads before the store.
    """

    queries: int  # of each head
    keys: int  # of each head
    heads: int  # query heads in all, of all sequences
    kv_heads: int  # heads of keys in all
    score_size: int
    value_size: int
    number_format: str = "bf16"
    causal: bool = True
    window: int | None = None
    backward: bool = False
    first_query: int = 0  # position of the first query
    ring_queries: int | None = None  # of a ring's rank: an early and an equally long late part

    def position(self, query: int) -> int:
        """Position of a query in the sequence."""
        at = self.first_query + query
        # A rank of a ring holds an early and a late part of the sequence, so that all ranks have
        # equal work under a causal mask: its second half lies at the end of the keys.
        if self.ring_queries is None or 2 * at < self.ring_queries:
            return at
        return at + self.keys - self.ring_queries


class Visit(Record):
    """Some key tiles seen by one tile of queries."""

    queries: int
    widths: tuple[int, ...]  # of each key tile
    multiplied: int  # first key tiles whose scores are computed
    masks: tuple[int, ...]  # put on each key tile
    value_tiles: tuple[int, ...]  # tiles of 128 keys times values, by key tile
    new_keys: int = 0  # loaded first; they stay until others are
    new_queries: bool = True  # queries are loaded too
    turn_keys: bool = False  # backward: keys are transposed
    first: bool = False  # visit of the query tile
    last: bool = False  # visit of the query tile
    group_end: bool = False  # backward: last query tile of a sum of key gradients in PSUM
    summed_on: bool = False  # backward: sums of key gradients stay for the next head


class PlacedVisit(Record, kw_only=False):
    """Visit with its place in the call."""

    query: int  # first query, as numbered in the call
    key: int  # first key
    visit: Visit


def usual_kernel(cores: NeuronCores) -> FusedKernel:
    """Kernel of a chip's software: the library's where DMA can transpose."""
    return "training" if cores.dma.transpose_rate_in_sbuf is None else "library"


def visits(call: AttentionCall, kernel: FusedKernel) -> Iterator[tuple[PlacedVisit, ...]]:
    """Yield the visits of one head, in runs between which the kernel's pipeline drains."""
    if call.backward:
        yield from _backward(call, kernel)
    elif kernel == "training":
        yield tuple(_large_tiles(call))
    else:
        yield from _sections(call)


def parts_of_cores(
    call: AttentionCall, cores: int, kernel: FusedKernel
) -> tuple[tuple[AttentionCall, ...], ...]:
    """Calls that each of a rank's cores makes, where they differ.

    Heads go whole to cores. The library's forward kernel shares an odd last head of two cores by
    its queries, the early part being the larger one under a causal mask.
    """
    # Fewest heads a core first: cores with an extra head set the time of the rank.
    whole, odd = divmod(call.heads, cores)
    own = (_with_heads(call, whole),) if whole else ()
    if not odd:
        return (own,)
    shared = kernel == "library" and cores == 2 and not call.backward
    if not shared or call.queries < SHARED_FROM or call.queries > call.keys:
        return ((_with_heads(call, whole + 1),),)
    part = EARLY_PART if call.causal else 0.5
    early = -(-int(call.queries * part) // QUERY_TILE) * QUERY_TILE
    one = _with_heads(call, 1)
    late = replace(one, queries=call.queries - early, first_query=call.first_query + early)
    return (*own, replace(one, queries=early)), (*own, late)


def shared_heads(call: AttentionCall, kernel: FusedKernel) -> int:
    """Heads whose gradients of keys are summed on in the next head of the same keys."""
    return call.heads - call.kv_heads if call.backward and kernel == "library" else 0


def summed_on(run: tuple[PlacedVisit, ...]) -> tuple[PlacedVisit, ...]:
    """Run of visits of a head whose sums stay for the next."""
    return (
        tuple(replace(placed, visit=replace(placed.visit, summed_on=True)) for placed in run[:1])
        + run[1:]
    )


def _with_heads(call: AttentionCall, heads: int) -> AttentionCall:
    return replace(call, heads=heads, kv_heads=-(-heads * call.kv_heads // call.heads))


def results_at_once(call: AttentionCall) -> int:
    """Query tiles of the training kernel whose results stay in SBUF together."""
    return RESULT_TILES // _parts(call)


def keys_at_once(call: AttentionCall, kernel: FusedKernel) -> int:
    """Keys that stay in SBUF together: a large tile, or a section.

    Sections are smaller where heads are larger than an array, or elements wider than 16 bits.
    """
    if kernel == "training":
        return min(LARGE_TILE, call.keys)
    parts = _parts(call)
    return SECTION // parts if call.keys > SECTION_ABOVE // parts else call.keys


def _parts(call: AttentionCall) -> int:
    # Keys and values of a position take a column for each array's width of the head.
    arrays = -(-max(call.score_size, call.value_size) // VALUE_TILE)
    return arrays * (2 if format_named(call.number_format).bits > HALF_BITS else 1)


def _span(call: AttentionCall, query: int, count: int) -> tuple[int, int]:
    """First key that any of some queries attends to, and the end of these keys."""
    if not call.causal:
        return 0, call.keys
    # The first query bounds the window on the left, the last one the causal mask on the right.
    start, end = call.position(query), call.position(query + count - 1) + 1
    low = 0 if call.window is None else max(0, start - call.window + 1)
    return min(low, call.keys - 1), max(min(end, call.keys), 1)


def _large_tiles(call: AttentionCall) -> Iterator[PlacedVisit]:
    """Yield large tiles of keys outside and query tiles inside, for as many as SBUF holds."""
    held = results_at_once(call) * QUERY_TILE
    for group in range(0, call.queries, held):
        for key in range(0, call.keys, LARGE_TILE):
            width = min(LARGE_TILE, call.keys - key)
            fresh = width
            for query in range(group, min(group + held, call.queries), QUERY_TILE):
                count = min(QUERY_TILE, call.queries - query)
                low, high = _span(call, query, count)
                # Tiles that the mask or the window rules out in full are not visited at all.
                if low >= key + width or high <= key:
                    continue
                edges = range(key, key + width, KEY_TILE)
                widths = tuple(min(KEY_TILE, key + width - edge) for edge in edges)
                visit = Visit(
                    queries=count,
                    widths=widths,
                    multiplied=sum(edge < high for edge in edges),
                    masks=tuple(int(call.causal) + _cut(call, query, edge) for edge in edges),
                    value_tiles=tuple(-(-width // VALUE_TILE) for width in widths),
                    new_keys=fresh,
                    first=low >= key,
                    last=high <= key + width,
                )
                fresh = 0
                yield PlacedVisit(query, key, visit)


def _cut(call: AttentionCall, query: int, key: int) -> int:
    return int(call.window is not None and call.position(query) + QUERY_TILE > key)


def _sections(call: AttentionCall) -> Iterator[tuple[PlacedVisit, ...]]:
    """Yield, section by section of the keys, groups of queries with their tiles of the section."""
    size = keys_at_once(call, "library")
    for section in range(0, call.keys, size):
        end = min(section + size, call.keys)
        found: list[PlacedVisit] = []
        for query in range(0, call.queries, QUERY_TILE):
            count = min(QUERY_TILE, call.queries - query)
            low, high = _span(call, query, count)
            if low >= end or high <= section:
                continue
            # Key tiles count from the section's start: the first one may begin before the window.
            start = max(section, low - (low - section) % KEY_TILE)
            edges = range(start, min(high, end), KEY_TILE)
            widths = tuple(min(KEY_TILE, end - edge) for edge in edges)
            visit = Visit(
                queries=count,
                widths=widths,
                multiplied=len(widths),
                masks=tuple(
                    int(_masked(call, query, count, edge, width))
                    for edge, width in zip(edges, widths, strict=True)
                ),
                value_tiles=tuple(
                    _tiles(max(edge, low), min(edge + width, high), edge)
                    for edge, width in zip(edges, widths, strict=True)
                ),
                new_keys=0 if found else end - section,
                first=low >= section,
                last=high <= end,
            )
            found.append(PlacedVisit(query, start, visit))
        if found:
            yield tuple(found)


@lru_cache(maxsize=4096)
def _block(
    queries: int, width: int, masks: int, new_keys: int, marks: tuple[bool, bool, bool, bool, bool]
) -> Visit:
    """Backward visit, cached: there are few kinds, and very many of each."""
    new_queries, turn_keys, first, last, group_end = marks
    return Visit(
        queries=queries,
        widths=(width,),
        multiplied=1,
        masks=(masks,),
        value_tiles=(-(-width // VALUE_TILE),),
        new_keys=new_keys,
        new_queries=new_queries,
        turn_keys=turn_keys,
        first=first,
        last=last,
        group_end=group_end,
    )


def _tiles(low: int, high: int, edge: int) -> int:
    return -(-(high - edge) // VALUE_TILE) - (low - edge) // VALUE_TILE


def _masked(call: AttentionCall, query: int, count: int, key: int, width: int) -> bool:
    """True when a tile holds pairs that do not count."""
    if not call.causal:
        return False
    start, end = call.position(query), call.position(query + count - 1)
    left = call.window is not None and key <= end - call.window
    return key + width - 1 > start or left


def _backward(call: AttentionCall, kernel: FusedKernel) -> Iterator[tuple[PlacedVisit, ...]]:
    """Yield tiles of 128 queries x 512 keys.

    `training` has key tiles outside and all queries inside; `library` sections of keys, groups of
    query tiles, the section's key tiles, and the tiles of the group inside.
    """
    everything = range(0, call.queries, QUERY_TILE)
    if kernel == "training":
        for key in range(0, call.keys, KEY_TILE):
            whole = min(KEY_TILE, call.keys - key)
            found = list(_blocks(call, range(key, key + 1), everything, whole, call.keys))
            if found:
                yield tuple(found)
        return
    size = keys_at_once(call, "library")
    for section in range(0, call.keys, size):
        keys = range(section, min(section + size, call.keys), KEY_TILE)
        found = []
        for at in range(0, len(everything), GROUP_TILES):
            loaded = 0 if found else keys.stop - section
            found += _blocks(call, keys, everything[at : at + GROUP_TILES], loaded, keys.stop)
        if found:
            yield tuple(found)


def _blocks(
    call: AttentionCall, keys: range, queries: range, new_keys: int, end: int
) -> Iterator[PlacedVisit]:
    """Yield the tiles of some keys, each with those of the queries that attend to it.

    A query tile's gradient leaves SBUF with its last tile before the key `end`.
    """
    spans = {query: _span(call, query, min(QUERY_TILE, call.queries - query)) for query in queries}
    # Queries stay in SBUF for the group's key tiles: only a tile's first visit loads them.
    seen: set[int] = set()
    for key in keys:
        width = min(KEY_TILE, call.keys - key)
        here = [query for query, (low, high) in spans.items() if low < key + width and high > key]
        for place, query in enumerate(here):
            count = min(QUERY_TILE, call.queries - query)
            low, high = spans[query]
            closes = place == len(here) - 1
            ends = min(high, end) <= key + width
            marks = query not in seen, place == 0, key <= low, ends, closes
            visit = _block(count, width, int(call.causal), new_keys, marks)
            new_keys = 0
            seen.add(query)
            yield PlacedVisit(query, key, visit)
