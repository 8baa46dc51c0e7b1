"""Operations run one after the other, and the bytes that a rank holds meanwhile, with their peaks.

A tensor is dropped after its last use.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import TypeAlias

from trnbench.engines.execute.arithmetic import Numbers
from trnbench.engines.execute.operations import RunOperation, Workshop, only_moves, runner
from trnbench.facts.records import Record
from trnbench.program.block import ResidentCategory
from trnbench.program.ops import Operation
from trnbench.program.tensor import Tensor, element_bytes

MESSAGE_BUFFERS = 2
"""One is filled while the other is read."""


class Residency:
    """Bytes that a rank of one stage holds now and held at most; all its ranks hold the same."""

    def __init__(self) -> None:
        self._held: defaultdict[ResidentCategory, float] = defaultdict(float)
        self._most: defaultdict[ResidentCategory, float] = defaultdict(float)
        self._total = 0.0
        self._peak = 0.0

    def hold(self, category: ResidentCategory, size_bytes: float) -> None:
        """Note bytes that are there from now on."""
        self._held[category] += size_bytes
        self._total += size_bytes
        self._most[category] = max(self._most[category], self._held[category])
        self._peak = max(self._peak, self._total)

    def release(self, category: ResidentCategory, size_bytes: float) -> None:
        """Note bytes that are gone."""
        self._held[category] -= size_bytes
        self._total -= size_bytes

    @property
    def peak_bytes(self) -> float:
        """The most that was there at one time."""
        return self._peak

    @property
    def by_category(self) -> Mapping[ResidentCategory, float]:
        """The most of each category; they need not have been there at one time."""
        return dict(self._most)

    @property
    def now_bytes(self) -> float:
        """Bytes held now."""
        return self._total


def held_bytes(tensor: Tensor) -> float:
    """Bytes of a rank's array in the tensor's format; of pieces in a ring, two."""
    pieces = float(tensor.pieces)
    whole = prod(int(size) for size in tensor.shape) * element_bytes(tensor.format)
    return whole * min(pieces, 2.0) / pieces


Values: TypeAlias = dict[Tensor, Numbers]
Sink: TypeAlias = Callable[[Tensor, Numbers], None]


class _Written(Record, eq=False):
    """A tensor that an operation writes."""

    tensor: Tensor
    shape: tuple[int, ...]
    """Shape that the arrays of all ranks must have."""
    held: float
    """Bytes of a rank's array."""
    rounds: bool
    """Whether the numbers are not of the tensor's format yet."""
    lasts: bool
    """Whether the tensor outlives the pass."""
    sinks: bool
    """Whether the tensor goes to the sink."""


class _Step(Record, eq=False):
    run: RunOperation
    reads: tuple[Tensor, ...]
    writes: tuple[_Written, ...]
    frees: tuple[tuple[Tensor, ResidentCategory, float], ...]


class Pass:
    """Operations of a block in order, ready to run any number of times.

    `lasting` tensors outlive the pass (they count as activations), `leaving` ones are handed on;
    `sunk` ones (gradients of weights) go to a sink as soon as they are there, `consumed` ones of
    the lasting are let go after their last use all the same.
    """

    def __init__(
        self,
        shop: Workshop,
        ops: Sequence[Operation],
        *,
        lasting: Iterable[Tensor],
        leaving: Iterable[Tensor] = (),
        sunk: Iterable[Tensor] = (),
        consumed: Iterable[Tensor] = (),
    ) -> None:
        self._shop = shop
        self._lasting = frozenset(lasting)
        into_use = frozenset(consumed)
        stays = (self._lasting - into_use) | frozenset(leaving)
        into_sink = frozenset(sunk)
        ranks, settles = shop.setting.ranks.ranks, shop.setting.arithmetic.settles
        last = {read: i for i, op in enumerate(ops) for read in op.reads}
        made = {write for op in ops for write in op.writes}
        self._entering = [
            (t, held_bytes(t))
            for t in last
            if not (t in made | self._lasting or t.role == "weight")
        ]
        self._steps = []
        for i, op in enumerate(ops):
            assert op.count > 0, op.name
            # A tensor goes after its last reader; a result that nobody reads or keeps goes at once.
            dead = [t for t in dict.fromkeys(op.reads) if last[t] == i and t not in stays]
            dead += [t for t in op.writes if t not in last and t not in stays | into_sink]
            self._steps.append(
                _Step(
                    run=runner(shop, op),
                    reads=op.reads,
                    writes=tuple(
                        _Written(
                            tensor=tensor,
                            shape=(ranks, *(int(size) for size in tensor.shape)),
                            held=held_bytes(tensor),
                            rounds=not (only_moves(op) and settles(tensor.format)),
                            lasts=tensor in self._lasting,
                            sinks=tensor in into_sink,
                        )
                        for tensor in op.writes
                    ),
                    frees=tuple(
                        (t, "activations" if t in into_use else "scratch", held_bytes(t))
                        for t in dead
                        if t.role != "weight"
                    ),
                )
            )

    def run(self, values: Values, residency: Residency, sink: Sink) -> None:
        """Run the operations on arrays by tensor; their results are added to these arrays."""
        store = self._shop.setting.arithmetic.store
        scratch = sum(held for tensor, held in self._entering if tensor in values)
        residency.hold("scratch", scratch)
        for step in self._steps:
            arrays = step.run([values[tensor] for tensor in step.reads])
            for written, made in zip(step.writes, arrays, strict=True):
                tensor = written.tensor
                assert made.shape == written.shape, (tensor.name, made.shape, written.shape)
                numbers = store(made, tensor.format) if written.rounds else made
                if written.sinks:
                    sink(tensor, numbers)
                    continue
                if not written.lasts:
                    scratch += written.held
                    residency.hold("scratch", written.held)
                elif tensor not in values:
                    # One that is kept and computed again all the same takes its own place.
                    residency.hold("activations", written.held)
                values[tensor] = numbers
            for tensor, category, held in step.frees:
                del values[tensor]
                residency.release(category, held)
                scratch -= held if category == "scratch" else 0
        residency.release("scratch", scratch)
