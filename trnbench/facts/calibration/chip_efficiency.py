"""Efficiency of chips and kernel libraries: shares of peak rates, extra traffic, fixed times.

Chip and library have a record each: many libraries run on one chip, and numbers fitted to one
library are wrong for the next. A number may be a row of posterior samples, one per draw of the
unknown parameters; all rows have the same length, and times get a last axis of samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Literal

from trnbench.errors import unhandled
from trnbench.facts.calibration.coverage import Spread
from trnbench.facts.catalog.provenance import Sourced
from trnbench.facts.catalog.quantity import Ratio, Seconds
from trnbench.facts.records import Record, RecordField, field, fields
from trnbench.facts.workload.choices import Dispatcher
from trnbench.facts.workload.recompute import PlainRecompute

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

    Ratios = float | NDArray[float64]
    Times = float | NDArray[float64]
    Numbers = float | NDArray[float64]
else:
    # A file holds single numbers; rows of samples arise only in a fit.
    Ratios = Ratio
    Times = Seconds
    Numbers = float

_SHARE = {"most": 1.0}
"""Metadata of shares of a peak: above 0, at most 1."""
PART = {"most": 1.0, "linear": True}
"""Metadata of fractions that may be 0; their ranges are linear, not logarithmic."""
_SHARES_OF_A_LIBRARY = ("attention_forward_share", "attention_backward_share")
_OF_A_LIBRARY = (
    *("score_touches_forward", "score_touches_backward"),
    *("elementwise_traffic", "optimizer_traffic", "block_pass_s"),
)
"""Numbers required of every kernel library."""
_WORDS = (
    *("name", "title", "chips", "inherits_from", "fitted_rows", "left_out", "releases"),
    *("provenance", "dispatch", "recompute", "between_chips", "passes", "gradients_made"),
)


class ChipEfficiency(Sourced):
    """Shares of a chip's peak rates that matrix products and memory reach, whatever the library."""

    name: str
    title: str
    chips: tuple[str, ...]
    inherits_from: str | None = None
    fitted_rows: tuple[str, ...] = ()
    """Measured steps behind the fit, of all stacks together."""
    left_out: tuple[str, ...] = ()
    """Fitted kernels as predicted without their own kind (`evidence.fit.left_out`)."""
    tensor_share: Ratios = field(metadata=_SHARE)
    """Share of the tensor units' peak that a deep product reaches, besides tiles, waves and
    padding.
    """
    half_share_depth: Numbers
    """Contraction depth, elements, of half that share; 0 where the chip models fill and drain."""
    narrow_share: Ratios = field(metadata=_SHARE)
    """Factor on `tensor_share` in 8-bit formats; 1 where nothing was measured."""
    memory_share: Ratios = field(metadata=_SHARE)
    """Share of the memory bandwidth that a stream reaches."""
    four_bit_share: Ratios = field(default=1.0, metadata=_SHARE)
    """Factor on the 8-bit share in 4-bit formats; 1 where nothing was measured."""
    narrow_extra_depth: Numbers = 0.0
    """Elements that 8-bit formats add to `half_share_depth`."""
    unaligned_share: Ratios = field(default=1.0, metadata=_SHARE)
    """Factor on the share of a product whose rows in memory are not aligned."""
    power_gain: Ratios = 1.0
    """Factor on all shares of the tensor units by more power than the measured chips draw."""
    attention_forward_share: Ratios = field(default=0.0, metadata=_SHARE)
    """Shares of fused attention kernels timed alone, as in `KernelEfficiency`; 0 without a timing.
    """
    attention_backward_share: Ratios = field(default=0.0, metadata=_SHARE)
    attention_keys: Numbers = 0.0
    """On a systolic array: width of a key tile. On a GPU: keys that take as long as what a tile of
    queries costs besides its keys, forward; in steps too, as the other shapes of attention below.
    """
    attention_backward_keys: Numbers = 0.0
    """The same of the backward pass on a GPU."""
    attention_tail_queries: Numbers = 0.0
    """Queries of the longest head that the last multiprocessor still has when others are done."""
    attention_forward_softmax: Numbers = 0.0
    """Elements of a head whose products take as long as the softmax of a pair, on a GPU."""
    attention_backward_softmax: Numbers = 0.0
    attention_wide_share: Ratios = field(default=1.0, metadata=_SHARE)
    """Factor on the backward share where heads exceed 128 elements, on a GPU."""
    attention_call_s: Times = 0.0
    """Launch of a program with one attention kernel, s."""
    attention_row_s: Times = 0.0
    """Cost per head and per systolic array height of queries, besides the tiles, s."""
    releases: dict[str, Ratios] = field(default_factory=dict)
    """Factor on all times per release of compiler and runtime, over the newest; stacks share them.
    """
    between_chips: Spread | None = None
    """Scatter of one recipe between chips of the type: no interval of a single chip is narrower."""

    def __post_init__(self) -> None:
        check_numbers(numbers_of(self))
        check_shares(self)
        check_numbers(self.releases)


