"""Collectives on the arrays of all ranks, and the book of what ranks send to one another.

Every exchange is written into the book, with the elements its arrays really had. Sums are added up
in FP32 and rounded once, to the format in which they are written.

The book of traffic. Collectives go round a ring of their group, as their size is counted everywhere
(`bus_factor`): a reduce-scatter or all-gather carries each piece over all links of its group but
one, an all-reduce does so twice, a permute hands everything to the next rank; an all-to-all sends
each pair its piece. A link is an ordered pair of ranks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from math import isclose
from typing import TypeAlias

import numpy as np

from trnbench.engines.execute.arithmetic import Numbers
from trnbench.engines.execute.shards import StageRanks
from trnbench.errors import GapError
from trnbench.facts.arrays import IntArray
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record
from trnbench.facts.workload.choices import Op
from trnbench.program.block import Block
from trnbench.program.collective import bus_factor
from trnbench.program.ops import CollectiveOp, Phase
from trnbench.program.step import StepProgram
from trnbench.program.tensor import Tensor, element_bytes


class Message(Record):
    """A collective of all groups of a stage (or of the world), as its size is counted.

    `group`: ranks of a group and how far apart they are. `elements` are those of one rank's buffer.
    """

    op: Op
    axis: str
    phase: Phase
    stage: int
    elements: int
    element_bytes: float
    group: tuple[int, int]


Traffic: TypeAlias = Mapping[tuple[str, str], tuple[int, float]]
"""(operation, axis) -> runs of a rank, and bytes of all ranks."""


class Book:
    """Counts of everything sent, kept while the executor runs."""

    def __init__(self, *, world: int, ranks_per_stage: int) -> None:
        self._world = world
        self._per_stage = ranks_per_stage
        self._collectives: Counter[Message] = Counter()
        self._flop: Counter[str] = Counter()
        self._sends: Counter[tuple[int, int, Phase, int, float]] = Counter()

    def collective(self, message: Message, runs: int = 1) -> None:
        self._collectives[message] += runs

    def send(self, source: int, target: int, phase: Phase, numbers: int, size: float) -> None:
        self._sends[source, target, phase, numbers, size] += 1

    def computed(self, number_format: str, flop: int) -> None:
        self._flop[number_format] += flop

    @property
    def flop(self) -> Mapping[str, int]:
        return dict(sorted(self._flop.items()))

    def by_operation(self) -> Traffic:
        """Bytes moved; messages between stages are along pp."""
        totals: dict[tuple[str, str], tuple[int, float]] = {}

        def add(key: tuple[str, str], runs: int, sent: float) -> None:
            before = totals.get(key, _NOTHING)
            totals[key] = before[0] + runs, before[1] + sent

        for message, runs in self._collectives.items():
            ranks = self._members(message).size
            sent = float(runs * _on_ring(message).sum()) * (ranks // message.group[0])
            add((message.op, message.axis), runs * ranks, sent)
        for (_, _, _, elements, size), runs in self._sends.items():
            add(("send", "pp"), runs * self._per_stage, runs * self._per_stage * elements * size)
        return dict(sorted(totals.items()))

    def links_bytes(self) -> Numbers:
        """[source, target] the bytes sent from rank to rank."""
        links = np.zeros((self._world, self._world))
        for message, runs in self._collectives.items():
            members = self._members(message)
            between = runs * _on_ring(message)
            for group in members:
                links[np.ix_(group, group)] += between
        rank = np.arange(self._per_stage)
        for (source, target, _, elements, size), runs in self._sends.items():
            at = source * self._per_stage + rank, target * self._per_stage + rank
            links[at] += runs * elements * size
        return links

    def _members(self, message: Message) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        """[group, member] the ranks of every group."""
        size, stride = message.group
        if message.axis == "tied":
            last = self._world - self._per_stage
            first = np.arange(self._per_stage)
            return np.stack([first, last + first], axis=1)
        whole = message.stage < 0
        ranks = np.arange(self._world if whole else self._per_stage)
        grouped = ranks.reshape(-1, size, stride)
        members = np.swapaxes(grouped, 1, 2).reshape(-1, size)
        return members + (0 if whole else message.stage * self._per_stage)


def _on_ring(message: Message) -> Numbers:
    """[from, to] the bytes one run of a group puts on each of its links."""
    size = message.group[0]
    pieces = np.full(size, message.elements // size)
    pieces[: message.elements % size] += 1
    links = np.zeros((size, size))
    at = np.arange(size)
    following = (at + 1) % size
    total = message.elements
    match message.op:
        case "all-reduce":
            links[at, following] = 2 * total - pieces[at] - pieces[following]
        case "reduce-scatter":
            links[at, following] = total - pieces[at]
        case "all-gather":
            links[at, following] = total - pieces[following]
        case "all-to-all":
            links += pieces[None, :]
            links[at, at] = 0
        case "permute":
            links[at, following] = total
        case _:
            raise GapError(message.op, "bytes on the links of a ring")
    return links * message.element_bytes


_NOTHING = 0, 0.0  # Traffic of a kind that one side does not know
SEND = ("send", "pp")  # Name of messages between stages in the book of traffic


class TrafficLine(Record):
    """One kind of exchange: runs and bytes, as measured and as the program states."""

    operation: str
    axis: str
    runs: int
    program_runs: int
    sent_bytes: float
    program_bytes: float

    @property
    def agrees(self) -> bool:
        same = isclose(self.sent_bytes, self.program_bytes, rel_tol=1e-12)
        return self.runs == self.program_runs and same


def traffic_lines(measured: Traffic, program: StepProgram, steps: int) -> tuple[TrafficLine, ...]:
    """Every kind of exchange of either side, after `steps` steps."""
    said = program_traffic(program)
    lines = []
    for key in sorted({*measured, *said}):
        (runs, sent_bytes), (of_step, step_bytes) = (
            traffic.get(key, _NOTHING) for traffic in (measured, said)
        )
        line = TrafficLine(
            operation=key[0],
            axis=key[1],
            runs=runs,
            program_runs=of_step * steps,
            sent_bytes=sent_bytes,
            program_bytes=step_bytes * steps,
        )
        lines.append(line)
    return tuple(lines)


def program_traffic(program: StepProgram) -> Traffic:
    """Bytes a step of a scalar program moves over all ranks."""
    runs: defaultdict[tuple[str, str], float] = defaultdict(float)
    sent: defaultdict[tuple[str, str], float] = defaultdict(float)
    ranks, rounds = float(program.grid.ranks_per_stage), float(program.micro_batches)

    def add(key: tuple[str, str], times: float, size: float) -> None:
        runs[key] += times
        sent[key] += times * size

    for block, instances in _instances(program):
        for op in block.collectives:
            times = instances * ranks * float(op.count)
            times *= 1 if op.phase == "optimizer" else rounds
            add((op.op, op.axis), times, _sent_by_one(op))
    for op in program.closing:
        add((op.op, op.axis), float(op.ranks), _sent_by_one(op))
    for stage in program.stages:
        for message in stage.messages:
            if message.direction == "send":
                times = float(message.count * stage.multiplicity) * ranks * rounds
                add(SEND, times, float(message.size_bytes))
    return {key: (round(runs[key]), sent[key]) for key in sorted(runs) if runs[key]}


def program_flop(program: StepProgram) -> Mapping[str, float]:
    """FLOP of a step of a scalar program over all ranks, by format of the operands."""
    totals: defaultdict[str, float] = defaultdict(float)
    every = float(program.grid.ranks_per_stage * program.micro_batches)
    for block, instances in _instances(program):
        for op in block.computing:
            totals[op.format] += float(op.flop * op.count) * instances * every
    return dict(sorted(totals.items()))


def _instances(program: StepProgram) -> Iterator[tuple[Block, float]]:
    for kind, block in program.blocks.items():
        yield block, float(program.instances(kind))


def _sent_by_one(op: CollectiveOp) -> float:
    return bus_factor(op.op, int(op.ranks)) * float(op.size_bytes)


_GROUP = 1  # Where the ranks of a group stand once the first dimension is split


class Exchanger:
    """The exchanges of one pipeline stage."""

    def __init__(self, ranks: StageRanks, book: Book, stage: int) -> None:
        self._ranks = ranks
        self._book = book
        self._stage = stage
        self._messages: Memo[tuple[CollectiveOp, int, int | None], Message] = Memo()

    def run(self, op: CollectiveOp, numbers: Numbers) -> Numbers:
        """Arrays of all ranks after an exchange of a block."""
        size = self._ranks.size(op.axis)
        assert size == int(op.ranks), op.name
        grouped = numbers.reshape(*self._ranks.split(op.axis), *numbers.shape[1:])
        gathers = op.op == "all-gather" or op.ring == "gather"
        scatters = op.op == "reduce-scatter" or op.ring == "reduce"
        if op.op == "all-reduce":
            made = _to_all(_summed(grouped, op), size)
        elif gathers:
            made = _to_all(_joined(grouped, _dim(op.read, op.axis)), size)
        elif scatters:
            made = _dealt(_summed(grouped, op), _dim(op.write, op.axis), size)
        else:
            assert op.op == "all-to-all", op.op
            made = _swapped(grouped, *_moved(op), size)
        out = made.reshape(self._ranks.ranks, *made.shape[3:])
        hops = size - 1 if op.ring else 1
        assert hops == int(op.count), op.name
        per_rank = out if op.op == "all-gather" or op.ring == "reduce" else numbers
        self._write(op, int(per_rank[0].size), hops)
        return out

    def flat(self, op: CollectiveOp, numbers: Numbers, *, group: int | None = None) -> Numbers:
        """[rank, element] arrays after an exchange of a bucket.

        A rank's slice is every n-th element, so that weights which two stages share are cut alike.
        """
        # [outer, group, inner, element]: a collective is then a sum or a joint along one axis.
        outer, size, inner = self._ranks.split(op.axis, group)
        assert size == int(op.ranks), op.name
        assert numbers.shape[1] == int(op.read.elements), op.name
        grouped = numbers.reshape(outer, size, inner, -1)
        if op.op == "all-reduce":
            made = _to_all(grouped.sum(axis=_GROUP), size)
        elif op.op == "reduce-scatter":
            total = grouped.sum(axis=_GROUP)
            made = np.moveaxis(_pieces(total, size), -1, _GROUP)
        else:
            assert op.op == "all-gather", op.op
            # A slice at a time: numpy copies long rows far quicker than many short ones.
            slices = np.empty((outer, inner, grouped.shape[-1], size), dtype=numbers.dtype)
            for i in range(size):
                slices[..., i] = grouped[:, i]
            whole = slices.reshape(outer, inner, -1)
            # The last slices are filled up; what fills them is not part of the whole.
            made = _to_all(whole[..., : int(op.write.elements)], size)
        out = np.ascontiguousarray(made.reshape(self._ranks.ranks, -1))
        assert out.shape[1] == int(op.write.elements), op.name
        counted = out if op.op == "all-gather" else numbers
        self._write(op, counted.shape[1], 1, group)
        return out

    def coordinate(self, axis: str) -> IntArray:
        return self._ranks.coordinate(axis)

    def slice_of(self, numbers: Numbers, axis: str) -> Numbers:
        """Slice [rank, element] that each rank has of what all ranks of a group hold."""
        pieces = _pieces(numbers, self._ranks.size(axis))
        at = self._ranks.coordinate(axis)
        return np.stack([own[:, place] for own, place in zip(pieces, at, strict=True)])

    def _write(self, op: CollectiveOp, elements: int, hops: int, group: int | None = None) -> None:
        def message() -> Message:
            return Message(
                op=op.op,
                axis=op.axis,
                phase=op.phase,
                stage=self._stage,
                elements=elements,
                element_bytes=element_bytes(op.read.format),
                group=self._ranks.split(op.axis, group)[1:],
            )

        self._book.collective(self._messages.of((op, elements, group), message), hops)


def _pieces(numbers: Numbers, size: int) -> Numbers:
    """[..., element, piece]: elements dealt out in turn, padded with zeros."""
    padding = -numbers.shape[-1] % size
    if padding:
        numbers = np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, padding)])
    return numbers.reshape(*numbers.shape[:-1], -1, size)


def _summed(grouped: Numbers, op: CollectiveOp) -> Numbers:
    if op.reduction == "max":
        return np.asarray(grouped.max(axis=_GROUP))
    return np.asarray(grouped.sum(axis=_GROUP))


def _to_all(numbers: Numbers, size: int) -> Numbers:
    """[outer, group, inner, ...] where every rank of a group has the same."""
    outer, inner, *rest = numbers.shape
    if outer == inner == 1:
        return np.broadcast_to(numbers[:, np.newaxis], (1, size, 1, *rest))
    # In whole rows: of a broadcast array numpy would copy a few numbers at a time.
    spread = np.repeat(numbers.reshape(outer, -1), size, axis=0)
    return spread.reshape(outer, size, inner, *rest)


def _joined(grouped: Numbers, dim: int) -> Numbers:
    """[outer, inner, ...] with the group's pieces side by side along a dimension."""
    moved = np.moveaxis(grouped, _GROUP, 2 + dim)
    shape = list(moved.shape)
    shape[2 + dim : 4 + dim] = [shape[2 + dim] * shape[3 + dim]]
    return moved.reshape(shape)


