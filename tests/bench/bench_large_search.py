"""Searches of up to a hundred million layouts, each whole: their rate and memory."""

from __future__ import annotations

import subprocess
import sys

from tests.bench.figure import show

MILLION, ALL = 1e6, 1e8
CORES, BAR_S = 2, 60.0
CASES = ((64, "None"), (4, "None"), (4, "20"))
"""Every how manieth size of a cluster of up to 1,024 nodes, and how many of the best are asked."""
SEARCH = """
import resource, sys, time
from tests.bench.bench_search import CATALOG, LARGE_BATCH
from trnbench.verbs.search_layouts.run import search_layouts

start = time.process_time()
every, best = int(sys.argv[1]), None if sys.argv[2] == "None" else int(sys.argv[2])
found = search_layouts(
    model="mixtral-8x7b", instance="trn2.48xlarge", nodes=range(every, 1025, every),
    global_batch=LARGE_BATCH, sequence=8192, precision="bf16-master", recompute="any",
    best=best, catalog=CATALOG,
)
used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(found.legal, time.process_time() - start, used / 1e6)
"""


def main() -> None:
    """Print each figure beside its bar; each search has a process of its own."""
    for every, best in CASES:
        done = subprocess.run(
            [sys.executable, "-c", SEARCH, str(every), best],
            check=True,
            capture_output=True,
            text=True,
        )
        legal, cpu_s, used_gb = map(float, done.stdout.split())
        what = f"{legal / MILLION:,.1f} million legal layouts"
        what += "" if best == "None" else f", best {best}"
        show(what, legal / cpu_s, "layouts/s", ALL / (BAR_S * CORES), "at least")
        show(f"{what}, memory", used_gb, "GB", 1.5, "at most")


if __name__ == "__main__":
    main()
