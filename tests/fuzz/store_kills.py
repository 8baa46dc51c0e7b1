"""Kills studies, runs and migrations at random moments: what was kept stays, and nothing twice."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

from trnbench.store import schema

TRNBENCH = (sys.executable, "-m", "trnbench")
LONGEST_S = 1.6
STUDY = """
name = "killed"
title = "Products"
verb = "matrix"
[fixed]
on = "trainium1"
[axes]
shapes = [{sizes}]
dtype = ["bf16", "fp32"]
"""


def prepare(folder: Path, cells: int) -> Path:
    """Write a study of about so many cells."""
    sizes = ", ".join(f'"{64 * n}x512x512"' for n in range(1, cells // 2 + 1))
    path = folder / "killed.toml"
    path.write_text(STUDY.format(sizes=sizes))
    return path


def study_after_kills(seed: int, folder: Path, kills: int, cells: int) -> list[bytes]:
    """Return the tables of a study that so many kills hit; it begins anew when it is done."""
    chance = random.Random(seed)
    tables: list[bytes] = []
    hit = 0
    while hit < kills:
        round_ = folder / f"{len(tables)}"
        round_.mkdir()
        line = ["study", "run", str(prepare(round_, cells)), "--workers", "2", "--json"]
        known = 0
        while hit < kills and known < cells:
            hit += _killed(line, round_, chance) is None
            now = _sound(round_)
            assert now >= known, f"cells were lost: {known} -> {now}"
            known = now
        done = _run(line, round_)
        assert done.returncode == 0, done.stderr[-500:]
        tables.append(done.stdout)
    return tables


def runs_after_kills(seed: int, folder: Path, kills: int) -> tuple[int, int, int]:
    """Return how many runs are kept, how many ended by themselves, and how many were started."""
    chance = random.Random(seed)
    longest_s = _takes_s(["matrix", "512x512x512", "--on", "trainium1", "-q"], folder)
    ended = started = 0
    while started - ended < kills:
        line = ["matrix", "512x512x512", "--on", "trainium1", "--tag", f"t{started}", "-q"]
        ended += _killed(line, folder, chance, None, longest_s) is not None
        started += 1
        _sound(folder)
    with closing(sqlite3.connect(_file(folder))) as connection:
        tags = [row[0] for row in connection.execute("SELECT tag FROM run WHERE tag IS NOT NULL")]
    assert len(tags) == len(set(tags)), "a run was kept twice"
    return len(tags), ended, started


def migration_after_kills(seed: int, folder: Path, kills: int) -> None:
    """Kill migrations of a file of the first version; rows and schema are whole each time."""
    chance = random.Random(seed)
    line = ["matrix", "64x64x64", "--on", "trainium1", "-q"]
    longest_s = _takes_s(line, folder, {"TRNBENCH_RUNS": str(_old(folder / "x"))})
    hit = number = 0
    while hit < kills:
        path = _old(folder / f"{number}")
        number += 1
        environment = {"TRNBENCH_RUNS": str(path)}
        hit += _killed(line, folder, chance, environment, longest_s) is None
        done = _run(line, folder, environment)
        assert done.returncode == 0, done.stderr[-500:]
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
            old = "SELECT count(*) FROM blob WHERE length(sha256) = 5"
            assert connection.execute(old).fetchone()[0] == 2000
            assert schema.version_of(connection) == len(schema.MIGRATIONS)


def _old(folder: Path) -> Path:
    """Return a file of the first version."""
    folder.mkdir()
    path = folder / "runs.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(schema.MIGRATIONS[0])
        connection.execute(f"PRAGMA application_id = {schema.APPLICATION}")
        connection.execute("PRAGMA user_version = 1")
        rows = [(f"{n:05}", os.urandom(500)) for n in range(2000)]
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO blob VALUES (?, ?)", rows)
        connection.execute("COMMIT")
    return path


def _takes_s(line: list[str], folder: Path, more: dict[str, str] | None = None) -> float:
    """Return how long a line takes when nobody kills it: kills later than that hit nothing."""
    began = time.monotonic()
    assert _run(line, folder, more).returncode == 0
    return time.monotonic() - began


def table_of(folder: Path, cells: int) -> bytes:
    """Return the table of the study when nobody kills it."""
    done = _run(["study", "run", str(prepare(folder, cells)), "--workers", "1", "--json"], folder)
    assert done.returncode == 0, done.stderr[-500:]
    assert json.loads(done.stdout)["summary"]["open"] == 0
    return done.stdout


def _sound(folder: Path) -> int:
    """Return how many cells are kept, after finding the file sound."""
    file = _file(folder)
    if not file.is_file():
        return 0
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        with suppress(sqlite3.OperationalError):  # killed before its first table
            return int(connection.execute("SELECT count(*) FROM cell").fetchone()[0])
    return 0


def _file(folder: Path) -> Path:
    return folder / "data" / "trnbench" / "runs" / "runs.db"


def _environment(folder: Path, more: dict[str, str] | None) -> dict[str, str]:
    home = {"XDG_DATA_HOME": str(folder / "data"), "TRNBENCH_KEEP": "1"}
    return {**os.environ, **home, **(more or {})}


def _killed(
    line: list[str],
    folder: Path,
    chance: random.Random,
    more: dict[str, str] | None = None,
    longest_s: float = LONGEST_S,
) -> int | None:
    """Run a line and kill it and its workers after a while; return its exit code if it ended."""
    process = subprocess.Popen(
        [*TRNBENCH, *line],
        env=_environment(folder, more),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    number = chance.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
    try:
        return process.wait(chance.uniform(0.1, longest_s))
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        process.wait()
        return None


def _run(
    line: list[str], folder: Path, more: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*TRNBENCH, *line], env=_environment(folder, more), capture_output=True, check=False
    )
