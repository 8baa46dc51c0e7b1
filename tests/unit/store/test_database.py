"""The file of kept runs: private, sound, migrated wholly, and never lost without a word."""

from __future__ import annotations

import os
import sqlite3
import threading

import pytest

from trnbench.store import schema
from trnbench.store.database import StoreFault, keeps, opened, store_path
from trnbench.store.schema import transaction


@pytest.fixture
def path(tmp_path):
    return tmp_path / "kept" / "runs.db"


def tables(connection):
    return {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}


def test_a_new_file_is_its_owners_alone_and_so_is_its_journal(path):
    with opened(path, say=print) as connection, transaction(connection):
        connection.execute("INSERT INTO blob VALUES ('a', x'00')")
        modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert modes == {"runs.db": 0o600, "runs.db-wal": 0o600, "runs.db-shm": 0o600}
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_file_that_others_may_read_is_closed_to_them(path):
    with opened(path, say=print):
        pass
    path.chmod(0o644)
    with opened(path, say=print):
        assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("damage", ["header", "middle", "cut"])
def test_a_damaged_file_is_kept_aside_and_said(path, damage):
    with opened(path, say=print) as connection, transaction(connection):
        connection.executemany(
            "INSERT INTO blob VALUES (?, ?)", [(f"{n:04}", os.urandom(2000)) for n in range(100)]
        )
    data = bytearray(path.read_bytes())
    if damage == "cut":
        data = data[: len(data) // 2]
    else:
        start = 0 if damage == "header" else 4096
        data[start : start + 8192] = os.urandom(8192)
    path.write_bytes(data)
    said: list[str] = []
    with opened(path, say=said.append, thorough=True) as connection:
        assert connection.execute("SELECT count(*) FROM blob").fetchone() == (0,)
    aside = [file for file in path.parent.iterdir() if "damaged" in file.name]
    assert len(aside) == 1
    assert aside[0].read_bytes() == bytes(data)
    assert str(aside[0]) in said[0]


def test_a_newer_file_and_one_of_another_program_are_left_alone(path):
    path.parent.mkdir()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE theirs (x)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(StoreFault, match="another program"), opened(path, say=print):
        pass
    assert path.read_bytes() == before
    path.unlink()
    with opened(path, say=print) as connection:
        connection.execute(f"PRAGMA user_version = {len(schema.MIGRATIONS) + 1}")
    with pytest.raises(StoreFault, match="newer trnbench"), opened(path, say=print):
        pass


def test_a_migration_is_whole_or_not_at_all_and_leaves_a_copy(path, monkeypatch):
    with opened(path, say=print) as connection, transaction(connection):
        connection.execute("INSERT INTO blob VALUES ('a', x'00')")
    before = len(schema.MIGRATIONS)
    failing = (*schema.MIGRATIONS, "CREATE TABLE later (x); CREATE TABLE run (x)")
    monkeypatch.setattr(schema, "MIGRATIONS", failing)
    monkeypatch.setattr("trnbench.store.database.MIGRATIONS", failing)
    with pytest.raises(StoreFault), opened(path, say=print):
        pass
    with sqlite3.connect(path) as connection:
        assert schema.version_of(connection) == before
        assert "later" not in tables(connection)
    connection.close()
    good = (*failing[:-1], "CREATE TABLE later (x)")
    monkeypatch.setattr(schema, "MIGRATIONS", good)
    monkeypatch.setattr("trnbench.store.database.MIGRATIONS", good)
    with opened(path, say=print) as connection:
        assert "later" in tables(connection)
        assert connection.execute("SELECT count(*) FROM blob").fetchone() == (1,)
    copy = path.with_name(f"runs.db.version-{before}")
    with sqlite3.connect(copy) as connection:
        assert "later" not in tables(connection)
        assert connection.execute("SELECT count(*) FROM blob").fetchone() == (1,)
    connection.close()
    assert copy.stat().st_mode & 0o777 == 0o600


def test_two_writers_wait_for_each_other(path):
    def write(first: int) -> None:
        for number in range(first, first + 50):
            with opened(path, say=print) as connection, transaction(connection):
                connection.execute("INSERT INTO blob VALUES (?, x'00')", (str(number),))

    writers = [threading.Thread(target=write, args=(first,)) for first in (0, 50)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    with opened(path, say=print, thorough=True) as connection:
        assert connection.execute("SELECT count(*) FROM blob").fetchone() == (100,)


def test_a_full_disk_is_a_fault_and_leaves_what_was_there(path):
    def fill() -> None:
        with opened(path, say=print) as connection, transaction(connection):
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {pages}")
            connection.execute("INSERT INTO blob VALUES ('a', zeroblob(1000000))")

    with pytest.raises(StoreFault, match="full"):
        fill()
    with opened(path, say=print, thorough=True) as connection:
        assert connection.execute("SELECT count(*) FROM blob").fetchone() == (0,)


def test_the_environment_names_the_file_and_may_forbid_keeping(tmp_path):
    assert store_path({"TRNBENCH_RUNS": "x.db"}).name == "x.db"
    assert not keeps({"TRNBENCH_KEEP": "0"})
    assert keeps({})
