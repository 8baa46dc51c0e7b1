"""What chips and kernels make of the peak: shares of a chip's rates, traffic and fixed times.

Two records, because many libraries of kernels run on one chip: fitted to one of them, a chip's own
numbers are wrong for the others. A number may be a row of samples, one for each guess at what is
not known; all rows are of one length, and times get an axis of samples at their end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

from trnbench.facts.catalog.provenance import Sourced
from trnbench.facts.catalog.quantity import Ratio, Seconds
from trnbench.facts.records import Record, field, fields
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
"""Metadata of the fields that are part of a whole: above 0, at most this."""
PART = {"most": 1.0, "linear": True}
"""Metadata of the parts of a whole that may be nothing."""
_SHARES_OF_A_LIBRARY = ("attention_forward_share", "attention_backward_share")
_OF_A_LIBRARY = (
    *("score_touches_forward", "score_touches_backward"),
    *("elementwise_traffic", "optimizer_traffic", "block_pass_s"),
)
"""What a library of kernels always has a number of."""
_WORDS = (
    *("name", "title", "chips", "inherits_from", "fitted_rows", "releases", "provenance"),
    *("dispatch", "recompute"),
)


class ChipEfficiency(Sourced):
    """What matrix products and memory of a chip reach, whichever library asks.

    `tensor_share`: the part of the tensor units' peak that a deep product reaches beside what its
    tiles, waves and padding cost. `half_share_depth`: the contraction depth, in elements, at which
    it reaches half of that; 0 where the chip's own model has filling and draining. `narrow_share`:
    what part of `tensor_share` is left in formats of 8 bits, `four_bit_share`: what part of that in
    formats of 4, 1 where nobody measured any. `memory_share`: the part of the memory's bandwidth
    that a stream reaches. `attention_forward_share` and the like: as in
    `KernelEfficiency`, of fused attention kernels timed by themselves (0: none was), whose call is
    a program's start; `attention_row`: what as many queries of a head as the systolic array has
    rows cost beside their tiles. `chips` are those it describes, by name;
    `fitted_rows` the measured steps it was fitted to, of all stacks together. `releases`: what each
    release of the vendor's compiler and runtime makes of all times, over the newest one; stacks
    share them.
    """

    name: str
    title: str
    chips: tuple[str, ...]
    inherits_from: str | None = None
    fitted_rows: tuple[str, ...] = ()
    tensor_share: Ratios = field(metadata=_SHARE)
    half_share_depth: Numbers
    narrow_share: Ratios = field(metadata=_SHARE)
    memory_share: Ratios = field(metadata=_SHARE)
    four_bit_share: Ratios = field(default=1.0, metadata=_SHARE)
    attention_forward_share: Ratios = field(default=0.0, metadata=_SHARE)
    attention_backward_share: Ratios = field(default=0.0, metadata=_SHARE)
    attention_keys: Numbers = 0.0
    attention_call_s: Times = 0.0
    attention_row_s: Times = 0.0
    releases: dict[str, Ratios] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse shares that are not shares, and rows of different length."""
        _check(self)
        check_numbers(self.releases)


class KernelEfficiency(Record):
    """What a library's kernels reach on chips, and what they cost beside their work.

    `attention_forward_share`, `attention_backward_share`: the part of the tensor units' peak that
    fused attention reaches in each pass over long sequences; on a systolic array, of heads as large
    as the array (it takes as long over smaller ones). `attention_forward_keys`,
    `attention_backward_keys`: causal attention computes keys in tiles of so many, and each tile
    whole; `attention_call`, `attention_head`: what a call costs besides, and each head of each
    sequence on a core. `score_touches_forward`, `score_touches_backward`: how
    often unfused attention reads or writes each score between its products (scaling, masking,
    softmax, dropout), each time in the scores' format. `elementwise_traffic`,
    `optimizer_traffic`: bytes that move, over those of the program's passes one by one; below 1
    where kernels are joined. `block_pass`: what a pass through a layer (forward, again, backward)
    costs beside its kernels.
    """

    attention_forward_share: Ratios = field(metadata=_SHARE)
    attention_backward_share: Ratios = field(metadata=_SHARE)
    score_touches_forward: Numbers
    score_touches_backward: Numbers
    elementwise_traffic: Ratios
    optimizer_traffic: Ratios
    block_pass_s: Times
    attention_forward_keys: Numbers = 0.0
    attention_backward_keys: Numbers = 0.0
    attention_call_s: Times = 0.0
    attention_head_s: Times = 0.0

    def __post_init__(self) -> None:
        """Refuse shares that are not shares, and rows of different length."""
        _check(self)


