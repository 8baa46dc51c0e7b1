"""The file of kept runs: private, sound and in the newest schema when it is opened for writing.

Reading changes nothing: no file is made, moved or migrated, and a missing file has no runs. Writing
finds a file, makes a new one, or renames a damaged one and starts with an empty one. Files of
another program, of a newer trnbench or of no program are never changed.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from trnbench.store import place, schema


class Connection(sqlite3.Connection):
    """A connection that knows its file by device and inode, as the file may be renamed."""

    file: tuple[int, int] | None = None
    """Device and inode."""
    lock: int | None = None
    """Descriptor of the shared lock."""

    def close(self) -> None:
        """Close the file, then release its lock."""
        super().close()
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None


CONNECTION: type[Connection] = Connection
"""Class of every connection to a file."""
ASIDE = ".damaged-"
"""Joins the name of a damaged file and the time when it was put aside."""
ENDINGS = ("", "-wal", "-shm", "-journal")
"""Endings of SQLite's files for one database."""
_MAGIC = b"SQLite format 3\0"
_OWNER_AT = slice(68, 72)
_BUSY_MS = 2000
_MOST_TRIES = 5
_MOST_FOUND = 20

Say = Callable[[str], object]
Done = TypeVar("Done")


@contextmanager
def read(path: Path, table: str = "") -> Iterator[sqlite3.Connection]:
    """Open the file for reading after a check of all its pages, or those of a `table` alone.

    Nothing on the disk changes. Every fault of SQLite inside the block is a StoreFault.
    """
    try:
        connection = _sound(path, table)
    except (place.StoreFault, OSError):
        # A read that failed once, as on network homes, may succeed on another connection.
        connection = _to_fault(path, lambda: _sound(path, table))
    with closing(connection), _faults(path):
        yield connection


@contextmanager
def opened(path: Path, *, say: Say | None = None, thorough: bool = False) -> Iterator[Connection]:
    """Open the file for writing, and make it if it is missing; `thorough` checks the whole file.

    A damaged file is put aside, which `say` reports; without `say`, damage is a fault. Every fault
    of SQLite inside the block is a StoreFault.
    """
    if place.is_null(path):
        raise place.StoreFault(f"{path} keeps nothing", hint=place.REMEDY)
    try:
        connection = _to_fault(path, lambda: _writable(path, thorough))
    except place.Damaged:
        if say is None:
            raise
        begin_anew(path, say)
        connection = _to_fault(path, lambda: _writable(path, thorough))
    with closing(connection), _faults(path):
        yield connection


def written(path: Path, work: Callable[[sqlite3.Connection], Done], *, say: Say) -> Done:
    """Do work in one transaction of the file; repeated where the file was put aside meanwhile."""
    for _ in range(_MOST_TRIES):
        try:
            with opened(path, say=say) as connection, schema.transaction(connection):
                done = work(connection)
        except place.Damaged:
            begin_anew(path, say)
            continue
        # Work committed into a file that was renamed meanwhile is out of sight, so it is repeated.
        if place.identity(path) == connection.file:
            return done
    raise place.StoreFault(f"{path} is replaced again and again")


def begin_anew(
    path: Path, say: Say, is_sound: Callable[[sqlite3.Connection], bool] | None = None
) -> None:
    """Put a damaged file aside, unless its pages, and all that `is_sound` checks, are sound."""
    # The file is checked again under the lock: of two processes that saw the same damage, the
    # second would otherwise put the fresh file of the first aside.
    try:
        with place.locked(path):
            if not place.own_file(path) or _is_sound(path, is_sound):
                return
            aside = _set_aside(path)
    except OSError as error:
        raise place.fault_of(path, error) from error
    say(
        f"trnbench: the file of kept runs was damaged and is now {aside}; "
        "`trnbench runs recover` brings back what can be read"
    )


