"""Speed and memory of the money use cases: comparisons and plans over full layout spaces."""

from __future__ import annotations

import datetime
import resource
import time
from collections.abc import Callable

from tests.bench.figure import best_of, show
from trnbench.cli.watching import processors
from trnbench.facts.catalog.search import open_catalog
from trnbench.verbs.asking.run_parts import Part
from trnbench.verbs.asking.use_case import Watch
from trnbench.verbs.compare.answer import CompareAnswer
from trnbench.verbs.compare.question import CompareQuestion
from trnbench.verbs.compare.run import compare_run
from trnbench.verbs.plan.answer import PlanAnswer
from trnbench.verbs.plan.question import PlanQuestion
from trnbench.verbs.plan.run import plan_run
from trnbench.verbs.quotes.buying import Buying
from trnbench.verbs.quotes.question import RunRequest

RUN = RunRequest(
    model="llama3.1-70b",
    parts=(Part(tokens=2e12),),
    instances=(
        *("trn1.32xlarge", "trn1n.32xlarge", "trn2.48xlarge", "trn2-ultraserver"),
        *("p4d.24xlarge", "p5.48xlarge"),
    ),
    bought=Buying(price_date=datetime.date(2026, 11, 21)),
)
MB = 1e6


def main() -> None:
    """Print each figure beside its bar."""
    catalog, together = open_catalog(), processors()

    def compared(workers: int) -> CompareAnswer:
        request = CompareQuestion(run=RUN, baseline="p5.48xlarge")
        return compare_run(catalog, request, watch=Watch(workers=workers))

    def planned(workers: int) -> PlanAnswer:
        return plan_run(catalog, PlanQuestion(run=RUN), watch=Watch(workers=workers))

    # Without workers first: the peak of memory is then that of this process alone.
    answer, cpu_s = best_of(lambda: compared(1))
    legal = sum(one.legal for one in answer.looked.values())
    show(f"compare, 6 types, {legal:,} legal layouts, CPU", cpu_s, "s", 2, "at most")
    found, cpu_s = best_of(lambda: planned(1))
    feasible = sum(one.feasible for one in found.looked.values())
    show("plan, feasible configurations", feasible, "", 1e5, "at least")
    show("plan of these, CPU", cpu_s, "s", 3, "at most")
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    show("largest memory of both", peak_bytes / MB, "MB", 500, "at most")
    show(f"compare, {together} processes", _wall_s(lambda: compared(together)), "s", 2, "at most")
    show(f"plan, {together} processes", _wall_s(lambda: planned(together)), "s", 3, "at most")


def _wall_s(work: Callable[[], object]) -> float:
    """Return how long `work` takes by the clock: work of other processes is no CPU time here."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
