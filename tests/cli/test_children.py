"""Processes that commands start: safe in anybody's folder, and gone when the command is."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from typing import Any

import pytest

from tests.fuzz.store_kills import prepare
from tests.processes import begun, marked, until
from trnbench.cli import main as command_line

TRNBENCH = (sys.executable, "-P", "-m", "trnbench")
SOME = ("types", "signal", "struct", "pickle", "random", "json", "importlib", "statistics", "numpy")
ALL = sorted({*sys.stdlib_module_names, *packages_distributions(), "sitecustomize"})
PLAN = ("plan", "llama3.1-70b", "--tokens", "1T")
COMPARE = ("compare", "llama3.1-70b", "--no-keep")
MEASURE = ("measure", "matrix", "--budget", "1s")
NEEDS_JAX = pytest.mark.skipif(find_spec("jaxlib") is None, reason="JAX is not installed")
NEEDS_SERVE = pytest.mark.skipif(find_spec("textual_serve") is None, reason="no textual-serve")


def hostile(folder, names):
    """Fill a folder with files named as modules, each of which says that it was imported."""
    for name in names:
        code = f"open({str(folder / 'imported.txt')!r}, 'a').write({name!r} + ' ')\n"
        (folder / f"{name}.py").write_text(code)


def imported(folder):
    told = folder / "imported.txt"
    return told.read_text() if told.exists() else ""


def done_there(folder, *words):
    with begun([*TRNBENCH, *words], folder, stderr=subprocess.PIPE) as (process, _):
        said = process.communicate(timeout=300)[1]
        return process.returncode, said


def served(folder):
    """Start the server of a tab in a folder."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    return begun([*TRNBENCH, "tui", "matrix", "--serve", "--port", port], folder, stderr=-1)


async def opened_tab(address, then):
    import aiohttp

    origin, _, token = address.partition("/?token=")
    async with aiohttp.ClientSession() as session:
        headers = {"Origin": origin}
        async with session.ws_connect(f"{origin}/ws?token={token}", headers=headers) as tab:
            painted = await tab.receive(timeout=60)
            then(painted)


def address_of(process):
    found = re.search(r"http://\S+", process.stderr.readline())
    assert found
    port = int(re.findall(r":(\d+)/", found[0])[0])

    def listens():
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    until(listens)
    return found[0]


@pytest.mark.slow
def test_a_study_runs_nothing_of_the_folder_it_is_run_in(tmp_path):
    hostile(tmp_path, SOME)
    code, said = done_there(tmp_path, "study", "run", prepare(tmp_path, 2), "--workers", "2")
    assert (code, imported(tmp_path)) == (0, ""), said


@pytest.mark.soak
@pytest.mark.parametrize(
    "words",
    [
        ("study", "run", "killed.toml", "--workers", "2"),
        PLAN,
        COMPARE,
        pytest.param(MEASURE, marks=NEEDS_JAX),
        pytest.param((), marks=NEEDS_SERVE),
    ],
    ids=lambda words: words[0] if words else "serve",
)
def test_no_command_runs_anything_of_the_folder_it_is_run_in(tmp_path, words):
    prepare(tmp_path, 4)
    hostile(tmp_path, ALL)
    if words:
        code, said = done_there(tmp_path, *words)
        assert code in (0, 1), said  # 1: a budget that is spent
    else:
        import asyncio

        with served(tmp_path) as (process, _):
            painted: list[Any] = []
            asyncio.run(opened_tab(address_of(process), painted.append))
        assert painted[0].data
    assert imported(tmp_path) == ""


def killed_and_gone(folder, words, count):
    """Kill a command once it has so many processes with it, and wait until all are gone."""
    with begun([*TRNBENCH, *words], folder) as (process, mark):
        until(lambda: len(marked(mark)) > count or process.poll() is not None)
        assert process.poll() is None, "it ended before its children were there"
        process.kill()
        process.wait()
        until(lambda: not marked(mark))


