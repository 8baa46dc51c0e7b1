"""Reading one text file that a person wrote; every failure becomes one clear message."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISDIR, S_ISFIFO, S_ISREG
from typing import TextIO

from trnbench.errors import DataFileError, Fault, InputError

_HEAD_BYTES = 65_536
MOST_LINE = 1 << 20
"""Characters of the longest line of a table; reading stops there."""
_MOST_BELOW = 20_000
"""Most files and folders below a given folder; more means a disk's root or a home."""


def read_text(path: Path, *, what: str, max_bytes: int) -> str:
    """The text in `path`, or DataFileError; `what` names the expected kind of file."""
    # The size is known before the file is read: a wrong path costs no memory.
    with _reading(path, what) as size:
        if size > max_bytes:
            raise refused(path, f"has {size:,} bytes; such a file holds at most {max_bytes:,}")
        raw = path.read_bytes()
    _refuse_binary(path, raw, what)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise refused(path, f"line {line} is not valid UTF-8") from None


def chunks(path: Path, *, what: str, size: int = _HEAD_BYTES) -> Iterator[bytes]:
    """Yield the bytes of a text file of any length, `size` at a time."""
    with _reading(path, what), path.open("rb") as file:
        while raw := file.read(size):
            _refuse_binary(path, raw, what)
            yield raw


def bounded_lines(path: Path, file: TextIO) -> Iterator[str]:
    """Yield the lines of an open text file; refuse an absurdly long line."""
    number = 0
    while line := file.readline(MOST_LINE):
        number += 1
        if len(line) == MOST_LINE and line[-1] not in "\r\n":
            raise refused(
                path, f"line {number} has more than {MOST_LINE:,} characters; leave it out"
            )
        yield line


@contextmanager
def open_text(path: Path, *, what: str) -> Iterator[TextIO]:
    """Open a text file of any length for reading in pieces, with its line ends unchanged."""
    with _reading(path, what):
        file = path.open(encoding="utf-8-sig", newline="")
    with file:
        try:
            yield file
        except OSError as error:
            raise refused(path, f"cannot be read: {error.strerror}") from None


def first_line(path: Path, *, what: str) -> str:
    """First non-blank line of a file, undecodable bytes replaced."""
    head = next(chunks(path, what=what), b"")
    return head.decode("utf-8-sig", errors="replace").lstrip().partition("\n")[0]


def _refuse_binary(path: Path, raw: bytes, what: str) -> None:
    if b"\0" in raw:
        text = what if what == "text" else f"{what} text"
        raise refused(path, f"is a binary file (NUL byte); expected {text}")


def files_below(folder: Path) -> list[Path]:
    """Files in a folder and its subfolders, sorted by name, without hidden ones."""
    found: list[Path] = []
    seen = 0
    for place, folders, files in os.walk(folder):
        # In place: `os.walk` goes down into the folders that are left in its list.
        folders[:] = [name for name in folders if not name.startswith(".")]
        seen += len(folders) + len(files)
        if seen > _MOST_BELOW:
            raise InputError(
                f"{folder}: has more than {_MOST_BELOW:,} files below it; name a smaller folder"
            )
        found += [Path(place, name) for name in files if not name.startswith(".")]
    return sorted(path for path in found if path.is_file())


@contextmanager
def _reading(path: Path, what: str) -> Iterator[int]:
    """Yield the file's size in bytes; turn each obstacle to reading into one message."""
    try:
        status = path.stat()
        if S_ISDIR(status.st_mode):
            raise refused(path, f"is a folder; expected a {what} file")
        if S_ISFIFO(status.st_mode):
            raise refused(path, f"is a pipe; write what comes out of it to a {what} file first")
        if not S_ISREG(status.st_mode):
            raise refused(path, f"is not a regular file; expected a {what} file")
        yield status.st_size
    except FileNotFoundError:
        raise refused(path, "no such file") from None
    except PermissionError:
        raise refused(path, "no permission to read it") from None
    except OSError as error:
        raise refused(path, f"cannot be read: {error.strerror}") from None
    except ValueError as error:  # a NUL byte in the path itself
        raise refused(path, f"cannot be read: {error}") from None


def refused(path: Path | str, message: str, key: str = "") -> DataFileError:
    """Error about a file as a whole, or about a key of it."""
    return DataFileError(str(path), [Fault(key, message)])


def refused_with_all(path: Path | str, faults: Sequence[Fault]) -> DataFileError:
    """Error that tells every fault of a file, where no command lists them."""
    return DataFileError(str(path), faults, hint=f"also {'; '.join(map(str, faults[1:]))}")
