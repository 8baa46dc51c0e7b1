"""How long the quick tests take on two cores, by the clock."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from tests.bench.figure import show

ROOT = Path(__file__).parents[2]


def main() -> None:
    """Print the time of `make test-fast`."""
    start = time.perf_counter()
    done = subprocess.run(["make", "test-fast"], cwd=ROOT, check=False, capture_output=True)
    show("make test-fast", time.perf_counter() - start, "seconds", 90.0, "at most")
    if done.returncode:
        print("  with failures: run it to see them")


if __name__ == "__main__":
    main()
