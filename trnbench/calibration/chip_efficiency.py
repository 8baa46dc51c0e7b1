"""What chips and kernels make of the peak: shares of a chip's rates, traffic and fixed times.

Two records, because many libraries of kernels run on one chip: fitted to one of them, a chip's own
numbers are wrong for the others. A number may be a row of samples, one for each guess at what is
not known; all rows are of one length, and times get an axis of samples at their end.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import attrs

from trnbench.catalog.provenance import Provenance
from trnbench.catalog.quantity import Ratio, Seconds

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
_WORDS = ("name", "title", "chips", "inherits_from", "fitted_rows", "provenance")


@attrs.frozen(kw_only=True)
class ChipEfficiency:
    """What matrix products and memory of a chip reach, whichever library asks.

    `tensor_share`: the part of the tensor units' peak that a deep product reaches beside what its
    tiles, waves and padding cost. `half_share_depth`: the contraction depth, in elements, at which
    it reaches half of that; 0 where the chip's own model has filling and draining. `narrow_share`:
    what part of `tensor_share` is left in formats of 8 bits. `memory_share`: the part of the
    memory's bandwidth that a stream reaches. `chips` are those it describes, by name;
    `fitted_rows` the measured steps it was fitted to, of all stacks together.
    """

    name: str
    title: str
    chips: tuple[str, ...]
    inherits_from: str | None = None
    fitted_rows: tuple[str, ...] = ()
    tensor_share: Ratios = attrs.field(metadata=_SHARE)
    half_share_depth: Numbers
    narrow_share: Ratios = attrs.field(metadata=_SHARE)
    memory_share: Ratios = attrs.field(metadata=_SHARE)
    provenance: Provenance = attrs.field(
        factory=Provenance, repr=False, eq=False, metadata={"derived": True}
    )

    def __attrs_post_init__(self) -> None:
        """Refuse shares that are not shares, and rows of different length."""
        _check(self)


@attrs.frozen(kw_only=True)
class KernelEfficiency:
    """What a library's kernels reach on chips, and what they cost beside their work.

    `attention_forward_share`, `attention_backward_share`: the part of the tensor units' peak that
    fused attention reaches in each pass. `score_touches_forward`, `score_touches_backward`: how
    often unfused attention reads or writes each score between its products (scaling, masking,
    softmax, dropout), each time in the scores' format. `elementwise_traffic`,
    `optimizer_traffic`: bytes that move, over those of the program's passes one by one; below 1
    where kernels are joined. `block_pass`: what a pass through a layer (forward, again, backward)
    costs beside its kernels.
    """

    attention_forward_share: Ratios = attrs.field(metadata=_SHARE)
    attention_backward_share: Ratios = attrs.field(metadata=_SHARE)
    score_touches_forward: Numbers
    score_touches_backward: Numbers
    elementwise_traffic: Ratios
    optimizer_traffic: Ratios
    block_pass_s: Times

    def __attrs_post_init__(self) -> None:
        """Refuse shares that are not shares, and rows of different length."""
        _check(self)


@attrs.frozen(kw_only=True)
class ComputeEfficiency:
    """A chip and a library of kernels on it."""

    chip: ChipEfficiency
    kernels: KernelEfficiency

    def __attrs_post_init__(self) -> None:
        """Refuse rows of samples of different length."""
        check_numbers(numbers_of(self.chip) | numbers_of(self.kernels))

    @property
    def samples(self) -> int | None:
        """How many samples its rows have; None where every number is just one."""
        return samples_of(numbers_of(self.chip) | numbers_of(self.kernels))


def numbers_of(record: attrs.AttrsInstance) -> dict[str, Numbers]:
    """Return the numbers of a record by name: all that is not words."""
    names = (field.name for field in attrs.fields(type(record)) if field.name not in _WORDS)
    return {name: getattr(record, name) for name in names}


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


def _check(record: ChipEfficiency | KernelEfficiency) -> None:
    numbers = numbers_of(record)
    check_numbers(numbers)
    fields = attrs.fields_dict(type(record))
    for name, value in numbers.items():
        least, largest = ends_of(value)
        most = fields[name].metadata.get("most")
        if most is not None and not 0 < least <= largest <= most:
            raise ValueError(f"`{name}` must be above 0 and at most {most:g}")
