"""From operations of a program to functions for all ranks of a stage, run one after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import prod
from typing import TypeAlias

import numpy as np

from trnbench.engines.execute.arithmetic import Arithmetic, Numbers
from trnbench.engines.execute.attention import FusedAttention
from trnbench.engines.execute.experts import d_dispatch, dispatch
from trnbench.engines.execute.kernels import FUNCTIONS, Arrays, Workshop, shape_of
from trnbench.engines.execute.scans import SCANS, ScanKernel
from trnbench.errors import unhandled
from trnbench.facts.arrays import BoolArray
from trnbench.facts.numbers.formats import format_named
from trnbench.facts.records import Record
from trnbench.facts.units import FLOP_PER_MULTIPLY_ADD
from trnbench.program import ops
from trnbench.program.block import ResidentCategory
from trnbench.program.tensor import Tensor, element_bytes

RunProduct: TypeAlias = Callable[
    [Numbers, Numbers, Arithmetic, tuple[str, str]], tuple[Numbers, int]
]
"""Product of all ranks in FP32 of operands rounded to formats along the sum, and its FLOP."""


def product_of(term: ops.Term) -> RunProduct:
    """Function of a term: a batched product of two matrices."""
    left, right, out = term.operands
    batch = [x for x in out if x in left and x in right]
    rows = [x for x in out if x in left and x not in right]
    columns = [x for x in out if x in right and x not in left]
    summed = [x for x in left if x in right and x not in out]
    produced = batch + rows + columns
    # Dimensions: the rank's, batch, then rows, then columns.
    of_left = _order([left.index(x) for x in batch + rows + summed])
    of_right = _order([right.index(x) for x in batch + summed + columns])
    of_out = _order([produced.index(x) for x in out])
    split = 1 + len(batch)
    past_rows, past_summed = split + len(rows), split + len(summed)

    def product(
        a: Numbers, b: Numbers, arithmetic: Arithmetic, formats: tuple[str, str]
    ) -> tuple[Numbers, int]:
        a = a if of_left is None else a.transpose(of_left)
        b = b if of_right is None else b.transpose(of_right)
        shape = (*a.shape[:past_rows], *b.shape[past_summed:])
        batched, m, n = a.shape[:split], prod(a.shape[split:past_rows]), prod(b.shape[past_summed:])
        a = a.reshape(*batched, m, prod(a.shape[past_rows:]))
        b = b.reshape(*batched, prod(b.shape[split:past_summed]), n)
        made = arithmetic.multiply(a, b, formats).reshape(shape)
        made = made if of_out is None else made.transpose(of_out)
        return made, int(FLOP_PER_MULTIPLY_ADD) * int(a.size) * n

    return product


def _order(dims: Sequence[int]) -> tuple[int, ...] | None:
    """The order for a transpose; None if dimensions lie so already."""
    return None if list(dims) == sorted(dims) else (0, *(i + 1 for i in dims))


RunOperation: TypeAlias = Callable[[Arrays], Arrays]


def runner(shop: Workshop, op: ops.Operation) -> RunOperation:
    """Function from the arrays an operation reads to those it writes."""
    match op:
        case ops.MatMul():
            return _Products(shop, op)
        case ops.AttentionOp():
            return _counted(shop, op, FusedAttention(shop, op))
        case ops.ScanOp():
            return _counted(shop, op, ScanKernel(op))
        case ops.Gather():
            return _gather(shop, op)
        case ops.CollectiveOp():
            return lambda arrays: [shop.exchange.run(op, arrays[0])]
        case ops.Elementwise():
            function = FUNCTIONS[op.function] if op.function in FUNCTIONS else SCANS[op.function]
            return lambda arrays: function(shop, op, arrays)
        case _:
            unhandled(op, "arithmetic in the executor")


_MOVING = frozenset({"slice", "own_tokens", "unpack", "join", "d_join", "repeat_heads"})


def only_moves(op: ops.Operation) -> bool:
    """True when an operation writes numbers as read, all in one format."""
    match op:
        case ops.CollectiveOp():
            moves = op.op in ("all-gather", "all-to-all") or op.ring == "gather"
        case ops.Elementwise():
            moves = op.function in _MOVING
        case _:
            moves = False
    return moves and len({tensor.format for tensor in (*op.reads, *op.writes)}) == 1


ReadOperand: TypeAlias = Callable[[Numbers], tuple[Numbers, str]]
"""From an operand as it is stored to what is read, and the format it still has to be rounded to."""


class _Products:
    """Products that run as one: those of one result add up in FP32 and are rounded once."""

    def __init__(self, shop: Workshop, op: ops.MatMul) -> None:
        self._shop = shop
        self._format = op.format
        reads = {tensor: i for i, tensor in enumerate(op.reads)}
        writes = {tensor: i for i, tensor in enumerate(op.writes)}
        self._writes = len(writes)
        # Products, with the places of operands and results among the arrays.
        self._terms = [
            (
                product_of(term),
                (reads[term.left], self._reader(term, term.left)),
                (reads[term.right], self._reader(term, term.right)),
                writes[term.out],
            )
            for term in op.terms
        ]
        biases = {f"{term.right.name}.bias": writes[term.out] for term in op.terms}
        self._biases = [(reads[bias], biases[bias.name]) for bias in op.bias]

    def __call__(self, arrays: Arrays) -> Arrays:
        out: dict[int, Numbers] = {}
        arithmetic = self._shop.arithmetic
        for product, (left_at, read_left), (right_at, read_right), at in self._terms:
            left, left_format = read_left(arrays[left_at])
            right, right_format = read_right(arrays[right_at])
            formats = left_format, right_format
            made, flop = product(left, right, arithmetic, formats)
            self._shop.book.computed(self._format, flop)
            # Terms of one result add up in FP32, as in PSUM; the format's rounding comes after.
            if at in out:
                out[at] += made
            else:
                out[at] = made
        for bias_at, at in self._biases:
            bias = arrays[bias_at]
            lead = out[at].ndim - bias.ndim
            out[at] += bias.reshape(len(bias), *(1,) * lead, *bias.shape[1:])
        return [out[i] for i in range(self._writes)]

    def _reader(self, term: ops.Term, tensor: Tensor) -> ReadOperand:
        arithmetic = self._shop.arithmetic
        if not arithmetic.exact and _grouped_otherwise(term, tensor, self._format):
            return lambda numbers: (numbers, self._format)
        recipe = arithmetic.recipe
        read_as = recipe.weight_operands if tensor.role == "weight" else recipe.linear
        wanted = read_as if self._format == recipe.linear else self._format
        return partial(arithmetic.operand, stored=tensor.format, wanted=wanted)


def _grouped_otherwise(term: ops.Term, tensor: Tensor, wanted: str) -> bool:
    """True when an operand's groups of shared scales are not along the sum."""
    # They were stored along the last dimension; for a sum over another dimension new groups are
    # formed.
    if tensor.format != wanted or format_named(wanted).block == 1:
        return False
    left, right, out = term.operands
    letters = left if tensor is term.left else right
    summed = [x for x in left if x in right and x not in out]
    return summed != [letters[-1]]


