"""The analytic collective engine: closed forms over arrays of sizes.

Model. A round ends with its slowest message: its latency and software step, plus the busiest link
on its path at the stack's share of link speed, plus the part of the sum that nothing hides. A ring
that relays pays a slow hop once a lap: it is bound either by its busiest link or by the way of one
chunk through all hops; a pipelined tree pays latency along its critical way. Collectives of several
levels work in chunks that follow one another through the phases, one at a time on each lane; where
lanes share links, each further chunk takes at least what its bytes need there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trnbench.analytic.collective_profile import MessageClass, Profile, RoundProfile
from trnbench.analytic.collective_ways import Way, critical_ways, way_time
from trnbench.mapping.message_plan.plan import turns
from trnbench.mapping.message_plan.select import chunks_of
from trnbench.spec.collective_efficiency import Tuning

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """Time of a collective in s by size, and where it goes.

    `latency_s`: what would be left with infinitely fast links and sums; `chunks`: pipelined parts;
    `bound_by`: the resource that sets the time, by size.
    """

    time_s: FloatArray
    launch_s: FloatArray
    latency_s: FloatArray
    chunks: FloatArray
    bound_by: tuple[str, ...]


def collective_time(profile: Profile, tuning: Tuning, size_bytes: FloatArray) -> Breakdown:
    """Return the time of a profiled collective for an array of sizes.

    Arrays in `tuning` (samples of a parameter) broadcast against `size_bytes`.
    """
    size = np.asarray(size_bytes, dtype=float)
    if not profile.rounds:
        nothing = np.zeros_like(size)
        return Breakdown(
            time_s=nothing,
            launch_s=nothing,
            latency_s=nothing,
            chunks=np.ones_like(size),
            bound_by=("nothing",) * size.size,
        )
    chunks = chunks_of(tuning, len(profile.lanes), size)
    ways = [critical_ways(pipeline, tuning) for pipeline in profile.pipelines]
    phases = _phase_times(profile, tuning, ways, size / chunks)
    unloaded = _phase_times(profile, tuning, ways, np.zeros_like(size))
    names = ["phases in turn"]
    times = [_pipelined(profile.lanes, phases, chunks)]
    for resource in profile.resources:
        share = (tuning.on_chip, tuning.link, tuning.network)[resource.kind]
        behind = (chunks - 1) / chunks * size * resource.s_per_byte / share
        names.append(f"{resource.kind.name.lower().replace('_', '-')} links")
        times.append(sum(phases, start=behind))
    stacked = np.stack(np.broadcast_arrays(*times))
    chosen = np.argmax(stacked, axis=0)
    return Breakdown(
        time_s=tuning.launch_s + stacked.max(axis=0),
        launch_s=np.broadcast_to(np.asarray(tuning.launch_s, dtype=float), size.shape),
        latency_s=sum(unloaded, start=np.zeros_like(size)),
        chunks=chunks,
        bound_by=tuple(names[i] for i in chosen.ravel()),
    )


def _pipelined(lanes: tuple[int, ...], phases: list[FloatArray], chunks: FloatArray) -> FloatArray:
    """Return when the last chunk has passed the last phase, each lane taking one at a time."""
    free = {lane: np.zeros_like(chunks) for lane in lanes}
    ended = [np.zeros_like(chunks) for _ in range(int(chunks.max()))]
    for chunk, phase in turns(lanes, len(ended)):
        there = chunk < chunks
        end = np.maximum(free[lanes[phase]], ended[chunk]) + phases[phase]
        ended[chunk] = np.where(there, end, ended[chunk])
        free[lanes[phase]] = np.where(there, end, free[lanes[phase]])
    return np.asarray(np.max(ended, axis=0))


def _phase_times(
    profile: Profile, tuning: Tuning, pipeline_ways: list[list[Way]], size: FloatArray
) -> list[FloatArray]:
    """Return each phase's time for one chunk of these sizes."""
    times = [np.zeros_like(size) for _ in profile.lanes]
    for found in profile.rounds:
        times[found.phase] = times[found.phase] + _rounds_time(profile, found, tuning, size)
    for pipeline, ways in zip(profile.pipelines, pipeline_ways, strict=True):
        slowest = _largest([way_time(way, tuning, size) for way in ways])
        times[pipeline.phase] = times[pipeline.phase] + slowest
    return times


def _rounds_time(
    profile: Profile, found: RoundProfile, tuning: Tuning, size: FloatArray
) -> FloatArray:
    extra = (found.fanout - 1) * tuning.message_s + (
        found.adds * size * profile.add_s_per_byte * tuning.reduce_touches / tuning.slices
    )
    if found.pipelined:
        return np.asarray(found.times * extra)
    if not found.relays or len(found.classes) == 1:
        slowest = _largest([_start(c, tuning) + _transfer(c, tuning, size) for c in found.classes])
        return np.asarray(found.times * (slowest + extra))
    busiest = _largest([_transfer(c, tuning, size) for c in found.classes])
    ordered = by_latency(found)
    costs = [_start(c, tuning) + _transfer(c, tuning, size) for c in ordered]
    ways = []
    for hops in _telling_lengths(ordered, found.times):
        way = (found.times - hops) * busiest
        for taken, cost in zip(_hops_of_way(ordered, hops), costs, strict=True):
            way = way + taken * cost
        ways.append(way)
    return np.asarray(_largest(ways) + found.times * extra)


def by_latency(found: RoundProfile) -> list[MessageClass]:
    """Return the classes, the slowest hop first."""

    def slowness(c: MessageClass) -> tuple[bool, float, float]:
        return c.remote, c.latency_s, max(c.busiest_s_per_byte)

    return sorted(found.classes, key=slowness, reverse=True)


def _telling_lengths(ordered: list[MessageClass], times: int) -> list[int]:
    """Return after how many hops a chunk may begin to queue behind others at the busiest link.

    The cost is linear between slow hops, so the first hop, the last slow one and the end tell all.
    """
    slow = sum(c.count for c in ordered if c.latency_s == ordered[0].latency_s)
    apart = max(sum(c.count for c in ordered) // slow, 1)
    last_slow = (times - 1) // apart * apart + 1
    return sorted({1, last_slow, times})


def _hops_of_way(ordered: list[MessageClass], hops: int) -> list[int]:
    """Return how many hops of each class the slowest way of `hops` hops round a ring has.

    Hops of a class are spread evenly round the ring, so a part of a lap has at most their share,
    rounded up.
    """
    total = sum(c.count for c in ordered)
    seen = taken = 0
    split = []
    for c in ordered:
        seen += c.count
        upto = min(-(-hops * seen // total), hops)
        split.append(upto - taken)
        taken = upto
    return split


def _start(c: MessageClass, tuning: Tuning) -> float:
    return c.latency_s + (tuning.network_step_s if c.remote else tuning.step_s)


def _transfer(c: MessageClass, tuning: Tuning, size: FloatArray) -> FloatArray:
    on_chip, link, network = c.busiest_s_per_byte
    needs = [
        size * need / share
        for need, share in (
            (on_chip, tuning.on_chip),
            (link, tuning.link),
            (network, tuning.network),
        )
    ]
    return _largest(needs)


def _largest(values: list[FloatArray]) -> FloatArray:
    largest = values[0]
    for value in values[1:]:
        largest = np.maximum(largest, value)
    return largest
