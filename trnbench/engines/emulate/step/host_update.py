"""An optimizer on the host as played: transfers over each rank's link, and memory that ranks share.

A rank sends its gradients down its link, waits while the host updates, and gets the weights back.
The host's memory serves all ranks of a node whose gradients are there, each as much; who is done
leaves its part to the others. Of a pipeline, a node holds as many stages next to each other as fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trnbench.engines.emulate.step.stages import BlockCounts, stage_counts
from trnbench.facts.records import Record
from trnbench.program.optimizer import is_on_host
from trnbench.program.step import StepProgram


class HostPace(Record):
    """Rates of a host."""

    link_bytes_per_s: float
    """Rate of the link to a rank."""
    memory_bytes_per_s: float
    """Rate of memory, for all ranks of a node together."""


class _Traffic(Record):
    """Bytes of a rank of a stage."""

    down: float
    """Gradients to the host."""
    host: float
    """Reads and writes of the host."""
    up: float
    """Weights to the rank."""


def host_updates_s(
    program: StepProgram, chunks: Sequence[Sequence[BlockCounts]], pace: HostPace, on_node: int
) -> tuple[float, ...]:
    """Seconds of each stage's update by the host; `on_node` ranks share one."""
    of_stages = [_traffic(program, stage_counts(stage)) for stage in chunks]
    on_stage = int(program.grid.ranks_per_stage)
    together = max(on_node // on_stage, 1)
    found: list[float] = []
    for start in range(0, len(of_stages), together):
        node = of_stages[start : start + together]
        found += _shared_s(node, min(on_stage, on_node), pace)
    return tuple(found)


def _traffic(program: StepProgram, counts: Mapping[str, float]) -> _Traffic:
    ops = [
        (op, count)
        for kind, count in counts.items()
        for op in program.blocks[kind].ops
        if is_on_host(op)
    ]
    return _Traffic(
        down=sum(count * float(op.reads[0].bytes) for op, count in ops),
        host=sum(count * float(op.bytes) for op, count in ops),
        up=sum(count * float(op.writes[0].bytes) for op, count in ops),
    )


def _shared_s(node: Sequence[_Traffic], ranks: int, pace: HostPace) -> list[float]:
    """Seconds until each stage of a node has its weights back; `ranks` of each stage share it."""
    arrives = [one.down / pace.link_bytes_per_s for one in node]
    left = [one.host for one in node]
    done = list(arrives)
    now_s = 0.0
    while waiting := [i for i, size in enumerate(left) if size > 0]:
        served = [i for i in waiting if arrives[i] <= now_s]
        coming = [arrives[i] for i in waiting if arrives[i] > now_s]
        if not served:
            now_s = min(coming)
            continue
        each = pace.memory_bytes_per_s / (ranks * len(served))
        first = min(served, key=lambda i: left[i])
        ends_s = now_s + left[first] / each
        until_s = min([ends_s, *coming])
        for i in served:
            left[i] -= each * (until_s - now_s)
            if until_s == ends_s and (i == first or left[i] <= 0):
                left[i], done[i] = 0.0, until_s
        now_s = until_s
    return [end + one.up / pace.link_bytes_per_s for end, one in zip(done, node, strict=True)]
