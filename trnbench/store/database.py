"""The file of kept runs: private, sound and in the newest schema when it is open, or not opened.

A file that is damaged is kept aside under another name, and a new one made; one of a newer trnbench
is left alone; before a migration the file is copied.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from trnbench.errors import EnvironmentFault
from trnbench.store.schema import APPLICATION, MIGRATIONS, migrate, version_of

FILE_VARIABLE = "TRNBENCH_RUNS"
"""Names another file than that in the user's data folder."""
KEEP_VARIABLE = "TRNBENCH_KEEP"
_BUSY_MS = 2000
_OWNER_ONLY = 0o600
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_ASIDE = ("", "-wal", "-shm")

Say = Callable[[str], object]


class StoreFault(EnvironmentFault):
    """The file of kept runs cannot be read or written here."""


def store_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Return where runs are kept."""
    named = environment.get(FILE_VARIABLE)
    if named:
        return Path(named)
    from platformdirs import user_data_path

    return user_data_path("trnbench") / "runs" / "runs.db"


def keeps(environment: Mapping[str, str] = os.environ) -> bool:
    """Tell whether the environment lets answers be kept."""
    return environment.get(KEEP_VARIABLE, "1").strip().lower() not in ("0", "false", "no", "off")


@contextmanager
def opened(path: Path, *, say: Say, thorough: bool = False) -> Iterator[sqlite3.Connection]:
    """Open the file, making it if it is not there; `thorough` reads it all to find damage.

    Every fault of SQLite inside the block is a StoreFault.
    """
    try:
        connection = _sound(path, say, thorough)
    except (sqlite3.Error, OSError) as error:
        raise _fault(path, error) from error
    with closing(connection):
        try:
            yield connection
        except sqlite3.Error as error:
            raise _fault(path, error) from error


def _sound(path: Path, say: Say, thorough: bool) -> sqlite3.Connection:
    try:
        return _patiently(path, thorough)
    except sqlite3.DatabaseError as error:
        if _primary(error) not in _DAMAGED:
            raise
        aside = _set_aside(path)
        say(f"the file of kept runs was damaged; it is now {aside}, and a new one was begun")
        return _connected(path, thorough)


def _patiently(path: Path, thorough: bool) -> sqlite3.Connection:
    """Connect; while another process makes the file, SQLite does not wait by itself."""
    end = time.monotonic() + _BUSY_MS / 1000
    while True:
        try:
            return _connected(path, thorough)
        except sqlite3.OperationalError as error:
            if _primary(error) != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
        time.sleep(0.01)


def _connected(path: Path, thorough: bool) -> sqlite3.Connection:
    _make_private(path)
    connection = sqlite3.connect(path, isolation_level=None, timeout=_BUSY_MS / 1000)
    try:
        # One transaction reads all three: another process may be making the file just now.
        connection.execute("BEGIN")
        version = version_of(connection)
        owner = connection.execute("PRAGMA application_id").fetchone()[0]
        tables = connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
        foreign = owner != APPLICATION and (version or tables)
        connection.execute("COMMIT")
        if foreign:
            raise StoreFault(
                f"{path} is a database of another program",
                hint=f"{FILE_VARIABLE} names the file in which trnbench keeps runs",
            )
        if version > len(MIGRATIONS):
            raise StoreFault(f"{path} was written by a newer trnbench, and is left as it is")
        if thorough:
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                raise _damage(str(found))
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        if version < len(MIGRATIONS):
            connection.execute("PRAGMA journal_mode = WAL")
            if version:
                _back_up(connection, path, version)
            migrate(connection)
        return connection
    except BaseException:
        connection.close()
        raise


def _make_private(path: Path) -> None:
    if not path.parent.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, _OWNER_ONLY))
    except FileExistsError:
        # SQLite gives its journal the mode of the file.
        if path.stat().st_mode & 0o077:
            path.chmod(_OWNER_ONLY)


def _back_up(connection: sqlite3.Connection, path: Path, version: int) -> None:
    """Copy the file as it is in an older version; the copy appears whole or not at all."""
    copy = path.with_name(f"{path.name}.version-{version}")
    beside = path.with_name(f"{path.name}.copying-{os.getpid()}")
    _make_private(beside)
    try:
        with closing(sqlite3.connect(beside)) as target:
            connection.backup(target)
        beside.replace(copy)
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def _set_aside(path: Path) -> Path:
    stamp = datetime.now(tz=UTC).strftime("%Y%m%dT%H%M%S%f")
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    for ending in _ASIDE:
        with suppress(FileNotFoundError):
            path.with_name(path.name + ending).rename(aside.with_name(aside.name + ending))
    return aside


def _primary(error: sqlite3.Error) -> int:
    """Return SQLite's kind of error, without its refinements."""
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def _damage(what: str) -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError(what)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def _fault(path: Path, error: sqlite3.Error | OSError) -> StoreFault:
    if isinstance(error, OSError):
        return StoreFault(f"{path}: {error.strerror or error}")
    return StoreFault(f"{path}: {error}")
