"""The emulated collective engine: messages on the real links, max-min fair, round after round.

A round begins when the one before has ended everywhere, except on rings that relay: there each
rank goes on as soon as it has what it passes on. Like rounds are played once and counted. A
collective of several levels whose size asks for chunks is played by `streams`, chunks overlapping.
"""

from __future__ import annotations

import numpy as np

from trnbench.engines.emulate.collective.sharing import transfer_times
from trnbench.facts.arrays import FloatArray
from trnbench.facts.calibration.collective_stack import Tuning
from trnbench.facts.records import Record
from trnbench.machine.fabric import LinkKind
from trnbench.machine.message_plan.pieces import flow_of, last_arrival
from trnbench.machine.message_plan.placed import Placed, PlacedRound


class MessageEvent(Record):
    """One message on its way, for a trace: times in s from the collective's start."""

    start_s: float
    end_s: float
    source: int
    target: int
    size_bytes: float
    phase: int
    round_: int


class PlayedCollective(Record, eq=False):
    """A collective as played; links have the numbers of the placed collective."""

    time_s: float
    link_bytes: FloatArray
    link_busy: FloatArray  # Share of the time that each link would need at full speed
    messages: int  # Number of messages that were played
    chunks: int
    events: tuple[MessageEvent, ...]  # Events of messages, empty unless requested


def reached_capacity(placed: Placed, tuning: Tuning) -> FloatArray:
    """Speed each link reaches with a stack, bytes/s; infinite for no link."""
    shares = np.ones(len(LinkKind) + 1)
    shares[[LinkKind.ON_CHIP, LinkKind.SCALE_UP, LinkKind.NETWORK]] = (
        tuning.on_chip,
        tuning.link,
        tuning.network,
    )
    return placed.capacity * shares[placed.kind]


def start_latency(found: PlacedRound, tuning: Tuning) -> FloatArray:
    """Each message's seconds before and besides its transfer, in one round."""
    return found.latency_s + np.where(found.remote, tuning.network_step_s, tuning.step_s)


def after_round(placed: Placed, found: PlacedRound, tuning: Tuning, size_bytes: float) -> float:
    """Seconds of a round besides its messages: further sends and exposed sums."""
    memory = placed.placement.memory_bandwidth_per_rank_bytes_per_s
    adding = found.adds * size_bytes * tuning.reduce_touches / tuning.slices / memory
    return (found.fanout - 1) * tuning.message_s + adding


def link_totals(placed: Placed, size_bytes: float) -> FloatArray:
    """Bytes each link carries for a collective of this size."""
    total = np.zeros(placed.link_count + 1)
    for found in placed.rounds:
        weights = np.repeat(found.share * found.times, found.links.shape[1])
        total += np.bincount(found.links.ravel(), weights=weights, minlength=len(total))
    return total[:-1] * size_bytes


def busy_time(carried_bytes: FloatArray, bytes_per_s: FloatArray) -> FloatArray:
    """Seconds that links are busy; idle links may have no speed."""
    idle = np.zeros_like(carried_bytes)
    return np.divide(carried_bytes, bytes_per_s, out=idle, where=carried_bytes > 0)


def play(
    placed: Placed, tuning: Tuning, size_bytes: float, *, with_events: bool = False
) -> PlayedCollective:
    """A collective played in rounds, without overlap of chunks."""
    capacity = reached_capacity(placed, tuning)
    durations = _durations_s(placed, tuning, size_bytes, capacity)
    carried = link_totals(placed, size_bytes)
    # Rounds of a relaying ring overlap a little; the links still take their time in all.
    busy = busy_time(carried, capacity[:-1])
    # A rank by itself starts nothing.
    launch = tuning.launch_s if placed.rounds else 0.0
    time = launch + max(float(sum(durations)), float(busy.max(initial=0.0)))
    return PlayedCollective(
        time_s=time,
        link_bytes=carried,
        link_busy=busy_time(carried, placed.capacity[:-1]) / time if time > 0 else carried,
        messages=sum(len(found.source) for found in placed.rounds),
        chunks=1,
        events=_events(placed, tuning, size_bytes, capacity) if with_events else (),
    )


