"""Kernels between a decoder's matrix products, timed alone: passes, scores, loss, update.

Each is timed forward and backward as the compiler fuses it, with the sizes of a decoder's layer.
The bytes are those of the step's program, so that the measured time over them gives the stack's
factors (`elementwise_traffic` and the like).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from trnbench.evidence.measure.kernels import KernelTime
from trnbench.evidence.measure.loops import AllDevices
from trnbench.evidence.measure.pieces import Array, Pieces
from trnbench.evidence.measure.suites import DecoderCase
from trnbench.evidence.model_of import WholeShape
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.model import Attention, Model, Position, Transformer, Vocabulary
from trnbench.program.ops import Elementwise, MatMul
from trnbench.program.precision import recipe_named
from trnbench.program.step import StepProgram, training_step
from trnbench.program.tensor import element_bytes

LayerPart: TypeAlias = tuple[Callable[..., Any], Sequence[tuple[int, ...]]]
"""A function of arrays, and the shapes of these on one device."""

LAYER, SCORES, LOSS, UPDATE, CORE = "layer", "scores", "loss", "adamw", "attention"
"""What rows call these kernels; of the first three and the last one forward and backward apart."""
FORWARD, BACKWARD = "forward", "backward"
_COPIES = 2
"""Layers per program, each on arrays of its own."""
_HELD = 4.0
"""Copies of the arrays in memory: inputs, results, and the gradients of both."""


def model_of(case: DecoderCase) -> Model:
    """A case's decoder as a model of the catalogue would be."""
    shape = WholeShape(
        layers=case.layers,
        hidden=case.hidden,
        heads=case.heads,
        kv_heads=case.heads,
        ffn=case.ffn,
        vocab=case.vocab,
        mlp="swiglu",
    )
    attention = Attention(
        heads=case.heads, kv_heads=case.heads, head_size=shape.size_of_head, causal=True
    )
    return Model(
        name="measured",
        title="measured",
        transformer=Transformer(
            layers=case.layers,
            hidden=case.hidden,
            norm="rms",
            attention=attention,
            mlp=shape.feed_forward,
            position=Position(encoding="rotary", length=case.sequence, rotary_base=10000.0),
        ),
        vocabulary=Vocabulary(size=case.vocab, tied=False),
    )


def layout_of_case(case: DecoderCase) -> Layout:
    """Layout of a case's step."""
    return Layout(
        tp=case.tp,
        dp=case.dp,
        micro_batch=case.micro_batch,
        global_batch=case.global_batch,
        sequence=case.sequence,
        precision=case.precision,
        attention=case.attention,
    )


def chains(machine: AllDevices, case: DecoderCase) -> Iterator[KernelTime]:
    """Yield the kernels between the products of a case's step, on one device's part of it."""
    timed = _Timed(machine, case)
    yield from timed.both(LAYER, timed.layer())
    if case.attention == "naive":
        yield from timed.both(SCORES, timed.scores())
    else:
        yield from timed.both(CORE, timed.fused())
    yield from timed.both(LOSS, timed.loss())
    yield timed.update()


