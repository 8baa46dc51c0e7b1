"""Bytes and FLOP of a step as its program has them, to compare with those of its execution."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from math import isclose

from trnbench.engines.execute.traffic import MovedBytes
from trnbench.facts.records import Record
from trnbench.program.block import Block
from trnbench.program.collective import bus_factor
from trnbench.program.ops import CollectiveOp
from trnbench.program.step import StepProgram

SEND = ("send", "pp")
"""Name of messages between stages in the book of traffic."""


class TrafficLine(Record):
    """One kind of exchange: runs and bytes, as measured and as the program states."""

    operation: str
    axis: str
    runs: int
    program_runs: int
    sent_bytes: float
    program_bytes: float

    @property
    def agrees(self) -> bool:
        """True when both figures agree, up to rounding in sums of thirds of a byte."""
        same = isclose(self.sent_bytes, self.program_bytes, rel_tol=1e-12)
        return self.runs == self.program_runs and same


def traffic_lines(
    measured: Mapping[tuple[str, str], MovedBytes], program: StepProgram, steps: int
) -> tuple[TrafficLine, ...]:
    """Every kind of exchange of either side, after `steps` steps."""
    said = program_traffic(program)
    nothing = MovedBytes(runs=0, sent_bytes=0.0)
    lines = []
    for key in sorted({*measured, *said}):
        one, other = measured.get(key, nothing), said.get(key, nothing)
        lines.append(
            TrafficLine(
                operation=key[0],
                axis=key[1],
                runs=one.runs,
                program_runs=other.runs * steps,
                sent_bytes=one.sent_bytes,
                program_bytes=other.sent_bytes * steps,
            )
        )
    return tuple(lines)


def program_traffic(program: StepProgram) -> Mapping[tuple[str, str], MovedBytes]:
    """Bytes a step of a scalar program moves over all ranks, by (operation, axis)."""
    runs: defaultdict[tuple[str, str], float] = defaultdict(float)
    sent: defaultdict[tuple[str, str], float] = defaultdict(float)
    ranks, rounds = float(program.grid.ranks_per_stage), float(program.micro_batches)

    def add(key: tuple[str, str], times: float, size: float) -> None:
        runs[key] += times
        sent[key] += times * size

    for block, instances in _instances(program):
        for op in block.collectives:
            times = instances * ranks * float(op.count)
            times *= 1 if op.phase == "optimizer" else rounds
            add((op.op, op.axis), times, _sent_by_one(op))
    for op in program.closing:
        add((op.op, op.axis), float(op.ranks), _sent_by_one(op))
    for stage in program.stages:
        for message in stage.messages:
            if message.direction == "send":
                times = float(message.count * stage.multiplicity) * ranks * rounds
                add(SEND, times, float(message.size_bytes))
    return {
        key: MovedBytes(runs=round(runs[key]), sent_bytes=sent[key])
        for key in sorted(runs)
        if runs[key]
    }


def program_flop(program: StepProgram) -> Mapping[str, float]:
    """FLOP of a step of a scalar program over all ranks, by format of the operands."""
    found: defaultdict[str, float] = defaultdict(float)
    every = float(program.grid.ranks_per_stage * program.micro_batches)
    for block, instances in _instances(program):
        for op in block.computing:
            found[op.format] += float(op.flop * op.count) * instances * every
    return dict(sorted(found.items()))


def _instances(program: StepProgram) -> Iterator[tuple[Block, float]]:
    for kind, block in program.blocks.items():
        yield block, float(program.instances(kind))


def _sent_by_one(op: CollectiveOp) -> float:
    return bus_factor(op.op, int(op.ranks)) * float(op.size_bytes)
