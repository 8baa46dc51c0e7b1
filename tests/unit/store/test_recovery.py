"""Whatever byte of a file is wrong, no run is lost without a word, and the others come back."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.unit.store.test_runs import ANSWER, kept
from trnbench.store import runs as store
from trnbench.store.database import begin_anew, opened, read
from trnbench.store.place import StoreFault
from trnbench.store.recovery import findings, put_aside, recover, salvaged
from trnbench.store.schema import transaction
from trnbench.store.studies import KeptCell, keep_cells

RUNS, CELLS = 12, 3


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the bytes of a small file."""
    path = tmp_path_factory.mktemp("whole") / "runs.db"
    with opened(path, say=print) as connection:
        with transaction(connection):
            for number in range(RUNS):
                store.add(connection, kept(number), ANSWER, [])
        cells = [KeptCell(key=f"{n}", rows=({"a": n},)) for n in range(CELLS)]
        keep_cells(connection, "s", cells, "2026")
    return path.read_bytes()


def seen(path: Path) -> tuple[int, bool]:
    """Return how many runs a file lists, and whether anything wrong was told."""
    try:
        with read(path) as connection:
            told = bool([*findings(connection)])
            runs, _ = store.listed(connection, {})
            for run in runs:
                store.answer_of(connection, run)
    except StoreFault:
        return 0, True
    return len(runs), told


def flipped(whole: bytes, seed: int) -> bytes:
    """Return the file with some bytes of one page changed, the first bytes left as they are."""
    chance = random.Random(seed)
    page = chance.randrange(len(whole) // 4096)
    data = bytearray(whole)
    for _ in range(chance.choice((1, 1, 8, 200))):
        place = page * 4096 + chance.randrange(100 if page == 0 else 0, 4096)
        data[place] ^= chance.randrange(1, 256)
    return bytes(data)


def recovered(path: Path, into: Path) -> tuple[int, int]:
    """Return how many runs of a file come back, and how many are told to be lost."""
    try:
        with salvaged(path) as (source, names), opened(into) as target:
            found = recover(source, names, target)
    except StoreFault:
        return 0, RUNS
    assert seen(into) == (found.runs, False)
    return found.runs, len([one for one in found.lost if one.kind == "run"])


def checked(whole: bytes, seeds: range, folder: Path) -> int:
    """Flip bytes for each seed; return how often something was told."""
    told = 0
    for seed in seeds:
        path = folder / f"{seed}.db"
        path.write_bytes(flipped(whole, seed))
        listed, wrong = seen(path)
        assert wrong or listed == RUNS, f"seed {seed}: {listed} runs, and not a word"
        told += wrong
        brought, lost = recovered(path, folder / f"{seed}.new.db")
        assert brought + lost >= RUNS, f"seed {seed}: {brought} brought, {lost} told"
    return told


@pytest.mark.slow
def test_a_flip_in_any_page_is_told(whole, tmp_path):
    assert checked(whole, range(30), tmp_path) > 5


@pytest.mark.soak
def test_hundreds_of_flips_are_told(whole, tmp_path):
    assert checked(whole, range(30, 900), tmp_path) > 100


def test_a_damaged_page_of_many_costs_the_runs_in_it_alone(tmp_path):
    path = tmp_path / "runs.db"
    with opened(path, say=print) as connection, transaction(connection):
        for number in range(200):
            run = kept(number, started_at=f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z")
            store.add(connection, run, ANSWER, [])
        page = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'run'")
        assert page.fetchone()
    data = bytearray(path.read_bytes())
    middle = data.index(kept(100).id.encode()) // 4096 * 4096
    data[middle : middle + 4096] = bytes(4096)
    path.write_bytes(data)
    said: list[str] = []
    begin_anew(path, said.append)
    (aside,) = put_aside(path)
    assert aside.read_bytes() == bytes(data)
    with salvaged(aside) as (source, names), opened(path, say=said.append) as target:
        found = recover(source, names, target)
    assert aside.read_bytes() == bytes(data)
    assert found.runs > 100
    assert found.runs + len(found.lost) == 200
    assert seen(path) == (found.runs, False)
    with salvaged(aside) as (source, names), opened(path) as target:
        assert recover(source, names, target).known == found.runs
