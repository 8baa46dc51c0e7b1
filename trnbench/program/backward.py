"""The backward pass of a block, derived from its forward pass by rule.

A product becomes two, a pass over memory one, a lookup an addition, a collective its counterpart.
The gradient of a tensor is cut as the tensor is. Where ranks hold partial sums of a gradient, these
are summed before anything but a sum, a row addition or an exchange reads them. The gradient of a
weight stays a partial sum until the end of the step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trnbench.errors import GapError, unhandled
from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import Record, replace
from trnbench.facts.workload.choices import Op
from trnbench.program.grid import Grid
from trnbench.program.ops import (
    AttentionOp,
    CollectiveOp,
    Elementwise,
    Gather,
    MatMul,
    Operation,
    Phase,
    ScanOp,
    Term,
    collective_op,
)
from trnbench.program.tensor import LOGITS_DIM, ONE, Tensor, partial_after


class Derivative(Record):
    """Tensors that the gradient of one function reads, and how it flows back."""

    inputs: tuple[int, ...] = ()  # positions of the forward inputs read again
    outputs: tuple[int, ...] = ()  # positions of the forward outputs read again
    passes: bool = False  # the result's gradient is that of each activation read
    constant: bool = False  # no gradient flows back


# The fewer tensors a gradient reads, the fewer a block keeps: of functions whose derivative follows
# from the result (softmax, tanh, relu) the result is kept, which the next operation reads anyway.
_TABLE: tuple[tuple[Derivative, tuple[str, ...]], ...] = (
    (Derivative(passes=True), ("add", "add_once", "cast")),
    (Derivative(constant=True), ("row_max", "unpack")),
    (
        Derivative(),
        (
            *("rotary", "join_rotated", "join_token", "join", "merge", "repeat_heads"),
            *("scale_mask", "first_token", "mean_token", "own_tokens", "sequence_sum"),
        ),
    ),
    (Derivative(outputs=(0,)), ("softmax", "tanh", "relu")),
    (Derivative(outputs=(1,)), ("dropout",)),
    (Derivative(outputs=(0, 1)), ("route",)),
    (Derivative(inputs=(0,)), ("squares", "relu2", "gelu", "silu", "cross_entropy")),
    (Derivative(inputs=(1, 2)), ("skip", "gate_add")),
    (
        Derivative(inputs=(0, 1)),
        (
            *("relu_gate", "sigmoid_gate", "gelu_gate", "silu_gate", "norm", "modulate", "cross"),
            *("preference_loss", "class_entropy", "binary_entropy", "squared_error"),
        ),
    ),
    (
        Derivative(inputs=(0, 1, 2)),
        (
            *("norm_by", "convolve", "scan_rates", "gated_norm", "norm_gate", "weighed"),
            *("combine", "exponential_sums", "policy_loss"),
        ),
    ),
    (Derivative(inputs=(0, 1, 2, 3)), ("delta_rates",)),
    (Derivative(inputs=(0, 1, 2, 3, 4)), ("pool",)),
)
DERIVATIVES: Mapping[str, Derivative] = {
    function: rule for rule, functions in _TABLE for function in functions
}


class Backward(Record, eq=False):
    """Backward operations in order, and the gradients they leave."""

    ops: tuple[Operation, ...]
    given: tuple[Tensor, ...]  # gradients of the block's outputs, from the next block
    weights: Mapping[str, Tensor]  # gradients by the name of the weight
    inputs: Mapping[str, Tensor]  # gradients by the name of the entering tensor


NO_BACKWARD = Backward(ops=(), given=(), weights={}, inputs={})


def derive(
    grid: Grid,
    forward: Sequence[Operation],
    *,
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor] = (),
) -> Backward:
    """Backward pass of a block from the gradients of its outputs."""
    # Read from the end, every reader of a tensor comes before its writer: when an operation is
    # reversed, all parts of its results' gradients are there.
    deriver = _Deriver(grid, forward)
    given = tuple(deriver.gradient(output, ()) for output in outputs)
    for output, gradient in zip(outputs, given, strict=True):
        deriver.give(output, gradient)
    for op in reversed(forward):
        deriver.reverse(op)
    into = {tensor.name: deriver.summed(tensor) for tensor in inputs}
    return Backward(
        ops=tuple(deriver.ops),
        given=given,
        weights=deriver.weights,
        inputs={name: gradient for name, gradient in into.items() if gradient is not None},
    )


class _Deriver:
    """Gradients collected while the forward pass is read from its end."""

    def __init__(self, grid: Grid, forward: Sequence[Operation]) -> None:
        self.grid = grid
        self.ops: list[Operation] = []
        self.weights: dict[str, Tensor] = {}
        self._parts: dict[Tensor, list[Tensor]] = {}
        self._idle: set[Tensor] = set()
        self._packed: dict[Tensor, Tensor] = {}
        for op in forward:
            if isinstance(op, Elementwise) and op.function == "unpack":
                self._packed[op.writes[0]] = op.reads[0]
            # Nothing trained reaches this operation, so gradients stop at its results.
            if not any(map(self.wanted, op.reads)):
                self._idle.update(op.writes)
        self._of_products = {out for op in forward if isinstance(op, MatMul) for out in op.writes}

    # Gradients

    def wanted(self, tensor: Tensor) -> bool:
        """True when a gradient flows into a tensor: trained weights or block inputs reach it."""
        return tensor.differentiable and tensor not in self._idle

    def gradient(self, tensor: Tensor, reads: tuple[Tensor, ...]) -> Tensor:
        """New gradient of a tensor, computed from `reads`."""
        recipe = self.grid.recipe
        # A tensor with several readers gets several parts, which need names of their own.
        count = len(self._parts.get(tensor, ()))
        small = tensor.role == "activation" and tensor.format == recipe.linear
        if tensor.role == "weight":
            number_format = recipe.gradients
        # Products may write fp32 (logits) or fp8; their gradients are plain activations.
        elif tensor in self._of_products or small:
            number_format = recipe.activations
        else:
            number_format = tensor.format
        return Tensor(
            name=f"d.{tensor.name}" + (f".{count}" if count else ""),
            dims=tensor.dims,
            format=number_format,
            role="gradient",
            partial=partial_after(reads, tensor.dims),
            # Logits that are made in parts have their gradient in the same parts.
            pieces=tensor.pieces if tensor.dims and tensor.dims[-1].name == LOGITS_DIM else ONE,
        )

    def give(self, tensor: Tensor, gradient: Tensor) -> None:
        """Record one part of a tensor's gradient."""
        if tensor.role == "weight":
            first = self.weights.setdefault(tensor.name, gradient)
            assert first is gradient, f"{tensor.name} has two gradients"
        else:
            self._parts.setdefault(tensor, []).append(gradient)

    def summed(self, tensor: Tensor) -> Tensor | None:
        """Gradient of a tensor, summed over its parts and over ranks; None without parts."""
        parts = [self._settled(part) for part in self._by_partial(tensor)]
        return self._added(tensor, parts) if parts else None

    def _by_partial(self, tensor: Tensor) -> list[Tensor]:
        """Parts of a gradient, added up where they are partial over the same ranks."""
        # Adding before the all-reduce saves an exchange for each further part.
        groups: dict[frozenset[str], list[Tensor]] = {}
        for part in self._parts.pop(tensor, ()):
            groups.setdefault(part.partial, []).append(part)
        return [self._added(tensor, group) for group in groups.values()]

    def _added(self, tensor: Tensor, parts: Sequence[Tensor]) -> Tensor:
        if len(parts) == 1:
            return parts[0]
        over = "".join(f".{axis}" for axis in sorted(parts[0].partial))
        out = replace(parts[0], name=f"d.{tensor.name}.sum{over}")
        self._pass("add", tuple(parts), (out,), "B_input")
        return out

    def _settled(self, part: Tensor) -> Tensor:
        """Part of a gradient, all-reduced along every axis over which it is partial."""
        for axis in sorted(part.partial):
            ranks = self.grid.ranks(axis)
            out = replace(part, name=f"{part.name}.all-reduce", partial=part.partial - {axis})
            self.ops.append(collective_op("all-reduce", axis, "B_input", (part, out), ranks))
            part = out
        return part

    # Rules

    def reverse(self, op: Operation) -> None:
        """Emit the backward operations of one forward operation."""
        if op.writes and not any(map(self.wanted, op.writes)):
            return
        match op:
            case MatMul():
                self._reverse_product(op)
            case AttentionOp():
                self._reverse_attention(op)
            case ScanOp():
                self._reverse_scan(op)
            case Elementwise():
                self._reverse_pass(op)
            case Gather():
                self._reverse_gather(op)
            case CollectiveOp():
                self._reverse_collective(op)
            case _:
                unhandled(op, "backward rule")

    def _reverse_product(self, op: MatMul) -> None:
        terms = [
            (term, gradient) for term in op.terms if (gradient := self.summed(term.out)) is not None
        ]
        if not terms:
            return
        if self.grid.recipe.quantised and op.format == self.grid.recipe.linear:
            terms = [(term, self._quantised(gradient)) for term, gradient in terms]
        self._to_left(op, terms)
        self._to_right(op, terms)
        for bias in filter(self.wanted, op.bias):
            of = next(grad for term, grad in terms if bias.name == f"{term.right.name}.bias")
            out = self.gradient(bias, (of,))
            self._pass("sum_rows", (of,), (out,), "B_weight")
            self.give(bias, out)

    def _to_left(self, op: MatMul, terms: Sequence[tuple[Term, Tensor]]) -> None:
        left = op.terms[0].left
        if not self.wanted(left):
            return
        # Products that share their left operand add up into one gradient: one longer product.
        rights = [self._unpacked_again(term.right) for term, _ in terms]
        reads = tuple(
            read
            for (_, gradient), right in zip(terms, rights, strict=True)
            for read in (gradient, right)
        )
        out = self.gradient(left, reads)
        products = tuple(
            Term(left=gradient, right=right, out=out, letters=f"{o},{r}->{x}")
            for (term, gradient), right in zip(terms, rights, strict=True)
            for x, r, o in (term.operands,)
        )
        self._product(op, products, "B_input")
        self.give(left, out)

    def _unpacked_again(self, right: Tensor) -> Tensor:
        """Right operand; a packed weight is unpacked for each pass that reads it."""
        if right not in self._packed:
            return right
        out = replace(right)
        self._pass("unpack", (self._packed[right],), (out,), "B_input")
        return out

    def _to_right(self, op: MatMul, terms: Sequence[tuple[Term, Tensor]]) -> None:
        products = []
        for term, gradient in terms:
            if not self.wanted(term.right):
                continue
            x, r, o = term.operands
            out = self.gradient(term.right, (term.left, gradient))
            earlier = self.weights.get(term.right.name)
            if earlier is not None and term.right.role == "weight":
                # A second reader of a weight adds into the same gradient.
                assert earlier.partial == out.partial, term.right.name
                out = earlier
            products.append(Term(left=term.left, right=gradient, out=out, letters=f"{x},{o}->{r}"))
            self.give(term.right, out)
        # Only gradients of weights may wait for a slot of their own: nothing reads them before the
        # optimizer. Products of two activations (attention) are needed at once.
        if products:
            weight = op.terms[0].right.role == "weight"
            self._product(op, tuple(products), "B_weight" if weight else "B_input")

    def _product(self, op: MatMul, terms: tuple[Term, ...], phase: Phase) -> None:
        name = terms[0].out.name
        self.ops.append(replace(op, name=name, terms=terms, bias=(), phase=phase))

    def _quantised(self, gradient: Tensor) -> Tensor:
        number_format = self.grid.recipe.linear
        out = replace(gradient, name=f"{gradient.name}.{number_format}", format=number_format)
        self._pass("cast", (gradient,), (out,), "B_input")
        return out

    def _reverse_attention(self, op: AttentionOp) -> None:
        gradient = self.summed(op.writes[0])
        if gradient is None:
            return
        # Sinks are weights: frozen beside adapters, they are read again and get no gradient. That
        # takes no product away, as that of sinks is a sum of what the pass has anyway.
        into = [tensor for tensor in op.reads if self.wanted(tensor)]
        assert all(tensor in into for tensor in op.reads if tensor.role != "weight"), op.name
        self._kernel(op, into, gradient)

    def _reverse_scan(self, op: ScanOp) -> None:
        """Emit one backward operation for both parts of a scan; recompute makes its states."""
        gradient = self.summed(op.writes[0])
        if gradient is None or op.part == "states":
            return
        self._kernel(op, op.reads[:-1], gradient)

    def _kernel(self, op: AttentionOp | ScanOp, into: Sequence[Tensor], gradient: Tensor) -> None:
        """Emit the backward kernel, which reads all that the forward one read and wrote."""
        reads = (*op.reads, *op.writes, gradient)
        outs = tuple(self.gradient(tensor, reads) for tensor in into)
        self.ops.append(replace(op, name=f"d.{op.name}", phase="B_input", reads=reads, writes=outs))
        for tensor, out in zip(into, outs, strict=True):
            self.give(tensor, out)

    def _reverse_pass(self, op: Elementwise) -> None:
        if op.function not in DERIVATIVES:
            raise GapError(op.function, "derivative")
        rule = DERIVATIVES[op.function]
        if rule.constant:
            return
        gradients = tuple(
            gradient for out in op.writes if (gradient := self.summed(out)) is not None
        )
        if not gradients:
            return
        into = [tensor for tensor in op.reads if self.wanted(tensor)]
        if op.function == "own_tokens":
            self._gather_tokens(op, gradients[0])
            return
        # The gradient of a sum is the gradient of each summand: no pass, no new tensor.
        if rule.passes:
            for tensor in into:
                if tensor.role == "activation":
                    self.give(tensor, gradients[0])
            into = [tensor for tensor in into if tensor.role == "weight"]
        if op.function == "gate_add":
            self.give(op.reads[0], gradients[0])
            into = into[1:]
        if not into:
            return
        needed = [op.reads[i] for i in rule.inputs if i < len(op.reads)]
        needed += [op.writes[i] for i in rule.outputs]
        reads = (*gradients, *needed)
        # A gradient is linear in what else was read, so the tensor's own missing parts do no harm.
        outs = tuple(
            self.gradient(tensor, tuple(read for read in reads if read is not tensor))
            for tensor in into
        )
        phase: Phase = "B_weight" if all(one.role == "weight" for one in into) else "B_input"
        self._pass(f"d_{op.function}", reads, outs, phase, view=op.view, count=op.count)
        for tensor, out in zip(into, outs, strict=True):
            self.give(tensor, out)

    def _reverse_gather(self, op: Gather) -> None:
        source, index = op.reads
        if not self.wanted(source):
            return
        for gradient in self._by_partial(op.writes[0]):
            out = self.gradient(source, (gradient, index))
            phase: Phase = "B_weight" if source.role == "weight" else "B_input"
            self.ops.append(
                replace(
                    op,
                    name=out.name,
                    function="scatter_add",
                    phase=phase,
                    reads=(gradient, index),
                    writes=(out,),
                )
            )
            self.give(source, out)

    def _reverse_collective(self, op: CollectiveOp) -> None:
        match op.op:
            # Every rank's summand has the gradient of the sum.
            case "all-reduce":
                gradient = self.summed(op.write)
                if gradient is not None and self.wanted(op.read):
                    self.give(op.read, gradient)
            case "reduce-scatter":
                gradient = self.summed(op.write)
                if gradient is not None:
                    self._back(op, "all-gather", gradient)
            case "all-gather" | "permute" | "all-to-all":
                for gradient in self._by_partial(op.write):
                    self._reverse_copy(op, gradient)
            case _:
                raise GapError(op.op, "counterpart in the backward pass")

    def _reverse_copy(self, op: CollectiveOp, gradient: Tensor) -> None:
        """Send a gradient back the way its tensor came, reduced where it is a partial sum."""
        if op.op == "all-to-all":
            self._back(op, "all-to-all", gradient)
        # Where all ranks have the same gradient of a gathered tensor, each takes its own part.
        elif op.axis not in gradient.partial:
            out = replace(self.gradient(op.read, ()), partial=gradient.partial)
            self._pass("slice", (gradient,), (out,), "B_input", view=True)
            self.give(op.read, out)
        elif op.ring:
            self._back(op, "permute", gradient)
        else:
            self._back(op, "reduce-scatter", gradient)

    def _gather_tokens(self, op: Elementwise, gradient: Tensor) -> None:
        """Gather the gradient of tokens that each rank sliced from identical copies."""
        if "tp" not in gradient.axes:
            self.give(op.reads[0], gradient)
            return
        out = self._carried(op.reads[0], gradient)
        out = replace(out, partial=gradient.partial)
        ranks = self.grid.ranks("tp")
        self.ops.append(collective_op("all-gather", "tp", "B_input", (gradient, out), ranks))
        self.give(op.reads[0], out)

    def _carried(self, tensor: Tensor, gradient: Tensor) -> Tensor:
        """Gradient of an exchanged tensor; beside an fp32 stream it stays as it comes."""
        out = self.gradient(tensor, ())
        return out if self.grid.recipe.stream is None else replace(out, format=gradient.format)

    def _back(self, op: CollectiveOp, kind: Op, gradient: Tensor) -> None:
        settles = kind in ("reduce-scatter", "permute")
        out = replace(
            self._carried(op.read, gradient),
            partial=gradient.partial - {op.axis} if settles else gradient.partial,
        )
        self.ops.append(
            replace(
                op,
                name=out.name,
                op=kind,
                phase="B_input",
                read=gradient,
                write=out,
                ring="reduce" if op.ring else "",
            )
        )
        self.give(op.read, out)

    # Emission

    def _pass(
        self,
        function: str,
        reads: tuple[Tensor, ...],
        writes: tuple[Tensor, ...],
        phase: Phase,
        *,
        view: bool = False,
        count: FloatArray = ONE,
    ) -> None:
        self.ops.append(
            Elementwise(
                name=writes[0].name,
                function=function,
                phase=phase,
                reads=reads,
                writes=writes,
                view=view,
                count=count,
            )
        )
