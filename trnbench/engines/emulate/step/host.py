"""Seconds that a played device waits for its host: to launch work, and to update weights.

The numbers are the stack's, as in the closed form; the played time of a micro-batch is compared
with them.

An optimizer on the host. A rank sends its gradients down its link, waits while the host updates,
and gets the weights back. The host's memory serves all ranks of a node whose gradients are there,
each as much; who is done leaves its part to the others. Of a pipeline, a node holds as many stages
next to each other as fit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, TypeAlias

from trnbench.engines.emulate.step.stages import BlockCounts, stage_counts
from trnbench.facts.calibration.hosts import HostLaunch
from trnbench.facts.calibration.training_stack import TrainingStack
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.records import Record
from trnbench.program.blocks import layers_of
from trnbench.program.optimizer import is_on_host
from trnbench.program.schedule import splits_backward
from trnbench.program.slots import Slot, launches
from trnbench.program.step import StepProgram

Crossing: TypeAlias = Literal["pipeline", "experts"]
"""Exchanges that may leave a node: messages between stages, and tokens on their way to experts."""
_LAUNCHED_IN: tuple[Slot, ...] = ("forward", "backward")
"""The slots that the graphs of a micro-batch are launched in, half of them each."""


class PlayedHost(Record):
    """Seconds of launching a block by kind and slot, a micro-batch's graphs, and the optimizer's.

    `overlap`: of launching and computing, the part of the shorter that runs beside the longer.
    """

    blocks: Mapping[str, Mapping[Slot, float]]
    graph_s: float
    passed_s: float
    update_graph_s: float
    layers: frozenset[str]
    overlap: float

    def waited(
        self, blocks: Mapping[str, float], device_s: Mapping[Slot, float]
    ) -> Mapping[Slot, float]:
        """Seconds of a micro-batch on a stage beyond its device's compute, by slot."""
        launch = {
            slot: sum(count * self.blocks[kind].get(slot, 0.0) for kind, count in blocks.items())
            + (self.graph_s / len(_LAUNCHED_IN) if slot in _LAUNCHED_IN else 0.0)
            for slot in device_s
        }
        whole = sum(launch.values())
        alone = self._alone(whole, sum(device_s.values())) / whole if whole else 0.0
        return {slot: seconds * alone for slot, seconds in launch.items()}

    def waited_once(self, blocks: Mapping[str, float], update_s: float) -> float:
        """Seconds of a stage's optimizer beyond its device's compute."""
        if not self.update_graph_s and not self.passed_s:
            return 0.0
        held = sum(count for kind, count in blocks.items() if kind in self.layers)
        return self._alone(self.update_graph_s + self.passed_s * held, update_s)

    def _alone(self, launch_s: float, device_s: float) -> float:
        return launch_s - self.overlap * min(launch_s, device_s)


def host_of(
    program: StepProgram,
    platform: Platform,
    stack: TrainingStack,
    *,
    cores_in_use: int,
    crossing: Collection[Crossing],
) -> PlayedHost | None:
    """The launches of a scalar program's host; None where no launch costs are known.

    `crossing`: exchanges that leave a node.
    """
    dispatching = stack.efa if "experts" in crossing else None
    if stack.host is None and dispatching is None:
        return None
    known, sent, overlap = stack.host or HostLaunch(dispatch="eager"), 0.0, None
    if dispatching is not None:
        sent = float(dispatching.launch_s(stack.dispatcher_of(program.grid.dispatcher)))
        overlap = float(dispatching.launch_overlap)
    vcpus = platform.instance.host.vcpus
    slowness = 1.0 if vcpus is None else max(float(known.cores) * cores_in_use / vcpus, 1.0)
    passed = slowness * float(known.layer_pass_s)
    exchanged = slowness * float(known.exchange_s)
    piped = slowness * float(known.piped_exchange_s) * ("pipeline" in crossing)
    trains = program.trains
    graph_s = slowness * float(known.graph_s) * (1.0 if trains else 0.5)
    layers = layers_of(program.model, program.grid).passed
    split = splits_backward(program.layout.schedule)
    graphs = known.dispatch == "graph" and trains
    return PlayedHost(
        blocks={
            kind: {
                slot: passed * (one.passes if kind in layers else 0)
                + exchanged * float(one.exchanges)
                + piped * float(one.members)
                + slowness * sent * float(one.dispatches)
                for slot, one in launches(block, split=split).items()
            }
            for kind, block in program.blocks.items()
        },
        graph_s=graph_s * slots_a_micro_batch(known, int(program.grid.vpp)),
        passed_s=passed if graphs else 0.0,
        update_graph_s=graph_s if graphs else 0.0,
        layers=layers,
        overlap=float(known.overlap) if overlap is None else overlap,
    )


def slots_a_micro_batch(known: HostLaunch | None, chunks: int) -> float:
    """Launches a micro-batch pays for: 1 + slot_share for each further chunk of the stage."""
    return 1.0 if known is None else 1 + float(known.slot_share) * (chunks - 1)


class HostPace(Record):
    """Rates of a host."""

    link_bytes_per_s: float  # Rate of the link to a rank
    memory_bytes_per_s: float  # Rate of memory, for all ranks of a node together


class _Traffic(Record):
    """Bytes of a rank of a stage."""

    down: float  # Gradients to the host
    host: float  # Reads and writes of the host
    up: float  # Weights to the rank


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
