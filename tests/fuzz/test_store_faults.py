"""Failing system calls lose no run and hide no answer; many processes begin a damaged file anew."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from tests.fuzz.store_faults import STRACE, tried
from trnbench.store.recovery import put_aside

PROCESSES = 8

needs_strace = pytest.mark.skipif(STRACE is None, reason="no strace: it is not installed")


@pytest.mark.slow
@pytest.mark.strace
@needs_strace
def test_a_sample_of_failing_calls_loses_nothing(tmp_path):
    counts, wrong = tried(1, 2, tmp_path)
    assert not wrong, "\n".join(wrong)
    assert counts["fired"] == 2


@pytest.mark.soak
@pytest.mark.strace
@needs_strace
def test_three_hundred_failing_calls_lose_nothing(tmp_path):
    counts, wrong = tried(1000, 300, tmp_path)
    assert not wrong, "\n".join(wrong)
    assert counts["fired"] == 300


@pytest.mark.slow
def test_eight_processes_on_a_damaged_file_keep_all_that_they_answer(tmp_path):
    path = tmp_path / "runs.db"
    line = [sys.executable, "-m", "trnbench", "matrix", "64x64x64", "--on", "trainium1", "-q"]
    environment = {**os.environ, "TRNBENCH_RUNS": str(path), "TRNBENCH_KEEP": "1"}
    subprocess.run(line, env=environment, check=True, capture_output=True)
    data = bytearray(path.read_bytes())
    data[4096:] = bytes(len(data) - 4096)
    path.write_bytes(data)
    running = [
        subprocess.Popen(
            [*line, "--tag", f"t{number}"],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for number in range(PROCESSES)
    ]
    said = [process.communicate()[1].decode() for process in running]
    assert [process.returncode for process in running] == [0] * PROCESSES
    assert "".join(said).count("was damaged and is now") == 1
    (aside,) = put_aside(path)
    assert aside.read_bytes() == bytes(data)
    with closing(sqlite3.connect(path)) as connection:
        tags = {row[0] for row in connection.execute("SELECT tag FROM run")}
    assert tags == {f"t{number}" for number in range(PROCESSES)}, "".join(said)
