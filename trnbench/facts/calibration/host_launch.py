"""What it costs a host to launch the work of a step: numbers of a stack and of the host's cores."""

from __future__ import annotations

from typing import Literal

from trnbench.facts.calibration.chip_efficiency import PART, Ratios, Times, ends_of
from trnbench.facts.records import Record, field

Dispatch = Literal["eager", "compiled", "graph"]


class HostLaunch(Record):
    """Seconds of a rank's host processors for each thing that they launch.

    `dispatch`: whether kernels are launched one by one (`eager`), fused ones (`compiled`), or whole
    compiled graphs, the optimizer's among them. `layer_pass`: of each pass through a layer
    (forward, again, backward; the optimizer's too, where it is a graph); `exchange`: of each
    exchange with other ranks in a block; `piped_exchange`: of each exchange and each rank that it
    is among, where the messages of a pipeline leave the node; `graph`: of a micro-batch's graphs,
    and of the optimizer's. These hold where the host has `cores` vCPUs for each core of the chips
    that is in use; where it has fewer, launching takes longer in proportion. `overlap`: of
    launching and computing one micro-batch, the part of the shorter one that runs beside the other;
    with 1 a micro-batch takes the longer of the two, with 0 both. `slot_share`: how much of what a
    micro-batch costs once (`graph`, and the stack's `micro_batch` and `piped_micro_batch`) each
    chunk of an interleaved pipeline costs again: 1 all of it, 0 nothing.
    """

    dispatch: Dispatch
    layer_pass_s: Times = 0.0
    exchange_s: Times = 0.0
    piped_exchange_s: Times = 0.0
    graph_s: Times = 0.0
    cores: Ratios = 1.0
    overlap: Ratios = field(default=1.0, metadata=PART)
    slot_share: Ratios = field(default=0.0, metadata=PART)

    def __post_init__(self) -> None:
        """Refuse parts above 1, and graphs of a stack that launches none."""
        for name in ("overlap", "slot_share"):
            least, largest = ends_of(getattr(self, name))
            if not 0 <= least <= largest <= 1:
                raise ValueError(f"`{name}` must be from 0 to 1")
        if self.dispatch != "graph" and ends_of(self.graph_s)[1] > 0:
            raise ValueError("`graph` is the cost of a graph, and `dispatch` is not `graph`")
