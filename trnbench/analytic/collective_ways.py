"""Critical ways through pipelined trees and chains, as lines over size: latency plus bytes.

For a size, the critical way is the chain of waits that ends last. Between sizes the time is the
largest of the lines found at a few of them, from where latency is all to where transfer is.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trnbench.analytic.collective_shape import ChunkPipeline, Way
from trnbench.arrays import FloatArray
from trnbench.mapping.message_plan.pieces import last_arrivals
from trnbench.spec.collective_efficiency import Tuning

# Sizes at which critical ways are looked for, relative to where one transfer takes one latency.
_SCALES = np.array([0.0, 0.1, 0.3, 0.7, 1.0, 1.5, 3.0, 10.0, 1e6])


def critical_ways(pipeline: ChunkPipeline, tuning: Tuning) -> list[Way]:
    """Return the critical ways of a pipelined phase with a stack, for small to large sizes.

    Samples of a parameter share the ways of their mean.
    """
    numbers = (
        *(tuning.on_chip, tuning.link, tuning.network),
        *(tuning.step_s, tuning.network_step_s),
    )
    key = tuple(float(np.mean(number)) for number in numbers)
    factor = pipeline.factor
    return [
        replace(
            way,
            s_per_byte=(
                way.s_per_byte[0] * factor,
                way.s_per_byte[1] * factor,
                way.s_per_byte[2] * factor,
            ),
        )
        for way in pipeline.ways.of(key, lambda: _found_ways(pipeline, *key))
    ]


def _found_ways(
    pipeline: ChunkPipeline,
    on_chip: float,
    link: float,
    network: float,
    step_s: float,
    network_step_s: float,
) -> tuple[Way, ...]:
    """Return the critical ways at these shares of link speeds and times of a software step."""
    need = pipeline.s_per_byte / np.array([[on_chip], [link], [network]])
    slowest, transfer = need.argmax(axis=0), need.max(axis=0)
    start = pipeline.latency_s + np.where(pipeline.remote, network_step_s, step_s)
    even = float(start.max() / transfer.max()) if transfer.max() > 0 else 0.0
    ways = set()
    for found in last_arrivals(pipeline.flow, start, transfer * even * _SCALES[:, None]):
        at_full_speed = pipeline.s_per_byte[slowest[found.messages], found.messages]
        per_kind = np.bincount(slowest[found.messages], weights=at_full_speed, minlength=3)
        hops = found.messages[found.ends_hop]
        far = int(pipeline.remote[hops].sum())
        ways.add(
            Way(
                latency_s=float(pipeline.latency_s[hops].sum()),
                near_hops=len(hops) - far,
                remote_hops=far,
                s_per_byte=(float(per_kind[0]), float(per_kind[1]), float(per_kind[2])),
            )
        )
    return tuple(sorted(ways, key=lambda way: (way.latency_s, way.s_per_byte)))


def way_line(way: Way, tuning: Tuning) -> tuple[FloatArray, FloatArray]:
    """Return the time of a way for no bytes, s, and what each byte adds, s."""
    on_chip, link, network = way.s_per_byte
    moving = on_chip / tuning.on_chip + link / tuning.link + network / tuning.network
    steps = way.near_hops * tuning.step_s + way.remote_hops * tuning.network_step_s
    return np.asarray(way.latency_s + steps), np.asarray(moving)
