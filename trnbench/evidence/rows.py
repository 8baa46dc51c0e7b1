"""Files of measurements: which of the known sets a CSV file is, and its cells, read with care.

A file that is of no known set is refused as a whole. What is wrong with a row is the row's own
affair: reading its cells raises `RowFault`, and whoever reads it lists the row with that reason.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Literal

from trnbench.catalog.text_file import read_text, refused

MAX_BYTES = 64_000_000

EvidenceSet = Literal[
    "gpu_training",
    "trainium_training",
    "trainium_kernels",
    "gpu_collectives",
    "trainium_collectives",
]

UNSAID = ("", "-", "?", "n/a", "not stated", "not given", "unknown")
"""Texts of a cell whose value is unknown."""

_NEEDED: Mapping[EvidenceSet, tuple[tuple[str, ...], ...]] = {
    "gpu_training": (
        *(("gpu",), ("system",), ("model",), ("seq",), ("n_gpus",), ("tp",), ("pp",), ("dp",)),
        *(("gbs",), ("dtype",), ("framework",), ("step_time_s", "tokens_per_s_per_gpu")),
    ),
    "trainium_training": (
        *(("model",), ("seq_len",), ("instance",), ("nodes",), ("TP",), ("PP",), ("microbatch",)),
        *(("global_batch",), ("dtype_mode",), ("step_time_s", "seq_per_s", "tokens_per_s")),
    ),
    "trainium_kernels": (("hardware",), ("kernel",), ("shape",), ("dtype",), ("latency_ms",)),
    "gpu_collectives": (
        *(("platform",), ("nodes",), ("gpus",), ("collective",), ("size_bytes",)),
        ("time_us", "busbw_GBps", "algbw_GBps"),
    ),
    "trainium_collectives": (
        *(("collective",), ("instance",), ("nodes",), ("ranks",), ("size_bytes",), ("time_us",)),
    ),
}
"""The columns without which a set says nothing; of several in one group, one is enough."""


class RowFault(ValueError):
    """Why a row cannot be used; shown beside it, never to a user by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRow:
    """A row of a file: its id (or line, where it has none), and its cells by column."""

    id: str
    line: int
    cells: Mapping[str, str]
    fault: str | None = None

    def text(self, column: str) -> str:
        """Return a cell without the space around it; nothing where there is no such column."""
        return self.cells.get(column, "").strip()

    def said(self, column: str) -> bool:
        """Return whether a cell has a value."""
        return self.text(column).lower() not in UNSAID

    def needed(self, column: str) -> str:
        """Return a cell's text, which must not be empty."""
        if not self.said(column):
            raise RowFault(f"{column}: not given")
        return self.text(column)

    def positive(self, column: str) -> float:
        """Return a cell's number, which must be above 0."""
        text = self.needed(column)
        try:
            number = float(text)
        except ValueError:
            raise RowFault(f"{column}: {_short(text)} is not a number") from None
        if not (isfinite(number) and number > 0):
            raise RowFault(f"{column}: {_short(text)} is not a positive number")
        return number

    def whole(self, column: str) -> int:
        """Return a cell's whole number, which must be above 0."""
        number = self.positive(column)
        if number != int(number):
            raise RowFault(f"{column}: {_short(self.text(column))} is not a whole number")
        return int(number)

    def whole_if_said(self, column: str) -> int | None:
        """Return a cell's whole number, or None where it is not given."""
        return self.whole(column) if self.said(column) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceFile:
    """A file of measurements: which set it is, and every row of it."""

    name: str
    set: EvidenceSet
    rows: tuple[EvidenceRow, ...]


def read_evidence(path: Path) -> EvidenceFile:
    """Return the rows of a CSV file; one of no known set is refused with what it lacks."""
    text = read_text(path, what="CSV", max_bytes=MAX_BYTES)
    try:
        table = list(csv.reader(io.StringIO(text), strict=True))
    except csv.Error as error:
        raise refused(path, f"is not CSV: {error}") from None
    filled = [(line, row) for line, row in enumerate(table, start=1) if any(c.strip() for c in row)]
    if not filled:
        raise refused(path, "is empty; expected a line of column names and rows of measurements")
    columns = [column.strip() for column in filled[0][1]]
    found = _set_of(path, columns)
    if len(filled) == 1:
        raise refused(path, f"has the columns of {found} and no row")
    return EvidenceFile(name=path.name, set=found, rows=tuple(_rows(columns, filled[1:])))


def _rows(columns: list[str], lines: list[tuple[int, list[str]]]) -> list[EvidenceRow]:
    rows: list[EvidenceRow] = []
    first: dict[str, int] = {}
    for line, cells in lines:
        named = dict(zip(columns, cells, strict=False))
        name = named.get("id", "").strip() or f"line {line}"
        fault = None
        if len(cells) != len(columns):
            fault = f"line {line} has {len(cells)} cells, and there are {len(columns)} columns"
        elif name in first:
            fault = f"the id stands twice, first on line {first[name]}"
        first.setdefault(name, line)
        rows.append(EvidenceRow(id=name, line=line, cells=named, fault=fault))
    return rows


def _set_of(path: Path, columns: list[str]) -> EvidenceSet:
    twice = sorted({column for column in columns if columns.count(column) > 1})
    if twice:
        raise refused(path, f"has two columns named {twice[0]!r}")
    missing = {
        name: [" or ".join(group) for group in groups if not set(group) & set(columns)]
        for name, groups in _NEEDED.items()
    }
    nearest = min(missing, key=lambda name: len(missing[name]) / len(_NEEDED[name]))
    if missing[nearest]:
        raise refused(
            path,
            f"is of no known set of measurements; to be {nearest} it lacks the columns "
            f"{', '.join(missing[nearest])}",
        )
    return nearest


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
