"""A run on spot machines, played many times: machines are reclaimed one by one or by zone.

Model: machines fail at their own rate, spot machines are reclaimed one by one at theirs, and the
zone loses all of them at its own. If the notice is
too short to write a checkpoint, work since the last one is repeated. Training is synchronous, so
all other machines wait, also the on-demand base, and are paid for meanwhile; a reclaimed zone is
not. That machines become available again is assumed.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import Record
from trnbench.facts.units import DAY_S

MOST_EVENTS = 100_000
"""A run with more stops counts as endless."""


class SpotRun(Record, eq=False):
    """A run of `work_s` of pure training on `nodes`, of which `spot_nodes` are spot machines."""

    nodes: int
    spot_nodes: int
    work_s: FloatArray
    failures_per_node_day: FloatArray
    """Draw by draw."""
    reclaims_per_node_day: FloatArray
    """Those that come one by one, draw by draw."""
    zone_losses_per_day: FloatArray
    """Draw by draw, on a day on which the machines run."""
    wait_s: float
    """Mean time until a single machine is replaced."""
    zone_wait_s: float
    """Mean time until a zone is replaced."""
    notice_s: float
    recovery_s: float
    launch_s: float
    start_s: float
    interval_s: float
    dump_s: float
    """Training stopped for one checkpoint."""
    write_s: float
    """Writing or reading one checkpoint."""


class SpotOutcome(Record, eq=False):
    """Outcome of runs, draw by draw."""

    elapsed_s: FloatArray
    """Seconds to the end."""
    base_s: FloatArray
    """Paid seconds of each on-demand machine."""
    spot_s: FloatArray
    """Paid seconds of each spot machine."""
    reclaims: FloatArray
    """Stops because machines were reclaimed."""
    zones: FloatArray
    """Stops because a whole zone was reclaimed."""


def play(run: SpotRun, *, name: str, seed: int = 0) -> SpotOutcome:
    """A run played once for each draw; the same name and seed give the same outcome."""
    key = int.from_bytes(blake2b(f"{seed} {name}".encode(), digest_size=8).digest())
    random = np.random.default_rng(key)
    fails = run.nodes * run.failures_per_node_day / DAY_S
    zone = run.zone_losses_per_day / DAY_S * (run.spot_nodes > 0)
    single = run.spot_nodes * run.reclaims_per_node_day / DAY_S
    rate = fails + single + zone
    segment_s = run.interval_s + run.dump_s
    # Work and dumps together: every interval of work is followed by a dump.
    left = run.work_s * (segment_s / run.interval_s)
    draws = len(left)
    elapsed = np.full(draws, run.start_s)
    unpaid, reclaims, zones = np.zeros(draws), np.zeros(draws), np.zeros(draws)
    saved = run.write_s <= run.notice_s
    running = np.ones(draws, bool)
    for _ in range(MOST_EVENTS):
        with np.errstate(divide="ignore"):
            until = random.exponential(size=draws) / rate
        kind, phase, wait = (
            random.random(draws) * rate,
            random.random(draws),
            random.exponential(size=draws),
        )
        over = running & (until >= left)
        elapsed = np.where(over, elapsed + left, elapsed)
        running = running & ~over
        if not running.any():
            return SpotOutcome(
                elapsed_s=elapsed,
                base_s=elapsed,
                spot_s=elapsed - unpaid,
                reclaims=reclaims,
                zones=zones,
            )
        # A single draw over the summed rates decides between failure, single reclaim and zone.
        failed = kind < fails
        whole = kind >= fails + single
        # The place within a segment is uniform: work since its start is lost, at most since the
        # last stop.
        lost = np.where(failed | (not saved), np.minimum(phase * segment_s, until), 0.0)
        gone = np.where(
            failed,
            run.recovery_s,
            wait * np.where(whole, run.zone_wait_s, run.wait_s) + run.launch_s,
        )
        stop = gone + run.write_s
        left = np.where(running, left - (until - lost), left)
        elapsed = np.where(running, elapsed + until + stop, elapsed)
        unpaid = np.where(running & whole, unpaid + wait * run.zone_wait_s, unpaid)
        reclaims += running & ~failed
        zones += running & whole
    never = np.where(running, np.inf, elapsed)
    return SpotOutcome(
        elapsed_s=never, base_s=never, spot_s=never - unpaid, reclaims=reclaims, zones=zones
    )
