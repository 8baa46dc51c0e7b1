"""A run on spot machines played many times: one machine taken back, or a zone's all together.

Model: machines fail at their own rate, spot machines are taken back at theirs. Of what is taken
back a share goes with its whole zone, which counts once for all machines of the run there. Notice
is long enough to save, or what was done since the last checkpoint is done again. Training is
synchronous, so the rest waits, the base of on-demand machines too, and is paid for while it does;
a zone that is gone is not. That machines can be had again at all is assumed: nobody promises it.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from trnbench.facts.arrays import FloatArray
from trnbench.facts.records import Record
from trnbench.facts.units import DAY_S

MOST_EVENTS = 100_000
"""A run that stops more often than this never ends."""


class SpotRun(Record, eq=False):
    """A run of `work_s` of pure training on `nodes`, of which `spot_nodes` are spot machines.

    `failures_per_node_day` and `reclaims_per_node_day` draw by draw, as `zone_share`: the part of
    reclaims in which a zone goes whole. `wait_s` and `zone_wait_s` pass on average until there are
    machines again; `dump_s` stops training for a checkpoint, `write_s` writes or reads one.
    """

    nodes: int
    spot_nodes: int
    work_s: FloatArray
    failures_per_node_day: FloatArray
    reclaims_per_node_day: FloatArray
    zone_share: FloatArray
    wait_s: float
    zone_wait_s: float
    notice_s: float
    recovery_s: float
    launch_s: float
    start_s: float
    interval_s: float
    dump_s: float
    write_s: float


class SpotOutcome(Record, eq=False):
    """What runs came to, draw by draw: seconds to the end, and seconds paid for.

    `spot_s` are those of each spot machine, `base_s` of each other; `reclaims` how often training
    stopped because machines were taken back, `zones` how often a whole zone was.
    """

    elapsed_s: FloatArray
    base_s: FloatArray
    spot_s: FloatArray
    reclaims: FloatArray
    zones: FloatArray


def play(run: SpotRun, *, name: str, seed: int = 0) -> SpotOutcome:
    """Return a run played once for each draw; the same name and seed give the same again."""
    key = int.from_bytes(blake2b(f"{seed} {name}".encode(), digest_size=8).digest())
    random = np.random.default_rng(key)
    fails = run.nodes * run.failures_per_node_day / DAY_S
    taken = run.reclaims_per_node_day / DAY_S
    zone = taken * run.zone_share if run.spot_nodes else np.zeros(taken.shape)
    single = run.spot_nodes * taken * (1 - run.zone_share)
    rate = fails + single + zone
    segment_s = run.interval_s + run.dump_s
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
        failed = kind < fails
        whole = kind >= fails + single
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
