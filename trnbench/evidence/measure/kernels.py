"""Matrix products, memory passes and launches, timed with all devices at work.

A program runs several kernels on operands of their own, so that the compiler merges none and
weights come from device memory, as in a step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from trnbench.engines.execute.numbers.accuracy import error_against_float64
from trnbench.engines.execute.numbers.product import ProductRecipe, ProductResult, contraction_tiles
from trnbench.evidence.kernels import PRODUCT
from trnbench.evidence.measure.loops import AllDevices, Timing
from trnbench.evidence.measure.pieces import Array
from trnbench.evidence.measure.suites import MIB, ProductCase
from trnbench.facts.numbers.formats import format_named
from trnbench.facts.records import Record
from trnbench.facts.units import BITS_PER_BYTE, FLOP_PER_MULTIPLY_ADD
from trnbench.program.matrix import usual_result_format
from trnbench.program.tensor import element_bytes

PROGRAM = "program"
"""Kernel name of a program without work."""
_FEWEST, _MOST = 4, 64
"""Products per program, each with operands of its own."""
_FILLED = 256 * MIB
"""Size of all operands of a program, beyond the caches of an accelerator."""
_PASSES = 8
"""Passes per program over the same memory."""
_TINY = 8, 32
"""Pairs of kernels of the two programs whose difference is a kernel's start."""
_BLOCK = 64
"""Rows and columns of a result of which one of each is checked."""
_LEAST_CHECKED = 32
_NARROW_DEPTH = 32
"""Products of an 8-bit format that one instruction of a tensor core adds."""


class KernelTime(Record):
    """A kernel on every device: identity, time, FLOP and bytes."""

    kernel: str
    shape: str
    format: str
    timing: Timing
    flop: float = 0.0
    bytes: float = 0.0
    check: float | None = None
    """Largest error over the allowed one; above 1 is wrong."""


def launch(machine: AllDevices) -> Iterator[KernelTime]:
    """Yield the cost of a program with one empty kernel, and of each further kernel."""
    mesh = machine.mesh(d=len(machine.devices))
    one = machine.placed(mesh, np.zeros((len(machine.devices), 1), np.float32))
    empty = machine.time(machine.on_all(lambda x: x + 1, mesh), one)
    yield KernelTime(kernel=PROGRAM, shape="1", format="fp32", timing=empty)
    small = machine.placed(mesh, np.zeros((len(machine.devices), 8, 8), np.float32))

    def chain(pairs: int, x: Array) -> Array:
        y = x[0]
        for _ in range(pairs):
            y = machine.jax.numpy.tanh(y @ y)
        return y[None]

    few, many = (
        machine.time(machine.on_all(partial(chain, pairs), mesh), small) for pairs in _TINY
    )
    each = many.each(2 * (_TINY[1] - _TINY[0]), less_s=few.seconds)
    yield KernelTime(kernel="kernel", shape="8x8", format="fp32", timing=each)


def product(machine: AllDevices, case: ProductCase, *, seed: int) -> Iterator[KernelTime]:
    """Yield a matrix product's time, with a check of its numbers."""
    size = element_bytes(case.format)
    count = _FEWEST
    if not machine.can.shares_host:
        count = min(max(math.ceil(_FILLED / (size * case.elements)), _FEWEST), _MOST)
    machine.check_memory(2.0 * count * case.elements * max(size, 4), f"{case.shape}")
    mesh = machine.mesh(d=len(machine.devices))
    across = case.order[0] == "T", case.order[1] == "T"
    sizes = [(case.batch, case.m, case.k), (case.batch, case.k, case.n)]
    sizes = [
        (batch, columns, rows) if turned else (batch, rows, columns)
        for (batch, rows, columns), turned in zip(sizes, across, strict=True)
    ]
    left, right = (
        tuple(machine.random(mesh, shape, case.format, seed + 2 * i + side) for i in range(count))
        for side, shape in enumerate(sizes)
    )
    out = usual_result_format(case.format)
    # Accelerators otherwise round fp32 operands to tf32 or bf16.
    exact = machine.jax.lax.Precision.HIGHEST if case.format == "fp32" else None

    def run(lefts: tuple[Array, ...], rights: tuple[Array, ...]) -> tuple[Array, ...]:
        return tuple(
            machine.jax.numpy.matmul(
                *_turned((a, b), across), precision=exact, preferred_element_type=machine.dtype(out)
            )
            for a, b in zip(lefts, rights, strict=True)
        )

    program = machine.on_all(run, mesh)
    values, *given = (_held(one[0]) for one in (program(left, right), left, right))
    yield KernelTime(
        kernel=PRODUCT,
        shape=case.shape,
        format=case.format,
        timing=machine.time(program, left, right).each(count),
        flop=FLOP_PER_MULTIPLY_ADD * case.batch * case.m * case.k * case.n,
        bytes=float(
            size * case.batch * case.k * (case.m + case.n)
            + element_bytes(out) * case.batch * case.m * case.n
        ),
        check=checked(values, _turned(given, across), case.format, sum_bits=machine.sum_bits),
    )


