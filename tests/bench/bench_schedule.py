"""How fast pipeline schedules and whole steps are played, everything included."""

from __future__ import annotations

import numpy as np

from tests.bench.figure import best_of, show
from trnbench.engines.emulate.schedule.play import play
from trnbench.engines.emulate.schedule.times import EndingTimes, OverlapRules, Sends, StageTimes
from trnbench.facts.workload.layout import Schedule
from trnbench.program.schedule import slot_order
from trnbench.program.slots import Lane, SlotTimes
from trnbench.verbs.train.run import train

NETWORK: Lane = "network"
FROM_STAGES = 8
"""Stages from which on the bar of wide pipelines holds: each sweep is over as many slots."""
WIDE, NARROW = 2e6, 1e6
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


def step_of_70b() -> object:
    """Play a step of llama3.1-70b on 64 Trn2 nodes from its program and mapping."""
    return train(
        "llama3.1-70b",
        on="trn2.48xlarge:64",
        tp=32,
        pp=8,
        global_batch=1024,
        sequence=8192,
        engine="emulate",
    )


def main() -> None:
    """Print each figure beside its bar."""
    for case in CASES:
        schedule, pp, vpp, micro_batches, layouts = case
        what = f"{schedule} {pp}x{vpp}, {micro_batches} micro-batches, {layouts} layouts"
        show(what, slots_per_s(*case), "slots/s", WIDE if pp >= FROM_STAGES else NARROW)
    _, cpu_s = best_of(step_of_70b)
    show("a step of 70B on 64 nodes, played", cpu_s, "s", 2.5, "at most")


if __name__ == "__main__":
    main()
