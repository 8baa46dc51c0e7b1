"""Costs besides the chip's work: launches by the host, copies in memory, and rates of jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from trnbench.facts.calibration.chip_efficiency import (
    PART,
    Numbers,
    Ratios,
    Times,
    check_numbers,
    check_shares,
    ends_of,
    numbers_of,
)
from trnbench.facts.calibration.coverage import Spread
from trnbench.facts.catalog.document import load_named
from trnbench.facts.catalog.provenance import Sourced
from trnbench.facts.catalog.quantity import Bytes, BytesPerS
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.records import Record, field

if TYPE_CHECKING:
    Rates = Numbers
    Sizes = Numbers
else:
    # A file holds single numbers; rows of samples arise only in a fit or a prediction.
    Rates = BytesPerS
    Sizes = Bytes

Dispatch = Literal["eager", "compiled", "graph"]


class HostLaunch(Record):
    """Host processor time of a rank per launched item, s, with `cores` vCPUs or in proportion."""

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
        check_shares(self)
        if self.dispatch != "graph" and ends_of(self.graph_s)[1] > 0:
            raise ValueError("`graph` is the cost of a graph, and `dispatch` is not `graph`")


class JobRates(Sourced):
    """Rates of engines that write answers, and of hosts, from `calibration/job-rates.toml`."""

    name: str
    title: str
    engine_share: Ratios
    """Share of memory bandwidth and of peak that engines reach."""
    host_link_bytes_per_s: Rates
    """Link of one chip to its host's memory, one way, where its instance's file states none."""
    host_link_share: Ratios
    """Share reached of a link that the instance's file states."""
    offload_overlap: Ratios
    """Share of a micro-batch's device time behind which activations travel to the host and back."""
    host_memory_bytes_per_s: Rates
    """Bandwidth of a host's memory for its processors, shared by all ranks of a node."""
    answers: Spread
    """Measured over predicted times of steps that write answers."""

    def __post_init__(self) -> None:
        for name in ("engine_share", "host_link_share", "offload_overlap"):
            least, most = ends_of(getattr(self, name))
            if not 0 < least <= most <= 1:
                raise ValueError(f"`{name}` must be above 0 and at most 1")


def load_job_rates(catalog: Catalog) -> JobRates:
    """The assumed rates, or the user's own of the same name."""
    return load_named(catalog, "calibration", "job-rates", JobRates)


GradientsMade = Literal["before", "backward"]
"""`before`: in buffers that stay; `backward`: each by the pass that makes it, gone after the update
(PyTorch's `zero_grad(set_to_none=True)`)."""


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
    unfused: Ratios = 0.0
    """Share of what single kernels keep beside the program's tensors: casts in norms, the gate's
    activation, scores in fp32."""
    adapter_inputs: Ratios = 0.0
    """Copies in fp32 of its input that every adapter keeps for the backward pass."""
    gradients_made: GradientsMade = "before"
    """Time from which gradients are in memory: the whole step, or the backward that makes them."""
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

    @property
    def holds_copies(self) -> bool:
        """True where the stack holds more than the program's tensors."""
        more = self.gradient_copies, self.gathered, self.logits, self.unfused, self.adapter_inputs
        return any(ends_of(one)[1] > 0 for one in more)


PLAIN = MemoryOverheads()
"""A stack that stores every tensor once, without overhead."""