def test_no_worker_of_a_study_outlives_it(tmp_path):
    prepare(tmp_path, 4000)
    killed_and_gone(tmp_path, ("study", "run", "killed.toml", "--workers", "2"), 2)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("words", "count"),
    [
        pytest.param(MEASURE, 1, marks=NEEDS_JAX),
        (PLAN, 1),
        (COMPARE, 1),
    ],
    ids=lambda words: words[0] if isinstance(words, tuple) else "",
)
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor: nothing is shared")
def test_no_process_outlives_its_command(tmp_path, words, count):
    killed_and_gone(tmp_path, words, count)


@pytest.fixture
def hang_up_heard():
    """SIGHUP ends children, also where these tests run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.slow
@pytest.mark.usefixtures("hang_up_heard")
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_a_whole_study_that_is_asked_to_end_says_only_that(tmp_path, number):
    prepare(tmp_path, 4000)
    words = [*TRNBENCH, "study", "run", "killed.toml", "--workers", "2"]
    with begun(words, tmp_path, stderr=subprocess.PIPE) as (process, mark):
        process.stderr.readline()
        until(lambda: len(marked(mark)) == 3)
        os.killpg(process.pid, number)
        said = process.communicate(timeout=60)[1].splitlines()
        assert not marked(mark)
    assert process.returncode == (128 + number if number == signal.SIGHUP else 130)
    assert [line for line in said if "interrupted" not in line and "stopped" not in line] == []


def deadly(verb, options, catalog=None):
    """Answer as ever, but die in one of the cells."""
    if options["dtype"] == "fp32":
        os.kill(os.getpid(), signal.SIGKILL)
    return command_line.ask(verb, options, catalog)


ASK = command_line.ask


@pytest.mark.slow
def test_a_cell_whose_worker_dies_is_left_open_and_asked_again(run, tmp_path, monkeypatch):
    monkeypatch.setenv("TRNBENCH_KEEP", "1")
    study = prepare(tmp_path, 4)
    monkeypatch.setattr(command_line, "ask", deadly)
    before = run("study", "run", study, "--workers", "2", "--json")
    assert before.code == 3
    assert before.json["summary"]["open"] == 2
    assert not before.json["summary"]["failed"]
    assert "2 cells of killed left open: the worker was killed by signal 9" in before.err
    assert "Traceback" not in before.err
    monkeypatch.setattr(command_line, "ask", ASK)
    after = run("study", "run", study, "--workers", "2", "--json")
    assert (after.code, after.json["summary"]["open"]) == (0, 0)
    assert "4 cells, 2 known" in after.err


def cells_kept(folder):
    file = folder / "DATA" / "trnbench" / "runs" / "runs.db"
    with (
        suppress(sqlite3.OperationalError),
        closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as rows,
    ):
        return rows.execute("SELECT count(*) FROM cell").fetchone()[0]
    return 0


SCHEDULER = """
import asyncio
from distributed import Scheduler, Worker
async def main():
    async with Scheduler(port=0, dashboard_address=None, host="127.0.0.1") as scheduler:
        async with Worker(scheduler.address, nthreads=1, dashboard_address=None):
            print(scheduler.address, flush=True)
            await scheduler.finished()
asyncio.run(main())
"""


@pytest.mark.slow
def test_a_scheduler_that_dies_is_a_line_and_the_study_goes_on_from_there(tmp_path):
    prepare(tmp_path, 1000)
    with begun([sys.executable, "-c", SCHEDULER], tmp_path, stdout=-1) as (scheduler, _):
        address = scheduler.stdout.readline().strip()
        words = [*TRNBENCH, "study", "run", "killed.toml", "--scheduler", address]
        with begun(words, tmp_path, stderr=subprocess.PIPE) as (study, _):
            study.stderr.readline()
            until(lambda: cells_kept(tmp_path))
            scheduler.kill()
            said = study.communicate(timeout=120)[1]
    assert study.returncode == 3
    assert said.splitlines() == [
        f"trnbench: error: the Dask scheduler at {address} is gone",
        "  hint: the same command goes on from here",
    ]
    assert 0 < cells_kept(tmp_path) < 1000
    words = [*TRNBENCH, "study", "run", "killed.toml", "--json"]
    with begun(words, tmp_path, stdout=-1) as (again, _):
        assert json.loads(again.communicate(timeout=300)[0])["summary"]["open"] == 0
    assert again.returncode == 0
