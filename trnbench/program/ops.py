"""The operations of a block on one rank: products, passes over memory, collectives, messages.

`count` is the number of runs of an operation in one run of its block. At 0 the layout does without
the operation, and the tensor it would write is the tensor it reads. Phases F, B_input and B_weight
run once a micro-batch, `recompute` in front of the backward pass, `optimizer` once a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from math import prod
from typing import Literal, TypeAlias

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.facts.numbers.formats import format_named
from trnbench.facts.records import Record, field
from trnbench.facts.units import FLOP_PER_MULTIPLY_ADD
from trnbench.facts.workload.choices import Dispatcher, Op
from trnbench.facts.workload.layout import Overlapped
from trnbench.facts.workload.recompute import Module
from trnbench.program.collective import Collective
from trnbench.program.matrix import MatrixProduct, matrix_product
from trnbench.program.tensor import (
    NOTHING,
    ONE,
    Dim,
    Tensor,
    array,
    element_bytes,
    one,
    total,
    total_bytes,
)

Phase = Literal["F", "recompute", "B_input", "B_weight", "optimizer"]
Region = Literal["", "core", "experts", "states"]
"""`core`: the part of attention whose tensors grow with the square of the sequence; `experts`: work
on tokens sorted by expert, with their sorting and the sum of outputs; `states`: scan tensors that
no kernel keeps for its backward pass."""


def operand_letters(letters: str) -> tuple[str, str, str]:
    """Letters of left, right and out in "left,right->out"."""
    left, _, rest = letters.partition(",")
    right, _, out = rest.partition("->")
    return left, right, out


@cache
def letters_of_roles(letters: str) -> Mapping[str, str]:
    """Letters of "left,right->out" that are batch, m, n and k of a matrix product."""
    left, right, out = operand_letters(letters)
    return {
        "batch": "".join(x for x in left if x in right and x in out),
        "m": "".join(x for x in left if x in out and x not in right),
        "n": "".join(x for x in right if x in out and x not in left),
        "k": "".join(x for x in left if x in right and x not in out),
    }


@cache
def _places_of_letters(letters: str) -> Mapping[str, Sequence[int]]:
    """Places of each letter of "left,right->out" among the dimensions of left and then right."""
    left, right, _ = operand_letters(letters)
    places: dict[str, list[int]] = {}
    for place, letter in enumerate(left + right):
        places.setdefault(letter, []).append(place)
    return places


class _Op(Record, eq=False):
    """An operation of a block, `count` times in one run of the block."""

    name: str
    phase: Phase
    count: FloatArray = field(default_factory=one)
    region: Region = ""

    @property
    def backward(self) -> bool:
        return self.phase in ("B_input", "B_weight")


class Term(Record, eq=False):
    """out = left x right, with a letter for each dimension: "bsh,hnd->bsnd"."""

    left: Tensor
    right: Tensor
    out: Tensor
    letters: str

    @property
    def operands(self) -> tuple[str, str, str]:
        return operand_letters(self.letters)

    def sizes(self) -> dict[str, FloatArray]:
        dims = (*self.left.dims, *self.right.dims)
        places = _places_of_letters(self.letters)
        return {letter: dims[each[-1]].size for letter, each in places.items()}

    def extent(self, role: str) -> FloatArray:
        """Size of the matrix product on one of its sides: batch, m, n or k."""
        dims, places = (*self.left.dims, *self.right.dims), _places_of_letters(self.letters)
        size = ONE
        for letter in letters_of_roles(self.letters)[role]:
            size = size * dims[places[letter][-1]].size
        return array(size)

    def whole_multiply_adds(self) -> FloatArray:
        """Multiply-adds over all ranks, copies and padding left out."""
        dims, found = (*self.left.dims, *self.right.dims), ONE
        for first, *others in _places_of_letters(self.letters).values():
            whole = dims[first].whole
            for place in others:
                # Ranks with a head each hold copies of keys that heads share: there are fewer keys.
                whole = np.maximum(whole, dims[place].whole)
            found = found * whole
        return array(found)


class MatMul(_Op, eq=False):
    """Products that run as one: they share the left operand, or add up into one result."""

    terms: tuple[Term, ...]
    format: str  # of the operands
    bias: tuple[Tensor, ...] = ()
    # share that the model needs: half of a causal score
    useful: FloatArray = field(default_factory=one)
    module: Module | None = None  # whose output recompute may drop

    @cached_property
    def reads(self) -> tuple[Tensor, ...]:
        operands = (tensor for term in self.terms for tensor in (term.left, term.right))
        return tuple(dict.fromkeys((*operands, *self.bias)))

    @cached_property
    def writes(self) -> tuple[Tensor, ...]:
        return tuple(dict.fromkeys(term.out for term in self.terms))

    @property
    def product(self) -> MatrixProduct:
        """Matrix product that a rank carries out, for the engines."""
        # Terms with one result add up along the contraction; terms with one left operand stand
        # side by side along the columns. Either way they are one larger product.
        first, *others = self.terms
        extent = {role: first.extent(role) for role in letters_of_roles(first.letters)}
        if others:
            joined = "k" if len(self.writes) == 1 else "n"
            extent[joined] = total([extent[joined], *(term.extent(joined) for term in others)])
        # (Sizes of a program are whole: `matrix_product` would look at every one.)
        taken = format_named(self.format).name
        return MatrixProduct(
            **extent,
            format_a=taken,
            format_b=taken,
            format_out=format_named(first.out.format).name,
            transpose_a=False,
            transpose_b=False,
            pattern=None,
        )

    @property
    def flop(self) -> FloatArray:
        """FLOP of one run on one rank."""
        terms = (prod(term.sizes().values(), start=ONE) for term in self.terms)
        return array(FLOP_PER_MULTIPLY_ADD * total(terms))

    @property
    def bytes(self) -> FloatArray:
        return total_bytes((*self.reads, *self.writes))

    @property
    def model_flop(self) -> FloatArray:
        """FLOP of one run that the model needs over all ranks of a stage."""
        terms = (term.whole_multiply_adds() for term in self.terms)
        return array(FLOP_PER_MULTIPLY_ADD * self.useful * total(terms))


class AttentionOp(_Op, eq=False):
    """Fused attention: scores never reach memory, and the backward pass computes them again."""

    reads: tuple[Tensor, ...]  # query, key, value; backward also result, log sums, gradient
    writes: tuple[Tensor, ...]
    pairs: FloatArray  # (query, key) pairs of a sequence for one rank's queries
    whole_pairs: FloatArray  # pairs of a whole sequence
    causal: bool
    window: int | None
    format: str

    @property
    def query(self) -> Tensor:
        """Queries [batch, sequence, head, size]."""
        return self.reads[0]

    @property
    def key(self) -> Tensor:
        """Keys [batch, key, kv_head, size]."""
        return self.reads[1]

    @property
    def value(self) -> Tensor:
        """Values [batch, key, kv_head, size]."""
        return self.reads[2]

    def _per_pair(self, score_products: int, value_products: int) -> FloatArray:
        score, value = self.query.dims[3].size, self.value.dims[3].size
        return FLOP_PER_MULTIPLY_ADD * (score_products * score + value_products * value)

    @property
    def flop(self) -> FloatArray:
        """FLOP of one run on one rank: 2 products forward, 5 backward."""
        batch, _, heads, _ = self.query.shape
        # Backward, of score size: scores again, gradients of query and key. Of value size:
        # gradients of probabilities and of values.
        products = self._per_pair(3, 2) if self.backward else self._per_pair(1, 1)
        return array(batch * heads * self.pairs * products)

    @property
    def model_flop(self) -> FloatArray:
        """FLOP the model needs over all ranks, without the scores computed again."""
        batch, _, heads, _ = (dim.whole for dim in self.query.dims)
        products = self._per_pair(2, 2) if self.backward else self._per_pair(1, 1)
        return array(batch * heads * self.whole_pairs * products)

    @property
    def bytes(self) -> FloatArray:
        return total(tensor.bytes for tensor in (*self.reads, *self.writes))


class ScanOp(_Op, eq=False):
    """Scan in chunks: the `states` before each, or the `output` of every token from its own.

    `states` reads value, key, steps and decays. `output` reads the query in front of these and the
    states after them. Its backward pass also reads its result, for gradients of all but the states.
    """

    part: Literal["states", "output"]
    form: Literal["mamba-2", "gated-delta"]
    chunk: int
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]
    sizes: tuple[FloatArray, FloatArray]  # of a head's value, and of its state's other side
    heads: Dim
    key_heads: Dim
    tokens: tuple[Dim, Dim]  # batch and chunks
    format: str

    def _products(self) -> tuple[tuple[bool, str, str, str], ...]:
        """Products of a chunk as (shared by heads, rows, depth, columns).

        Sizes: q tokens of a chunk, p numbers of a head's value, s of its state's other side.
        """
        found: list[tuple[bool, str, str, str]] = []
        delta = self.form == "gated-delta"
        if self.part == "states" or self.backward:
            found += [(False, "p", "q", "s")]
            if delta:
                # Keys with keys; what the inverse makes of keys and of values; keys with states.
                found += [(False, *x) for x in ("qsq", "qqs", "qqp", "qsp")]
        if self.part == "output":
            found += [(not delta, "q", "s", "q"), (False, "q", "q", "p"), (False, "q", "s", "p")]
        return tuple(found)

    def _flop(self, heads: Dim, keys: Dim, whole: bool) -> FloatArray:
        """FLOP on a rank, or FLOP needed over all ranks; backward takes twice as many.

        A token sees no later token, so half of a square is needed.
        """
        q = float(self.chunk)
        sizes = {"q": array(q), "p": self.sizes[0], "s": self.sizes[1]}
        counts = {
            shared: dim.whole if whole else dim.size
            for shared, dim in ((True, keys), (False, heads))
        }
        total = NOTHING
        for shared, *letters in self._products():
            seen = (q + 1) / (2 * q) if whole and letters.count("q") == 2 else 1.0
            total = total + counts[shared] * prod((sizes[x] for x in letters), start=ONE) * seen
        if self.form == "gated-delta" and (self.part == "states" or self.backward):
            # The inverse of a triangle takes a third of a cube.
            total = total + counts[False] * q**3 / 3
        batch, chunks = (dim.whole if whole else dim.size for dim in self.tokens)
        return array(FLOP_PER_MULTIPLY_ADD * (1 + self.backward) * batch * chunks * total)

    @property
    def flop(self) -> FloatArray:
        """FLOP of one run on one rank: whole squares of chunks."""
        return self._flop(self.heads, self.key_heads, False)

    @property
    def model_flop(self) -> FloatArray:
        """FLOP the model needs over all ranks."""
        return self._flop(self.heads, self.key_heads, True)

    @property
    def products(self) -> tuple[MatrixProduct, ...]:
        """Matrix products a rank carries out, for engines that play them one by one."""
        sizes = {"q": array(self.chunk), "p": self.sizes[0], "s": self.sizes[1]}
        batch = self.tokens[0].size * self.tokens[1].size * (1 + self.backward)
        return tuple(
            matrix_product(
                *(sizes[x] for x in letters),
                batch=batch * (self.key_heads.size if shared else self.heads.size),
                format_a=self.format,
                format_b=self.format,
                format_out=self.format,
            )
            for shared, *letters in self._products()
        )

    @property
    def bytes(self) -> FloatArray:
        return total_bytes((*self.reads, *self.writes))


class Elementwise(_Op, eq=False):
    """Pass over memory that computes tensors element by element."""

    function: str
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]
    view: bool = False  # the tensors are in memory already, no bytes move
    module: Module | None = None  # whose output recompute may drop

    @property
    def bytes(self) -> FloatArray:
        return NOTHING if self.view else total_bytes((*self.reads, *self.writes))


class Gather(_Op, eq=False):
    """Rows taken from a tensor by index, or (`scatter_add`) added to it by index."""

    function: str
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]
    lookups: FloatArray = field(default_factory=one)  # rows read for each row written

    @property
    def bytes(self) -> FloatArray:
        """Bytes of the rows read and written; an addition reads and writes its row."""
        index = self.reads[1].bytes
        if self.function == "scatter_add":
            moved = self.reads[0].bytes
            return array(moved + 2 * moved * self.lookups + index)
        return array(self.writes[0].bytes * (1 + self.lookups) + index)


class CollectiveOp(_Op, eq=False):
    """Collective of the ranks along an axis; absent (count 0) where the group is one rank."""

    op: Op
    axis: str
    read: Tensor
    write: Tensor
    ranks: FloatArray  # `count` is of runs; of a ring, of hops
    reduction: Literal["sum", "max"] = "sum"
    ring: Literal["", "gather", "reduce"] = ""  # pieces go round, or parts of a sum
    copies: int = 0  # sent of each token, to experts that a router draws; 0: no such tokens
    sent_by: Dispatcher | None = None  # who sends them; None: whom the software has
    overlapped: Overlapped | None = None  # whether another micro-batch computes meanwhile
    part: FloatArray = field(default_factory=one)  # share of a piece that a hop carries

    @property
    def reads(self) -> tuple[Tensor, ...]:
        return (self.read,)

    @property
    def writes(self) -> tuple[Tensor, ...]:
        return (self.write,)

    @property
    def size_bytes(self) -> FloatArray:
        """Size of one run in the convention of `program.collective`, bytes."""
        gathers = self.op == "all-gather" or self.ring == "reduce"
        whole = self.write.bytes if gathers else self.read.bytes
        return array(whole * self.part) if self.ring else whole

    def collective(self) -> Collective:
        """The collective of a program of one layout, for the engines."""
        return Collective(
            op=self.op,
            ranks=int(self.ranks),
            size_bytes=float(self.size_bytes),
            element_bytes=element_bytes(self.read.format),
        )


def collective_op(
    op: Op,
    axis: str,
    phase: Phase,
    tensors: tuple[Tensor, Tensor],
    ranks: FloatArray,
    *,
    name: str | None = None,
    count: FloatArray | None = None,
) -> CollectiveOp:
    """Collective of the first tensor into the second, whose name it has.

    It runs once where the group has several ranks.
    """
    read, write = tensors
    return CollectiveOp(
        name=name or write.name,
        op=op,
        axis=axis,
        phase=phase,
        read=read,
        write=write,
        ranks=ranks,
        count=array(ranks > 1) if count is None else count,
    )


class Send(Record, eq=False):
    """Message of a micro-batch to or from a neighbouring stage."""

    name: str
    phase: Phase
    tensor: Tensor
    peer: Literal["next", "previous"]
    direction: Literal["send", "receive"]
    count: FloatArray

    @property
    def size_bytes(self) -> FloatArray:
        """Bytes of one message."""
        return self.tensor.bytes


Operation: TypeAlias = MatMul | AttentionOp | ScanOp | Elementwise | Gather | CollectiveOp