def _counted(
    shop: Workshop, op: ops.AttentionOp | ops.ScanOp, kernel: FusedAttention | ScanKernel
) -> RunOperation:
    def run(arrays: Arrays) -> Arrays:
        made, flop = kernel(arrays)
        shop.book.computed(op.format, flop)
        return made

    return run


def _gather(shop: Workshop, op: ops.Gather) -> RunOperation:
    source, write = op.reads[0], op.writes[0]
    shape = shape_of(shop, write.dims)
    if write.dims[0].name == "expert":
        return lambda arrays: [dispatch(arrays[0], arrays[1], shape[1], shape[2])]
    if source.dims[0].name == "expert":
        return lambda arrays: [d_dispatch(arrays[0], arrays[1], shape)]
    table = write if op.function == "scatter_add" else source
    first = shop.ranks.first(table.dims[0])[:, None, None]

    # A rank has a part of the table's rows: tokens of other rows get zeros, which the sum over
    # ranks fills in.
    def lookup(arrays: Arrays) -> Arrays:
        rows, here = _rows(arrays[1] - first, arrays[0].shape[1])
        looked_up = arrays[0][np.arange(len(rows))[:, None, None], rows]
        looked_up[~here] = 0
        return [looked_up]

    def scatter(arrays: Arrays) -> Arrays:
        gradient, index = arrays
        rows, here = _rows(index - first, shape[1])
        return [_added(gradient, rows, here, shape)]

    return scatter if op.function == "scatter_add" else lookup


