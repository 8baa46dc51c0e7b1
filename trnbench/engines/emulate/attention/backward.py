"""Fused attention backward as instructions: scores again, their gradient, gradients of operands.

Stages as forward: loads; scores and the gradient of the weights; exponentials and the gradient of
the scores; gradients of values, keys and queries.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from trnbench.engines.emulate.attention.forward import WIDE_BYTES
from trnbench.engines.emulate.attention.instructions import Links, Maker
from trnbench.engines.emulate.tensor_engine.stream import Instruction, Pool
from trnbench.machine.costs.instructions import LanePass
from trnbench.machine.tiling import attention as tiling

RESULTS_PART = 0.5  # Largest share of SBUF for the gradients of queries


class BackwardStream:
    """Writer of the steps of one backward kernel."""

    def __init__(
        self, call: tiling.AttentionCall, kernel: tiling.FusedKernel, maker: Maker
    ) -> None:
        self._make = maker
        self._call = call
        self._library = kernel == "library"
        self._score_size, self._value_size = call.score_size, call.value_size
        self._scores = -(-call.score_size // maker.array)
        self._values = -(-call.value_size // maker.array)
        # The training kernel sums the gradients of all queries in SBUF, or in memory beyond.
        whole = call.queries * self._scores * WIDE_BYTES
        self._spills = kernel == "training" and whole > maker.partition_bytes * RESULTS_PART

    @property
    def pools(self) -> dict[Pool, int]:
        """PSUM banks and the buffers in SBUF, by use."""
        # Gradients of keys and values stay in banks of their own over a group of queries, and
        # transposes get what these leave.
        gradients = self._scores + self._values
        return {
            "scores": 2,
            "turned": 1 if gradients > 2 else 2,
            "sums": 1,
            "gradients": gradients,
            "operands": 2 * tiling.GROUP_TILES if self._library else 3,
            "keys": 1,
            "rows": 2,
            "weights": 2,
        }

    @property
    def partition_bytes(self) -> float:
        """Bytes of each SBUF partition that the kernel needs."""
        call, pools, narrow = self._call, self.pools, self._make.element_bytes
        chunks = self._scores + self._values
        size = call.score_size + call.value_size
        operands = pools["operands"] * (tiling.QUERY_TILE * chunks + size) * narrow
        rows = (
            2 * pools["rows"] * tiling.KEY_TILE * WIDE_BYTES
            + 2 * pools["weights"] * tiling.KEY_TILE * narrow
        )
        turned = tiling.KEY_TILE / tiling.VALUE_TILE * call.score_size * narrow
        if self._library:
            width = min(tiling.keys_at_once(call, "library"), call.keys)
            keys = width * chunks * (narrow + WIDE_BYTES)
            results = tiling.GROUP_TILES * tiling.QUERY_TILE * self._scores * WIDE_BYTES
        else:
            keys = 2 * tiling.KEY_TILE * chunks * narrow
            results = 0 if self._spills else call.queries * self._scores * WIDE_BYTES
        return operands + rows + turned + keys + results

    def step(
        self,
        loads: tiling.Visit | None,
        scores: tiling.Visit | None,
        weights: tiling.Visit | None,
        sums: tiling.Visit | None,
    ) -> tuple[Instruction, ...]:
        """Instructions of a step: a visit at each stage, None where there is none."""
        return tuple(
            chain(
                self._gradients(sums) if sums else (),
                self._exponentials(weights) if weights else (),
                self._scored(scores) if scores else (),
                self._loaded(loads) if loads else (),
            )
        )

    def _loaded(self, visit: tiling.Visit) -> Iterator[Instruction]:
        make = self._make
        if visit.new_keys:
            for at in range(0, visit.new_keys, tiling.LARGE_TILE):
                columns = min(tiling.LARGE_TILE, visit.new_keys - at)
                taken = Links(takes=("keys",) if at == 0 else (), done="keys")
                yield self._operand(columns, self._score_size, taken)
                yield self._operand(columns, self._value_size, Links(done="keys"))
                if self._library and not visit.summed_on:
                    # A section's gradients leave SBUF when it does; as many bytes as it brought.
                    yield make.store(self._score_size, columns, Links())
                    yield make.store(self._value_size, columns, Links())
        if visit.new_queries:
            taken = Links(takes=("operands",), done="operands")
            yield self._operand(visit.queries, self._score_size, taken)
            yield self._operand(visit.queries, self._value_size, Links(done="operands"))
        if visit.first:
            yield self._operand(visit.queries, self._value_size, Links(done="results"))
        elif self._spills or (visit.new_queries and self._library):
            columns = round(visit.queries * WIDE_BYTES / self._make.element_bytes)
            yield self._operand(columns, self._score_size, Links(done="earlier"))

    def _operand(self, columns: int, size: int, links: Links) -> Instruction:
        rows = min(size, self._make.array)
        return self._make.load(rows, columns, links, rows=-(-size // self._make.array))

    # ---- scores and the gradient of the weights

    def _scored(self, visit: tiling.Visit) -> Iterator[Instruction]:
        make, (width,) = self._make, visit.widths
        if visit.turn_keys:
            after = ("keys",) if visit.new_keys else ()
            for _ in range(self._scores):
                yield from self._turned(visit.value_tiles[0], self._score_size, after)
        if visit.new_queries:
            yield from self._turned(self._scores, self._score_size, ("operands",))
            yield from self._turned(self._values, self._value_size, ())
        if visit.first:
            yield from self._turned(self._values, self._value_size, ("results",))
            size = self._value_size
            yield make.vector(LanePass(columns=size, inputs=2), Links(after=("turned",)))
            yield make.vector(LanePass(columns=size, plain=True), Links(done="dot"))
        after = (
            *(("operands",) if visit.new_queries else ()),
            *(("keys",) if visit.new_keys else ()),
        )
        into = Links(after=after, takes=("scores",), done="product")
        yield make.product(tiling.QUERY_TILE, width, self._scores, into)
        out = Links(after=("product",), takes=("rows",), done="score", gives=("scores",))
        yield make.copy_out(width, out)
        for _ in range(visit.masks[0]):
            yield make.mask(width, Links(after=("score",), done="score"))
        into = Links(takes=("scores",), done="slope")
        yield make.product(tiling.QUERY_TILE, width, self._values, into)
        if not self._library:
            out = Links(after=("slope",), done="slope", gives=("scores",))
            yield make.copy_out(width, out)

    def _turned(self, tiles: int, columns: int, after: tuple[str, ...]) -> Iterator[Instruction]:
        make = self._make
        into = Links(after=after, takes=("turned",), done="turn")
        yield make.product(tiling.QUERY_TILE, make.array, tiles, into)
        out = Links(after=("turn",), done="turned", gives=("turned",))
        yield make.copy_out(columns, out)

    # ---- weights and the gradient of the scores

    def _exponentials(self, visit: tiling.Visit) -> Iterator[Instruction]:
        make, (width,) = self._make, visit.widths
        links = Links(after=("score",), takes=("weights",), done="weights")
        yield make.scalar(LanePass(columns=width), links)
        slope = LanePass(columns=width, psum=self._library, inputs=2, plain=True)
        links = Links(
            after=("slope", "weights", "dot"),
            done="score slope",
            gives=("rows", "scores") if self._library else ("rows",),
        )
        yield make.vector(slope, links)

    # ---- gradients of values, keys and queries

    def _gradients(self, visit: tiling.Visit) -> Iterator[Instruction]:
        make, (width,), (tiles,) = self._make, visit.widths, visit.value_tiles
        grads = self._scores + self._values
        opens = ("gradients",) * grads if visit.turn_keys else ()
        into = Links(after=("weights",), takes=opens, done="gradients")
        yield make.product(min(self._value_size, make.array), width, self._values, into)
        into = Links(after=("score slope",), takes=("turned",), done="turn")
        yield make.product(tiling.QUERY_TILE, make.array, tiles, into)
        out = Links(after=("turn",), done="turned slope", gives=("turned",))
        yield make.copy_out(width, out)
        into = Links(done="gradients", gives=("weights",))
        yield make.product(min(self._score_size, make.array), width, self._scores, into)
        free = ("operands",) if visit.last or not self._library else ()
        if visit.new_keys:
            free = (*free, "keys")
        into = Links(after=("turned slope",), takes=("sums",), done="query slope", gives=free)
        columns = tiling.QUERY_TILE * self._scores
        yield make.product(
            min(self._score_size, make.array), tiling.QUERY_TILE, tiles * self._scores, into
        )
        after = ("query slope", "earlier") if self._spills else ("query slope",)
        links = Links(after=after, done="query slope", gives=("sums",))
        if self._library:
            yield make.vector(LanePass(columns=columns, psum=True, inputs=2), links)
        else:
            yield make.copy_out(columns, links)
            added = Links(after=("query slope",), done="query slope")
            yield make.vector(LanePass(columns=columns, inputs=2), added)
        if self._spills and not visit.last:
            wide = round(visit.queries * WIDE_BYTES / make.element_bytes)
            yield make.store(self._score_size, wide, Links(after=("query slope",)))
        if visit.group_end:
            yield from self._key_gradients(width, grads)
        if visit.last:
            scaled = Links(after=("query slope",), done="query slope")
            yield make.scalar(LanePass(columns=columns), scaled)
            yield make.store(self._score_size, visit.queries, Links(after=("query slope",)))

    def _key_gradients(self, width: int, grads: int) -> Iterator[Instruction]:
        make = self._make
        for _ in range(grads):
            links = Links(after=("gradients",), done="key slope", gives=("gradients",))
            if self._library:
                yield make.vector(LanePass(columns=width, psum=True, inputs=2), links)
            else:
                yield make.copy_out(width, links)
        if not self._library:
            for size in (self._score_size, self._value_size):
                yield make.store(size, width, Links(after=("key slope",)))
