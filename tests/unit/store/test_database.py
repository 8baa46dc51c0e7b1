"""The file of kept runs: private, sound, migrated wholly, and never lost without a word."""

from __future__ import annotations

import os
import re
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from trnbench.store import schema
from trnbench.store.database import Connection, opened, read, written
from trnbench.store.place import (
    Damaged,
    StoreFault,
    fault_found,
    fault_of,
    keeps,
    shared_file_system,
    store_path,
)
from trnbench.store.schema import transaction


@pytest.fixture
def path(tmp_path):
    return tmp_path / "kept" / "runs.db"


def tables(connection):
    return {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}


def test_a_new_file_is_its_owners_alone_and_so_is_its_journal(path):
    with opened(path, say=print) as connection, transaction(connection):
        connection.execute("INSERT INTO blob (sha256, content) VALUES ('a', x'00')")
        modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert {*modes} == {"runs.db", "runs.db-wal", "runs.db-shm", "runs.db.lock"}
    assert {*modes.values()} == {0o600}
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_file_that_others_may_read_is_closed_to_them(path):
    with opened(path, say=print):
        pass
    path.chmod(0o644)
    with opened(path, say=print):
        assert path.stat().st_mode & 0o777 == 0o600


def filled(path) -> bytearray:
    """Make a file of some pages and return its bytes."""
    with opened(path, say=print) as connection, transaction(connection):
        rows = [(f"{n:04}", os.urandom(2000)) for n in range(100)]
        connection.executemany("INSERT INTO blob (sha256, content) VALUES (?, ?)", rows)
    return bytearray(path.read_bytes())


def damaged(path, how: str) -> bytes:
    data = filled(path)
    if how == "cut":
        data = data[: len(data) // 2]
    else:
        data[4096 : 4096 + 8192] = os.urandom(8192)
    path.write_bytes(data)
    return bytes(data)


def names(path):
    return {one.name for one in path.parent.iterdir()}


@pytest.mark.parametrize("how", ["middle", "cut"])
def test_a_damaged_file_is_put_aside_by_who_writes_and_said(path, how):
    data = damaged(path, how)
    said: list[str] = []
    with opened(path, say=said.append, thorough=True) as connection:
        assert connection.execute("SELECT count(*) FROM blob").fetchone() == (0,)
    (aside,) = (file for file in path.parent.iterdir() if "damaged" in file.name)
    assert aside.read_bytes() == data
    assert str(aside) in said[0]


@pytest.mark.parametrize("how", ["middle", "cut"])
def test_who_reads_a_damaged_file_changes_nothing(path, how):
    data = damaged(path, how)
    before = names(path)
    with pytest.raises(Damaged, match="is damaged"), read(path):
        pass
    assert path.read_bytes() == data
    assert names(path) - {"runs.db-wal", "runs.db-shm"} == before


def test_who_reads_makes_no_file_and_migrates_none(path, monkeypatch):
    with read(path) as connection:
        assert connection.execute("SELECT count(*) FROM run").fetchone() == (0,)
    assert not path.parent.exists()
    monkeypatch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:1])
    with opened(path, say=print) as connection, transaction(connection):
        connection.execute("INSERT INTO blob VALUES ('a', x'00')")
    monkeypatch.undo()
    before = path.read_bytes(), names(path)
    with read(path) as connection:
        assert connection.execute("SELECT sha256, bytes FROM blob").fetchall() == [("a", -1)]
    assert (path.read_bytes(), names(path)) == before


def test_only_a_file_of_ones_own_is_touched(tmp_path):
    kinds = {name: tmp_path / name for name in ("folder", "pipe", "link", "text", "header")}
    kinds["folder"].mkdir(mode=0o755)
    os.mkfifo(kinds["pipe"], 0o644)
    kinds["text"].write_text("hello\n")
    kinds["header"].write_bytes(b"SQLite format 3\0" + os.urandom(5000))
    kinds["link"].symlink_to(kinds["text"])
    before = {name: os.lstat(one) for name, one in kinds.items()}
    for one in kinds.values():
        with pytest.raises(StoreFault, match=re.escape(one.name)) as found, opened(one, say=print):
            pass
        assert found.value.hint
        with pytest.raises(StoreFault, match=re.escape(one.name)), read(one):
            pass
    assert {*os.listdir(tmp_path)} == {*kinds}
    for name, one in kinds.items():
        now = os.lstat(one)
        assert (now.st_mode, now.st_ino, now.st_mtime) == (
            before[name].st_mode,
            before[name].st_ino,
            before[name].st_mtime,
        )


def test_a_file_of_another_user_is_refused(path, monkeypatch):
    filled(path)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(StoreFault, match="belongs to another user"), read(path):
        pass


def test_the_null_device_keeps_nothing():
    assert not keeps({"TRNBENCH_RUNS": os.devnull})
    with read(Path(os.devnull)) as connection:
        assert connection.execute("SELECT count(*) FROM run").fetchone() == (0,)