def _held(array: Array) -> Any:  # noqa: ANN401
    """The part of an array on the first device, as numpy has it."""
    return np.asarray(array.addressable_shards[0].data)[0]


def _turned(operands: Sequence[Array], across: Sequence[bool]) -> list[Array]:
    """Operands in the product's orientation."""
    return [
        operand.swapaxes(-1, -2) if turned else operand
        for operand, turned in zip(operands, across, strict=True)
    ]


def checked(
    values: Array, operands: Sequence[Array], number_format: str, *, sum_bits: int | None
) -> float:
    """Largest error over the allowed one, of a row and a column of each block of the result.

    Products of 8-bit formats have a bound of their own where their sums keep `sum_bits` only.
    """
    left, right = operands
    rows, columns = (_one_of_each_block(size) for size in (left.shape[-2], right.shape[-1]))
    values, left, right = (
        part.astype(np.float32)
        for part in (values[..., rows, :][..., columns], left[..., rows, :], right[..., columns])
    )
    if sum_bits is not None and format_named(number_format).bits <= BITS_PER_BYTE:
        return narrow_sum_use(values, left, right, sum_bits=sum_bits)
    recipe = ProductRecipe.named(
        format_in_a=number_format,
        format_in_b=number_format,
        format_out=usual_result_format(number_format),
    )
    tiles = contraction_tiles(recipe, left.shape[-1])[1]
    result = ProductResult(values=values, recipe=recipe, k_tiles=tiles)
    return error_against_float64(result, left, right).bound_use


def _one_of_each_block(size: int) -> Any:  # noqa: ANN401
    """Places in blocks of `_BLOCK`, more of them where blocks are few, no two alike in phase."""
    count = min(max(-(-size // _BLOCK), _LEAST_CHECKED), size)
    starts = np.linspace(0, size, count, endpoint=False).astype(np.int64)
    widths = np.diff([*starts, size])
    # A fixed stride would see the same place of every tile.
    return starts + (np.arange(count) * 37) % np.maximum(widths, 1)


def narrow_sum_use(values: Any, left: Any, right: Any, *, sum_bits: int) -> float:  # noqa: ANN401
    """Largest error over the allowed one where sums keep `sum_bits` bits of their mantissa.

    An instruction adds `_NARROW_DEPTH` products to the running sum, aligned to the largest of them
    and cut to the bits kept. Errors of the cuts of products have either sign: six of their standard
    deviations are allowed; the running sum is cut once an instruction, always towards zero.
    """
    exact = np.matmul(left.astype(np.float64), right.astype(np.float64))
    depth = left.shape[-1]
    norms = np.sqrt(
        np.matmul(np.square(left, dtype=np.float64), np.square(right, dtype=np.float64))
    )
    # A running sum is at most as large as six standard deviations of a random walk, or its end.
    largest = np.maximum(np.abs(exact), 6 * norms)
    instructions = -(-depth // _NARROW_DEPTH)
    unit = 2.0**-sum_bits
    allowed = largest * unit * (instructions + 6 * math.sqrt(depth / 3))
    rounded = 2.0 ** -format_named("bf16").mantissa_bits * np.abs(exact)
    return float(np.max(np.abs(values - exact) / (allowed + rounded)))


def stream(machine: AllDevices, size_bytes: int) -> Iterator[KernelTime]:
    """Yield passes over memory with next to no arithmetic: a copy in place, and a triad."""
    machine.check_memory(4.0 * size_bytes, f"a stream over {size_bytes / MIB:g} MiB")
    mesh = machine.mesh(d=len(machine.devices))
    elements = size_bytes // 4
    first, second = (machine.random(mesh, (elements,), "fp32", seed) for seed in (0, 1))
    repeat = machine.jax.lax.fori_loop
    passes: dict[str, tuple[int, Callable[[Array, Array], Array]]] = {
        "copy": (2, lambda a, b: repeat(0, _PASSES, lambda _, x: x * 0.999, a)),
        "triad": (3, lambda a, b: repeat(0, _PASSES, lambda _, x: b + 0.5 * x, a)),
    }
    for name, (touches, run) in passes.items():
        program = machine.on_all(run, mesh)
        yield KernelTime(
            kernel=name,
            shape=f"{size_bytes / MIB:g} MiB",
            format="fp32",
            timing=machine.time(program, first, second).each(_PASSES),
            bytes=float(touches * size_bytes),
        )
