"""Seconds that a device waits for its host to launch work.

Model. A host launches every pass through a layer (forward, again, backward) and every exchange in a
block, for longer where messages of the pipeline leave the node. Where whole graphs are dispatched,
the host also launches the graphs of a micro-batch, for each further chunk at the share of a launch
that a slot costs, and those of the optimizer. For a micro-batch on a stage, launching and computing
overlap by a part of the shorter of the two: a stack that launches kernels ahead takes the longer
(part 1), one that waits for a graph before it makes the next takes both (part 0). The added seconds
are spread over the slots in proportion to launching. A host runs on its own clock: neither the
stack's factor nor a slow node changes its seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np

from trnbench.engines.analytic.step.blocks import NOTHING, total, weighted
from trnbench.engines.analytic.step.exchanges import Exchanges, along
from trnbench.facts.arrays import FloatArray
from trnbench.facts.calibration.chip_efficiency import Numbers, ends_of
from trnbench.facts.calibration.hosts import HostLaunch
from trnbench.facts.records import Record
from trnbench.program.blocks import layers_of
from trnbench.program.points import Pick
from trnbench.program.schedule import splits_backward
from trnbench.program.slots import Slot, launches
from trnbench.program.tensor import array

_DIRECTIONS: tuple[Slot, ...] = ("forward", "backward")
"""The slots in which the graphs of a micro-batch are launched, half of the graphs each."""


class HostPrices(Record, eq=False):
    """Seconds of launching over the axes of a grid they depend on, then over samples if any."""

    blocks: Mapping[str, Mapping[Slot, FloatArray]]  # One instance of a block, by kind and slot
    graph_s: FloatArray  # Graphs of one micro-batch
    update_s: FloatArray  # Graphs of the optimizer
    overlap: FloatArray  # Part of the shorter of launching and computing that runs beside the other

    def at(self, pick: Pick) -> HostPrices:
        """The prices of some layouts."""
        return HostPrices(
            blocks={
                kind: {slot: pick(seconds) for slot, seconds in of_kind.items()}
                for kind, of_kind in self.blocks.items()
            },
            graph_s=pick(self.graph_s),
            update_s=pick(self.update_s),
            overlap=pick(self.overlap),
        )

    def added(
        self, blocks: Mapping[str, FloatArray], device_s: Mapping[Slot, FloatArray]
    ) -> Mapping[Slot, FloatArray]:
        """Seconds of a micro-batch on a stage beyond its device's compute, by slot."""
        launch = {
            slot: weighted(blocks, {kind: self.blocks[kind].get(slot, NOTHING) for kind in blocks})
            + (self.graph_s / len(_DIRECTIONS) if slot in _DIRECTIONS else NOTHING)
            for slot in device_s
        }
        whole = total(launch.values())
        # Part of launching that overlaps with no compute, the same in every slot.
        alone = self._alone(whole, total(device_s.values())) / np.where(whole > 0, whole, 1.0)
        return {slot: seconds * alone for slot, seconds in launch.items()}

    def added_once(self, update_s: FloatArray) -> FloatArray:
        return self._alone(self.update_s, update_s)

    def _alone(self, launch_s: FloatArray, device_s: FloatArray) -> FloatArray:
        return np.asarray(launch_s - self.overlap * np.minimum(launch_s, device_s))


def host_prices(
    exchanges: Exchanges, stages: Sequence[Mapping[str, FloatArray]]
) -> HostPrices | None:
    """Prices of launching a program's step; None where launching is free.

    `stages`: number of blocks of each kind on each class of stages.
    """
    program, stack = exchanges.program, exchanges.efficiency.stack
    host, dispatch_s = stack.host or HostLaunch(dispatch="eager"), _dispatch_s(exchanges)
    launching = host.layer_pass_s, host.exchange_s, host.piped_exchange_s, host.graph_s, dispatch_s
    if not any(ends_of(seconds)[1] for seconds in launching):
        return None
    # Passes through the ends of a model (embedding, head) have no launch of their own.
    slowness = _slowness(host, exchanges)
    passed, exchanged = slowness * host.layer_pass_s, slowness * host.exchange_s
    piped = slowness * host.piped_exchange_s * exchanges.pipelines_cross()
    sent = slowness * dispatch_s * exchanges.experts_cross()
    graph_s = array(slowness * host.graph_s)
    split = splits_backward(program.layout.schedule)
    layers = layers_of(program.model, program.grid).passed
    return HostPrices(
        blocks={
            kind: {
                slot: np.asarray(
                    passed * (launched.passes if kind in layers else 0)
                    + exchanged * along(launched.exchanges, exchanges.samples)
                    + piped * along(launched.members, exchanges.samples)
                    + sent * along(launched.dispatches, exchanges.samples)
                )
                for slot, launched in launches(block, split=split).items()
            }
            for kind, block in program.blocks.items()
        },
        graph_s=graph_s * slot_factor(host, along(program.grid.vpp, exchanges.samples)),
        update_s=launched_update_s(exchanges, stages),
        overlap=array(host.overlap)
        if stack.efa is None
        else np.where(exchanges.experts_cross() > 0, stack.efa.launch_overlap, host.overlap),
    )


def _dispatch_s(exchanges: Exchanges) -> Numbers:
    """Seconds of the host in a pass that sends tokens to experts on other nodes."""
    stack, grid = exchanges.efficiency.stack, exchanges.program.grid
    return 0.0 if stack.efa is None else stack.efa.launch_s(stack.dispatcher_of(grid.dispatcher))


def launched_update_s(
    exchanges: Exchanges, stages: Sequence[Mapping[str, FloatArray]]
) -> FloatArray:
    """Seconds of launching the optimizer; `stages` counts blocks by kind on each stage class."""
    program, host = exchanges.program, exchanges.efficiency.stack.host
    if host is None or host.dispatch != "graph" or not program.trains:
        return NOTHING
    layers = layers_of(program.model, program.grid).passed
    held = (total(count for kind, count in blocks.items() if kind in layers) for blocks in stages)
    slowness = _slowness(host, exchanges)
    return np.asarray(
        array(slowness * host.graph_s) + slowness * host.layer_pass_s * reduce(np.maximum, held)
    )


def slot_factor(host: HostLaunch | None, chunks: FloatArray) -> FloatArray:
    """Launches a micro-batch pays for: 1 + slot_share for each further chunk of the stage."""
    if host is None or not ends_of(host.slot_share)[1]:
        return np.ones(())
    return np.asarray(1 + host.slot_share * (chunks - 1))


def _slowness(host: HostLaunch, exchanges: Exchanges) -> Numbers:
    """Factor by which launching takes longer because the host has fewer vCPUs than calibrated."""
    prices = exchanges.prices
    cores = prices.platform.chip.unit.cores_per_rank(prices.logical_size) * prices.ranks_per_node
    vcpus = prices.platform.instance.host.vcpus
    return 1.0 if vcpus is None else np.maximum(host.cores * cores / vcpus, 1.0)
