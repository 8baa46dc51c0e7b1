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
