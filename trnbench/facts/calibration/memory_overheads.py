"""What a training stack holds in memory beside what its tensors, each stored once, would take.

The defaults are those of a stack that holds nothing more: a file without the table `[memory]` means
what a step's program says.
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
    """Copies and buffers of a training stack; a number may be a row of samples.

    `whole`: memory held over what all of this says, but for `runtime` and `communicator`; its range
    is how far measured memory lies from predicted.
    `states`: weights, gradients and optimizer state held, over what they take once.
    `gradient_copies`: further sets of gradients in the weights' format, as an eager framework has
    beside those it adds up in fp32.
    `activations`: what layers keep for the backward pass, over what it reads: operations that are
    not fused keep their inputs too.
    `gathered`: the part of the tensors gathered from tensor-parallel ranks that is kept for the
    backward pass, not gathered again.
    `logits`: further fp32 copies of the logits while the loss is computed.
    `runtime`: bytes of a rank that the framework and its runtime hold.
    `communicator`: bytes of buffers for each group of ranks that a rank is a member of.
    """

    whole: Ratios = 1.0
    states: Ratios = 1.0
    gradient_copies: Ratios = 0.0
    activations: Ratios = 1.0
    gathered: Ratios = field(default=0.0, metadata={"most": 1.0})
    logits: Ratios = 0.0
    runtime_bytes: Sizes = 0.0
    communicator_bytes: Sizes = 0.0

    def __post_init__(self) -> None:
        """Refuse what is negative, and less than nothing held."""
        numbers = numbers_of(self)
        check_numbers(numbers)
        for name in ("whole", "states", "activations"):
            if ends_of(numbers[name])[0] <= 0:
                raise ValueError(f"`{name}` must be above 0")
        if ends_of(self.gathered)[1] > 1:
            raise ValueError("`gathered` must be from 0 to 1")


PLAIN = MemoryOverheads()
"""Of a stack that holds every tensor once and nothing else."""