class ExpertEfficiency(Record):
    """How much longer layers with experts take than their products, passes and bytes say.

    `compute` multiplies the time of the experts' products and of sorting tokens by expert and
    adding up answers. `imbalance`: by what part of the mean the rank with most tokens has more,
    where experts are on several ranks: 0.25 makes compute and exchanges of tokens 1.25 times as
    long. `block_pass`: what a pass through a layer with experts costs besides.
    `overlap_between_nodes`: as the overlap of experts' exchanges, where they run between nodes.
    `recompute`: what is repeated where a publication does not say.
    """

    compute: Ratios
    imbalance: Ratios
    block_pass_s: Times
    overlap_between_nodes: Ratios = field(metadata=PART)
    recompute: PlainRecompute | None = None

    def __post_init__(self) -> None:
        """Refuse an overlap of more than all."""
        least, largest = ends_of(self.overlap_between_nodes)
        if not 0 <= least <= largest <= 1:
            raise ValueError("`overlap_between_nodes` must be from 0 to 1")


class ComputeEfficiency(Record):
    """A chip and a library of kernels on it, and what layers with experts take longer, if known."""

    chip: ChipEfficiency
    kernels: KernelEfficiency
    experts: ExpertEfficiency | None = None

    def __post_init__(self) -> None:
        """Refuse rows of samples of different length."""
        check_numbers(self._numbers)

    @property
    def samples(self) -> int | None:
        """How many samples its rows have; None where every number is just one."""
        return samples_of(self._numbers)

    @property
    def _numbers(self) -> dict[str, Numbers]:
        experts = {} if self.experts is None else numbers_of(self.experts)
        return numbers_of(self.chip) | numbers_of(self.kernels) | experts


def alone(chip: ChipEfficiency, **kernels: Numbers) -> ComputeEfficiency:
    """Return a chip whose kernels run by themselves: of a library only the numbers given."""
    named = {**dict.fromkeys(_OF_A_LIBRARY, 0.0), **kernels}
    shares = {name: named.get(name, 1.0) for name in _SHARES_OF_A_LIBRARY}
    return ComputeEfficiency(chip=chip, kernels=KernelEfficiency(**{**named, **shares}))


def numbers_of(record: Any) -> dict[str, Numbers]:  # noqa: ANN401
    """Return the numbers of a record by name: all that is not words."""
    return {name: getattr(record, name) for name in _names_of(record.__class__)}


@cache
def _names_of(kind: Any) -> tuple[str, ...]:  # noqa: ANN401
    return tuple(field.name for field in fields(kind) if field.name not in _WORDS)


def samples_of(numbers: dict[str, Numbers]) -> int | None:
    """Return the number of samples of the rows among the numbers; None without rows."""
    return next((len(row) for row in numbers.values() if not isinstance(row, float | int)), None)


def ends_of(value: Numbers) -> tuple[float, float]:
    """Return the least and the largest of a number's samples; NaN where one of them is."""
    if isinstance(value, float | int):
        return value, value
    return float(value.min()), float(value.max())


def check_numbers(numbers: dict[str, Numbers]) -> None:
    """Refuse numbers that are negative or endless, and rows of samples of different length."""
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
    """Return whether all numbers are in order, rows at once: mostly they are."""
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


def _check(record: ChipEfficiency | KernelEfficiency) -> None:
    numbers = numbers_of(record)
    check_numbers(numbers)
    declared = {field.name: field for field in fields(record)}
    for name, value in numbers.items():
        least, largest = ends_of(value)
        most = declared[name].metadata.get("most")
        untold = least == largest == 0 == declared[name].default
        if most is not None and not untold and not 0 < least <= largest <= most:
            raise ValueError(f"`{name}` must be above 0 and at most {most:g}")
