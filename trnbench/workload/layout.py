"""How one training step is spread over ranks and in time.

Whether a layout divides, is legal on a platform or fits in memory is an answer that others give;
here only malformed values are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import attrs

from trnbench.catalog.quantity import Ratio
from trnbench.workload.sizes import MAY_BE_ZERO, check_sizes

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

    Degree = int | NDArray[int64]
else:
    # A file holds whole numbers; arrays (grids of layouts) arise only inside the program.
    Degree = int

Recompute = Literal["none", "selective", "full"]
Schedule = Literal["gpipe", "1f1b", "interleaved", "zb-h1"]
ZeroStage = Literal[0, 1, 2, 3]
AttentionKernel = Literal["naive", "fused"]


@attrs.frozen(kw_only=True)
class Layout:
    """The parallel degrees, batch and execution mode of a training step.

    The ranks are tp * pp * cp * dp; expert parallelism takes its `ep` ranks out of cp * dp.
    `vpp` is the number of model chunks on each pipeline stage, `global_batch` counts sequences (or
    samples), `sequence` tokens. Degrees and batch sizes may be arrays that broadcast together.
    Selective recompute repeats the attention core. Without `capacity_factor` no token is dropped.
    """

    tp: Degree = 1
    pp: Degree = 1
    dp: Degree = 1
    cp: Degree = 1
    ep: Degree = 1
    vpp: Degree = 1
    micro_batch: Degree = 1
    global_batch: Degree
    sequence: Degree
    zero: ZeroStage = attrs.field(default=0, metadata=MAY_BE_ZERO)
    sequence_parallel: bool = False
    recompute: Recompute = "none"
    schedule: Schedule = "1f1b"
    attention: AttentionKernel = "fused"
    capacity_factor: Ratio | None = None
    precision: str

    def __attrs_post_init__(self) -> None:
        """Refuse values that mean nothing on any machine."""
        check_sizes(self)
        for name, kind in (
            ("zero", ZeroStage),
            ("recompute", Recompute),
            ("schedule", Schedule),
            ("attention", AttentionKernel),
        ):
            if getattr(self, name) not in get_args(kind):
                known = ", ".join(str(choice) for choice in get_args(kind))
                raise ValueError(f"`{name}` must be one of {known}; found {getattr(self, name)!r}")
        if self.capacity_factor is not None and self.capacity_factor <= 0:
            raise ValueError(f"`capacity_factor` must be above 0, found {self.capacity_factor}")

    @property
    def ranks(self) -> Degree:
        """The number of ranks the layout spans."""
        return self.tp * self.pp * self.cp * self.dp