Kernels = Literal["joined", "single"]
"""Kernels of a pass between products: the program's passes, or one for every function that a
framework calls, at the bytes that its source shows."""


class KernelEfficiency(Record):
    """Efficiency of a kernel library on chips, and costs besides the work."""

    passes: Kernels = "joined"

    attention_forward_share: Ratios = field(metadata=_SHARE)
    """Share of the tensor units' peak that fused attention reaches over long sequences.

    On a systolic array: with heads as large as the array (smaller heads take as long).
    """
    attention_backward_share: Ratios = field(metadata=_SHARE)
    score_touches_forward: Numbers
    """Reads and writes of each unfused attention score between its products, in the scores' format.
    """
    score_touches_backward: Numbers
    elementwise_traffic: Ratios
    """Bytes moved, over those of the program's separate passes; below 1 where kernels are fused."""
    optimizer_traffic: Ratios
    block_pass_s: Times
    """Cost of a pass (forward, recomputation, backward) through a layer besides its kernels, s."""
    adapter_casts: Ratios = field(default=0.0, metadata=PART)
    """Share of adapters that compute in fp32, with casts of what they read and add."""
    attention_forward_keys: Numbers = 0.0
    """Width of a key tile, keys; causal attention computes whole tiles."""
    attention_backward_keys: Numbers = 0.0
    attention_call_s: Times = 0.0
    attention_head_s: Times = 0.0
    """Cost per head of each sequence on a core, s."""

    def __post_init__(self) -> None:
        check_numbers(numbers_of(self))
        check_shares(self)


class ExpertEfficiency(Record):
    """Slowdown of layers with experts over their products, passes and bytes."""

    compute: Ratios
    """Factor on the time of expert products, of routing tokens and of adding up answers."""
    imbalance: Ratios
    """Excess tokens of the busiest rank over the mean:

    0.25 lengthens compute and exchanges by 25 %.
    """
    block_pass_s: Times
    """Extra cost of a pass through a layer with experts, s."""
    overlap_between_nodes: Ratios = field(metadata=PART)
    recompute: PlainRecompute | None = None
    """Recomputation assumed where a publication states none."""

    def __post_init__(self) -> None:
        check_shares(self)


class DispatchEfficiency(Record):
    """Dispatch of tokens to experts on other nodes over EFA, by dispatcher.

    A launch is the host's time of a pass through a layer with such experts, s; an exchange a factor
    on the time of its messages; an overlap the part hidden where another micro-batch computes.
    """

    fitted_rows: tuple[str, ...] = ()
    """Measured steps that the numbers rest on."""
    launch_overlap: Ratios = field(metadata=PART)
    """Share of the shorter of launching and computing that runs in parallel."""
    alltoall_launch_s: Times
    deepep_launch_s: Times
    uccl_launch_s: Times
    alltoall_exchange: Ratios
    deepep_exchange: Ratios
    uccl_exchange: Ratios
    alltoall_overlap: Ratios = field(metadata=PART)
    deepep_overlap: Ratios = field(metadata=PART)
    uccl_overlap: Ratios = field(metadata=PART)

    def __post_init__(self) -> None:
        check_shares(self)

    def launch_s(self, dispatcher: Dispatcher) -> Times:
        return self._of(dispatcher)[0]

    def exchange(self, dispatcher: Dispatcher) -> Ratios:
        return self._of(dispatcher)[1]

    def overlap(self, dispatcher: Dispatcher) -> Ratios:
        return self._of(dispatcher)[2]

    def _of(self, dispatcher: Dispatcher) -> tuple[Times, Ratios, Ratios]:
        match dispatcher:
            case "alltoall":
                return self.alltoall_launch_s, self.alltoall_exchange, self.alltoall_overlap
            case "uccl":
                return self.uccl_launch_s, self.uccl_exchange, self.uccl_overlap
            # HybridEP is refused over EFA; inside a node it is a dispatcher as DeepEP is.
            case "deepep" | "hybridep":
                return self.deepep_launch_s, self.deepep_exchange, self.deepep_overlap
            case _:
                unhandled(dispatcher, "cost over EFA")


