"""Fused attention forward as instructions: scores, maximum, exponentials, transposes, output.

A step holds four visits at four stages, as the kernels pipeline them: loads of one, scores of the
one before, exponentials of the one before that, output of the oldest. The oldest comes first, so
that every stage reads what the stage before left in the last step; what it is scaled by at its end
waits for nobody, and comes last.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, zip_longest

from trnbench.engines.emulate.attention.instructions import Links, Maker
from trnbench.engines.emulate.tensor_engine.stream import Instruction, Pool
from trnbench.machine.costs.instructions import LanePass
from trnbench.machine.tiling import attention as tiling

STATISTIC = 1  # Columns of a row's maximum or sum
WIDE_BYTES = 4  # Of scores and sums
_PER_LARGE = tiling.LARGE_TILE // tiling.KEY_TILE
_EXPONENTIALS = 2  # Key tiles of one instruction of exponentials in the training kernel


class ForwardStream:
    """Writer of the steps of one forward kernel."""

    def __init__(
        self, call: tiling.AttentionCall, kernel: tiling.FusedKernel, maker: Maker
    ) -> None:
        self._make = maker
        self._kernel = kernel
        self._call = call
        self._by_dma = kernel == "library"
        self._scores = -(-call.score_size // maker.array)
        self._score_size = call.score_size
        self._value_size = call.value_size
        room = maker.partition_bytes
        # The training kernel always fills one buffer of keys while it reads the other.
        self._rows = 3 if self._needs(3, 1 if self._by_dma else 2) <= room else 2
        two = not self._by_dma or self._needs(self._rows, 2) <= room
        self._key_buffers = 2 if two else 1

    @property
    def pools(self) -> dict[Pool, int]:
        """PSUM banks and the buffers in SBUF, by use."""
        return {
            "scores": 4,
            "turned": 1 if self._by_dma else 2,
            "sums": 2,
            "queries": 2,
            "keys": 1,
            "rows": self._rows,
            "weights": 2,
        }

    @property
    def partition_bytes(self) -> float:
        return self._needs(self._rows, self._key_buffers)

    def _needs(self, rows: int, key_buffers: int) -> float:
        call, narrow = self._call, self._make.element_bytes
        width = tiling.keys_at_once(call, self._kernel)
        keys = width * (self._scores + call.value_size / tiling.VALUE_TILE) * narrow
        results = 0 if self._by_dma else tiling.results_at_once(call) * call.value_size * WIDE_BYTES
        # The training kernel has weights before and after they are turned.
        copies = 1 if self._by_dma else 2
        weights = 2 * copies * width * narrow
        return rows * width * WIDE_BYTES + weights + key_buffers * keys + results

    def step(
        self,
        loads: tiling.Visit | None,
        scores: tiling.Visit | None,
        weights: tiling.Visit | None,
        sums: tiling.Visit | None,
    ) -> tuple[Instruction, ...]:
        """Instructions of a step: a visit at each stage, None where there is none."""
        # Tile by tile, oldest stage first: engines work in program order, so the order of the list
        # decides what overlaps.
        summed = self._summed_by_dma if self._by_dma else self._summed
        tiles = zip_longest(
            summed(sums) if sums else (),
            self._exponentials(weights) if weights else (),
            self._scored(scores) if scores else (),
            fillvalue=(),
        )
        return (
            *chain.from_iterable(chain.from_iterable(tiles)),
            *(self._finish(sums) if sums else ()),
            *(self._loaded(loads) if loads else ()),
        )

    # ---- loads

    def _loaded(self, visit: tiling.Visit) -> Iterator[Instruction]:
        make = self._make
        rows = min(self._score_size, make.array)
        if visit.new_keys:
            for piece, at in enumerate(range(0, visit.new_keys, tiling.LARGE_TILE)):
                columns = min(tiling.LARGE_TILE, visit.new_keys - at)
                links = Links(done=f"keys {piece}")
                if self._key_buffers == 1:
                    # The last products with the section before are done.
                    links = Links(after=("sum",), done=f"keys {piece}")
                elif at == 0 and not self._by_dma:
                    links = Links(takes=("keys",), done=f"keys {piece}")
                yield make.load(rows, columns, links, rows=self._scores)
                tiles = -(-columns // tiling.VALUE_TILE)
                done = Links(done=f"values {piece}")
                yield make.load(make.array, self._value_size, done, rows=tiles)
        links = Links(takes=("queries",), done="queries")
        if self._by_dma:
            yield make.load(visit.queries, self._score_size, links)
            if not visit.first:
                yield make.load(visit.queries, self._value_size, Links(done="earlier"))
        else:
            yield make.load(rows, visit.queries, links, rows=self._scores)

    # ---- scores

    def _scored(self, visit: tiling.Visit) -> Iterator[tuple[Instruction, ...]]:
        """Yield, key tile by key tile, products, copies, masks and maxima; then the row's."""
        last = len(visit.widths) - 1
        for tile, (width, masks) in enumerate(zip(visit.widths, visit.masks, strict=True)):
            found: list[Instruction] = []
            if tile == 0:
                found += self._queries()
            found += self._tile(visit, tile, width, masks)
            if tile == last:
                maxima = [f"maximum {i}" for i in range(len(visit.widths))]
                found += self._maximum(len(maxima), maxima)
            yield tuple(found)

    def _queries(self) -> Iterator[Instruction]:
        """Turn queries so that the head's elements lie on the partitions, and scale them."""
        make = self._make
        if self._by_dma:
            into = Links(after=("queries",), takes=("turned",), done="turn")
            yield make.product(tiling.QUERY_TILE, make.array, self._scores, into)
            out = Links(after=("turn",), done="turned queries", gives=("turned",))
            yield make.copy_out(tiling.QUERY_TILE * self._scores, out)
        else:
            links = Links(after=("queries",), done="turned queries")
            yield make.vector(LanePass(columns=tiling.QUERY_TILE * self._scores), links)

    def _tile(
        self, visit: tiling.Visit, tile: int, width: int, masks: int
    ) -> Iterator[Instruction]:
        make = self._make
        after = ["turned queries"] if tile == 0 else []
        if visit.new_keys and tile % _PER_LARGE == 0:
            after.append(f"keys {tile // _PER_LARGE}")
        rows = ("rows",) if tile == 0 else ()
        free = ("queries",) if tile == visit.multiplied - 1 else ()
        score, maximum = f"score {tile}", f"maximum {tile}"
        reduced = LanePass(columns=width, reduces=self._by_dma, plain=True)
        if tile < visit.multiplied:
            into = Links(after=after, takes=("scores",), done="product", gives=free)
            yield make.product(tiling.QUERY_TILE, width, self._scores, into)
            if self._by_dma and not masks:
                out = Links(after=("product",), takes=rows, done=score, gives=("scores",))
                yield make.vector(LanePass(columns=width, psum=True, reduces=True), out)
                return
            out = Links(after=("product",), takes=rows, done=score, gives=("scores",))
            yield make.copy_out(width, out)
        else:
            yield make.vector(LanePass(columns=width), Links(done=score))
        for _ in range(masks):
            yield make.mask(width, Links(after=(score,), done=score))
        yield make.vector(reduced, Links(after=(score,), done=maximum))

    def _maximum(self, tiles: int, maxima: list[str]) -> Iterator[Instruction]:
        make = self._make
        scores = [f"score {i}" for i in range(tiles)]
        yield make.vector(LanePass(columns=tiles), Links(after=(*maxima, *scores), done="maximum"))
        if self._by_dma:
            return
        running = Links(after=("maximum",), done="maximum")
        yield make.vector(LanePass(columns=STATISTIC), running)

    # ---- exponentials

    def _exponentials(self, visit: tiling.Visit) -> Iterator[tuple[Instruction, ...]]:
        """Yield exponentials with their sums, each before its transpose by DMA, or after what
        earlier output is worth under the new maximum.
        """
        make, last = self._make, len(visit.widths) - 1
        at_once = 1 if self._by_dma else _EXPONENTIALS
        for tile, width in enumerate(visit.widths):
            if tile % at_once:
                yield ()
                continue
            columns = sum(visit.widths[tile : tile + at_once])
            end = tile + at_once > last
            links = Links(
                after=("maximum",) if tile == 0 else (),
                takes=("weights",) if tile == 0 else (),
                done=f"weights {tile // at_once}",
                gives=("rows",) if end else (),
            )
            exponentials = make.scalar(LanePass(columns=columns, reduces=True), links)
            if self._by_dma:
                turned = Links(after=(f"weights {tile}",), done=f"turned {tile}")
                yield exponentials, make.turn(width, tiling.QUERY_TILE, turned)
            elif tile == 0:
                rescale = Links(after=("maximum",), done="rescale")
                yield make.scalar(LanePass(columns=STATISTIC), rescale), exponentials
            else:
                yield (exponentials,)

    # ---- output

    def _values(self, visit: tiling.Visit, tile: int) -> list[str]:
        fresh = visit.new_keys and tile % _PER_LARGE == 0
        return [f"values {tile // _PER_LARGE}"] if fresh else []

    def _summed_by_dma(self, visit: tiling.Visit) -> Iterator[tuple[Instruction, ...]]:
        """Yield products with values; each large tile's sum is added to the output in SBUF."""
        make, last = self._make, len(visit.widths) - 1
        for tile, count in enumerate(visit.value_tiles):
            opens, closes = tile % _PER_LARGE == 0, tile % _PER_LARGE == _PER_LARGE - 1
            links = Links(
                after=(f"turned {tile}", *self._values(visit, tile)),
                takes=("sums",) if opens else (),
                done="sum",
                gives=("weights",) if tile == last else (),
            )
            found = [make.product(tiling.QUERY_TILE, self._value_size, count, links)]
            if closes or tile == last:
                adds = 1 if tile < _PER_LARGE else 2
                out = Links(after=("sum",), done="output", gives=("sums",))
                one = LanePass(columns=self._value_size, psum=True, inputs=adds)
                found.append(make.vector(one, out))
            yield tuple(found)

    def _summed(self, visit: tiling.Visit) -> Iterator[tuple[Instruction, ...]]:
        """Yield transposes on the tensor engine, a tile ahead of the products with values."""
        make, last = self._make, len(visit.widths) - 1
        rescaled = Links(after=("rescale",), done="output")
        first = make.vector(LanePass(columns=self._value_size), rescaled)
        for tile, count in enumerate(visit.value_tiles):
            found = [first] if tile == 0 else []
            into = Links(
                after=() if tile % _EXPONENTIALS else (f"weights {tile // _EXPONENTIALS}",),
                takes=("turned",),
                done="turn",
                gives=("weights",) if tile == last else (),
            )
            found.append(make.product(tiling.QUERY_TILE, make.array, count, into))
            out = Links(after=("turn",), done=f"turned {tile}", gives=("turned",))
            found.append(make.copy_out(visit.widths[tile], out))
            if tile:
                found.append(self._product(visit, tile - 1))
            yield tuple(found)
        add = Links(after=("sum",), done="output", gives=("sums",))
        yield (
            self._product(visit, last),
            make.vector(LanePass(columns=self._value_size, psum=True, inputs=2), add),
        )

    def _product(self, visit: tiling.Visit, tile: int) -> Instruction:
        links = Links(
            after=(f"turned {tile}", *self._values(visit, tile)),
            takes=("sums",) if tile == 0 else (),
            done="sum",
            gives=("keys",) if visit.new_keys and tile == 0 else (),
        )
        return self._make.product(
            tiling.QUERY_TILE, self._value_size, visit.value_tiles[tile], links
        )

    def _finish(self, visit: tiling.Visit) -> Iterator[Instruction]:
        """Yield the end of a visit: sums of rows, and the scaled output of the last visit."""
        make, small = self._make, LanePass(columns=STATISTIC)
        output, size = ("output",), self._value_size
        yield make.vector(LanePass(columns=len(visit.widths)), Links(done="row sum"))
        if not self._by_dma:
            yield make.scalar(small, Links(after=("row sum",), done="row sum"))
            yield make.scalar(small, Links(after=("row sum",), done="row sum"))
            yield make.vector(small, Links(after=("row sum",), done="row sum"))
            if not visit.last:
                return
            yield make.scalar(small, Links(after=("row sum",), done="scale"))
            scaled = Links(after=("scale", *output), done="output")
            yield make.vector(LanePass(columns=size), scaled)
        else:
            if not visit.first:
                again = Links(after=("earlier", *output), done="output")
                yield make.vector(LanePass(columns=size), again)
                yield make.vector(LanePass(columns=size, inputs=2), again)
            yield make.vector(
                LanePass(columns=8 * STATISTIC), Links(after=("row sum",), done="scale")
            )
            scaled = Links(after=("scale", *output), done="output")
            yield make.scalar(LanePass(columns=size), scaled)
        yield make.store(visit.queries, size, Links(after=output))