def _durations_s(placed: Placed, tuning: Tuning, size: float, capacity: FloatArray) -> list[float]:
    durations = []
    for index, phase in enumerate(placed.plan.phases):
        rounds = [found for found in placed.rounds if found.phase == index]
        throughs = [_through(found, size, capacity) for found in rounds]
        extras = [found.times * after_round(placed, found, tuning, size) for found in rounds]
        starts = [start_latency(found, tuning) for found in rounds]
        if phase.pattern.pipelined:
            durations.append(_arrival(rounds, starts, throughs) + sum(extras))
            continue
        for found, start, through, extra in zip(rounds, starts, throughs, extras, strict=True):
            # A ring of equal hops gains nothing by relaying: every round takes the same time.
            if phase.pattern.relays and found.times > 1 and not _even(start + through):
                durations.append(_relayed(placed, found, start, through) + extra)
            else:
                durations.append(found.times * float((start + through).max()) + extra)
    return durations


def _arrival(
    rounds: list[PlacedRound], starts: list[FloatArray], throughs: list[FloatArray]
) -> float:
    if not rounds:
        return 0.0
    return last_arrival(flow_of(rounds), np.concatenate(starts), np.concatenate(throughs)).time_s


def _even(values: FloatArray) -> bool:
    return bool(values.max() - values.min() <= 1e-9 * values.max())


def _through(found: PlacedRound, size: float, capacity: FloatArray) -> FloatArray:
    return transfer_times(found.links, found.share * size, capacity)


def pace(placed: Placed, tuning: Tuning, found: PlacedRound, size_bytes: float) -> FloatArray:
    """Latency of each message of a round that makes like rounds alone take their time.

    Rings that relay and pipelined trees pay latency along the way of a piece, not in every round.
    """
    pattern = placed.plan.phases[found.phase].pattern
    start = start_latency(found, tuning)
    capacity = reached_capacity(placed, tuning)
    if pattern.pipelined:
        rounds = [other for other in placed.rounds if other.phase == found.phase]
        throughs = [_through(other, size_bytes, capacity) for other in rounds]
        starts = [start_latency(other, tuning) for other in rounds]
        alone = _arrival(rounds, starts, throughs)
        transfers = sum(float(through.max()) for through in throughs)
        through = throughs[rounds.index(found)]
        a_round = max(alone - transfers, 0.0) / len(rounds)
        return np.asarray(a_round + through.max() - through)
    if pattern.relays and found.times > 1:
        through = _through(found, size_bytes, capacity)
        alone = _relayed(placed, found, start, through)
        return np.maximum(alone / found.times - through, 0.0)
    return start


def _relayed(placed: Placed, found: PlacedRound, start: FloatArray, through: FloatArray) -> float:
    """Time of like rounds in which each rank waits only for its own predecessor."""
    fabric = placed.placement.fabric
    ranks = fabric.ranks_per_node if placed.of_one_node else placed.placement.ranks
    # Where one node stands for all, what leaves it comes back in at its beginning.
    sends = found.way * ranks + found.source % ranks
    gets = found.way * ranks + found.target % ranks
    follower = np.argsort(sends)[np.searchsorted(np.sort(sends), gets)]
    # Each rank sends on once its link is free and the piece has come: no barrier between rounds.
    free = np.zeros(len(sends))
    has = np.zeros(len(sends))
    for _ in range(found.times):
        free = np.maximum(free, has) + through
        has[follower] = free + start
    return float(has.max())


def _events(
    placed: Placed, tuning: Tuning, size: float, capacity: FloatArray
) -> tuple[MessageEvent, ...]:
    clock = float(tuning.launch_s)
    events: list[MessageEvent] = []
    for found in placed.rounds:
        start, through = start_latency(found, tuning), _through(found, size, capacity)
        length = float((start + through).max()) + after_round(placed, found, tuning, size)
        ends = start + through
        for turn in range(found.times):
            events += [
                MessageEvent(
                    start_s=clock,
                    end_s=clock + float(end),
                    source=int(source),
                    target=int(target),
                    size_bytes=float(share * size),
                    phase=found.phase,
                    round_=found.round_ + turn,
                )
                for source, target, end, share in zip(
                    found.source, found.target, ends, found.share, strict=True
                )
            ]
            clock += length
    return tuple(events)
