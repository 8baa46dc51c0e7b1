"""Timed collectives over groups of devices, all groups at once, through `shard_map`.

A program runs several collectives in sequence, on buffers of their own, and its launch is
subtracted, so that a row is the cost of a collective in the middle of a step. The first result of
each is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from trnbench.errors import unhandled
from trnbench.evidence.measure.loops import AllDevices, Timing
from trnbench.evidence.measure.pieces import Array
from trnbench.facts.records import Record
from trnbench.facts.workload.choices import Op
from trnbench.program.collective import bus_factor

_EXCHANGES, _SMALL_EXCHANGES = 4, 32
"""Exchanges of one program; of small ones more, beside which its launch is little."""
_SMALL_BYTES = 256 * 1024
_ELEMENT_BYTES = 4


class ExchangeTime(Record):
    """A collective in groups of `ranks` devices; `size_bytes` as nccl-tests counts."""

    op: Op
    ranks: int
    size_bytes: float
    timing: Timing
    check: float
    """Largest error of the data; sums of small whole numbers have no rounding error."""

    @property
    def algbw_bytes_per_s(self) -> float:
        return self.size_bytes / self.timing.seconds

    @property
    def busbw_bytes_per_s(self) -> float:
        """The same, times the bus factor of nccl-tests."""
        return self.algbw_bytes_per_s * bus_factor(self.op, self.ranks)


def exchanges(
    machine: AllDevices, op: Op, ranks: int, sizes: tuple[int, ...]
) -> Iterator[ExchangeTime]:
    """Yield the times of a collective over sizes, smallest first."""
    groups = len(machine.devices) // ranks
    mesh = machine.mesh(group=groups, rank=ranks)
    run = _operation(machine, op, ranks)
    barrier = machine.jax.lax.optimization_barrier

    def several(buffers: tuple[Array, ...]) -> tuple[Array, ...]:
        parts = [run(buffers[0][0])]
        for buffer in buffers[1:]:
            given, _ = barrier((buffer[0], parts[-1]))
            parts.append(run(given))
        return tuple(part[None] for part in parts)

    program = machine.on_all(several, mesh)
    for size in sizes:
        elements = _elements(op, ranks, size)
        if elements == 0:
            continue
        machine.check_memory(3.0 * _EXCHANGES * size, f"{op} of {size:,} bytes")
        counted = _counted(groups * ranks, elements)
        count = _SMALL_EXCHANGES if size <= _SMALL_BYTES else _EXCHANGES
        buffers = tuple(machine.placed(mesh, counted) for _ in range(count))
        received = np.asarray(program(buffers)[0])
        expected = _expected(op, counted, ranks)
        yield ExchangeTime(
            op=op,
            ranks=ranks,
            size_bytes=float(elements * _ELEMENT_BYTES * (ranks if op == "all-gather" else 1)),
            timing=machine.time(program, buffers).each(count),
            check=float(np.abs(received - expected).max()),
        )


def _elements(op: Op, ranks: int, size_bytes: int) -> int:
    parts = size_bytes // _ELEMENT_BYTES // ranks
    return parts if op == "all-gather" else parts * ranks


def _counted(devices: int, elements: int) -> Array:
    places = np.arange(elements) % 7
    return (np.arange(devices)[:, None] + places[None, :] + 1).astype(np.float32)


def _operation(machine: AllDevices, op: Op, ranks: int) -> Callable[[Array], Array]:
    lax = machine.jax.lax
    match op:
        case "all-reduce":
            return lambda x: lax.psum(x, "rank")
        case "all-gather":
            return lambda x: lax.all_gather(x, "rank", tiled=True)
        case "reduce-scatter":
            return lambda x: lax.psum_scatter(x, "rank", tiled=True)
        case "all-to-all":
            return lambda x: lax.all_to_all(x, "rank", 0, 0, tiled=True)
        case "permute":
            ring = [(i, (i + 1) % ranks) for i in range(ranks)]
            return lambda x: lax.ppermute(x, "rank", ring)
        case "broadcast" | "send-receive":
            raise ValueError(f"{op} is not measured")
        case _:
            unhandled(op, "program that measures it")


def _expected(op: Op, given: Array, ranks: int) -> Array:
    """Correct result on every device, a row each."""
    grouped = given.reshape(-1, ranks, given.shape[1])
    if op == "all-reduce":
        expected = np.repeat(grouped.sum(axis=1, keepdims=True), ranks, axis=1)
    elif op == "all-gather":
        expected = np.repeat(grouped.reshape(len(grouped), 1, -1), ranks, axis=1)
    elif op == "reduce-scatter":
        expected = grouped.sum(axis=1).reshape(len(grouped), ranks, -1)
    elif op == "all-to-all":
        parted = grouped.reshape(len(grouped), ranks, ranks, -1)
        expected = parted.transpose(0, 2, 1, 3).reshape(grouped.shape)
    else:
        expected = np.roll(grouped, 1, axis=1)
    return expected.reshape(given.shape[0], -1)
