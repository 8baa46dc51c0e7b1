"""What is taken away: visible rows or a picture in a new file, a command that can be pasted."""

from __future__ import annotations

import datetime
import textwrap
from collections.abc import Collection
from pathlib import Path

from trnbench.errors import EnvironmentFault
from trnbench.show.formats import render
from trnbench.show.report import Report
from trnbench.show.text_table import PLAIN

ENDINGS = {"csv": "csv", "json": "json", "markdown": "md"}
COPY_WIDTH = 54
"""Columns of a copied command as shown: none of its words is broken."""


def rows_as(report: Report, output_format: str) -> bytes:
    return render(report, output_format, PLAIN)


def free_path(
    folder: Path, stem: str, ending: str, now: datetime.datetime, taken: Collection[Path] = ()
) -> Path:
    """A path in the folder, named for the second: not there yet, nor among the taken."""
    base = f"trnbench-{stem}-{now:%Y%m%d-%H%M%S}"
    path = folder / f"{base}.{ending}"
    number = 2
    while path.exists() or path in taken:
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


def folded(text: str) -> str:
    """A command on lines that are continued with a backslash, so that it can be pasted."""
    lines = []
    for line in text.splitlines():
        broken = textwrap.wrap(line, COPY_WIDTH, break_long_words=False, break_on_hyphens=False)
        lines.append(" \\\n  ".join(broken))
    return "\n".join(lines)
