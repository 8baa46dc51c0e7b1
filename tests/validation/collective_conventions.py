"""Collectives counted by another tool's rules, on the same profiles: for comparison with it.

Model (an event counter in whole nanoseconds). A message takes its hops' latency plus its bytes at
one link's speed, rounded down; either nothing contends, or every switch stores whole messages and
a source's messages queue on its first link. A phase adds its rounds and a delay at every end point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from trnbench.engines.analytic.collective.shape import MessageClasses, Profile, lanes
from trnbench.facts.arrays import FloatArray
from trnbench.facts.workload.choices import Op

_NS_PER_S = 1e9
_NOISE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Conventions:
    """How a tool counts.

    `contention`: "none" gives every message its links alone, "store-and-forward" holds whole
    messages at each hop. `gather_size`: all-gather's size is one rank's "part" or the "output".
    `endpoint_delay_ns` is paid once a round and once a phase. Chunks follow one another, each
    level works on one at a time.
    """

    contention: Literal["none", "store-and-forward"]
    endpoint_delay_ns: int
    gather_size: Literal["part", "output"]


def conventional_time_ns(
    profile: Profile, op: Op, size_bytes: int, chunks: int, conventions: Conventions
) -> int:
    """Return the time of a profiled collective in whole ns, cut in `chunks` chunks."""
    size = max(size_bytes // chunks, 1)
    if op == "all-gather":
        size = size * profile.ranks if conventions.gather_size == "part" else size
    else:
        size = max(size, profile.ranks)
    phases = _phases_ns(profile, size, conventions)
    total = sum(phases)
    times = [total]
    for using in lanes(profile):
        busy = sum(phases[i] for i in using)
        ends = sum(phases[: using[0]]) + sum(phases[using[-1] + 1 :])
        times.append(chunks * busy + ends)
    return max(times)


def _phases_ns(profile: Profile, size: int, conventions: Conventions) -> list[int]:
    delay = conventions.endpoint_delay_ns
    times = [delay for _ in profile.lanes]
    for index, phase in enumerate(profile.phases):
        for found in phase.rounds:
            every = range(len(found.classes))
            slowest = max(_message_ns(found.classes, at, size, conventions) for at in every)
            times[index] += found.times * (slowest + delay)
    return times


def _message_ns(classes: MessageClasses, at: int, size: int, conventions: Conventions) -> int:
    # Latencies and shares come as floats of s and of the size; both are whole by convention.
    share, alone = classes.share[at], classes.alone_s_per_byte[at]
    message_bytes = np.floor(share * size + _NOISE)
    transfer = message_bytes * (alone / share) * _NS_PER_S
    own = classes.hop_latencies_s[at]
    hops: FloatArray = np.round(own[own >= 0] * _NS_PER_S, 3)
    if conventions.contention == "none":
        return int(np.floor(hops.sum() + transfer))
    queued = (int(classes.queue[at]) - 1) * np.floor(transfer)
    return int(queued + np.floor(hops + transfer).sum())