def check_pages(connection: sqlite3.Connection, path: Path, table: str = "") -> None:
    """Read every page, or those of a table; a damaged or unreadable page is a fault."""
    problems = connection.execute(f"PRAGMA integrity_check({table or _MOST_FOUND})").fetchall()
    fault = place.fault_found(path, [str(row[0]) for row in problems])
    if fault is not None:
        raise fault


def connected(path: Path) -> Connection:
    """Connect to an existing file; SQLite makes no new one."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        isolation_level=None,
        timeout=_BUSY_MS / 1000,
        factory=CONNECTION,
    )
    schema.add_functions(connection)
    return connection


def _to_fault(path: Path, connect: Callable[[], Done]) -> Done:
    try:
        return connect()
    except OSError as error:
        raise place.fault_of(path, error) from error


@contextmanager
def _faults(path: Path) -> Iterator[None]:
    try:
        yield
    except place.FAILURES as error:
        raise place.fault_of(path, error) from error


@contextmanager
def _open(path: Path, lock: int | None = None) -> Iterator[Connection]:
    """Give a connection that stays open after the block, unless the block fails."""
    with _faults(path):
        try:
            connection = connected(path)
        except BaseException:
            if lock is not None:
                os.close(lock)
            raise
        connection.lock = lock
        try:
            yield connection
        except BaseException:
            connection.close()
            raise


def _sound(path: Path, table: str) -> sqlite3.Connection:
    """Connection for reading; in memory for a missing file or an older schema."""
    if place.is_null(path) or not place.own_file(path):
        return _in_memory()
    with _open(path, place.shared(path)) as connection:
        version = known_version(connection, path)
        if version:
            check_pages(connection, path, table)
        if version == len(schema.MIGRATIONS):
            connection.execute("PRAGMA query_only = ON")
            return connection
        # A reader migrates a copy in memory: the file on disk stays readable to older programs.
        memory = _in_memory(connection if version else None)
        connection.close()
        return memory


def _in_memory(older: sqlite3.Connection | None = None) -> sqlite3.Connection:
    """Copy of an older file, or an empty one, in the newest schema."""
    memory = sqlite3.connect(":memory:", isolation_level=None)
    if older is not None:
        older.backup(memory)
    schema.add_functions(memory)
    schema.migrate(memory)
    return memory


def _writable(path: Path, thorough: bool) -> Connection:
    """Connect, and retry while another process changes the journal: SQLite itself does not wait."""
    end = time.monotonic() + _BUSY_MS / 1000
    while True:
        try:
            return _settled(path, thorough)
        except place.StoreFault as fault:
            error = fault.__cause__
            busy = isinstance(error, sqlite3.Error) and place.primary(error) == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() > end:
                raise
        time.sleep(0.01)


def _settled(path: Path, thorough: bool) -> Connection:
    for _ in range(_MOST_TRIES):
        if not place.own_file(path):
            _make(path)
        # No lock file is made beside a file that may not be ours.
        lock = place.shared(path)
        before = place.identity(path)
        with _open(path, lock) as connection:
            version = known_version(connection, path)
            connection.file = before
            # Another process may have replaced the file between lock and connection.
            if (
                lock is not None
                and version == len(schema.MIGRATIONS)
                and place.identity(path) == before
            ):
                if thorough:
                    check_pages(connection, path)
                for ending in ENDINGS:
                    with suppress(FileNotFoundError):
                        place.make_private(path.with_name(path.name + ending))
                _set_up(connection, path)
                return connection
            connection.close()
        # The shared lock is gone with the connection, as a migration needs the exclusive lock.
        with place.locked(path):
            _bring_on(path)
    raise place.StoreFault(f"{path} is replaced again and again")


def _set_up(connection: sqlite3.Connection, path: Path) -> None:
    mode = place.journal_mode(path)
    (now,) = connection.execute("PRAGMA journal_mode").fetchone()
    if now != mode.lower():
        with suppress(sqlite3.OperationalError):  # others have it open: a later one changes it
            connection.execute(f"PRAGMA journal_mode = {mode}")
    # Without a log, only a full sync makes a power failure harmless.
    connection.execute(f"PRAGMA synchronous = {'NORMAL' if mode == 'WAL' else 'FULL'}")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA secure_delete = ON")


def _bring_on(path: Path) -> None:
    """Bring a file to the newest schema, while no other process has it open."""
    if not place.own_file(path):
        return
    place.make_private(path)
    with _open(path) as connection, closing(connection):
        version = known_version(connection, path)
        if version == len(schema.MIGRATIONS):
            return
        if version:
            _back_up(connection, path, version)
        else:
            # The owner is written first, so that the file shows it even if it is damaged later.
            connection.execute(f"PRAGMA application_id = {schema.APPLICATION}")
        _set_up(connection, path)
        schema.migrate(connection)


def known_version(connection: sqlite3.Connection, file: Path, path: Path | None = None) -> int:
    """Schema version of a file of ours; other programs' files are refused by the name of `path`."""
    path = path or file
    try:
        # One transaction reads all three values, as another process may be making the file.
        connection.execute("BEGIN")
        version = schema.version_of(connection)
        owner = connection.execute("PRAGMA application_id").fetchone()[0]
        tables = connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
        connection.execute("COMMIT")
    except place.FAILURES as error:
        if isinstance(place.fault_of(path, error), place.Damaged) and not _says_ours(file):
            raise place.StoreFault(
                f"{path} is not a file of kept runs", hint=place.REMEDY
            ) from None
        raise
    if owner != schema.APPLICATION and (version or tables):
        raise place.StoreFault(f"{path} is a database of another program", hint=place.REMEDY)
    if version > len(schema.MIGRATIONS):
        raise place.StoreFault(f"{path} was written by a newer trnbench, and is left as it is")
    return version


