"""Kernels of several operations on a NeuronCore: the products, passes and bytes that they are.

Each is lowered to matrix products on the tensor engine, elements on the vector and scalar engines,
and bytes between memory and the core. A tuned kernel keeps the engines busy side by side and takes
as long as the busiest; a baseline takes them one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil
from typing import TypeAlias

from trnbench.engines.analytic.matrix.time import stream_time_s
from trnbench.evidence.rows import RowFault
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.compute_unit import NeuronCores, VectorEngine
from trnbench.facts.numbers.formats import format_named
from trnbench.facts.records import Record
from trnbench.machine.tiling.kernel_levels import HAND_WRITTEN, KernelSoftware, level_of

TUNED_SCATTER, BASELINE_SCATTER = 1.4, 1.75
"""Factors each way that hold four of five times: kernels of a search, and those before it.

Published times deviate by 0.22 and 0.39 of a logarithm (15 and 14 rows of eight operators, of which
nothing here was fitted): times 1.4, the end of 80 % with so few.
"""
_ROW_BYTES = 8192
_TRANSPOSED = 128
"""Depth of the product with an identity that turns a tile."""
ProductShape: TypeAlias = tuple[int, int, int]


class Lowered(Record):
    """A kernel's work: (M, K, N) of products, elements of passes, elements moved."""

    products: tuple[ProductShape, ...] = ()
    vector: float = 0.0
    """Elements of passes with one input, on the vector engine."""
    paired: float = 0.0
    """Elements of passes with two inputs, on the vector engine."""
    scalar: float = 0.0
    moved: float = 0.0
    """Elements read and written once."""


def _norm_product(m: int, k: int, n: int, *, added: bool) -> Lowered:
    # Squares are summed and rows scaled in one pass each; products leave their accumulator in one.
    return Lowered(
        products=((m, k, n), (m, _TRANSPOSED, k)),
        vector=2 * m * k + m * n,
        paired=m * k * added,
        moved=(1 + added) * m * k + k * n + m * n,
    )


def _product_norm(m: int, k: int, n: int) -> Lowered:
    return Lowered(
        products=((m, k, n), (m, _TRANSPOSED, k)),
        vector=2 * m * n,
        paired=m * n,
        moved=m * k + k * n + 2 * m * n,
    )


def _swiglu(m: int, k: int, n: int) -> Lowered:
    # x Wg and x Wu to N, their gated product back to K.
    return Lowered(
        products=((m, k, n), (m, k, n), (m, n, k), (m, _TRANSPOSED, k)),
        vector=m * k,
        paired=2 * m * n,
        scalar=m * n,
        moved=2 * m * k + 3 * k * n,
    )


def _lora(m: int, k: int, n: int, r: int) -> Lowered:
    return Lowered(
        products=((m, k, n), (m, k, r), (m, r, n), (m, _TRANSPOSED, k)),
        vector=m * r,
        paired=m * n,
        moved=m * k + k * n + (k + n) * r + m * n,
    )


def _softmax_product(m: int, k: int, n: int, b: int) -> Lowered:
    # The largest and the scaling on the vector engine, exponentials and their sum on the scalar.
    return Lowered(
        products=((m, k, n),) * b,
        vector=2 * b * m * n,
        scalar=b * m * n,
        moved=b * (m * k + k * n + m * n),
    )


def _turned_product(m: int, k: int, n: int) -> Lowered:
    return Lowered(
        products=((m, k, n), (m, _TRANSPOSED, k)), vector=m * n, moved=m * k + k * n + m * n
    )


def _silu(m: int, n: int) -> Lowered:
    return Lowered(scalar=m * n, moved=2 * m * n)


def _mamba(c: int, m: int, s: int) -> Lowered:
    # Of each state: the step's decay and input, the scan, its weight in the output, their sum.
    states = c * m * s
    return Lowered(vector=2 * states, paired=3 * states, scalar=states, moved=3 * c * m + 2 * m * s)


PROGRAMS: Mapping[str, tuple[str, Callable[..., Lowered]]] = {
    "rmsnorm_matmul": ("MKN", lambda m, k, n: _norm_product(m, k, n, added=False)),
    "add_rmsnorm_matmul": ("MKN", lambda m, k, n: _norm_product(m, k, n, added=True)),
    "matmul_add_rmsnorm": ("MKN", _product_norm),
    "swiglu": ("MKN", _swiglu),
    "lora": ("MKNR", _lora),
    "bmm_softmax": ("MKNB", _softmax_product),
    "transpose_matmul": ("MKN", _turned_product),
    "silu": ("MN", _silu),
    "mamba": ("CMS", _mamba),
}
"""Kernels by their operator, with the sizes that each takes."""


class KernelProgram(Record):
    """A kernel of several operations; `cores` of the chip share it evenly."""

    chip: str
    lowered: Lowered
    number_format: str
    tuned: bool
    software: KernelSoftware = HAND_WRITTEN
    cores: int = 1
    fast: bool = False
    """Products take fp32 in the precision mode of fewer passes."""
    size_bytes: float | None = None
    """Bytes that a profile counted; None moves every array once."""
    assumed: tuple[str, ...] = ()

    def parts_s(self, chip: Chip) -> dict[str, float]:
        """Seconds of each engine by itself."""
        unit, work = chip.unit, self.lowered
        if not isinstance(unit, NeuronCores):
            raise RowFault(f"{chip.name} has no NeuronCores")
        rate = unit.tensor.formats[chip.format_named(self.number_format)]
        level = level_of(chip, self.software) if self.software != HAND_WRITTEN else None
        passes = rate.fast_passes if self.fast and rate.fast_passes else rate.passes
        peak = unit.tensor.peak_flop_per_s(passes, rate.rows_per_pe)
        deep = unit.tensor.rows
        flop = sum(2.0 * m * ceil(k / deep) * deep * n for m, k, n in work.products)
        paired = work.paired * (unit.vector.two_input_cycles_per_element or 1.0)
        moved = self.size_bytes or format_named(self.number_format).bytes_per_element * work.moved
        alone = {
            "tensor": flop / (peak * (level.share if level else 1.0)),
            "vector": (work.vector + paired) / _per_s(unit.vector),
            "scalar": work.scalar / _per_s(unit.scalar),
            "memory": stream_time_s(moved, _ROW_BYTES, chip),
        }
        return {name: seconds / self.cores for name, seconds in alone.items()}

    def time_s(self, chip: Chip) -> float:
        parts = self.parts_s(chip).values()
        return max(parts) if self.tuned else sum(parts)

    def played_s(self, chip: Chip) -> float:
        raise RowFault(f"{chip.name}: kernels of several operations are not played")

    def interval_s(self, chip: Chip, time_s: float) -> tuple[float | None, float | None]:
        """Ends of the 80 % interval about a time."""
        scatter = TUNED_SCATTER if self.tuned else BASELINE_SCATTER
        return time_s / scatter, time_s * scatter

    def fitted_rows(self, chip: Chip) -> tuple[str, ...]:
        return ()


def _per_s(engine: VectorEngine) -> float:
    return engine.lanes * engine.clock_hz


def lowered(operator: str, sizes: Mapping[str, int]) -> Lowered:
    """The work of a kernel by its operator; RowFault where a size is not said."""
    names, program = PROGRAMS[operator]
    lacking = [name for name in names if name not in sizes]
    if lacking:
        raise RowFault(f"shape: {operator} needs {', '.join(lacking)}")
    return program(*(sizes[name] for name in names))
