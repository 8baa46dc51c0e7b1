"""Seconds that a played device waits for its host to launch work.

The numbers are the stack's, as in the closed form; the played time of a micro-batch is compared
with them.
"""

from __future__ import annotations

from collections.abc import Mapping

from trnbench.facts.calibration.hosts import HostLaunch
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.records import Record
from trnbench.program.blocks import layers_of
from trnbench.program.schedule import splits_backward
from trnbench.program.slots import Slot, launches
from trnbench.program.step import StepProgram

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
    known: HostLaunch | None,
    *,
    cores_in_use: int,
    piped_crosses: bool,
) -> PlayedHost | None:
    """The launches of a scalar program's host; None where no launch costs are known."""
    if known is None:
        return None
    vcpus = platform.instance.host.vcpus
    slowness = 1.0 if vcpus is None else max(float(known.cores) * cores_in_use / vcpus, 1.0)
    passed = slowness * float(known.layer_pass_s)
    exchanged = slowness * float(known.exchange_s)
    piped = slowness * float(known.piped_exchange_s) * piped_crosses
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
                for slot, one in launches(block, split=split).items()
            }
            for kind, block in program.blocks.items()
        },
        graph_s=graph_s * slots_a_micro_batch(known, int(program.grid.vpp)),
        passed_s=passed if graphs else 0.0,
        update_graph_s=graph_s if graphs else 0.0,
        layers=layers,
        overlap=float(known.overlap),
    )


def slots_a_micro_batch(known: HostLaunch | None, chunks: int) -> float:
    """Launches a micro-batch pays for: 1 + slot_share for each further chunk of the stage."""
    return 1.0 if known is None else 1 + float(known.slot_share) * (chunks - 1)
