"""Makes system calls on the file of kept runs fail, by strace: no run and no answer is lost."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

from trnbench.store.recovery import put_aside

STRACE = shutil.which("strace")
TRNBENCH = (sys.executable, "-m", "trnbench")
LINES = {
    "matrix 64x64x64 --on trainium1 -q": True,
    "matrix 64x64x64 --on trainium1 --tag new": True,
    "collective all-reduce --on trn1.32xlarge --max-size 1M -q": True,
    "matrix 128x64x64 --on trainium2 --json -q": True,
    "matrix 64x64x64 --on trainium1 -o out.json": True,
    "study run faults.toml --workers 1 -q": True,
    "study show faults.toml": False,
    "runs list -q": False,
    "runs list --tag base --json": False,
    "runs show base": False,
    "runs diff base base -q": False,
    "runs export base -q": False,
    "runs remove other": False,
    "runs check": False,
}
"""Each with whether its answer is right whatever becomes of the file of runs."""
CALLS = {
    "pread64": ("EIO",),
    "read": ("EIO",),
    "pwrite64": ("EIO", "ENOSPC"),
    "write": ("EIO", "ENOSPC"),
    "fsync": ("EIO", "ENOSPC"),
    "fdatasync": ("EIO", "ENOSPC"),
    "openat": ("EIO", "EMFILE", "EACCES", "ENOSPC"),
    "fcntl": ("ENOLCK", "EIO"),
    "flock": ("ENOLCK",),
    "ftruncate": ("EIO", "ENOSPC"),
    "unlink": ("EIO", "EACCES"),
    "rename": ("EIO", "ENOSPC"),
    "newfstatat": ("EIO", "EACCES"),
    "mmap": ("ENOMEM",),
    "fchmod": ("EPERM",),
}
STUDY = """
name = "faults"
title = "Products"
verb = "matrix"
[fixed]
on = "trainium1"
[axes]
shapes = ["64x64x64", "128x64x64"]
"""
_MOST_LINES = 4


def prepare(folder: Path) -> None:
    """Keep some runs and a study in a home of this folder."""
    (folder / "faults.toml").write_text(STUDY)
    for tag in ("base", "other"):
        assert _run(folder, f"matrix 64x64x64 --on trainium1 -q --tag {tag}").returncode == 0


def answers(folder: Path) -> dict[str, bytes]:
    """Return what each line prints where nothing fails, of those that say the same each time."""
    return {
        line: _run(folder, f"{line} --no-keep").stdout
        for line, keeps in LINES.items()
        if keeps and "study" not in line
    }


def failed(seed: int, home: Path, folder: Path, right: dict[str, bytes]) -> tuple[bool, str | None]:
    """Fail one call of a line in a copy of a home; return whether it came, and what is wrong."""
    chance = random.Random(seed)
    line = chance.choice([*LINES])
    call = chance.choice([*CALLS])
    error = chance.choice(CALLS[call])
    when = min(int(chance.expovariate(0.12)) + 1, 60)
    shutil.copytree(home, folder)
    before = _kept(folder)
    done = _run(folder, line, f"{call}:error={error}:when={when}")
    told = f"{seed}: {call} {error} at {when}: trnbench {line}: exit {done.returncode}"
    fired = b"INJECTED" in (folder / "trace").read_bytes()
    return fired, _wrong(folder, line, done, before, right) and (
        f"{told}: {_wrong(folder, line, done, before, right)}\n{done.stderr.decode()[-400:]}"
    )


def _wrong(
    folder: Path,
    line: str,
    done: subprocess.CompletedProcess[bytes],
    before: int,
    right: dict[str, bytes],
) -> str | None:
    said = done.stderr.decode()
    allowed = (0,) if LINES[line] else (0, 1, 3) if line.startswith("study show") else (0, 3)
    if line == "runs check":
        allowed = (0, 3)
    if done.returncode not in allowed:
        return "the exit code is another"
    if done.returncode == 3 and not said.startswith("trnbench: error: "):
        return "not a word of why"
    if said.count("\n") > _MOST_LINES or "Traceback" in said or "internal error" in said:
        return "not one clear line"
    if line in right and done.stdout != right[line]:
        return "the answer is another"
    if put_aside(_file(folder)):
        return "the file was put aside"
    gone = 1 if line.startswith("runs remove") else 0
    if _kept(folder) < before - gone:
        return "a run is lost"
    return None


def _kept(folder: Path) -> int:
    """Return how many runs are kept, after finding the file sound."""
    with closing(sqlite3.connect(_file(folder))) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        return int(connection.execute("SELECT count(*) FROM run").fetchone()[0])


def _file(folder: Path) -> Path:
    return folder / "data" / "trnbench" / "runs" / "runs.db"


def _run(
    folder: Path, line: str, injected: str | None = None
) -> subprocess.CompletedProcess[bytes]:
    words = [*TRNBENCH, *line.split()]
    if injected is not None:
        assert STRACE is not None
        file = _file(folder)
        names = [file, *(file.with_name(file.name + one) for one in ("-wal", "-shm", ".lock"))]
        paths = [word for name in (file.parent, *names) for word in ("-P", str(name))]
        call = injected.partition(":")[0]
        traced = ["-f", "-qq", "-e", f"trace={call}", "-e", f"inject={injected}", *paths]
        words = [STRACE, *traced, "-o", str(folder / "trace"), *words]
    home = {"XDG_DATA_HOME": str(folder / "data"), "TRNBENCH_KEEP": "1"}
    return subprocess.run(
        words, cwd=folder, env=os.environ | home, capture_output=True, check=False
    )


def tried(first: int, fired: int, folder: Path) -> tuple[Counter[str], list[str]]:
    """Try seeds until so many failures came; return counts and what was wrong."""
    (folder / "home").mkdir()
    prepare(folder / "home")
    right = answers(folder / "home")
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    seed = first
    while counts["fired"] < fired:
        place = folder / "try"
        came, what = failed(seed, folder / "home", place, right)
        counts["fired" if came else "not reached"] += 1
        if what is not None:
            wrong.append(what)
        shutil.rmtree(place)
        seed += 1
    return counts, wrong
