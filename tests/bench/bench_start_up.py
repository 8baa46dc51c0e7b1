"""How fast the command answers from a cold process; wall clock, as a user feels it."""

from __future__ import annotations

import subprocess
import sys
import time

from tests.bench.figure import show

CASES = (
    (("--version",), 0.1),
    (("--help",), 0.1),
    (("spec", "list"), 0.2),
    (("matrix", "4096x8192x8192", "--on", "trainium2"), 0.5),
    (("collective", "all-reduce", "--on", "trn2.48xlarge:4"), 0.5),
    (
        (
            *("train", "llama3.1-70b", "--on", "trn1.32xlarge:32", "--tp", "32", "--pp", "8"),
            *("--global-batch", "1024", "--sequence", "8192"),
        ),
        0.5,
    ),
)
RUNS = 5


def main() -> None:
    """Print each command's fastest run."""
    for arguments, bar_s in CASES:
        times = []
        for _ in range(RUNS):
            start = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "trnbench", *arguments], check=True, capture_output=True
            )
            times.append(time.perf_counter() - start)
        show(f"trnbench {' '.join(arguments)}", min(times), "s", bar_s, "at most")


if __name__ == "__main__":
    main()