@pytest.mark.parametrize(
    ("kind", "mode"), [("nfs4", "delete"), ("fuse.sshfs", "delete"), ("ext4", "wal")]
)
def test_where_hosts_share_files_no_memory_is_shared(path, tmp_path, monkeypatch, kind, mode):
    filled(path)
    device = os.stat(path.parent).st_dev
    line = f"36 35 {os.major(device)}:{os.minor(device)} / /home rw shared:1 - {kind} host:/home rw"
    (tmp_path / "mounts").write_text(f"1 0 0:999 / / rw - tmpfs tmpfs rw\n{line}\n")
    monkeypatch.setattr("trnbench.store.place.MOUNTS", tmp_path / "mounts")
    assert shared_file_system(path) == (kind if mode == "delete" else None)
    with opened(path, say=print) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == (mode,)
        assert connection.execute("SELECT count(*) FROM blob").fetchone() == (100,)


def test_a_page_that_cannot_be_read_is_no_damage():
    assert fault_found(Path("x"), ["ok"]) is None
    failed = "Tree 5 page 40: unable to get the page. error code=266"
    assert type(fault_found(Path("x"), ["Tree 2: wrong", failed])) is StoreFault
    assert type(fault_found(Path("x"), [failed.replace("266", "11")])) is Damaged
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR | 1 << 8
    assert type(fault_of(Path("x"), error)) is StoreFault


class Failing(Connection):
    """Fails at one of its statements, of all of them in a process."""

    at, count, code = 0, 0, sqlite3.SQLITE_IOERR

    def execute(self, *arguments):
        Failing.count += 1
        if Failing.count == Failing.at:
            error = sqlite3.OperationalError("failed here")
            error.sqlite_errorcode = Failing.code
            raise error
        return super().execute(*arguments)


@pytest.mark.parametrize(
    "code", [sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CORRUPT]
)
def test_whichever_statement_fails_nothing_is_lost(path, monkeypatch, code):
    filled(path)
    monkeypatch.setattr("trnbench.store.database.CONNECTION", Failing)

    def work(connection):
        connection.execute("INSERT INTO blob (sha256, content) VALUES (hex(randomblob(9)), x'00')")

    kept, at, ended = 100, 0, False
    while not ended:
        at += 1
        Failing.at, Failing.count, Failing.code = at, 0, code
        said: list[str] = []
        with suppress(StoreFault):
            written(path, work, say=said.append)
            kept += 1
        ended = Failing.count < at
        Failing.at = 0
        # A failure at a commit that was made is told as one: it may be there once more.
        with read(path) as connection:
            (count,) = connection.execute("SELECT count(*) FROM blob").fetchone()
        assert count >= kept
        kept = count
        assert not said
        assert not [name for name in names(path) if "damaged" in name]
    assert at > 10


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
        connection.execute("INSERT INTO blob (sha256, content) VALUES ('a', x'00')")
    before = len(schema.MIGRATIONS)
    failing = (*schema.MIGRATIONS, "CREATE TABLE later (x); CREATE TABLE run (x)")
    monkeypatch.setattr(schema, "MIGRATIONS", failing)
    with pytest.raises(StoreFault), opened(path, say=print):
        pass
    with sqlite3.connect(path) as plain:
        assert schema.version_of(plain) == before
        assert "later" not in tables(plain)
    plain.close()
    good = (*failing[:-1], "CREATE TABLE later (x)")
    monkeypatch.setattr(schema, "MIGRATIONS", good)
    with opened(path, say=print) as connection:
        assert "later" in tables(connection)
        assert connection.execute("SELECT count(*) FROM blob").fetchone() == (1,)
    copy = path.with_name(f"runs.db.version-{before}")
    with sqlite3.connect(copy) as plain:
        assert "later" not in tables(plain)
        assert plain.execute("SELECT count(*) FROM blob").fetchone() == (1,)
    plain.close()
    assert copy.stat().st_mode & 0o777 == 0o600


def test_two_writers_wait_for_each_other(path):
    def write(first: int) -> None:
        for number in range(first, first + 50):
            with opened(path, say=print) as connection, transaction(connection):
                connection.execute(f"INSERT INTO blob (sha256, content) VALUES ('{number}', x'00')")

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
            connection.execute("INSERT INTO blob (sha256, content) VALUES ('a', zeroblob(1000000))")

    with pytest.raises(StoreFault, match="full"):
        fill()
    with opened(path, say=print, thorough=True) as connection:
        assert connection.execute("SELECT count(*) FROM blob").fetchone() == (0,)


def test_the_environment_names_the_file_and_may_forbid_keeping(tmp_path):
    assert store_path({"TRNBENCH_RUNS": "x.db"}).name == "x.db"
    assert not keeps({"TRNBENCH_KEEP": "0"})
    assert keeps({})
