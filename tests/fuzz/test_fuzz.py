"""Whatever is read or typed is answered or refused in a line: no traceback, no exit code 70.

A seed makes one input; `make fuzz` tries new seeds for a while, TRNBENCH_FUZZ_SEED=N begins with N.
"""

from __future__ import annotations

import os
import re
import signal
import time

import pytest

from tests.fuzz.inputs import asked
from trnbench.cli.main import main

SAMPLE = range(48)
ANSWERED = (0, 1, 2, 3)
FOR_S = float(os.environ.get("TRNBENCH_FUZZ_SECONDS", "120"))
LONGEST_S = 30
"""After so long an input is given up, and named at the end: long is not wrong."""
TROUBLE = re.compile(r"Traceback|internal error")


@pytest.fixture
def tried(tmp_path, monkeypatch, capfdbinary):
    """Tries the input of a seed; tells whether it ended in time."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TRNBENCH_SPEC_PATH", raising=False)
    monkeypatch.chdir(tmp_path)

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)

    def run(seed):
        line = asked(seed, tmp_path / str(seed))
        signal.alarm(LONGEST_S)
        try:
            code = main(line)
        finally:
            signal.alarm(0)
        captured = capfdbinary.readouterr()
        said = captured.err.decode(errors="replace")
        if code == 130:
            return False
        assert code in ANSWERED, f"seed {seed}: exit code {code} of {line}\n{said}"
        assert not TROUBLE.search(said), f"seed {seed}: {line}\n{said}"
        assert code == 0 or said or captured.out, f"seed {seed}: {line} ended without a word"
        return True

    yield run
    signal.signal(signal.SIGALRM, before)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4), ids=["files", "tables", "files in use", "lines"])
def test_a_sample_of_inputs_is_answered_or_refused(tried, part):
    for seed in SAMPLE:
        if seed % 4 == part:
            tried(seed)


@pytest.mark.soak
def test_inputs_of_new_seeds_are_answered_or_refused(tried, capfdbinary):
    first = int(os.environ.get("TRNBENCH_FUZZ_SEED", str(time.time_ns() // 1000 % 10**9)))
    end, seed, given_up = time.monotonic() + FOR_S, first, []
    while time.monotonic() < end:
        if not tried(seed):
            given_up.append(seed)
        seed += 1
    with capfdbinary.disabled():
        print(f"\nfuzz: seeds {first} to {seed - 1}; given up after {LONGEST_S} s: {given_up}")
