"""Processes that answer calls, and processes that end with their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import wait

import pytest

from tests.processes import begun, marked, until
from trnbench.facts.processes.children import how_ended, python_words, said_by
from trnbench.facts.processes.workers import WorkerLost, Workers


@pytest.fixture
def workers():
    made = Workers(2, {"TRNBENCH_TEST_NUMBER": "7"})
    yield made
    made.shutdown(cancel_futures=True)


def refused():
    raise ValueError("no such thing")


def test_calls_are_answered_by_processes_of_their_own(workers):
    answers = [workers.submit(divmod, number, 3) for number in range(6)]
    assert [one.result(60) for one in answers] == [divmod(number, 3) for number in range(6)]
    assert workers.submit(os.getpid).result(60) != os.getpid()
    assert workers.submit(os.getenv, "TRNBENCH_TEST_NUMBER").result(60) == "7"


def test_what_a_call_raises_is_raised_where_it_is_waited_for(workers):
    with pytest.raises(ValueError, match="no such thing"):
        workers.submit(refused).result(60)
    with pytest.raises(Exception, match="pickle"):
        workers.submit(lambda: 1).result(60)
    assert workers.submit(abs, -1).result(60) == 1


def test_a_process_that_dies_takes_its_own_call_alone(workers):
    calls = [workers.submit(os._exit, 3), *(workers.submit(abs, -n) for n in range(8))]
    wait(calls, timeout=60)
    with pytest.raises(WorkerLost, match="ended with exit code 3: it said nothing"):
        calls[0].result()
    assert [one.result() for one in calls[1:]] == [*range(8)]
    with pytest.raises(WorkerLost, match="was killed by signal 9"):
        workers.submit(signal.raise_signal, signal.SIGKILL).result(60)


def test_nobody_waits_for_a_call_that_goes_on_when_workers_are_ended():
    workers = Workers(1)
    pid = workers.submit(os.getpid).result(60)
    call = workers.submit(signal.pause)
    until(call.running)
    workers.shutdown(cancel_futures=True)
    with pytest.raises(WorkerLost):
        call.result(0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_how_a_process_ended_is_its_signal_or_its_code_and_last_line():
    assert how_ended(-9, "whatever") == "was killed by signal 9"
    assert how_ended(1, "Traceback\nKeyError: 'x'\n\n") == "ended with exit code 1: KeyError: 'x'"
    assert how_ended(2) == "ended with exit code 2: it said nothing"


def test_a_tool_is_heard_if_it_is_there_and_does_well():
    assert said_by(["echo", "a b", "c"], longest_s=60) == ["a b c"]
    assert said_by(["false"], longest_s=60) == []
    assert said_by(["no-such-tool-anywhere"], longest_s=60) == []
    assert said_by(["sleep", "60"], longest_s=0.01) == []


PARENT = """
import os, subprocess, sys, time
code = "import time; from trnbench.facts.processes.children import end_with\\n"
code += f"end_with({os.getpid()}, kernel=KERNEL); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", code])
time.sleep(600)
"""


@pytest.mark.parametrize("kernel", ["True", "False"])
def test_a_child_ends_with_a_parent_that_is_killed(tmp_path, kernel):
    words = [sys.executable, "-c", PARENT.replace("KERNEL", kernel)]
    with begun(words, tmp_path) as (process, mark):
        until(lambda: len(marked(mark)) == 2)
        process.kill()
        process.wait()
        until(lambda: not marked(mark))


def test_a_child_whose_parent_is_gone_before_it_begins_ends_at_once():
    nobody = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], text=True,
                            capture_output=True, check=True).stdout.strip()  # fmt: skip
    words = python_words("trnbench.facts.processes.workers:main", "0")
    words[words.index(str(os.getpid()))] = nobody
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL
