"""What a rank does in one run of a block: operations and messages, with the tensors they name.

`count` says how often an operation runs in one run of its block (0: this layout does without it;
what it would write is what it reads). Phases: F, B_input and B_weight run once a micro-batch,
`recompute` in front of the backward pass, `optimizer` once a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import prod
from typing import Literal, TypeAlias

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.facts.numbers.formats import format_named
from trnbench.facts.records import Record, field
from trnbench.facts.units import FLOP_PER_MULTIPLY_ADD
from trnbench.facts.workload.operation import Op
from trnbench.facts.workload.recompute import Module
from trnbench.program.collective import Collective
from trnbench.program.matrix import MatrixProduct, matrix_product
from trnbench.program.tensor import ONE, Dim, Tensor, array, element_bytes, one, total_bytes

Phase = Literal["F", "recompute", "B_input", "B_weight", "optimizer"]
Region = Literal["", "core", "experts", "states"]
"""`core`: the part of attention whose tensors grow with the square of the sequence; `experts`: what
is done to tokens sorted by expert, their sorting and the adding up of answers included; `states`:
of a scan, what no kernel keeps for its backward pass."""


def operand_letters(letters: str) -> tuple[str, str, str]:
    """Return the letters of left, right and out of "left,right->out"."""
    left, _, rest = letters.partition(",")
    right, _, out = rest.partition("->")
    return left, right, out


@cache
def letters_of_roles(letters: str) -> Mapping[str, str]:
    """Return which letters of "left,right->out" are batch, m, n and k of a matrix product."""
    left, right, out = operand_letters(letters)
    return {
        "batch": "".join(x for x in left if x in right and x in out),
        "m": "".join(x for x in left if x in out and x not in right),
        "n": "".join(x for x in right if x in out and x not in left),
        "k": "".join(x for x in left if x in right and x not in out),
    }


class Term(Record, eq=False):
    """out = left x right, with a letter for each dimension: "bsh,hnd->bsnd"."""

    left: Tensor
    right: Tensor
    out: Tensor
    letters: str

    @property
    def operands(self) -> tuple[str, str, str]:
        """The letters of left, right and out."""
        return operand_letters(self.letters)

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


class MatMul(Record, eq=False):
    """Products that run as one: they share the left operand, or they add up into one result.

    Operands are taken in `format`. `useful` is the share of the operations that the model needs
    (of a causal score, half). `module`: the one whose output recompute may drop.
    """

    name: str
    phase: Phase
    terms: tuple[Term, ...]
    format: str
    bias: tuple[Tensor, ...] = ()
    useful: FloatArray = field(default_factory=one)
    count: FloatArray = field(default_factory=one)
    region: Region = ""
    module: Module | None = None

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
        sizes = first.sizes()
        extent = {
            role: prod((sizes[x] for x in of), start=ONE)
            for role, of in letters_of_roles(first.letters).items()
        }
        if len(self.terms) > 1:
            joined = "k" if len(self.writes) == 1 else "n"
            others = (self._extent(term, joined) for term in self.terms[1:])
            extent[joined] = sum(others, start=extent[joined])
        # (Sizes of a program are whole: `matrix_product` would look at every one.)
        taken = format_named(self.format).name
        return MatrixProduct(
            **{role: array(size) for role, size in extent.items()},
            format_a=taken,
            format_b=taken,
            format_out=format_named(first.out.format).name,
            transpose_a=False,
            transpose_b=False,
            pattern=None,
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


class AttentionOp(Record, eq=False):
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


class ScanOp(Record, eq=False):
    """A scan in chunks: the `states` before each, or the `output` of every token from its own.

    `states` reads value, key, steps and decays; `output` the query before and the states behind
    these, and its backward pass what it writes too, for the gradients of all but the states.
    `sizes` are those of a head's value and of its state's other side; `tokens` are the batch and
    the chunks.
    """

    name: str
    phase: Phase
    part: Literal["states", "output"]
    form: Literal["mamba-2", "gated-delta"]
    chunk: int
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]
    sizes: tuple[FloatArray, FloatArray]
    heads: Dim
    key_heads: Dim
    tokens: tuple[Dim, Dim]
    format: str
    count: FloatArray = field(default_factory=one)
    region: Region = ""

    @property
    def backward(self) -> bool:
        """Whether this is the backward kernel."""
        return self.phase in ("B_input", "B_weight")

    def _products(self) -> tuple[tuple[bool, str, str, str], ...]:
        """Return (whether heads share it, rows, depth, columns) of the products of a chunk.

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
        """Return operations over a rank, or those needed over all ranks, FLOP.

        Backward twice as many. A token sees none behind it, so that half of a square is needed.
        """
        q = float(self.chunk)
        sizes = {"q": array(q), "p": self.sizes[0], "s": self.sizes[1]}
        counts = {
            shared: dim.whole if whole else dim.size
            for shared, dim in ((True, keys), (False, heads))
        }
        total = np.zeros(())
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
        """Operations of one run on one rank, FLOP: whole squares of chunks."""
        return self._flop(self.heads, self.key_heads, False)

    @property
    def model_flop(self) -> FloatArray:
        """Operations the model needs over all ranks, FLOP."""
        return self._flop(self.heads, self.key_heads, True)

    @property
    def products(self) -> tuple[MatrixProduct, ...]:
        """The matrix products a rank carries out, for engines that play them one by one."""
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
        """Bytes of operands and results, each once."""
        return total_bytes((*self.reads, *self.writes))


class Elementwise(Record, eq=False):
    """A pass over memory; `view`: the tensors lie in memory already, nothing is moved.

    `module`: the one whose output recompute may drop.
    """

    name: str
    function: str
    phase: Phase
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]
    view: bool = False
    count: FloatArray = field(default_factory=one)
    region: Region = ""
    module: Module | None = None

    @property
    def bytes(self) -> FloatArray:
        """Bytes read and written in one run on one rank."""
        return np.zeros(()) if self.view else total_bytes((*self.reads, *self.writes))


class Gather(Record, eq=False):
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


class CollectiveOp(Record, eq=False):
    """A collective of the ranks along an axis; absent (count 0) where the group is one rank.

    `ring` says what permutes do: pieces of the read tensor go round (`gather`), or parts of a sum
    do (`reduce`); `count` is then the number of hops, and `part` how much of a piece each takes.
    `copies`: what is sent are so many copies of each token, for ranks that a router draws.
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
    part: FloatArray = field(default_factory=one)
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
        whole = self.write.bytes if gathers else self.read.bytes
        return array(whole * self.part) if self.ring else whole

    def collective(self) -> Collective:
        """Return the collective of a scalar program, for the engines."""
        return Collective(
            op=self.op,
            ranks=int(self.ranks),
            size_bytes=float(self.size_bytes),
            element_bytes=element_bytes(self.read.format),
        )


class Send(Record, eq=False):
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


Operation: TypeAlias = MatMul | AttentionOp | ScanOp | Elementwise | Gather | CollectiveOp
