"""Writes the forward pass of a block: each call emits one operation and returns what it writes.

Which axes a result must still be summed over follows from the shards of what is read. An exchange
that no layout of the grid needs is not emitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from trnbench.arrays import FloatArray
from trnbench.program.grid import Grid
from trnbench.program.ops import CollectiveOp, Elementwise, Gather, MatMul, Operation, Region, Term
from trnbench.program.tensor import INDEX, MASK, ONE, Dim, Tensor, TensorRole, array, partial_after
from trnbench.workload.operation import Op


class BlockBuilder:
    """The operations of one block, in order; `weights` are the tensors it may read by name."""

    def __init__(self, grid: Grid, weights: Mapping[str, Tensor]) -> None:
        self.grid = grid
        self.weights = weights
        self.ops: list[Operation] = []
        self.region: Region = ""

    # Tensors

    def optional(self, *names: str) -> tuple[Tensor, ...]:
        """Return those of the named weights that the model has."""
        return tuple(self.weights[name] for name in names if name in self.weights)

    def tensor(
        self,
        name: str,
        dims: Sequence[Dim],
        reads: tuple[Tensor, ...] = (),
        *,
        number_format: str | None = None,
        role: TensorRole = "activation",
    ) -> Tensor:
        """Return a new tensor that is computed from `reads`."""
        return Tensor(
            name=name,
            dims=tuple(dims),
            format=number_format or self.grid.recipe.activations,
            role=role,
            partial=partial_after(reads, tuple(dims)),
        )

    def given(self, name: str, dims: Sequence[Dim], number_format: str = INDEX) -> Tensor:
        """Return a tensor that comes from outside and takes no gradient."""
        return self.tensor(name, dims, number_format=number_format, role="constant")

    # Operations

    def linear(
        self,
        left: Tensor,
        outputs: Sequence[tuple[str, str, str, Sequence[Dim]]],
        *,
        biased: bool = True,
    ) -> tuple[Tensor, ...]:
        """Multiply with weights; an output is (name, weight, letters, dimensions).

        A bias of the weight is added here; not to sums that other ranks hold parts of.
        """
        recipe = self.grid.recipe
        left = self.operand(left)
        terms = tuple(
            self._term(name, left, self.weights[weight], letters, dims)
            for name, weight, letters, dims in outputs
        )
        names = [f"{weight}.bias" for _, weight, _, _ in outputs]
        bias = self.optional(*names) if biased else ()
        self._matmul(terms, recipe.linear, bias=bias)
        return tuple(term.out for term in terms)

    def operand(self, tensor: Tensor) -> Tensor:
        """Store a tensor as linear layers read it; once, however many do."""
        recipe = self.grid.recipe
        if not recipe.quantised or tensor.format == recipe.linear:
            return tensor
        name = f"{tensor.name}.{recipe.linear}"
        for op in self.ops:
            if isinstance(op, Elementwise) and op.writes[0].name == name:
                return op.writes[0]
        return self.elementwise(
            "cast", (tensor,), name, tensor.dims, number_format=recipe.linear, role=tensor.role
        )

    def multiply(
        self,
        name: str,
        left: Tensor,
        right: Tensor,
        letters: str,
        dims: Sequence[Dim],
        *,
        number_format: str | None = None,
        useful: FloatArray = ONE,
    ) -> Tensor:
        """Multiply two tensors outside the linear layers."""
        term = self._term(name, left, right, letters, dims, number_format)
        self._matmul((term,), self.grid.recipe.other, useful=useful)
        return term.out

    def _term(
        self,
        name: str,
        left: Tensor,
        right: Tensor,
        letters: str,
        dims: Sequence[Dim],
        number_format: str | None = None,
    ) -> Term:
        out = self.tensor(name, dims, (left, right), number_format=number_format)
        return Term(left=left, right=right, out=out, letters=letters)

    def _matmul(
        self,
        terms: tuple[Term, ...],
        number_format: str,
        *,
        bias: tuple[Tensor, ...] = (),
        useful: FloatArray = ONE,
    ) -> None:
        self.ops.append(
            MatMul(
                name=terms[0].out.name,
                phase="F",
                terms=terms,
                bias=bias,
                format=number_format,
                useful=useful,
                region=self.region,
            )
        )

    def elementwise(
        self,
        function: str,
        reads: Sequence[Tensor],
        name: str,
        dims: Sequence[Dim],
        *,
        number_format: str | None = None,
        role: TensorRole = "activation",
        view: bool = False,
        when: FloatArray = ONE,
    ) -> Tensor:
        """Compute one tensor in one pass over memory."""
        read = tuple(reads)
        out = self.tensor(name, dims, read, number_format=number_format, role=role)
        self.passes(function, read, (out,), view=view, when=when)
        return out

    def passes(
        self,
        function: str,
        reads: tuple[Tensor, ...],
        writes: tuple[Tensor, ...],
        *,
        view: bool = False,
        when: FloatArray = ONE,
    ) -> None:
        """Compute several tensors in one pass over memory."""
        self.ops.append(
            Elementwise(
                name=writes[0].name,
                function=function,
                phase="F",
                reads=reads,
                writes=writes,
                view=view,
                count=when,
                region=self.region,
            )
        )

    def gather(
        self,
        function: str,
        source: Tensor,
        index: Tensor,
        name: str,
        dims: Sequence[Dim],
        *,
        lookups: FloatArray = ONE,
    ) -> Tensor:
        """Take rows of a tensor by index."""
        same = source.format if source.role == "activation" else None
        out = self.tensor(name, dims, (source, index), number_format=same)
        self.ops.append(
            Gather(
                name=name,
                function=function,
                phase="F",
                reads=(source, index),
                writes=(out,),
                lookups=lookups,
                region=self.region,
            )
        )
        return out

    def norm(self, tensor: Tensor, name: str) -> Tensor:
        """Normalise over the last dimension with the named scale and shift, where there are."""
        scale = self.optional(name, f"{name}.bias")
        return self.elementwise("norm", (tensor, *scale), f"{name}.out", tensor.dims)

    def dropout(self, tensor: Tensor) -> Tensor:
        """Drop out elements; the mask is kept."""
        out = self.tensor(f"{tensor.name}.dropped", tensor.dims, (tensor,))
        mask = replace(out, name=f"{tensor.name}.mask", format=MASK, role="constant")
        self.passes("dropout", (tensor,), (out, mask))
        return out

    # Exchanges

    def exchange(
        self,
        op: Op,
        axis: str,
        tensor: Tensor,
        dims: Sequence[Dim],
        *,
        when: FloatArray | None = None,
        maximum: bool = False,
        copies: int = 1,
    ) -> Tensor:
        """Exchange a tensor along an axis; where the group is one rank there is nothing to do."""
        ranks = self.grid.ranks(axis)
        present = array(ranks > 1) * (ONE if when is None else when)
        if not np.any(present):
            return tensor
        settles = op in ("all-reduce", "reduce-scatter")
        out = replace(
            tensor,
            name=f"{tensor.name}.{op}",
            dims=tuple(dims),
            partial=tensor.partial - {axis} if settles else tensor.partial,
        )
        self.ops.append(
            CollectiveOp(
                name=out.name,
                op=op,
                axis=axis,
                phase="F",
                read=tensor,
                write=out,
                ranks=ranks,
                count=present,
                reduction="max" if maximum else "sum",
                copies=copies,
                region=self.region,
            )
        )
        return out

    def ring(self, tensor: Tensor, dims: Sequence[Dim]) -> Tensor:
        """Let the pieces of a tensor go round the ranks of a sequence."""
        ranks = self.grid.cp
        if not np.any(ranks > 1):
            return tensor
        out = replace(tensor, name=f"{tensor.name}.ring", dims=tuple(dims), pieces=ranks)
        self.ops.append(
            CollectiveOp(
                name=out.name,
                op="permute",
                axis="cp",
                phase="F",
                read=tensor,
                write=out,
                ranks=ranks,
                count=array(ranks - 1),
                ring="gather",
                region=self.region,
            )
        )
        return out

    # The residual stream: cut along its tokens with sequence parallelism, else copied

    def stream(self) -> tuple[Dim, Dim]:
        """Return the batch and token dimensions of the residual stream."""
        cut = ("cp", "tp") if self.grid.sequence_parallel else ("cp",)
        return self.grid.batch(), self.grid.tokens(*cut)

    def gather_tokens(self, tensor: Tensor) -> Tensor:
        """Give every tensor-parallel rank all tokens of the stream."""
        if not self.grid.sequence_parallel:
            return tensor
        batch, _, *rest = tensor.dims
        return self.exchange("all-gather", "tp", tensor, (batch, self.grid.tokens("cp"), *rest))

    def settle(self, tensor: Tensor) -> Tensor:
        """Sum what tensor-parallel ranks hold parts of, and return to the stream."""
        if "tp" not in tensor.partial:
            return tensor
        if not self.grid.sequence_parallel:
            return self.exchange("all-reduce", "tp", tensor, tensor.dims)
        rest = tensor.dims[2:]
        return self.exchange("reduce-scatter", "tp", tensor, (*self.stream(), *rest))
