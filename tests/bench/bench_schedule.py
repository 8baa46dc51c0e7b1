"""How fast pipeline schedules are played: order, waves, sweep and account, all included."""

from __future__ import annotations

import numpy as np

from tests.bench.figure import best_of, show
from trnbench.emulate.schedule.play import play
from trnbench.emulate.schedule.times import EndingTimes, OverlapRules, Sends, StageTimes
from trnbench.program.schedule import slot_order
from trnbench.program.slot_times import Lane, SlotTimes
from trnbench.workload.layout import Schedule

NETWORK: Lane = "network"
CASES: tuple[tuple[Schedule, int, int, int, int], ...] = (
    ("1f1b", 4, 1, 128, 1),
    ("1f1b", 8, 1, 128, 1),
    ("interleaved", 8, 4, 128, 1),
    ("zb-h1", 16, 1, 256, 1),
    ("gpipe", 64, 1, 512, 1),
    ("1f1b", 8, 1, 128, 64),
    ("interleaved", 8, 4, 128, 64),
)
RULES = OverlapRules(
    sends=1.0, gradients=0.8, parameters=0.5, optimizer_waits_for_all=True, collectives={}
)


def slots_per_s(schedule: Schedule, pp: int, vpp: int, micro_batches: int, layouts: int) -> float:
    """Return slots per second on one core, best of some runs."""
    factor = np.linspace(1.0, 1.5, layouts)[:, None, None] * np.ones((pp, vpp))
    times = StageTimes(
        compute=SlotTimes(forward_s=0.01 * factor, backward_s=0.01 * factor, weight_s=0.008),
        sends=Sends(
            forward_s=1e-4,
            backward_s=1e-4,
            latency_s=1e-5,
            forward_lane=(NETWORK,) * pp,
            backward_lane=(NETWORK,) * pp,
        ),
        ending=EndingTimes(gradients_s=0.02, optimizer_s=0.01, parameters_s=0.02),
    )

    def work() -> int:
        order = slot_order(schedule, pp=pp, vpp=vpp, micro_batches=micro_batches)
        play(order, times, RULES)
        return int(order.kind.size) * layouts

    slots, cpu_s = best_of(work)
    return slots / cpu_s


def main() -> None:
    """Print each figure beside its bar."""
    for case in CASES:
        schedule, pp, vpp, micro_batches, layouts = case
        what = f"{schedule} {pp}x{vpp}, {micro_batches} micro-batches, {layouts} layouts"
        show(what, slots_per_s(*case), "slots/s", 1e6, "at least")


if __name__ == "__main__":
    main()
