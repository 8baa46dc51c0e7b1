"""Faults of the file of kept runs: not usable here and now, or damaged."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from trnbench.errors import EnvironmentFault

RECOVERS = "`trnbench runs recover` brings what can be read into a sound file"
CHECKS = "`trnbench runs check` reads every run and names the damaged ones"
FAILURES = (sqlite3.Error, UnicodeDecodeError)
"""Errors that SQLite raises; the second where it quotes damage that is not text."""
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_PAGE_NOT_READ = re.compile(r"failed to get page|error code[= ]*(\d+)")


class StoreFault(EnvironmentFault):
    """The file of kept runs cannot be read or written here."""


class Damaged(StoreFault):
    """The file of kept runs, or a run in it, differs from what was written."""


def primary(error: sqlite3.Error) -> int:
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def fault_of(path: Path, error: sqlite3.Error | UnicodeDecodeError | OSError) -> StoreFault:
    """Fault for an error of SQLite or of the system; a failed read is not damage."""
    if isinstance(error, OSError):
        return StoreFault(f"{path}: {error.strerror or error}")
    if isinstance(error, UnicodeDecodeError):
        return Damaged(f"{path} is damaged: it has no text where one belongs", hint=RECOVERS)
    kind = primary(error)
    if kind in _DAMAGED or (kind == sqlite3.SQLITE_ERROR and str(error).startswith("no such")):
        return Damaged(f"{path} is damaged: {error}", hint=RECOVERS)
    if kind == sqlite3.SQLITE_IOERR:
        return StoreFault(f"{path} cannot be read or written now: {error}")
    return StoreFault(f"{path}: {error}")


def fault_found(path: Path, found: Sequence[str]) -> StoreFault | None:
    """Fault for the findings of SQLite's check of a whole file; None where there are none."""
    if list(found) == ["ok"]:
        return None
    for text in found:
        failed = _PAGE_NOT_READ.search(text)
        # The check reports a page that could not be read as if its content were wrong.
        if failed and (failed[1] is None or int(failed[1]) & 0xFF not in _DAMAGED):
            return StoreFault(f"{path} cannot be read now: {_line(text)}")
    return Damaged(f"{path} is damaged: {_line(found[0])}", hint=RECOVERS)


def _line(text: str) -> str:
    return " ".join(text.split())
