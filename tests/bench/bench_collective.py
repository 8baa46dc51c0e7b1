"""Speed of the collective engines: messages per CPU-second, sizes per second, 100,000 chips."""

from __future__ import annotations

import numpy as np

from tests.bench.figure import best_of, show
from tests.collectives import place_collective, select
from trnbench.engines.analytic.collective.profile import profile
from trnbench.engines.analytic.collective.sweep import sweep
from trnbench.engines.analytic.collective.time import collective_time
from trnbench.engines.emulate.collective.data import check_data
from trnbench.engines.emulate.collective.streams import ChunkStream, play_chunked, play_together
from trnbench.facts.calibration.collective_stack import stack_of
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_platform
from trnbench.machine.message_plan.algorithm import Algorithm
from trnbench.machine.message_plan.placed import Placed
from trnbench.machine.placement import place

MIB = 2.0**20


def placed(instance: str, nodes: int, algorithm: Algorithm) -> Placed:
    where = place(load_platform(open_catalog(), instance), nodes=nodes)
    found = place_collective(
        where, "all-reduce", [np.arange(where.ranks)], algorithm, symmetric=True
    )
    assert isinstance(found, Placed)
    return found


def main() -> None:
    """Print each figure beside its bar."""
    catalog = open_catalog()
    tuning = stack_of(catalog, "trn2.48xlarge").tuning("node")

    kanga = placed("trn2.48xlarge", 1, Algorithm(name="kangaring"))
    sizes_mib = (64, 100, 33, 128, 71, 256, 90, 45)
    for count in (8, 32):
        streams = [
            ChunkStream(
                placed=kanga,
                tuning=tuning,
                size_bytes=(sizes_mib[number % 8] + number) * MIB,
                start_s=number * 1e-5,
            )
            for number in range(count)
        ]
        together, cpu_s = best_of(lambda them=streams: play_together(them, steps_per_run=10**6))  # type: ignore[misc]
        what = f"{count} overlapping all-reduces, 64 ranks"
        show(what, together.messages / cpu_s, "messages/s", 3e6, "at least")

    def large_cluster() -> float:
        platform = load_platform(catalog, "trn2.48xlarge")
        where = place(platform, nodes=6250)
        stack = stack_of(catalog, "trn2.48xlarge")
        selected = select(stack, where, "all-reduce", [np.arange(where.ranks)])
        assert isinstance(selected, tuple)
        choice = selected[-1]
        return play_chunked(choice.placed, choice.tuning, 1024 * MIB, 8).time_s

    _, cpu_s = best_of(large_cluster)
    show("all-reduce over 100,000 chips, emulated", cpu_s * 1e3, "ms", 0.1, "at most")

    sizes = np.geomspace(2**10, 2**34, 1_000_000)
    found = profile(kanga)
    _, cpu_s = best_of(lambda: collective_time(found, tuning, sizes))
    show("closed form, one placed collective", len(sizes) / cpu_s, "sizes/s", 1e6, "at least")

    def cold_sweep() -> object:
        where = place(load_platform(catalog, "trn2-ultraserver"))
        stack = stack_of(catalog, "trn2-ultraserver")
        selected = select(stack, where, "all-reduce", [np.arange(where.ranks)])
        assert isinstance(selected, tuple)
        return sweep(selected, np.geomspace(2**10, 2**30, 21))

    _, cpu_s = best_of(cold_sweep)
    show("sweep of an UltraServer, everything built", cpu_s * 1e3, "ms", 0.5, "at most")

    _, cpu_s = best_of(lambda: check_data(kanga.plan, 100_003))
    show("data check, 64 ranks, 100,003 elements", cpu_s * 1e3, "ms", 2.0, "at most")


if __name__ == "__main__":
    main()
