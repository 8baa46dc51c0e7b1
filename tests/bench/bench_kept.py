"""How long a log of a gigabyte and a list of ten thousand kept runs take."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.figure import best_of, show
from trnbench.evidence.readers.steps import RunSize, read_steps
from trnbench.store import runs
from trnbench.store.database import opened
from trnbench.store.place import FILE_VARIABLE
from trnbench.store.schema import transaction

GIGABYTE, RUNS, REPEATS, BLOCK = 1_000_000_000, 10_000, 3, 100_000
SIZE = RunSize(global_batch=1024, sequence=8192, ranks=64)
ANSWER = runs.KeptAnswer(inputs={}, rows=({"step_time_s": 1.5},), summary={}, columns=())


def lines() -> Iterator[bytes]:
    """Yield blocks of lines of a torchtitan log, without end."""
    for first in count(1, BLOCK):
        yield "".join(
            f"[rank0]:[titan] 2026-08-20 07:01:02,123 - root - INFO - step: {step}  loss:  2.12345"
            f"  grad_norm:  1.2345  memory: 48.87GiB(61.62%)  tps: {6700 + step % 97:,}"
            "  tflops: 393.12  mfu: 39.75%\n"
            for step in range(first, first + BLOCK)
        ).encode()


def write_log(path: Path) -> None:
    """Write a log of a gigabyte."""
    written = 0
    with path.open("wb") as file:
        for block in lines():
            written += file.write(block)
            if written >= GIGABYTE:
                return


def fill(path: Path) -> None:
    """Keep ten thousand runs."""
    first = datetime(2026, 1, 1, tzinfo=UTC)
    with opened(path, say=print) as connection, transaction(connection):
        for number in range(RUNS):
            run = runs.KeptRun(
                id=f"{number:010x}",
                verb="train",
                started_at=(first + timedelta(minutes=number)).strftime("%Y-%m-%dT%H:%M:%SZ"),
                seconds=1.0,
                version="1",
                machine="m",
                tag=None,
                headline=f"step {number} s",
                models=("llama2-7b",),
                instances=("trn1.32xlarge",),
                exit_code=0,
                options={"model": "llama2-7b"},
                command="trnbench train llama2-7b",
                snapshot="s",
            )
            runs.add(connection, run, ANSWER, ())


def main() -> None:
    """Print each figure beside its bar."""
    with TemporaryDirectory() as name:
        log = Path(name) / "run.log"
        write_log(log)
        found, cpu_s = best_of(lambda: read_steps(log, SIZE), 1)
        show(f"log of 1 GB, {found.format}, processor time", cpu_s, "s", 15.0, "at most")
        kept = Path(name) / "runs.db"
        fill(kept)
        times = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "trnbench", "runs", "list"],
                check=True,
                capture_output=True,
                env=os.environ | {FILE_VARIABLE: str(kept)},
            )
            times.append(time.perf_counter() - start)
        show(f"runs list of {RUNS:,}", min(times), "s", 0.4, "at most")


if __name__ == "__main__":
    main()
