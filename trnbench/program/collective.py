"""One collective operation, free of hardware: the exchange, its ranks, its size convention.

`size_bytes` follows nccl-tests and nccom-test: the buffer of all-reduce, broadcast, permute and
send-receive, the whole output of all-gather, the whole input of reduce-scatter, and the bytes one
rank sends in all (its own part included) for all-to-all.
"""

from __future__ import annotations

from collections.abc import Mapping

from trnbench.errors import InputError, UnknownNameError, unhandled
from trnbench.facts.records import Record
from trnbench.facts.workload.choices import OPS, Op

_SHORT: Mapping[str, Op] = {
    "allr": "all-reduce",
    "allg": "all-gather",
    "redsct": "reduce-scatter",
    "alltoall": "all-to-all",
    "sendrecv": "send-receive",
}


def op_named(text: str) -> Op:
    """Operation by name, also in the spellings of nccl-tests and nccom-test."""
    spelled = text.strip().lower().replace("_", "-")
    for op in OPS:
        if spelled in (op, op.replace("-", "")):
            return op
    if spelled in _SHORT:
        return _SHORT[spelled]
    raise UnknownNameError("collective operation", text, OPS)


class Collective(Record):
    """One collective of a group of `ranks`: its operation, size in bytes and element size."""

    op: Op
    ranks: int
    size_bytes: float
    element_bytes: float = 1.0

    def __post_init__(self) -> None:
        """Refuse counts below 1 and sizes that are not positive."""
        if self.ranks < 1:
            raise InputError(f"a collective needs at least 1 rank, not {self.ranks}")
        if not self.size_bytes > 0:
            raise InputError(f"a collective's size must be positive, not {self.size_bytes}")
        if not self.element_bytes > 0:
            raise InputError(f"an element's size must be positive, not {self.element_bytes}")

    @property
    def elements(self) -> int:
        return int(self.size_bytes // self.element_bytes)


def bus_factor(op: Op, ranks: int) -> float:
    """Ratio busbw / algbw as nccl-tests defines it, for a group of `ranks`.

    Bus bandwidth is comparable with the speed of one link, whatever the group's size.
    """
    match op:
        case "all-reduce":
            return 2 * (ranks - 1) / ranks
        case "all-gather" | "reduce-scatter" | "all-to-all":
            return (ranks - 1) / ranks
        case "broadcast" | "permute" | "send-receive":
            return 1.0
        case _:
            unhandled(op, "bus factor")
