"""Memory of a training stack beyond its tensors stored once.

Defaults describe a stack without overhead: a file without a `[memory]` table means the memory of
the step's program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbench.facts.calibration.chip_efficiency import check_numbers, ends_of, numbers_of
from trnbench.facts.catalog.quantity import Bytes, Ratio
from trnbench.facts.records import Record, field

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

    Ratios = float | NDArray[float64]
    Sizes = float | NDArray[float64]
else:
    # A file holds single numbers; rows of samples arise only in a fit.
    Ratios = Ratio
    Sizes = Bytes


class MemoryOverheads(Record):
    """Extra copies and buffers of a training stack; a number may be a row of samples."""

    whole: Ratios = 1.0
    """Factor on all memory but `runtime_bytes` and `communicator_bytes`.

    Its range is the error of predicted memory against measurements.
    """
    states: Ratios = 1.0
    """Factor on weights, gradients and optimizer state."""
    gradient_copies: Ratios = 0.0
    """Extra sets of gradients in the weights' format, besides those accumulated in fp32."""
    activations: Ratios = 1.0
    """Factor on the activations read by the backward pass; unfused operations keep inputs too."""
    gathered: Ratios = field(default=0.0, metadata={"most": 1.0})
    """Share of the tensors gathered from tensor-parallel ranks kept for the backward pass."""
    logits: Ratios = 0.0
    """Extra fp32 copies of the logits during the loss."""
    runtime_bytes: Sizes = 0.0
    """Memory of the framework and its runtime per rank, bytes."""
    communicator_bytes: Sizes = 0.0
    """Buffers per communicator that a rank belongs to, bytes."""

    def __post_init__(self) -> None:
        numbers = numbers_of(self)
        check_numbers(numbers)
        for name in ("whole", "states", "activations"):
            if ends_of(numbers[name])[0] <= 0:
                raise ValueError(f"`{name}` must be above 0")
        if ends_of(self.gathered)[1] > 1:
            raise ValueError("`gathered` must be from 0 to 1")


PLAIN = MemoryOverheads()
"""A stack that stores every tensor once, without overhead."""