class _Timed:
    """The parts of a case's step other than products, ready to be timed."""

    def __init__(self, machine: AllDevices, case: DecoderCase) -> None:
        self.machine, self.case = machine, case
        self.pieces = Pieces(machine.jax)
        self.mesh = machine.mesh(d=len(machine.devices))
        self.format = recipe_named(case.precision).activations
        self.program = training_step(model_of(case), layout_of_case(case))
        self.batch, self.tokens = case.micro_batch, case.sequence
        self.heads, self.size = case.heads // case.tp, case.hidden // case.heads

    def layer(self) -> LayerPart:
        """The passes between a layer's products, and their input shapes."""
        wide = (self.batch, self.tokens, self.case.hidden)
        mixed = (self.batch, self.tokens, 3 * self.heads * self.size)
        context = (self.batch, self.heads, self.tokens, self.size)
        ffn = (self.batch, self.tokens, 2 * self.case.ffn // self.case.tp)
        weight = (self.case.hidden,)

        def run(*a: Array) -> tuple[Array, ...]:
            joined = self.pieces.joined(a[0], a[1], a[2])
            other = self.pieces.joined(a[3], a[4], a[5])
            heads = self.pieces.heads(a[6], self.size)
            return (*joined, *other, *heads, self.pieces.merged(a[7]), self.pieces.gated(a[8]))

        return run, [wide, wide, weight, wide, wide, weight, mixed, context, ffn]

    def scores(self) -> LayerPart:
        shape = (self.batch, self.heads, self.tokens, self.tokens)
        return lambda x: (self.pieces.probabilities(x),), [shape]

    def fused(self) -> LayerPart:
        """Fused attention, and its input shapes."""
        kernel = self.machine.can.fused_attention

        def run(query: Array, key: Array, value: Array) -> tuple[Array]:
            return (self.pieces.fused(query, key, value, kernel),)

        return run, [(self.batch, self.heads, self.tokens, self.size)] * 3

    def loss(self) -> LayerPart:
        """The loss of logits, and its input shapes."""
        np = self.machine.jax.numpy

        def run(logits: Array) -> tuple[Array]:
            # The shift only prevents overflow; its gradient cancels.
            largest = self.machine.jax.lax.stop_gradient(logits.astype(np.float32).max(axis=-1))
            place = np.zeros(logits.shape[:2], np.int32)
            return (self.pieces.statistics(logits, place, largest),)

        return run, [(self.batch, self.tokens, self.case.vocab // self.case.tp)]

    def both(self, name: str, of: LayerPart) -> Iterator[KernelTime]:
        """Yield a part forward, then backward from the gradients of its results."""
        run, shapes = of
        elements = sum(math.prod(shape) for shape in shapes)
        width = element_bytes(self.format)
        self.machine.check_memory(_HELD * _COPIES * elements * width, f"{name} {self.case.part}")
        jax, mesh = self.machine.jax, self.mesh
        given = tuple(
            tuple(
                self.machine.random(mesh, shape, self.format, 10 * i + j)
                for j, shape in enumerate(shapes)
            )
            for i in range(_COPIES)
        )

        def forward(sets: Any) -> Any:  # noqa: ANN401
            return [tuple(x[None] for x in run(*(x[0] for x in arrays))) for arrays in sets]

        outs = self.machine.on_all(forward, mesh)(given)

        def backward(sets: Any, gradients: Any) -> Any:  # noqa: ANN401
            results = []
            for arrays, out in zip(sets, gradients, strict=True):
                _, pull = jax.vjp(run, *(x[0] for x in arrays))
                results.append(tuple(x[None] for x in pull(tuple(x[0] for x in out))))
            return results

        for phase, program, arguments in (
            (FORWARD, forward, (given,)),
            (BACKWARD, backward, (given, outs)),
        ):
            timing = self.machine.time(self.machine.on_all(program, mesh), *arguments)
            yield KernelTime(
                kernel=f"{name} {phase}",
                shape=self.case.part,
                format=self.format,
                timing=timing.each(_COPIES),
                bytes=program_bytes(self.program, name, backward=phase == BACKWARD),
                flop=self._core_flop(phase == BACKWARD) if name == CORE else 0.0,
            )

    def _core_flop(self, backward: bool) -> float:
        pairs = self.batch * self.heads * self.tokens**2 / 2
        return (10 if backward else 4) * pairs * self.size

    def update(self) -> KernelTime:
        """The optimizer's pass over a layer's weights."""
        case, mesh, np = self.case, self.mesh, self.machine.jax.numpy
        counted = _counted_update(self.program)
        layer = round(float(counted.writes[0].elements))
        self.machine.check_memory(_HELD * 2 * 4.0 * layer, f"{UPDATE} of {layer:,} weights")
        arrays = tuple(self.machine.random(mesh, (layer,), "fp32", seed) for seed in range(4))
        narrow = self.machine.dtype(recipe_named(case.precision).weights)

        def run(weight: Array, gradient: Array, mean: Array, square: Array) -> tuple[Array, ...]:
            norm = np.sqrt(np.sum(gradient * gradient))
            state = (mean, np.abs(square))
            clip = 1.0 / np.maximum(1.0, norm)
            new, moments = self.pieces.updated(weight, gradient, state, np.float32(3), clip)
            return (new.astype(narrow), new, *moments)

        timing = self.machine.time(self.machine.on_all(run, mesh), *arrays)
        return KernelTime(
            kernel=UPDATE,
            shape=f"N{layer}",
            format=recipe_named(case.precision).weights,
            timing=timing,
            bytes=float(counted.bytes),
        )


def program_bytes(program: StepProgram, name: str, *, backward: bool) -> float:
    """Bytes that a part moves in one run on a device, by the step's program.

    For scores: the size of all scores, once; the fit counts touches of them.
    """
    block = program.blocks["head" if name == LOSS else "dense"]
    if name in (SCORES, CORE):
        scores = next(
            (op for op in block.ops if isinstance(op, MatMul) and op.name == SCORES), None
        )
        return float(scores.terms[0].out.bytes) if scores else 0.0
    found = 0.0
    for op in block.ops:
        if not isinstance(op, Elementwise) or op.phase == "optimizer" or op.region == "core":
            continue
        of_loss = not any(word in op.function for word in ("norm", "add"))
        if (op.phase != "F") is backward and (name != LOSS or of_loss):
            found += float(op.bytes * op.count)
    return found


def _counted_update(program: StepProgram) -> Elementwise:
    ops = program.blocks["dense"].ops
    return next(op for op in ops if isinstance(op, Elementwise) and op.phase == "optimizer")
