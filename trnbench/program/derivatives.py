"""Tensors that the backward pass of each element-wise function reads: one table."""

from __future__ import annotations

from collections.abc import Mapping

from trnbench.facts.records import Record


class Derivative(Record):
    """Tensors that the gradient of one function reads, and how it flows back."""

    inputs: tuple[int, ...] = ()  # positions of the forward inputs read again
    outputs: tuple[int, ...] = ()  # positions of the forward outputs read again
    passes: bool = False  # the result's gradient is that of each activation read
    constant: bool = False  # no gradient flows back


# The fewer tensors a gradient reads, the fewer a block keeps: of functions whose derivative follows
# from the result (softmax, tanh, relu) the result is kept, which the next operation reads anyway.
_LINEAR = Derivative()
_OF_INPUT = Derivative(inputs=(0,))
_OF_INPUTS = Derivative(inputs=(0, 1))
_OF_OUTPUT = Derivative(outputs=(0,))
_PASSES = Derivative(passes=True)

DERIVATIVES: Mapping[str, Derivative] = {
    "add": _PASSES,
    "add_once": _PASSES,
    "cast": _PASSES,
    "rotary": _LINEAR,
    "join_rotated": _LINEAR,
    "join_token": _LINEAR,
    "join": _LINEAR,
    "merge": _LINEAR,
    "repeat_heads": _LINEAR,
    "scale_mask": _LINEAR,
    "first_token": _LINEAR,
    "mean_token": _LINEAR,
    "squares": _OF_INPUT,
    "norm_by": Derivative(inputs=(0, 1, 2)),
    "softmax": _OF_OUTPUT,
    "tanh": _OF_OUTPUT,
    "relu": _OF_OUTPUT,
    "relu2": _OF_INPUT,
    "pool": Derivative(inputs=(0, 1, 2, 3, 4)),
    "gelu": _OF_INPUT,
    "silu": _OF_INPUT,
    "relu_gate": _OF_INPUTS,
    "sigmoid_gate": _OF_INPUTS,
    "convolve": Derivative(inputs=(0, 1, 2)),
    "scan_rates": Derivative(inputs=(0, 1, 2)),
    "delta_rates": Derivative(inputs=(0, 1, 2, 3)),
    "skip": Derivative(inputs=(1, 2)),
    "gated_norm": Derivative(inputs=(0, 1, 2)),
    "norm_gate": Derivative(inputs=(0, 1, 2)),
    "weighed": Derivative(inputs=(0, 1, 2)),
    "gelu_gate": _OF_INPUTS,
    "silu_gate": _OF_INPUTS,
    "dropout": Derivative(outputs=(1,)),
    "norm": _OF_INPUTS,
    "modulate": _OF_INPUTS,
    "gate_add": Derivative(inputs=(1, 2)),
    "route": Derivative(outputs=(0, 1)),
    "combine": Derivative(inputs=(0, 1, 2)),
    "cross": _OF_INPUTS,
    "row_max": Derivative(constant=True),
    "unpack": Derivative(constant=True),
    "own_tokens": _LINEAR,
    "exponential_sums": Derivative(inputs=(0, 1, 2)),
    "cross_entropy": _OF_INPUT,
    "sequence_sum": _LINEAR,
    "preference_loss": _OF_INPUTS,
    "policy_loss": Derivative(inputs=(0, 1, 2)),
    "class_entropy": _OF_INPUTS,
    "binary_entropy": _OF_INPUTS,
    "squared_error": _OF_INPUTS,
}
