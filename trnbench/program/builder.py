"""Writes the forward pass of a block: each call emits one operation and returns what it writes.

The axes over which a result is still partial follow from the shards of its operands. An exchange
that no layout of the grid needs is not emitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from trnbench.facts.arrays import FloatArray, some
from trnbench.facts.records import replace
from trnbench.facts.workload.choices import Op
from trnbench.facts.workload.recompute import Module
from trnbench.program.grid import Grid
from trnbench.program.ops import (
    CollectiveOp,
    Elementwise,
    Gather,
    MatMul,
    Operation,
    Region,
    Term,
    operand_letters,
)
from trnbench.program.parameters import A, B, Parameter, adapter_parameter, has_adapter, is_packed
from trnbench.program.tensor import INDEX, MASK, ONE, Dim, Tensor, TensorRole, array, partial_after

LinearOutput: TypeAlias = tuple[str, str, str, Sequence[Dim]]
"""Output of a linear layer: its name, the weight, the letters of the product, dimensions."""


class BlockBuilder:
    """Operations of one block, in the order in which they are emitted.

    `weights` are the tensors the block may read, by name; `adapters` the weights of adapters in
    use.
    """

    def __init__(self, grid: Grid, weights: Mapping[str, Tensor]) -> None:
        self.grid = grid
        self.weights = weights
        self.adapters: dict[str, Parameter] = {}
        self.ops: list[Operation] = []
        # Marks of the operations that follow: what recompute may repeat or drop reads them.
        self.region: Region = ""
        self.module: Module | None = None

    # Tensors

    def optional(self, *names: str) -> tuple[Tensor, ...]:
        """Weights of the model among those named."""
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
        """New tensor that is computed from `reads`."""
        return Tensor(
            name=name,
            dims=tuple(dims),
            format=number_format or self.grid.recipe.activations,
            role=role,
            partial=partial_after(reads, tuple(dims)),
        )

    def given(self, name: str, dims: Sequence[Dim], number_format: str = INDEX) -> Tensor:
        """Tensor that comes from outside and takes no gradient."""
        return self.tensor(name, dims, number_format=number_format, role="constant")

    # Operations

    def linear(
        self, left: Tensor, outputs: Sequence[LinearOutput], *, summed_here: bool = True
    ) -> tuple[Tensor, ...]:
        """Multiply with weights.

        Bias and adapter are added here, but not to sums whose parts other ranks hold.
        """
        recipe = self.grid.recipe
        # Layers that share their input (query, key and value; gate and up) run as one product.
        left = self.operand(left)
        terms = tuple(
            self._term(name, left, self._unpacked(weight), letters, dims)
            for name, weight, letters, dims in outputs
        )
        names = [f"{weight}.bias" for _, weight, _, _ in outputs]
        # Added to partial sums, a bias would count once for every rank.
        bias = self.optional(*names) if summed_here else ()
        self._matmul(terms, recipe.linear, bias=bias)
        if not summed_here:
            return tuple(term.out for term in terms)
        return tuple(
            self._adapted(left, term.out, output)
            for term, output in zip(terms, outputs, strict=True)
        )

    def _unpacked(self, name: str) -> Tensor:
        """Weight as products read it; a packed one is unpacked for each use."""
        weight = self.weights[name]
        if not is_packed(self.grid, weight):
            return weight
        return self.elementwise(
            "unpack",
            (weight,),
            name,
            weight.dims,
            number_format=self.grid.recipe.linear,
            role="constant",
        )

    def _adapted(self, left: Tensor, out: Tensor, output: LinearOutput) -> Tensor:
        name, _, _, dims = output
        raised = self.adapter(left, output)
        return self.elementwise("add", (out, *raised), f"{name}.adapted", dims) if raised else out

    def adapter(self, left: Tensor, output: LinearOutput) -> tuple[Tensor, ...]:
        """Output of an adapter, to be added to its linear layer's; empty without one."""
        name, weight, letters, _ = output
        if not has_adapter(self.grid, weight):
            return ()
        # "bsh,hnd->bsnd" becomes "bsh,hz->bsz" for A and "bsz,znd->bsnd" for B: letters of the
        # weight that the result lacks are contracted by A, the others are made by B.
        ins, right, out = operand_letters(letters)
        inner = [(x, dim) for x, dim in zip(right, self.weights[weight].dims, strict=True)]
        taken = [(x, dim) for x, dim in inner if x not in out]
        given = [(x, dim) for x, dim in inner if x in out]
        rank = self.grid.dim("adapter_rank", self.grid.adapter_rank or 0)
        kept = [(x, dim) for x, dim in zip(ins, left.dims, strict=True) if x in out]
        a = self._adapter_weight(weight + A, [*(dim for _, dim in taken), rank])
        b = self._adapter_weight(weight + B, [rank, *(dim for _, dim in given)])
        lead = "".join(x for x, _ in kept)
        first = f"{ins},{''.join(x for x, _ in taken)}z->{lead}z"
        low = self.multiply(f"{name}.low", left, a, first, (*(dim for _, dim in kept), rank))
        # Where the projection's inputs are cut, A leaves partial sums; they are few and small.
        low = self.settle(low)
        of_low = zip(lead, low.dims, strict=False)
        dims = {**dict(of_low), **dict(given)}
        second = f"{lead}z,z{''.join(x for x, _ in given)}->{out}"
        return (self.multiply(f"{name}.raised", low, b, second, [dims[x] for x in out]),)

    def _adapter_weight(self, name: str, dims: Sequence[Dim]) -> Tensor:
        self.adapters[name] = adapter_parameter(self.grid, name, dims)
        return self.adapters[name].weight

    def operand(self, tensor: Tensor) -> Tensor:
        """Tensor in the format of linear layers, cast once however many layers read it."""
        recipe = self.grid.recipe
        casts = recipe.quantised or recipe.cached
        if not casts or tensor.format == recipe.linear:
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
        pieces: FloatArray = ONE,
    ) -> Tensor:
        term = self._term(name, left, right, letters, dims, number_format)
        if pieces is not ONE:
            term = replace(term, out=replace(term.out, pieces=pieces))
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
                module=self.module,
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
                module=self.module,
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
        # Rows of a table begin the stream; tokens keep their format.
        same = source.format if source.role == "activation" else self.grid.recipe.residual
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
        scale = self.optional(name, f"{name}.bias")
        # Norms are computed in the format of the stream, whatever they read.
        return self.elementwise(
            "norm",
            (tensor, *scale),
            f"{name}.out",
            tensor.dims,
            number_format=self.grid.recipe.residual,
        )

    def dropout(self, tensor: Tensor) -> Tensor:
        """Drop out elements; the mask is kept."""
        out = self.tensor(
            f"{tensor.name}.dropped", tensor.dims, (tensor,), number_format=tensor.format
        )
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
        copies: int = 0,
    ) -> Tensor:
        """Exchange a tensor along an axis; a group of one rank exchanges nothing."""
        ranks = self.grid.ranks(axis)
        # One operation stands for all layouts of the grid: its count is 0 where a layout has one
        # rank along the axis.
        present = array(ranks > 1) * (ONE if when is None else when)
        if not some(present):
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
                sent_by=self.grid.dispatcher if copies else None,
                overlapped=self.grid.overlapped if copies else None,
                region=self.region,
            )
        )
        return out

    def ring(self, tensor: Tensor, name: str, axis: str, reach: FloatArray | None = None) -> Tensor:
        """Pass the pieces of a tensor round the ranks of a sequence, along its tokens.

        `reach`: tokens of other ranks that are needed, next to a rank's own; None for all.
        """
        ranks = self.grid.ranks(axis)
        if not some(ranks > 1):
            return tensor
        batch, tokens, *rest = tensor.dims
        # With a window only the nearest tokens of other ranks are seen: fewer hops, each with a
        # share of a rank's tokens.
        others = tokens.whole - tokens.size
        needed = others if reach is None else np.minimum(others, reach)
        hops = array(np.ceil(needed / tokens.size))
        keys = Dim(name=name, size=array(tokens.size + needed), factors=tokens.factors)
        out = replace(
            tensor, name=f"{tensor.name}.ring", dims=(batch, keys, *rest), pieces=array(hops + 1)
        )
        self.ops.append(
            CollectiveOp(
                name=out.name,
                op="permute",
                axis=axis,
                phase="F",
                read=tensor,
                write=out,
                ranks=ranks,
                count=hops,
                ring="gather",
                part=array(needed / np.maximum(hops * tokens.size, 1)),
                region=self.region,
            )
        )
        return out

    # The residual stream: cut along its tokens with sequence parallelism, else copied

    def stream(self) -> tuple[Dim, Dim]:
        """Batch and token dimensions of the residual stream."""
        cut = ("cp", "tp") if self.grid.sequence_parallel else ("cp",)
        return self.grid.batch(), self.grid.tokens(*cut)

    def gather_tokens(self, tensor: Tensor) -> Tensor:
        """Give every tensor-parallel rank all tokens of the stream."""
        if not self.grid.sequence_parallel:
            return tensor
        batch, _, *rest = tensor.dims
        return self.exchange("all-gather", "tp", tensor, (batch, self.grid.tokens("cp"), *rest))

    def own_tokens(self, tensor: Tensor) -> Tensor:
        """Slice a rank's own tokens from a tensor that all tensor-parallel ranks hold."""
        # A view: no bytes move. Only its gradient has to be gathered again (`backward`).
        if not self.grid.used("tp"):
            return tensor
        dims = (*self.stream(), *tensor.dims[2:])
        return self.elementwise("own_tokens", (tensor,), f"{tensor.name}.own", dims, view=True)

    def settle(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over tensor-parallel ranks, and cut the result as the stream is."""
        if "tp" not in tensor.partial:
            return tensor
        # A reduce-scatter here and an all-gather before the next product move the bytes of one
        # all-reduce, and the stream between them is kept once instead of by every rank.
        if not self.grid.sequence_parallel:
            return self.exchange("all-reduce", "tp", tensor, tensor.dims)
        rest = tensor.dims[2:]
        return self.exchange("reduce-scatter", "tp", tensor, (*self.stream(), *rest))
