"""Writing the visible rows, or a picture of the screen, to a new file."""

from __future__ import annotations

import datetime
from pathlib import Path

from trnbench.errors import EnvironmentFault
from trnbench.report.formats import render
from trnbench.report.report import Report
from trnbench.report.text_table import PLAIN

ENDINGS = {"csv": "csv", "json": "json", "markdown": "md"}


def rows_as(report: Report, output_format: str) -> bytes:
    """Return the rows in one of ENDINGS' formats."""
    return render(report, output_format, PLAIN)


def free_path(folder: Path, stem: str, ending: str, now: datetime.datetime) -> Path:
    """Return a path in the folder that does not exist yet, named for the minute."""
    base = f"trnbench-{stem}-{now:%Y%m%d-%H%M%S}"
    path = folder / f"{base}.{ending}"
    number = 2
    while path.exists():
        path = folder / f"{base}-{number}.{ending}"
        number += 1
    return path


def write(path: Path, data: bytes) -> None:
    """Write a new file."""
    try:
        with path.open("xb") as file:
            file.write(data)
    except OSError as error:
        raise EnvironmentFault(f"cannot write {path}: {error.strerror}") from error
