"""Fused attention of a step: the instruction stream of a published kernel, as fast as the stack's.

The stream says how time varies with sequence, heads, their sizes, the mask and the cores of a rank.
Which part of the peak a stack's kernel reaches over long sequences, and what a call and a head cost
besides, is software: the calibration's numbers, as for the closed form. So the stream takes as many
times longer as the published kernel is faster than the stack's over one long sequence.
"""

from __future__ import annotations

import math

from trnbench.engines.emulate.attention.run import AttentionRun, run_attention
from trnbench.engines.emulate.step.rank import BusyRun, Rank
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.units import FLOP_PER_MULTIPLY_ADD
from trnbench.machine.costs.instructions import MEMORY, TENSOR, VECTOR
from trnbench.machine.tiling.attention import AttentionCall
from trnbench.program.ops import AttentionOp

LONG = 32 * 1024
"""Queries and keys of the long sequence."""
_FORWARD, _BACKWARD = 2, 5
"""Products of queries and keys in each pass."""


def attention_s(rank: Rank, op: AttentionOp) -> BusyRun:
    """One call of fused attention on a rank, for all its sequences and heads."""
    call = call_of(op, rank.chip)
    kernels = rank.efficiency.kernels
    run = rank.runs.of(
        ("attention", call, rank.cores),
        lambda: _busy(run_attention(call, rank.chip, cores=rank.cores)),
    )
    slower = _slower(rank, op)
    heads = math.ceil(call.heads / rank.cores)
    called_s = float(kernels.attention_call_s) + heads * float(kernels.attention_head_s)
    return BusyRun(time_s=run.time_s * slower + called_s, busy=run.busy)


def _slower(rank: Rank, op: AttentionOp) -> float:
    """Part of the peak that the kernel reaches when played, over that calibrated."""
    number_format, size = rank.chip.own_format(op.format), rank.unit.tensor.rows
    call = AttentionCall(
        queries=LONG,
        keys=LONG,
        heads=1,
        kv_heads=1,
        score_size=size,
        value_size=size,
        number_format=number_format,
        causal=False,
        backward=op.backward,
    )
    run = rank.runs.of(("attention", call, 1), lambda: _busy(run_attention(call, rank.chip)))
    products = _BACKWARD if op.backward else _FORWARD
    flop = FLOP_PER_MULTIPLY_ADD * products * LONG**2 * size
    peak_flop_per_s = rank.chip.peak_flop_per_s(number_format) / rank.unit.count
    kernels = rank.efficiency.kernels
    known = kernels.attention_backward_share if op.backward else kernels.attention_forward_share
    return flop / run.time_s / peak_flop_per_s / float(known)


def call_of(op: AttentionOp, chip: Chip) -> AttentionCall:
    """Call of the kernel that an operation of a scalar program is.

    Ranks that share a sequence under a causal mask have an early and a late part of it each, and in
    turn all its keys.
    """
    batch, queries, heads, score_size = (math.ceil(size) for size in op.query.shape)
    _, keys, kv_heads, value_size = (math.ceil(size) for size in op.value.shape)
    return AttentionCall(
        queries=queries,
        keys=keys,
        heads=batch * heads,
        kv_heads=batch * kv_heads,
        score_size=score_size,
        value_size=value_size,
        number_format=chip.own_format(op.format),
        causal=op.causal,
        window=op.window,
        backward=op.backward,
        ring_queries=queries if op.causal and queries < keys else None,
    )


def _busy(run: AttentionRun) -> BusyRun:
    return BusyRun(
        time_s=run.time_s,
        busy={
            TENSOR: run.busy["tensor"] * run.time_s,
            VECTOR: max(run.busy["vector"], run.busy["scalar"]) * run.time_s,
            MEMORY: run.busy["dma"] * run.time_s,
        },
    )
