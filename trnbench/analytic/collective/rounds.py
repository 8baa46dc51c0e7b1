"""Rounds that ask the same of one node: looked at once, whatever they add and how much they carry.

A ring's scatter and gather send between the same ends, so do all parts of halving. On lines of one
rank a node every message goes to another node, whichever: there the rounds of a ring over a few
nodes and over many are alike, and so are all those of halving.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from trnbench.analytic.collective.messages import profiled
from trnbench.analytic.collective.shape import MessageClasses, PhaseProfile
from trnbench.arrays import FloatArray
from trnbench.mapping.message_plan.build import node_lines
from trnbench.mapping.message_plan.pattern import Fan, MessagePattern, Messages
from trnbench.mapping.message_plan.placed import Placed

PhaseMemo: TypeAlias = dict[Hashable, tuple[float, PhaseProfile]]
"""Phases of a platform that have been looked at, with the share that each block had there."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Round:
    """`times` rounds of a phase: `ends` tells like ones, which carry `blocks` times their least.

    `adds`: the most blocks a rank adds up in one.
    """

    round_: int
    times: int
    ends: Hashable
    blocks: float
    adds: float


def remembered(
    key: Hashable, memo: PhaseMemo | None, unit: float, look: Callable[[], PhaseProfile]
) -> PhaseProfile:
    """Return a phase whose blocks have this share, scaled from one that was looked at before."""
    if memo is None:
        return look()
    if key not in memo:
        memo[key] = unit, look()
    known, found = memo[key]
    return found.scaled(unit / known)


def phase_of_rounds(
    placed: Placed, index: int, memo: PhaseMemo, unit: float, lines: Hashable
) -> PhaseProfile | None:
    """Return a phase put together from rounds that may be known; None if they are not told apart.

    `lines` are those of the phase on a node, all of one pattern.
    """
    found = placed.outlines[0]
    step = found.steps[index]
    width = node_lines(found, step).shape[1]
    rounds = None if step.pattern.pipelined else _rounds(step.pattern, width)
    if not rounds:
        return None
    parts = []
    for one in rounds:

        def look(one: _Round = one) -> PhaseProfile:
            played = placed.round_of(index, one.round_, 1)
            return profiled(placed, index, rounds=() if played is None else (played,))

        key = ("round", one.ends, lines)
        parts.append(remembered(key, memo, unit * one.blocks, look))
    return _joined(step.pattern, rounds, parts, unit)


def _rounds(pattern: MessagePattern, width: int) -> list[_Round] | None:
    """Return the rounds of a pattern on lines of which `width` positions are on a node."""
    wide = pattern.positions > width
    found = []
    for round_, times in pattern.distinct_rounds:
        batches = pattern.messages(round_, np.arange(width) if wide else None) if times else ()
        if not batches:
            continue
        if len(batches) > 1 or batches[0].fan is not Fan.POINT or not len(batches[0].source):
            return None
        (batch,) = batches
        least = int(batch.count.min())
        added = np.bincount(batch.target % width, weights=batch.count).max() if batch.reduces else 0
        found.append(
            _Round(
                round_=round_,
                times=times,
                ends=(
                    pattern.channels,
                    _ends(batch, elsewhere=wide and width == 1),
                    (batch.count / least).tobytes(),
                ),
                blocks=float(least),
                adds=float(added),
            )
        )
    return found


def _ends(batch: Messages, *, elsewhere: bool) -> Hashable:
    """Return where the messages of a batch go from and to; `elsewhere`: all to other nodes."""
    channels = batch.channel.tobytes()
    if elsewhere:
        return "elsewhere", channels
    return batch.source.tobytes(), batch.target.tobytes(), channels


def _joined(
    pattern: MessagePattern, rounds: list[_Round], parts: list[PhaseProfile], unit: float
) -> PhaseProfile:
    """Return rounds as a phase."""
    classes = [part.classes for part in parts]
    wide = max(found.hop_latencies_s.shape[1] for found in classes)
    return PhaseProfile(
        relays=pattern.relays,
        times=np.array([one.times for one in rounds], dtype=np.int64),
        counts=np.array([len(found) for found in classes], dtype=np.int64),
        adds=np.array([one.adds for one in rounds]) * (unit / pattern.channels),
        fanout=np.concatenate([part.fanout for part in parts]),
        classes=MessageClasses(
            count=np.concatenate([found.count for found in classes]),
            latency_s=np.concatenate([found.latency_s for found in classes]),
            remote=np.concatenate([found.remote for found in classes]),
            busiest_s_per_byte=np.concatenate(
                [found.busiest_s_per_byte for found in classes], axis=1
            ),
            share=np.concatenate([found.share for found in classes]),
            alone_s_per_byte=np.concatenate([found.alone_s_per_byte for found in classes]),
            hop_latencies_s=np.concatenate([_padded(f.hop_latencies_s, wide) for f in classes]),
            queue=np.concatenate([found.queue for found in classes]),
        ),
        pipeline=None,
        loads=np.asarray(
            sum(part.loads * one.times for one, part in zip(rounds, parts, strict=True))
        ),
    )


def _padded(hops: FloatArray, wide: int) -> FloatArray:
    missing = wide - hops.shape[1]
    return np.pad(hops, ((0, 0), (0, missing)), constant_values=-1.0) if missing else hops
