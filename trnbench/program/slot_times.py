"""Seconds of a micro-batch's slots, and the lane that carries its messages.

The closed form of a pipeline, the prices of a stage and the schedule emulator share this record.
"""

from __future__ import annotations

from typing import Generic, Literal, TypeAlias, TypeVar, get_args

from numpy.typing import ArrayLike

from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import Record

Lane: TypeAlias = Literal["links", "network"]
"""Carrier of a message: links inside an instance, or the network between instances."""
LANES: tuple[Lane, ...] = get_args(Lane)

Seconds = TypeVar("Seconds", bound=ArrayLike, covariant=True)


class SlotTimes(Record, Generic[Seconds], eq=False):
    """Seconds of one micro-batch in its forward, its backward and its weight-gradient slot."""

    forward_s: Seconds
    backward_s: Seconds  # input gradients, and recompute for them
    weight_s: Seconds  # in the backward slot unless the schedule splits it

    @property
    def all_s(self: SlotTimes[FloatArray]) -> FloatArray:
        """Seconds of the three slots together."""
        return self.forward_s + self.backward_s + self.weight_s