def _says_ours(path: Path) -> bool:
    # SQLite itself refuses a damaged file, so the owner is read from the bytes of its header.
    with path.open("rb") as file:
        head = file.read(_OWNER_AT.stop)
    return head.startswith(_MAGIC) and head[_OWNER_AT] == schema.APPLICATION.to_bytes(4, "big")


def _is_sound(path: Path, more: Callable[[sqlite3.Connection], bool] | None) -> bool:
    try:
        with _open(path) as connection, closing(connection):
            version = known_version(connection, path)
            if version:
                check_pages(connection, path)
            return more is None or version < len(schema.MIGRATIONS) or more(connection)
    except place.Damaged:
        return False


def _make(path: Path) -> None:
    """Make an empty file, once; SQLite's files of a damaged one are put aside too."""
    with place.locked(path):
        if place.own_file(path):
            return
        put_aside = sorted(path.parent.glob(f"{path.name}{ASIDE}*[0-9]"))
        for ending in ENDINGS[1:]:
            left = path.with_name(path.name + ending)
            if os.path.lexists(left):
                name = f"{put_aside[-1].name if put_aside else path.name + ASIDE}{ending}"
                left.rename(path.with_name(name))
        place.make_file(path)
        _bring_on(path)


def _back_up(connection: sqlite3.Connection, path: Path, version: int) -> None:
    """Copy the file in an older version; the copy appears whole or not at all."""
    copy = path.with_name(f"{path.name}.version-{version}")
    beside = path.with_name(f"{path.name}.copying-{os.getpid()}")
    place.make_file(beside)
    try:
        with closing(sqlite3.connect(beside)) as target:
            connection.backup(target)
        beside.replace(copy)
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def _set_aside(path: Path) -> Path:
    """Rename a file and SQLite's files beside it; the main file first, so it is whole or away."""
    stamp = datetime.now(tz=UTC).strftime("%Y%m%dT%H%M%S%f")
    aside = path.with_name(f"{path.name}{ASIDE}{stamp}")
    for ending in ENDINGS:
        with suppress(FileNotFoundError):
            path.with_name(path.name + ending).rename(aside.with_name(aside.name + ending))
    return aside
