"""Searches of millions of layouts: their rate, and the memory that a hundred million would take."""

from __future__ import annotations

import subprocess
import sys

from tests.bench.figure import show

MILLION, ALL = 1e6, 1e8
CORES, BAR_S = 2, 60.0
EVERY = (64, 3)
"""Every how manieth size of a cluster of up to 512 nodes is looked at."""
SEARCH = """
import resource, sys, time
from tests.bench.bench_search import LARGE_BATCH, searched

start = time.process_time()
sizes = range(int(sys.argv[1]), 513, int(sys.argv[1]))
found = searched("mixtral-8x7b", "trn2.48xlarge", sizes, LARGE_BATCH, 8192)
used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(found.legal, time.process_time() - start, used / 1e6)
"""


def main() -> None:
    """Print each figure beside its bar; each search has a process of its own."""
    seen = []
    for every in EVERY:
        done = subprocess.run(
            [sys.executable, "-c", SEARCH, str(every)], check=True, capture_output=True, text=True
        )
        legal, cpu_s, used_gb = map(float, done.stdout.split())
        what = f"{legal / MILLION:,.1f} million legal layouts"
        show(what, legal / cpu_s, "layouts/s", ALL / (BAR_S * CORES), "at least")
        show(f"{what}, memory", used_gb, "GB", 1.5, "at most")
        seen.append((legal, used_gb))
    (few, less_gb), (many, more_gb) = seen
    of_all_gb = more_gb + (more_gb - less_gb) / (many - few) * (ALL - many)
    show("memory of 100 million, as it grew", of_all_gb, "GB", 1.5, "at most")


if __name__ == "__main__":
    main()
