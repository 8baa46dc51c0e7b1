"""Matrix products, memory passes and launches, timed with all devices at work.

A program runs several kernels on operands of their own, so that the compiler merges none and
weights come from device memory, as in a step. The program's launch is subtracted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from trnbench.engines.execute.numbers.accuracy import error_against_float64
from trnbench.engines.execute.numbers.product import ProductRecipe, ProductResult, contraction_tiles
from trnbench.evidence.kernels import PRODUCT
from trnbench.evidence.measure.loops import AllDevices, Timing
from trnbench.evidence.measure.pieces import Array
from trnbench.evidence.measure.suites import MIB, ProductCase
from trnbench.facts.records import Record
from trnbench.facts.units import FLOP_PER_MULTIPLY_ADD
from trnbench.program.matrix import usual_result_format
from trnbench.program.tensor import element_bytes

_PRODUCTS = 4
"""Products per program, each with operands of its own."""
_PASSES = 8
"""Passes per program over the same memory."""
_TINY = 64
"""Kernels of the program that measures a kernel's start."""
_CHECKED_ROWS = 32


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
    yield KernelTime(kernel="program", shape="1", format="fp32", timing=empty)
    jax_numpy = machine.jax.numpy
    small = machine.placed(mesh, np.zeros((len(machine.devices), 8, 8), np.float32))

    def chain(x: Array) -> Array:
        y = x[0]
        for _ in range(_TINY):
            y = jax_numpy.tanh(y @ y)
        return y[None]

    tiny = machine.time(machine.on_all(chain, mesh), small)
    each = tiny.each(2 * _TINY, less_s=empty.median_s)
    yield KernelTime(kernel="kernel", shape="8x8", format="fp32", timing=each)


def product(
    machine: AllDevices, case: ProductCase, *, launch_s: float, seed: int
) -> Iterator[KernelTime]:
    """Yield a matrix product's time, with a check of its numbers."""
    size = element_bytes(case.format)
    machine.check_memory(2.0 * _PRODUCTS * case.elements * max(size, 4), f"{case.shape}")
    mesh = machine.mesh(d=len(machine.devices))
    across = case.order[0] == "T", case.order[1] == "T"
    sizes = [(case.batch, case.m, case.k), (case.batch, case.k, case.n)]
    sizes = [
        (batch, columns, rows) if turned else (batch, rows, columns)
        for (batch, rows, columns), turned in zip(sizes, across, strict=True)
    ]
    left, right = (
        tuple(
            machine.random(mesh, shape, case.format, seed + 2 * i + side) for i in range(_PRODUCTS)
        )
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
    measured = np.asarray(program(left, right)[0])[0].astype(np.float32)
    given = _turned(
        [np.asarray(operand[0])[0].astype(np.float32) for operand in (left, right)], across
    )
    timing = machine.time(program, left, right).each(_PRODUCTS, less_s=launch_s)
    yield KernelTime(
        kernel=PRODUCT,
        shape=case.shape,
        format=case.format,
        timing=timing,
        flop=FLOP_PER_MULTIPLY_ADD * case.batch * case.m * case.k * case.n,
        bytes=float(
            size * case.batch * case.k * (case.m + case.n)
            + element_bytes(out) * case.batch * case.m * case.n
        ),
        check=_checked(measured, given[0], given[1], case.format),
    )


def _turned(operands: Sequence[Array], across: Sequence[bool]) -> list[Array]:
    """Operands in the product's orientation."""
    return [
        operand.swapaxes(-1, -2) if turned else operand
        for operand, turned in zip(operands, across, strict=True)
    ]


def _checked(found: Any, left: Any, right: Any, number_format: str) -> float:  # noqa: ANN401
    """Largest error, over the bound of the executor's product of the same numbers."""
    recipe = ProductRecipe.named(
        format_in_a=number_format,
        format_in_b=number_format,
        format_out=usual_result_format(number_format),
    )
    tiles = contraction_tiles(recipe, left.shape[-1])[1]
    result = ProductResult(values=found, recipe=recipe, k_tiles=tiles)
    return error_against_float64(result, left, right, rows=_CHECKED_ROWS).bound_use


def stream(machine: AllDevices, size_bytes: int, *, launch_s: float) -> Iterator[KernelTime]:
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
            timing=machine.time(program, first, second).each(_PASSES, less_s=launch_s),
            bytes=float(touches * size_bytes),
        )
