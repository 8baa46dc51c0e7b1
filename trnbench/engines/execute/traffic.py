"""The book of traffic between ranks: messages and bytes by operation, axis and link.

Collectives go round a ring of their group, as their size is counted everywhere (`bus_factor`): a
reduce-scatter or all-gather carries each piece over all links of its group but one, an all-reduce
does so twice, a permute hands everything to the next rank; an all-to-all sends each pair its piece.
A link is an ordered pair of ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from trnbench.engines.execute.arithmetic import Numbers
from trnbench.errors import GapError
from trnbench.facts.records import Record
from trnbench.facts.workload.choices import Op
from trnbench.program.ops import Phase


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


class MovedBytes(Record):
    """Traffic along one axis by one kind of operation: runs of a rank, bytes of all ranks."""

    runs: int
    sent_bytes: float


class Book:
    """Counts of everything sent, kept while the executor runs."""

    def __init__(self, *, world: int, ranks_per_stage: int) -> None:
        self._world = world
        self._per_stage = ranks_per_stage
        self._collectives: Counter[Message] = Counter()
        self._flop: Counter[str] = Counter()
        self._sends: Counter[tuple[int, int, Phase, int, float]] = Counter()

    def collective(self, message: Message, runs: int = 1) -> None:
        """Note a collective that every group of its stage ran so often."""
        self._collectives[message] += runs

    def send(self, source: int, target: int, phase: Phase, numbers: int, size: float) -> None:
        """Note a message of `elements` numbers from each rank of a stage to that of another."""
        self._sends[source, target, phase, numbers, size] += 1

    def computed(self, number_format: str, flop: int) -> None:
        """Note operations of all ranks of a stage on operands of a format."""
        self._flop[number_format] += flop

    @property
    def flop(self) -> Mapping[str, int]:
        """FLOP of all ranks by the format of the operands."""
        return dict(sorted(self._flop.items()))

    def by_operation(self) -> Mapping[tuple[str, str], MovedBytes]:
        """Bytes moved, by (operation, axis); messages between stages are along pp."""
        found: dict[tuple[str, str], MovedBytes] = {}

        def add(key: tuple[str, str], runs: int, sent: float) -> None:
            before = found.get(key, MovedBytes(runs=0, sent_bytes=0.0))
            found[key] = MovedBytes(runs=before.runs + runs, sent_bytes=before.sent_bytes + sent)

        for message, runs in self._collectives.items():
            ranks = self._members(message).size
            add(
                (message.op, message.axis),
                runs * ranks,
                float(runs * _on_ring(message).sum()) * (ranks // message.group[0]),
            )
        for (_, _, _, elements, size), runs in self._sends.items():
            add(("send", "pp"), runs * self._per_stage, runs * self._per_stage * elements * size)
        return dict(sorted(found.items()))

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