class ComputeEfficiency(Record):
    """A chip with a kernel library, and the slowdown of expert layers where known."""

    chip: ChipEfficiency
    kernels: KernelEfficiency
    experts: ExpertEfficiency | None = None

    def __post_init__(self) -> None:
        check_numbers(self._numbers)

    @cached_property
    def samples(self) -> int | None:
        return samples_of(self._numbers)

    @property
    def _numbers(self) -> dict[str, Numbers]:
        experts = {} if self.experts is None else numbers_of(self.experts)
        return numbers_of(self.chip) | numbers_of(self.kernels) | experts


def alone(chip: ChipEfficiency, **kernels: Numbers) -> ComputeEfficiency:
    """A chip whose kernels run by themselves: library costs are 0 unless given."""
    named = {**dict.fromkeys(_OF_A_LIBRARY, 0.0), **kernels}
    shares = {name: named.get(name, 1.0) for name in _SHARES_OF_A_LIBRARY}
    # The kind of kernels is named, as the rest are numbers.
    library = KernelEfficiency(passes="joined", **{**named, **shares})
    return ComputeEfficiency(chip=chip, kernels=library)


def numbers_of(record: Any) -> dict[str, Numbers]:  # noqa: ANN401
    return {name: getattr(record, name) for name in _names_of(record.__class__)}


@cache
def _names_of(kind: Any) -> tuple[str, ...]:  # noqa: ANN401
    return tuple(field.name for field in fields(kind) if field.name not in _WORDS)


def samples_of(numbers: dict[str, Numbers]) -> int | None:
    return next((len(row) for row in numbers.values() if not isinstance(row, float | int)), None)


def ends_of(value: Numbers) -> tuple[float, float]:
    if isinstance(value, float | int):
        return value, value
    return float(value.min()), float(value.max())


def check_numbers(numbers: dict[str, Numbers]) -> None:
    """Refuse negative or infinite numbers, and rows of samples of different length."""
    if _sound(numbers.values()):
        return
    for name, value in numbers.items():
        least, largest = ends_of(value)
        if not 0 <= least <= largest < math.inf:
            raise ValueError(f"`{name}` must be a finite number, not negative")
    rows = {name: row for name, row in numbers.items() if not isinstance(row, float | int)}
    if any(row.ndim != 1 for row in rows.values()):
        raise ValueError("samples must be in one row")
    if len({len(row) for row in rows.values()}) > 1:
        lengths = ", ".join(f"`{name}` {len(row)}" for name, row in rows.items())
        raise ValueError(f"rows of samples must have one length: {lengths}")


def _sound(values: Iterable[Numbers]) -> bool:
    """True when all numbers pass; one stacked check, because nearly all do."""
    rows = []
    for value in values:
        if not isinstance(value, float | int):
            rows.append(value)
        elif not 0 <= value < math.inf:
            return False
    if not rows:
        return True
    if any(row.ndim != 1 or len(row) != len(rows[0]) for row in rows):
        return False
    import numpy as np  # commands about files do without

    together = np.array(rows)
    return bool(((together >= 0) & (together < math.inf)).all())


def check_shares(record: Any) -> None:  # noqa: ANN401
    """Refuse shares of a peak that are 0 (but for one never measured), and fractions above 1."""
    for name, about in _shares_of(record.__class__):
        least, largest = ends_of(getattr(record, name))
        most = about.metadata["most"]
        if about.metadata.get("linear"):
            if not 0 <= least <= largest <= most:
                raise ValueError(f"`{name}` must be from 0 to {most:g}")
        elif not (least == largest == 0 == about.default or 0 < least <= largest <= most):
            raise ValueError(f"`{name}` must be above 0 and at most {most:g}")


@cache
def _shares_of(kind: Any) -> tuple[tuple[str, RecordField], ...]:  # noqa: ANN401
    return tuple((each.name, each) for each in fields(kind) if "most" in each.metadata)