def _rows(rows: Numbers, count: int) -> tuple[Numbers, BoolArray]:
    here = (rows >= 0) & (rows < count)
    return np.where(here, rows, 0), here


def _added(gradient: Numbers, rows: Numbers, here: BoolArray, shape: tuple[int, ...]) -> Numbers:
    """A table [rank, row, hidden] with the gradients of each row's tokens added up."""
    # Sorted by row, gradients add up a row at a time; the stable sort keeps the order of tokens, so
    # that sums repeat to the bit.
    out = np.zeros((shape[0] * shape[1], shape[2]), dtype=gradient.dtype)
    at = np.nonzero(here)
    target = at[0] * shape[1] + rows[here]
    order = np.argsort(target, kind="stable")
    row, start = np.unique(target[order], return_index=True)
    if len(row):
        out[row] = np.add.reduceat(gradient[here][order], start, axis=0)
    return out.reshape(shape)


MESSAGE_BUFFERS = 2  # One is filled while the other is read


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
        self._held[category] -= size_bytes
        self._total -= size_bytes

    @property
    def peak_bytes(self) -> float:
        return self._peak

    @property
    def by_category(self) -> Mapping[ResidentCategory, float]:
        """The most of each category; they need not have been there at one time."""
        return dict(self._most)

    @property
    def now_bytes(self) -> float:
        return self._total


def held_bytes(tensor: Tensor) -> float:
    pieces = float(tensor.pieces)
    whole = prod(int(size) for size in tensor.shape) * element_bytes(tensor.format)
    return whole * min(pieces, 2.0) / pieces


Values: TypeAlias = dict[Tensor, Numbers]
Sink: TypeAlias = Callable[[Tensor, Numbers], None]


class _Written(Record, eq=False):
    """A tensor that an operation writes."""

    tensor: Tensor
    shape: tuple[int, ...]  # Shape that the arrays of all ranks must have
    held: float  # Bytes of a rank's array
    rounds: bool  # True when the numbers are not of the tensor's format yet
    lasts: bool  # True when the tensor outlives the pass
    sinks: bool  # True when the tensor goes to the sink


class Pass:
    """Operations of a block in order, ready to run any number of times.

    `lasting` tensors outlive the pass (they count as activations), `leaving` ones are handed on;
    `sunk` ones (gradients of weights) go to a sink as soon as they are there, `consumed` ones of
    the lasting are let go after their last use all the same.
    """

    def __init__(
        self,
        shop: Workshop,
        operations: Sequence[ops.Operation],
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
        ranks, settles = shop.ranks.ranks, shop.arithmetic.settles
        last = {read: i for i, op in enumerate(operations) for read in op.reads}
        made = {write for op in operations for write in op.writes}
        self._entering = [
            (t, held_bytes(t))
            for t in last
            if not (t in made | self._lasting or t.role == "weight")
        ]
        self._steps = []
        for i, op in enumerate(operations):
            assert op.count > 0, op.name
            # A tensor goes after its last reader; a result that nobody reads or keeps goes at once.
            dead = [t for t in dict.fromkeys(op.reads) if last[t] == i and t not in stays]
            dead += [t for t in op.writes if t not in last and t not in stays | into_sink]
            writes = [
                _Written(
                    tensor=tensor,
                    shape=(ranks, *(int(size) for size in tensor.shape)),
                    held=held_bytes(tensor),
                    rounds=not (only_moves(op) and settles(tensor.format)),
                    lasts=tensor in self._lasting,
                    sinks=tensor in into_sink,
                )
                for tensor in op.writes
            ]
            frees: list[tuple[Tensor, ResidentCategory, float]] = [
                (t, "activations" if t in into_use else "scratch", held_bytes(t))
                for t in dead
                if t.role != "weight"
            ]
            self._steps.append((runner(shop, op), op.reads, writes, frees))

    def run(self, values: Values, residency: Residency, sink: Sink) -> None:
        """Run the operations on arrays by tensor; their results are added to these arrays."""
        store = self._shop.arithmetic.store
        scratch = sum(held for tensor, held in self._entering if tensor in values)
        residency.hold("scratch", scratch)
        for run, reads, writes, frees in self._steps:
            arrays = run([values[tensor] for tensor in reads])
            for written, made in zip(writes, arrays, strict=True):
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
            for tensor, category, held in frees:
                del values[tensor]
                residency.release(category, held)
                scratch -= held if category == "scratch" else 0
        residency.release("scratch", scratch)
