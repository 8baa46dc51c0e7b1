"""Made-up chips, machines, efficiencies and models that several tests share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trnbench.facts.calibration.chip_efficiency import ChipEfficiency, KernelEfficiency
from trnbench.facts.calibration.collective_stack import CollectiveStack, Rule, Tuning
from trnbench.facts.calibration.coverage import Spread
from trnbench.facts.calibration.supports import ANYTHING_ELSE, SupportLine
from trnbench.facts.calibration.training_stack import (
    Overlaps,
    TrainingEfficiency,
    TrainingStack,
)
from trnbench.facts.catalog.provenance import Evidence, Kind, Provenance
from trnbench.facts.hardware.chip import Chip, Memory, Reserve, Rounding
from trnbench.facts.hardware.compute_unit import GpuTile, Multiprocessors
from trnbench.facts.hardware.fabric import Switch
from trnbench.facts.hardware.instance import Host, Instance, Platform
from trnbench.facts.workload.model import Attention, Mlp, Model, Position, Transformer, Vocabulary

EVERYTHING = (SupportLine(status="runs", features=(ANYTHING_ELSE,)),)

CHIP = ChipEfficiency(
    name="chip-x",
    title="",
    chips=("x",),
    tensor_share=0.8,
    half_share_depth=0.0,
    narrow_share=1.0,
    memory_share=0.7,
)
STACK = TrainingStack(
    name="training-x",
    title="",
    instances=("x",),
    basis="assumed",
    order="megatron",
    attention="fused",
    supports=EVERYTHING,
    kernels=KernelEfficiency(
        attention_forward_share=0.5,
        attention_backward_share=0.4,
        score_touches_forward=5.0,
        score_touches_backward=7.0,
        elementwise_traffic=1.0,
        optimizer_traffic=1.0,
        block_pass_s=30e-6,
    ),
    overlaps=Overlaps(tensor=0.4, context=0.5, expert=0.0, pipeline=0.5, data=0.9),
    factor=1.0,
    communication=1.0,
    step_s=0.02,
    micro_batch_s=0.0,
    piped_micro_batch_s=0.03,
    node_scatter=0.05,
    fragmentation=0.05,
    spread=Spread(low=0.9, high=1.1),
)


def known(ranges: Mapping[str, tuple[float, float]]) -> Provenance:
    """Return provenance that gives each number by its key path a range."""
    return Provenance(
        evidence={
            path: Evidence(text="", source="s", kind=Kind.ASSUMED, low=low, high=high)
            for path, (low, high) in ranges.items()
        }
    )


def decoder(*, hidden=8, heads=4, kv_heads=2, head_size=2, wide=16, words=32) -> Model:
    """Two layers; by default those of the examples computed by hand."""
    return Model(
        name="hand",
        title="hand",
        transformer=Transformer(
            layers=2,
            hidden=hidden,
            norm="rms",
            attention=Attention(heads=heads, kv_heads=kv_heads, head_size=head_size, causal=True),
            mlp=Mlp(hidden=wide, gated=True, activation="silu"),
            position=Position(encoding="rotary", length=4096, rotary_base=10000.0),
        ),
        vocabulary=Vocabulary(size=words, tied=False),
    )


def hand_chip(
    *,
    tile=8,
    memory_bytes_per_s=1024.0,
    cache_bytes_per_s=1e12,
    launch_latency_s=1.0,
    flop_per_s=1024.0,
) -> Chip:
    """A GPU of one multiprocessor: 1,024 FLOP a second, square tiles, a cache for everything."""
    return Chip(
        name="hand",
        title="hand",
        vendor="none",
        family="hand",
        memory=Memory(
            technology="none",
            stacks=1,
            capacity_per_chip_bytes=1e9,
            bandwidth_per_chip_bytes_per_s=memory_bytes_per_s,
        ),
        multiprocessors=Multiprocessors(
            count=1,
            clock_hz=1.0,
            cache_per_chip_bytes=1e12,
            cache_bandwidth_per_chip_bytes_per_s=cache_bytes_per_s,
            launch_latency_s=launch_latency_s,
            contraction_step=tile,
            rates_per_chip_flop_per_s={"bf16": flop_per_s},
            tiles=(GpuTile(rows=tile, columns=tile, relative_rate=1.0),),
        ),
        headline_per_chip_flop_per_s={"bf16": 2 * flop_per_s},
        rounding=Rounding(modes=("rne",)),
        reserve=Reserve(per_rank_bytes=1.0),
    )


def hand_platform(
    *, memory_bytes_per_s=1e30, link_bytes_per_s=256.0, flop_per_s=1024.0
) -> Platform:
    """Eight GPUs of one multiprocessor on a switch: 1,024 FLOP/s, links of 256 bytes/s."""
    chip = hand_chip(
        tile=4,
        memory_bytes_per_s=memory_bytes_per_s,
        cache_bytes_per_s=1e30,
        launch_latency_s=0.0,
        flop_per_s=flop_per_s,
    )
    switch = Switch(
        name="switch",
        chips=8,
        bandwidth_per_chip_one_way_bytes_per_s=link_bytes_per_s,
        latency_per_hop_s=0.0,
    )
    instance = Instance(
        name="hand",
        title="hand",
        provider="none",
        chip="hand",
        chips=8,
        host=Host(),
        fabric=(switch,),
    )
    return Platform(instance=instance, chip=chip)


def hand_collectives() -> CollectiveStack:
    """Rings at full speed, with no cost but the links'."""
    free = Tuning(
        launch_s=0.0,
        step_s=0.0,
        network_step_s=0.0,
        message_s=0.0,
        on_chip=1.0,
        link=1.0,
        network=1.0,
        chunk_bytes=1e12,
        chunks=1,
        reduce_touches=0.0,
        slices=1,
        pieces=1,
    )
    direct = Rule(algorithm="direct", tuning="free", ops=("send-receive", "permute", "all-to-all"))
    return CollectiveStack(
        name="hand",
        title="hand",
        instances=("hand",),
        default_tuning="free",
        tunings={"free": free},
        rules=(direct, Rule(algorithm="ring", tuning="free")),
    )


def hand_efficiency(*, overlaps: dict[str, Any] | None = None, **changes: Any):
    """Kernels at the peak, nothing overlaps; 1 s a micro-batch, 1 s more in pipelines, 3 s once."""
    stack: dict[str, Any] = {
        "factor": 1.0,
        "communication": 1.0,
        "step_s": 3.0,
        "micro_batch_s": 1.0,
        "piped_micro_batch_s": 1.0,
        "node_scatter": 0.0,
    }
    none = dict.fromkeys(("tensor", "context", "expert", "pipeline", "data"), 0.0)
    kernels = KernelEfficiency(
        attention_forward_share=1.0,
        attention_backward_share=1.0,
        score_touches_forward=1.0,
        score_touches_backward=1.0,
        elementwise_traffic=1.0,
        optimizer_traffic=1.0,
        block_pass_s=0.0,
    )
    return TrainingEfficiency(
        chip=ChipEfficiency(
            name="hand",
            title="hand",
            chips=("hand",),
            tensor_share=1.0,
            half_share_depth=0.0,
            narrow_share=1.0,
            memory_share=1.0,
        ),
        stack=TrainingStack(
            name="hand",
            title="hand",
            instances=("hand",),
            basis="assumed",
            order="megatron",
            attention="fused",
            supports=EVERYTHING,
            kernels=kernels,
            overlaps=Overlaps(**{**none, **(overlaps or {})}),
            fragmentation=0.0,
            spread=Spread(low=0.9, high=1.1),
            **{**stack, **changes},
        ),
    )
