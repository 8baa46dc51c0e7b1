"""Plausibility bounds of measured times: chip peak, network, and unit of time.

The bounds hold for any software: all FLOP of the job at the peak; 16-bit gradients leaving a node
once, and on networks whose switches cannot add once more as weights.
"""

from __future__ import annotations

from trnbench.evidence.lowered import LoweredLayout
from trnbench.evidence.predict import Prepared, PricedSteps
from trnbench.program.tensor import element_bytes

FAR = 100.0
"""A measured time this many times the prediction is not in seconds."""
_LEAST_BYTES = 2.0
_TIMES = {"efa": 2, "rdma": 1}
"""Passes of gradients or weights out of a node, by the adapters' protocol."""
_MILLI = 1e-3


def impossible(
    prepared: Prepared, measured_s: float, predicted_s: float, priced: PricedSteps
) -> str | None:
    """Reason why a measured time is impossible, with the arithmetic; None if possible."""
    one = prepared.tried[0][0][1]
    peak_s = priced.ideal_s(prepared.setup, one)
    if measured_s < peak_s:
        return (
            f"step_time_s: {measured_s:.4g} s is above the chips' peak: "
            f"{float(one.of(one.program.model_flop)):.3g} FLOP over {int(one.layout.ranks)} ranks "
            f"take {peak_s:.4g} s at least"
        )
    sent, rate = _leaving_bytes(prepared), _network_bytes_per_s(prepared)
    if rate and measured_s < sent / rate:
        return (
            f"step_time_s: {measured_s:.4g} s is below the network's bound: {sent / 1e9:.4g} GB of "
            f"gradients and weights leave a node at {rate / 1e9:.4g} GB/s in {sent / rate:.4g} s"
        )
    if measured_s > FAR * predicted_s:
        return (
            f"step_time_s: {measured_s:.4g} s is {measured_s / predicted_s:.0f} times the "
            f"{predicted_s:.3g} s predicted; in ms it would be {measured_s * _MILLI:.4g} s"
        )
    return None


def _network_bytes_per_s(prepared: Prepared) -> float:
    """Network bandwidth of a node, bytes/s; 0 without a network."""
    network = prepared.setup.platform.instance.network
    if network is None:
        return 0.0
    return float(network.adapters * network.bandwidth_per_adapter_one_way_bytes_per_s)


def _leaving_bytes(prepared: Prepared) -> float:
    """The fewest bytes that leave a node in a step: gradients out, weights out."""
    one, setup = prepared.tried[0][0][1], prepared.setup
    program, layout, network = one.program, one.layout, setup.platform.instance.network
    per_node = setup.platform.ranks(setup.logical_size)
    ranks = layout.tp * layout.cp * layout.dp
    nodes = -(-ranks // per_node)
    if network is None or nodes < 2 or layout.ep > 1 or program.model.recommender is not None:
        return 0.0
    # Each tensor-parallel rank of the node sends a different slice.
    shards = min(layout.tp, per_node)
    return float(_TIMES[network.transport] * (1 - 1 / nodes) * shards * _gradient_bytes(one))


def _gradient_bytes(one: LoweredLayout) -> float:
    """The bytes of a rank's gradients in 16 bits, on the stage that has the most."""
    of_block = {
        kind: sum(
            float(one.of(tensor.bytes / element_bytes(tensor.format))) * _LEAST_BYTES
            for tensor in block.gradients.values()
        )
        for kind, block in one.program.blocks.items()
    }
    return max(
        sum(of_block[kind] * float(one.of(count)) for kind, count in stage.blocks.items())
        for stage in one.program.stages
        if float(one.of(stage.multiplicity)) > 0
    )