def _dealt(numbers: Numbers, dim: int, size: int) -> Numbers:
    shape = list(numbers.shape)
    shape[2 + dim : 3 + dim] = [size, shape[2 + dim] // size]
    return np.moveaxis(numbers.reshape(shape), 2 + dim, _GROUP)


def _swapped(grouped: Numbers, grows: int, shrinks: int, size: int) -> Numbers:
    """Arrays after ranks exchanged pieces of one dimension for another."""
    shape = list(grouped.shape)
    at = 3 + shrinks
    shape[at : at + 1] = [size, shape[at] // size]
    # [outer, source, inner, ..., destination, ...] -> [outer, destination, inner, ..., source, ...]
    out = np.moveaxis(grouped.reshape(shape), at, 0)
    out = np.moveaxis(out, 2, 3 + grows)
    out = np.moveaxis(out, 0, _GROUP)
    joined = list(out.shape)
    joined[3 + grows : 5 + grows] = [joined[3 + grows] * joined[4 + grows]]
    return out.reshape(joined)


def _dim(tensor: Tensor, axis: str) -> int:
    at = next(i for i, dim in enumerate(tensor.dims) if axis in dim.axes)
    assert tensor.dims[at].axes[-1] == axis, tensor.name
    return at


def _moved(op: CollectiveOp) -> tuple[int, int]:
    """Dimension an all-to-all makes whole, and the one it cuts."""
    sizes = [(int(a), int(b)) for a, b in zip(op.read.shape, op.write.shape, strict=True)]
    (grows,) = [i for i, (before, after) in enumerate(sizes) if after > before]
    (shrinks,) = [i for i, (before, after) in enumerate(sizes) if after < before]
    return grows, shrinks
