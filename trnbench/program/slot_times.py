"""How long the slots of a micro-batch take, and over which lane their messages go.

The one record of seconds by slot: the closed form of a pipeline, the prices of a stage and the
schedule emulator all speak of it.
"""

from __future__ import annotations

from typing import Generic, Literal, TypeAlias, TypeVar, get_args

from numpy.typing import ArrayLike

from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import Record

Lane: TypeAlias = Literal["links", "network"]
"""What carries a message: the links inside an instance, or the network between instances."""
LANES: tuple[Lane, ...] = get_args(Lane)

Seconds = TypeVar("Seconds", bound=ArrayLike, covariant=True)


class SlotTimes(Record, Generic[Seconds], eq=False):
    """Seconds of one micro-batch in its forward, its backward and its weight-gradient slot.

    `backward_s` holds the input gradients and what is recomputed for them; a schedule that does not
    split the backward runs `weight_s` in the same slot.
    """

    forward_s: Seconds
    backward_s: Seconds
    weight_s: Seconds

    @property
    def all_s(self: SlotTimes[FloatArray]) -> FloatArray:
        """The three slots together, s."""
        return self.forward_s + self.backward_s + self.weight_s
