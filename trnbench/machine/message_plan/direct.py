"""Direct messages from each rank to all others: fewest rounds, most messages. Also pairs."""

from __future__ import annotations

import numpy as np

from trnbench.facts.arrays import IntArray
from trnbench.machine.message_plan.pattern import (
    CollectivePart,
    MessagePattern,
    Messages,
    all_positions,
)


def _to_others(senders: IntArray, positions: int) -> tuple[IntArray, IntArray]:
    # Targets begin right behind each sender and never include it.
    source = np.repeat(senders, positions - 1)
    step = np.tile(np.arange(1, positions), len(senders))
    return source, (source + step) % positions


def direct(positions: int, part: CollectivePart, blocks: int) -> MessagePattern:
    """Pattern in which each position sends straight to every other: one round, or two for a reduce.

    A reduce scatters, then gathers. A broadcast loads its root alone.
    """
    whole = part == "broadcast"

    def send(round_: int, sources: IntArray | None) -> tuple[Messages, ...]:
        senders = all_positions(positions, sources)
        # Of a broadcast only the root has data.
        if whole:
            senders = senders[senders == 0]
        source, target = _to_others(senders, positions)
        gathers = part == "gather" or (part == "reduce" and round_ == 1)
        return (
            Messages(
                source=source,
                target=target,
                block=0 * source if whole else source if gathers else target,
                count=np.full(len(source), blocks if whole else 1, dtype=np.int64),
                channel=0 * source,
                reduces=part == "scatter" or (part == "reduce" and round_ == 0),
                origin=source if part == "exchange" else None,
            ),
        )

    return MessagePattern(
        name="direct",
        part=part,
        positions=positions,
        blocks=blocks,
        # All positions but a root send alike: one node then shows the load of all.
        alike=not whole,
        distinct_rounds=((0, 1), (1, 1)) if part == "reduce" else ((0, 1),),
        send=send,
    )


def single_step(positions: int) -> MessagePattern:
    """All-reduce in one round: each position sends its whole buffer to all, which add locally."""

    def send(_: int, sources: IntArray | None) -> tuple[Messages, ...]:
        source, target = _to_others(all_positions(positions, sources), positions)
        nought = 0 * source
        # One round costs one latency, but each rank sends positions - 1 times its buffer.
        return (
            Messages(
                source=source,
                target=target,
                block=nought,
                count=nought + 1,
                channel=nought,
                reduces=True,
            ),
        )

    return MessagePattern(
        name="single-step-mesh",
        part="reduce",
        positions=positions,
        blocks=1,
        distinct_rounds=((0, 1),),
        send=send,
    )


def pairwise(positions: int, pairs: IntArray, *, alike: bool) -> MessagePattern:
    """Permute and send-receive: the whole buffer of each pair's source goes to its target.

    `alike`: each node's positions send as the first node's do, as many nodes further on.
    """
    source, target = pairs[:, 0], pairs[:, 1]
    every = Messages(
        source=source,
        target=target,
        origin=source,
        block=target,
        count=np.ones(len(pairs), dtype=np.int64),
        channel=np.zeros(len(pairs), dtype=np.int64),
        reduces=False,
    )
    return MessagePattern(
        name="direct",
        part="exchange",
        positions=positions,
        blocks=positions,
        alike=alike,
        distinct_rounds=((0, 1),),
        send=lambda _, sources: (every.sent_by(sources),),
        along=pairs,
    )
