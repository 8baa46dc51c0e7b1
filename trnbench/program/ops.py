"""What a rank does in one run of a block: operations and messages, with the tensors they name.

`count` says how often an operation runs in one run of its block (0: this layout does without it;
what it would write is what it reads). Phases: F, B_input and B_weight run once a micro-batch,
`recompute` in front of the backward pass, `optimizer` once a step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Literal, TypeAlias

import numpy as np

from trnbench.arrays import FloatArray
from trnbench.program.collective import Collective
from trnbench.program.matrix import MatrixProduct, matrix_product
from trnbench.program.tensor import ONE, Tensor, array, element_bytes, one, total_bytes
from trnbench.units import FLOP_PER_MULTIPLY_ADD
from trnbench.workload.operation import Op

Phase = Literal["F", "recompute", "B_input", "B_weight", "optimizer"]
Region = Literal["", "core"]
"""`core`: the part of attention whose tensors grow with the square of the sequence."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Term:
    """out = left x right, with a letter for each dimension: "bsh,hnd->bsnd"."""

    left: Tensor
    right: Tensor
    out: Tensor
    letters: str

    @property
    def operands(self) -> tuple[str, str, str]:
        """The letters of left, right and out."""
        left, _, rest = self.letters.partition(",")
        right, _, out = rest.partition("->")
        return left, right, out

    def sizes(self) -> dict[str, FloatArray]:
        """Return the size of each letter's dimension on one rank."""
        left, right, _ = self.operands
        names, shape = left + right, (*self.left.shape, *self.right.shape)
        return dict(zip(names, shape, strict=True))

    def whole_multiply_adds(self) -> FloatArray:
        """Return the products of two numbers over all ranks, copies and padding left out."""
        left, right, _ = self.operands
        dims = zip(left + right, (*self.left.dims, *self.right.dims), strict=True)
        return array(prod({letter: dim.whole for letter, dim in dims}.values(), start=ONE))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MatMul:
    """Products that run as one: they share the left operand, or they add up into one result.

    Operands are taken in `format`. `useful` is the share of the operations that the model needs
    (of a causal score, half).
    """

    name: str
    phase: Phase
    terms: tuple[Term, ...]
    format: str
    bias: tuple[Tensor, ...] = ()
    useful: FloatArray = field(default_factory=one)
    count: FloatArray = field(default_factory=one)
    region: Region = ""

    @property
    def reads(self) -> tuple[Tensor, ...]:
        """Tensors read, each once."""
        operands = (tensor for term in self.terms for tensor in (term.left, term.right))
        return tuple(dict.fromkeys((*operands, *self.bias)))

    @property
    def writes(self) -> tuple[Tensor, ...]:
        """Tensors written, each once."""
        return tuple(dict.fromkeys(term.out for term in self.terms))

    @property
    def product(self) -> MatrixProduct:
        """The matrix product a rank carries out, for the engines."""
        first = self.terms[0]
        left, right, out = first.operands
        sizes = first.sizes()
        letters = {
            "batch": [x for x in left if x in right and x in out],
            "m": [x for x in left if x in out and x not in right],
            "n": [x for x in right if x in out and x not in left],
            "k": [x for x in left if x in right and x not in out],
        }
        extent = {role: prod((sizes[x] for x in of), start=ONE) for role, of in letters.items()}
        if len(self.terms) > 1:
            joined = "k" if len(self.writes) == 1 else "n"
            others = (self._extent(term, joined) for term in self.terms[1:])
            extent[joined] = sum(others, start=extent[joined])
        return matrix_product(
            extent["m"],
            extent["k"],
            extent["n"],
            batch=extent["batch"],
            format_a=self.format,
            format_b=self.format,
            format_out=first.out.format,
        )

    @staticmethod
    def _extent(term: Term, role: str) -> FloatArray:
        left, right, out = term.operands
        outside = [x for x in right if x not in left]
        inside = [x for x in right if x in left and x not in out]
        sizes = term.sizes()
        return array(prod((sizes[x] for x in (outside if role == "n" else inside)), start=ONE))

    @property
    def flop(self) -> FloatArray:
        """Operations of one run on one rank, FLOP."""
        terms = (prod(term.sizes().values(), start=ONE) for term in self.terms)
        return array(FLOP_PER_MULTIPLY_ADD * sum(terms, start=np.zeros(())))

    @property
    def bytes(self) -> FloatArray:
        """Bytes of operands and results as they lie in memory, each once."""
        return total_bytes((*self.reads, *self.writes))

    @property
    def model_flop(self) -> FloatArray:
        """Operations the model needs of one run over all ranks of a stage, FLOP."""
        terms = (term.whole_multiply_adds() for term in self.terms)
        return array(FLOP_PER_MULTIPLY_ADD * self.useful * sum(terms, start=np.zeros(())))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AttentionOp:
    """Fused attention: scores never reach memory, and the backward pass computes them again.

    Reads query, key, value (and for the backward pass the result, its logarithmic sums and its
    gradient). `pairs` are the (query, key) pairs of a sequence that one rank's queries attend to.
    """

    name: str
    phase: Phase
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]
    pairs: FloatArray
    whole_pairs: FloatArray
    causal: bool
    window: int | None
    format: str
    count: FloatArray = field(default_factory=one)
    region: Region = ""

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

    @property
    def backward(self) -> bool:
        """Whether this is the backward kernel."""
        return self.phase in ("B_input", "B_weight")

    def _per_pair(self, score_products: int, value_products: int) -> FloatArray:
        score, value = self.query.dims[3].size, self.value.dims[3].size
        return FLOP_PER_MULTIPLY_ADD * (score_products * score + value_products * value)

    @property
    def flop(self) -> FloatArray:
        """Operations of one run on one rank, FLOP: 2 products forward, 5 backward."""
        batch, _, heads, _ = self.query.shape
        products = self._per_pair(3, 2) if self.backward else self._per_pair(1, 1)
        return array(batch * heads * self.pairs * products)

    @property
    def model_flop(self) -> FloatArray:
        """Operations the model needs over all ranks, FLOP: without the scores computed again."""
        batch, _, heads, _ = (dim.whole for dim in self.query.dims)
        products = self._per_pair(2, 2) if self.backward else self._per_pair(1, 1)
        return array(batch * heads * self.whole_pairs * products)

    @property
    def bytes(self) -> FloatArray:
        """Bytes of operands and results, each once; keys that go round a ring in all pieces."""
        return array(sum((t.bytes for t in (*self.reads, *self.writes)), start=np.zeros(())))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Elementwise:
    """A pass over memory; `view`: the tensors lie in memory already, nothing is moved."""

    name: str
    function: str
    phase: Phase
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]
    view: bool = False
    count: FloatArray = field(default_factory=one)
    region: Region = ""

    @property
    def bytes(self) -> FloatArray:
        """Bytes read and written in one run on one rank."""
        return np.zeros(()) if self.view else total_bytes((*self.reads, *self.writes))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gather:
    """Rows taken from a tensor by index, or (`scatter_add`) added to it by index."""

    name: str
    function: str
    phase: Phase
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]
    lookups: FloatArray = field(default_factory=one)
    count: FloatArray = field(default_factory=one)
    region: Region = ""

    @property
    def bytes(self) -> FloatArray:
        """Bytes of the rows read and written; an addition reads and writes its row."""
        index = self.reads[1].bytes
        if self.function == "scatter_add":
            moved = self.reads[0].bytes
            return array(moved + 2 * moved * self.lookups + index)
        return array(self.writes[0].bytes * (1 + self.lookups) + index)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CollectiveOp:
    """A collective of the ranks along an axis; absent (count 0) where the group is one rank.

    `ring` says what permutes do: pieces of the read tensor go round (`gather`), or parts of a sum
    do (`reduce`); `count` is then the number of hops. `copies`: what is sent are so many copies of
    each token, for ranks that a router draws.
    """

    name: str
    op: Op
    axis: str
    phase: Phase
    read: Tensor
    write: Tensor
    ranks: FloatArray
    count: FloatArray
    reduction: Literal["sum", "max"] = "sum"
    ring: Literal["", "gather", "reduce"] = ""
    copies: int = 1
    region: Region = ""

    @property
    def reads(self) -> tuple[Tensor, ...]:
        """The tensor sent."""
        return (self.read,)

    @property
    def writes(self) -> tuple[Tensor, ...]:
        """The tensor received."""
        return (self.write,)

    @property
    def size_bytes(self) -> FloatArray:
        """Size of one run as `program.collective` counts it for each kind, bytes."""
        gathers = self.op == "all-gather" or self.ring == "reduce"
        return self.write.bytes if gathers else self.read.bytes

    def collective(self) -> Collective:
        """Return the collective of a scalar program, for the engines."""
        return Collective(
            op=self.op,
            ranks=int(self.ranks),
            size_bytes=float(self.size_bytes),
            element_bytes=element_bytes(self.read.format),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Send:
    """A message to the next or previous stage, or one from there; per micro-batch."""

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


Operation: TypeAlias = MatMul | AttentionOp | Elementwise | Gather | CollectiveOp
