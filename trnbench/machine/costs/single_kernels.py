"""Bytes and kernels of a pass where every function of the framework is a kernel of its own.

Counted from the source of transformers 5 (`models/llama/modeling_llama.py`, `loss/loss_utils.py`)
and PyTorch 2.11 (`derivatives.yaml`, `native/cuda/SoftMax.cu`), and seen so in a profile: what each
kernel reads and writes of one element, in the format of activations (narrow) or in fp32 (wide).

A norm without bias is written out in Python: cast to fp32, square, mean, product, cast, scale; its
backward pass squares by three kernels and adds two gradients. One with a bias is a fused kernel.
Rotary positions are two products, a half turned and joined, and a sum; backward both halves are
cut out into zeros. Under autocast they are computed in fp32, and cast for attention. A softmax over
words reads its row, and its gradient two rows, again from a cache that holds a part of them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import Record
from trnbench.program.ops import Elementwise, MatMul
from trnbench.program.parameters import A, B
from trnbench.program.precision import PrecisionRecipe
from trnbench.program.tensor import ONE, Tensor, array, element_bytes, total

WIDE = "fp32"
"""Format of statistics in eager code."""


class Touches(Record, kw_only=False):
    """Reads and writes of an element by the kernels of one pass, by format, and the kernels."""

    narrow: float
    wide: float
    kernels: int


class KernelTraffic(Record, eq=False):
    """Bytes that a pass moves, and the number of its kernels."""

    bytes: FloatArray
    kernels: float


_GATE, _GATE_BACK = Touches(narrow=5, wide=0, kernels=2), Touches(narrow=9, wide=0, kernels=3)
_TURN, _TURN_BACK = Touches(narrow=10, wide=0, kernels=10), Touches(narrow=15, wide=0, kernels=18)
_TURN_WIDE = Touches(narrow=6, wide=6, kernels=12)
_TURN_WIDE_BACK = Touches(narrow=14, wide=7, kernels=22)
_NORM, _NORM_BACK = Touches(narrow=4, wide=7, kernels=6), Touches(narrow=8, wide=19, kernels=14)
_NORM_WIDE, _NORM_WIDE_BACK = (
    Touches(narrow=0, wide=7, kernels=5),
    Touches(narrow=0, wide=23, kernels=12),
)
TOUCHES: Mapping[str, Touches] = {
    "silu_gate": _GATE,
    "d_silu_gate": _GATE_BACK,
    "gelu_gate": _GATE,
    "d_gelu_gate": _GATE_BACK,
    "relu_gate": _GATE,
    "d_relu_gate": _GATE_BACK,
    "rotary": _TURN,
    "d_rotary": _TURN_BACK,
    # The cast to fp32 and the softmax are counted where its sums are made.
    "row_max": Touches(narrow=0, wide=0, kernels=0),
    "exponential_sums": Touches(narrow=1, wide=4.5, kernels=3),
    "d_exponential_sums": Touches(narrow=1, wide=6, kernels=3),
}
"""Passes by function; those of others move what the program's operation reads and writes."""
_NONE = Touches(narrow=0, wide=0, kernels=0)
_IN_PARTS: Mapping[str, Touches] = {
    "row_max": _NONE,
    "exponential_sums": Touches(narrow=3, wide=0, kernels=1),
    "d_exponential_sums": _NONE,
}
"""Passes over logits that a fused kernel turns into their gradient in place, part by part."""


def moved(op: Elementwise, recipe: PrecisionRecipe) -> KernelTraffic:
    """Bytes and kernels of a pass in a recipe's formats."""
    widest = max((*op.reads, *op.writes), key=_size)
    turned = op.function in ("rotary", "d_rotary")
    touches = TOUCHES.get(op.function)
    if op.function in ("norm", "d_norm"):
        touches = _norm(op)
    elif op.function in _IN_PARTS and widest.pieces is not ONE:
        touches = _IN_PARTS[op.function]
    elif turned and recipe.residual == WIDE != recipe.activations:
        touches = _TURN_WIDE if op.function == "rotary" else _TURN_WIDE_BACK
    if op.function == "add" and len(op.reads) > 2:
        pairs = len(op.reads) - 1
        return KernelTraffic(bytes=array(3 * pairs * op.writes[0].bytes), kernels=pairs)
    if touches is None or op.view:
        return KernelTraffic(bytes=op.bytes, kernels=0 if op.view else 1)
    each = touches.narrow * element_bytes(recipe.activations) + touches.wide * element_bytes(WIDE)
    # Rotary positions turn queries and keys by kernels of their own.
    elements = total(tensor.elements for tensor in op.writes) if turned else widest.elements
    return KernelTraffic(bytes=array(elements * each), kernels=touches.kernels)


def around(op: MatMul, recipe: PrecisionRecipe) -> KernelTraffic:
    """Bytes and kernels beside products: gradients of a shared input added up, operands cast.

    The program joins products that share their input. Where operands are cast for each pass, every
    product casts its own input and weight, and both gradients back.
    """
    parts = len(op.terms)
    joined = len(op.writes) == 1
    narrow, wide = (element_bytes(name) for name in (op.format, WIDE))
    # A product more is written, and read with the sum so far, which is written again.
    size = np.zeros(())
    kernels = 0
    if op.backward and joined and parts > 1:
        written = wide if recipe.cached else narrow
        size = size + (parts - 1) * op.writes[0].elements * (narrow + 3 * written)
        kernels += parts - 1
    if recipe.cached and op.format == recipe.linear:
        cast = narrow + wide
        if op.phase in ("F", "recompute"):
            casts = [term.right.elements for term in op.terms if term.right.role == "weight"]
            casts += [op.terms[0].left.elements] * (parts - 1)
        elif op.phase == "B_weight":
            casts = [term.out.elements for term in op.terms]
        else:
            casts = [op.writes[0].elements] * parts
        size = size + cast * total(casts)
        kernels += len(casts)
    return KernelTraffic(bytes=array(size), kernels=kernels)


_ADAPTER = {("F", A): 6, ("F", B): 18, ("B_input", A): 6, ("B_input", B): 14}
"""Bytes an element: input cast, result scaled, added in fp32 and cast, gradients back."""


def adapted(op: MatMul) -> KernelTraffic:
    """Bytes and kernels beside a product of an adapter that computes in fp32 (huggingface/peft)."""
    (term, *_) = op.terms
    phase = "F" if op.phase == "recompute" else op.phase
    each = next(
        (n for (of, e), n in _ADAPTER.items() if of == phase and term.right.name.endswith(e)), 0
    )
    forward_a = phase == "F" and term.right.name.endswith(A)
    back_b = phase != "F" and term.right.name.endswith(B)
    of = term.left if forward_a or back_b else term.out
    return KernelTraffic(bytes=array(each * of.elements), kernels=3 if each else 0)


def _norm(op: Elementwise) -> Touches | None:
    """Touches of a norm; None for a fused kernel, which those with a bias have."""
    of = op.reads if op.function == "norm" else op.writes
    if len(of) > 2:
        return None
    wide = op.reads[0].format == WIDE
    if op.function == "norm":
        return _NORM_WIDE if wide else _NORM
    return _NORM_WIDE_BACK if wide else _NORM_BACK


def _size(tensor: Tensor) -> float:
    return float(tensor.elements.max())
