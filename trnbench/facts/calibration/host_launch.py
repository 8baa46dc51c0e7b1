"""Host costs of launching the work of a step: numbers of a stack and of the host's cores."""

from __future__ import annotations

from typing import Literal

from trnbench.facts.calibration.chip_efficiency import PART, Ratios, Times, ends_of
from trnbench.facts.records import Record, field

Dispatch = Literal["eager", "compiled", "graph"]


class HostLaunch(Record):
    """Host processor time of a rank per launched item, s.

    The times hold for `cores` vCPUs per accelerator core in use; fewer vCPUs take longer in
    proportion.
    """

    dispatch: Dispatch
    """Launch of single kernels (`eager`), fused kernels (`compiled`), or whole graphs (`graph`)."""
    layer_pass_s: Times = 0.0
    """Per pass through a layer: forward, recomputation, backward, and a graph's optimizer."""
    exchange_s: Times = 0.0
    """Per exchange with other ranks in a block."""
    piped_exchange_s: Times = 0.0
    """Per exchange and per rank in it, where pipeline messages leave the node."""
    graph_s: Times = 0.0
    """Per graph of a micro-batch or of the optimizer."""
    cores: Ratios = 1.0
    """vCPUs per accelerator core in use for which these times hold."""
    overlap: Ratios = field(default=1.0, metadata=PART)
    """Share of the shorter of launching and computing that runs in parallel: 1 max, 0 sum."""
    slot_share: Ratios = field(default=0.0, metadata=PART)
    """Share of the per-micro-batch costs that each interleaved pipeline chunk repeats.

    These are `graph_s`, and the stack's `micro_batch_s` and `piped_micro_batch_s`.
    """

    def __post_init__(self) -> None:
        """Refuse fractions above 1, and graph costs of a stack without graphs."""
        for name in ("overlap", "slot_share"):
            least, largest = ends_of(getattr(self, name))
            if not 0 <= least <= largest <= 1:
                raise ValueError(f"`{name}` must be from 0 to 1")
        if self.dispatch != "graph" and ends_of(self.graph_s)[1] > 0:
            raise ValueError("`graph` is the cost of a graph, and `dispatch` is not `graph`")
