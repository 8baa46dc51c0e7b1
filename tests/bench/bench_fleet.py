"""Speed of the fleet's programme: 20 jobs on 6 machine types over 90 days, to a gap of 2 %."""

from __future__ import annotations

import time

from tests.bench.figure import show
from tests.unit.plan.test_fleet_programme import large
from trnbench.money.fleet.greedy import greedy
from trnbench.money.fleet.programme import Effort, solve


def main() -> None:
    """Print each figure beside its bar, for several random fleets."""
    for seed in range(3):
        fleet = large(seed)
        start = time.process_time()
        known = greedy(fleet)
        solved = solve(fleet, effort=Effort(gap=0.02), below=known.usd if known else None)
        cpu_s = time.process_time() - start
        show(f"fleet {seed}, {solved.columns:,} columns, CPU", cpu_s, "s", 60, "at most")
        show("its gap", 100 * solved.gap, "%", 2, "at most")


if __name__ == "__main__":
    main()
