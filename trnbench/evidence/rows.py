"""Files of measurements: recognition of the set, and careful reading of cells.

A file of an unknown set is refused. A faulty row does not spoil its file: reading its cells raises
`RowFault`, and the reader lists the row with the reason.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import Literal

from trnbench.errors import InputError
from trnbench.evidence.columns import (
    COLUMNS,
    KERNEL_KINDS,
    KINDS,
    KNOB_COLUMNS,
    MODEL_COLUMNS,
    MeasuredKind,
    csv_of_json,
    is_measured,
    is_measured_json,
    named_columns,
)
from trnbench.facts.catalog.foreign import reads
from trnbench.facts.catalog.text_file import first_line, read_text, refused
from trnbench.facts.records import Record, replace
from trnbench.facts.terminal_text import control_character

MAX_BYTES = 64_000_000

EvidenceSet = Literal[
    "steps",
    "gpu_training",
    "trainium_training",
    "trainium_kernels",
    "attention_kernels",
    "gpu_kernels",
    "gpu_collectives",
    "trainium_collectives",
    "measured",
    "measured_kernels",
    "neuron_compile",
]

UNSAID = ("", "-", "?", "n/a", "not stated", "not given", "unknown")
"""Cell texts for unknown values."""

MEASURED = ("step_time_s", "memory_gb", "memory_mib_chip", "outcome", "device_s_per_microbatch")
"""Columns of a step, of which one is required."""
STEPS: EvidenceSet = "steps"
"""The set of measured training steps."""
STEPS_BY_MACHINE: tuple[EvidenceSet, ...] = ("gpu_training", "trainium_training")
"""Sets for scoring predicted steps, by machine."""
KERNELS: EvidenceSet = "trainium_kernels"
"""The set of kernels timed alone."""
GPU_KERNELS: EvidenceSet = "gpu_kernels"
"""The set of a GPU's kernels timed alone."""
COLLECTIVES: tuple[EvidenceSet, ...] = ("trainium_collectives", "gpu_collectives")
"""Sets of timed collectives."""

_MOST = 1e30
"""Largest number of a measurement, and inverse of the smallest."""
_FLAGS = {
    **dict.fromkeys(("1", "yes", "true", "on"), True),
    **dict.fromkeys(("0", "no", "false", "off"), False),
}
_NEEDED: Mapping[EvidenceSet, tuple[tuple[str, ...], ...]] = {
    "trainium_kernels": (("hardware",), ("kernel",), ("shape",), ("dtype",), ("latency_ms",)),
    "gpu_kernels": (("kind",), ("shape",), ("dtype",), ("time_s",), ("device",)),
    "gpu_collectives": (
        *(("platform",), ("nodes",), ("gpus",), ("collective",), ("size_bytes",)),
        ("time_us", "busbw_GBps", "algbw_GBps"),
    ),
    "trainium_collectives": (
        *(("collective",), ("instance",), ("nodes",), ("ranks",), ("size_bytes",), ("time_us",)),
    ),
    "neuron_compile": (
        *(("model",), ("instance",), ("pass",), ("graph",), ("outcome",)),
        *(("instructions",), ("compile_s",)),
    ),
    "steps": (("model",), ("instance",), ("gbs",), MEASURED),
}
"""Required columns by set; one of each group is enough."""

_SETS: Mapping[MeasuredKind, EvidenceSet] = {
    **dict.fromkeys(KERNEL_KINDS, "measured_kernels"),
    "collective": "trainium_collectives",
    "train": "steps",
}


class RowFault(ValueError):
    """Reason for rejecting a row; shown beside the row, never alone."""


class EvidenceRow(Record):
    """A row of a file: id (or line), and cells by column."""

    id: str
    line: int
    cells: Mapping[str, str]
    fault: str | None = None

    def text(self, column: str) -> str:
        """A cell without the space around it; nothing where there is no such column."""
        return self.cells.get(column, "").strip()

    @cached_property
    def _said(self) -> Mapping[str, str]:
        """Texts of the cells that say something; most are empty."""
        texts = {column: cell.strip() for column, cell in self.cells.items() if cell}
        return {column: text for column, text in texts.items() if text.lower() not in UNSAID}

    def said(self, column: str) -> bool:
        return column in self._said

    def needed(self, column: str) -> str:
        """A cell's text, which must not be empty."""
        if column not in self._said:
            raise RowFault(f"{column}: not given")
        return self._said[column]

    def positive(self, column: str) -> float:
        """A cell's number, which must be above 0."""
        text = self.needed(column)
        try:
            number = float(text)
        except ValueError:
            raise RowFault(f"{column}: {_short(text)} is not a number") from None
        if not (isfinite(number) and number > 0):
            raise RowFault(f"{column}: {_short(text)} is not a positive number")
        # Conversion to other units must stay finite.
        if not 1 / _MOST <= number <= _MOST:  # in other units, or times another, it would be none
            raise RowFault(f"{column}: {_short(text)} is out of range, {1 / _MOST:g} to {_MOST:g}")
        return number

    def positive_if_said(self, column: str) -> float | None:
        return self.positive(column) if self.said(column) else None

    def whole(self, column: str) -> int:
        """A cell's whole number, which must be above 0."""
        number = self.positive(column)
        if number != int(number):
            raise RowFault(f"{column}: {_short(self.text(column))} is not a whole number")
        return int(number)

    def whole_if_said(self, column: str) -> int | None:
        return self.whole(column) if self.said(column) else None

    def flag_if_said(self, column: str) -> bool | None:
        if not self.said(column):
            return None
        text = self.text(column).lower()
        if text not in _FLAGS:
            raise RowFault(f"{column}: {_short(text)} is neither of yes (1) and no (0)")
        return _FLAGS[text]


class EvidenceFile(Record):
    """A file of measurements: its set, and all rows."""

    name: str
    set: EvidenceSet
    rows: tuple[EvidenceRow, ...]
    remarks: tuple[str, ...] = ()
    """Remarks on derived rows: what was read, and what was left out."""


@reads("a table of measurements")
def read_evidence(path: Path, given: Mapping[str, str] | None = None) -> EvidenceFile:
    """Rows of a CSV file; a file of an unknown set is refused.

    `given` are cells for every row, by column, for columns missing from a file of steps.
    """
    text = read_text(path, what="CSV", max_bytes=MAX_BYTES)
    if path.suffix == ".json":
        text = csv_of_json(path, text)
    lines = enumerate(csv.reader(io.StringIO(text), strict=True), start=1)
    filled = (_safe(path, line, row) for line, row in lines if any(cell.strip() for cell in row))
    given = given or {}
    try:
        heading = next(filled, None)
        if heading is None:
            raise refused(
                path, "is empty; expected a line of column names and rows of measurements"
            )
        # What is of no known set is refused before the rest of it is read.
        found, columns = _set_of(path, [column.strip() for column in heading[1]], given)
        rest = list(filled)
    except csv.Error as error:
        raise refused(path, f"is not CSV: {error}") from None
    for name in given:
        if name in columns:
            raise refused(path, f"has a column {name!r}: leave out the option that gives it")
    if not rest:
        raise refused(path, f"has the columns of {found} and no row")
    rows = tuple(_rows(columns, rest, given))
    return EvidenceFile(name=path.name, set=found, rows=rows)


def unread_columns(path: Path) -> tuple[str, ...]:
    """Unknown columns of a file of steps, as written."""
    if path.is_dir() or path.suffix == ".json":
        return ()
    if not is_table_of_steps(path):
        return ()
    written = [column.strip() for column in _heading(path)]
    if _set_of(path, written, {column.name: "" for column in COLUMNS})[0] != "steps":
        return ()
    known = {column.name for column in COLUMNS}
    named = zip(written, named_columns(written), strict=True)
    return tuple(column for column, name in named if name not in known)


def _safe(path: Path, line: int, row: list[str]) -> tuple[int, list[str]]:
    if found := control_character("".join(row)):
        raise refused(path, f"line {line} has the control character {found}; remove it")
    return line, row


def is_table(path: Path) -> bool:
    """True when a file is a table of a known set, by its first line."""
    if first_line(path, what="CSV or log").startswith("{"):
        return is_measured_json(path)
    columns = {column.strip() for column in _heading(path)}
    whole = (all(set(group) & columns for group in groups) for groups in _NEEDED.values())
    return is_measured(columns) or any(whole) or is_table_of_steps(path)


def is_table_of_steps(path: Path) -> bool:
    """True when a file's first line has columns of the run, not only of its times.

    A log of steps may also be a CSV file, without a description of its run.
    """
    described = {column.name for column in (*MODEL_COLUMNS, *KNOB_COLUMNS)}
    return bool(described & set(named_columns(_heading(path))))


def names_instance(path: Path) -> bool:
    return is_table(path) and "instance" in named_columns(_heading(path))


def _heading(path: Path) -> list[str]:
    """Cells of a file's first line; empty if not CSV."""
    try:
        return next(csv.reader([first_line(path, what="CSV or log")]), [])
    except csv.Error:
        return []


def _rows(
    columns: list[str], lines: list[tuple[int, list[str]]], given: Mapping[str, str]
) -> list[EvidenceRow]:
    rows: list[EvidenceRow] = []
    first: dict[str, int] = {}
    for line, cells in lines:
        named = {**given, **dict(zip(columns, cells, strict=False))}
        name = named.get("id", "").strip() or f"line {line}"
        fault = None
        if len(cells) != len(columns):
            fault = f"line {line} has {len(cells)} cells, and there are {len(columns)} columns"
        elif name in first:
            fault = f"the id is given twice, first on line {first[name]}"
        first.setdefault(name, line)
        rows.append(EvidenceRow(id=name, line=line, cells=named, fault=fault))
    return rows


def _set_of(
    path: Path, written: list[str], given: Mapping[str, str]
) -> tuple[EvidenceSet, list[str]]:
    """The set of a file, and its columns by that set's names."""
    _refuse_twice(path, written, written)
    if is_measured(written):
        return "measured", written
    steps = named_columns(written)
    columns = {name: steps if name == "steps" else written for name in _NEEDED}
    known = {name: {*columns[name], *(given if name == "steps" else ())} for name in _NEEDED}
    missing = {
        name: [" or ".join(group) for group in groups if not known[name] & set(group)]
        for name, groups in _NEEDED.items()
    }

    # A file with all columns of an older set is that, though aliases make steps of it too; one
    # that lacks as many of both is thought to be of steps.
    def distance(name: EvidenceSet) -> tuple[float, bool]:
        lacking = len(missing[name]) / len(_NEEDED[name])
        return lacking, (name == "steps") is (lacking == 0)

    nearest = min(missing, key=distance)
    if missing[nearest]:
        hint = ""
        if nearest == "steps":
            options = {"model": "--model", "instance": "--on"}
            asked = " and ".join(options[name] for name in options if name in missing[nearest])
            hint = f"; {f'give {asked}, or ' if asked else ''}see `trnbench validate --template`"
        raise refused(
            path,
            f"columns not recognised; a file of {nearest} also needs: "
            f"{', '.join(missing[nearest])}{hint}",
        )
    _refuse_twice(path, columns[nearest], written)
    return nearest, columns[nearest]


def _refuse_twice(path: Path, columns: list[str], written: list[str]) -> None:
    for column in sorted({column for column in columns if columns.count(column) > 1}):
        called = [text for name, text in zip(columns, written, strict=True) if name == column]
        if len(set(called)) > 1:
            raise refused(path, f"has two columns for {column!r}: {' and '.join(called)}")
        raise refused(path, f"has two columns named {column!r}")


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


def parts_of(file: EvidenceFile) -> tuple[EvidenceFile, ...]:
    """The file by kinds, each part as a file of its set; a file of another set is its only part.

    A row of an unknown kind gets a fault, and counts as a kernel.
    """
    if file.set != "measured":
        return (file,)
    rows: dict[EvidenceSet, list[EvidenceRow]] = {}
    for row in file.rows:
        kind = row.text("kind")
        found = next((name for name in KINDS if name == kind), None)
        if found is None:
            fault = f"kind: {kind[:40]!r} is not one of {', '.join(KINDS)}"
            row = replace(row, fault=row.fault or fault)
        rows.setdefault(_SETS[found or "matrix"], []).append(row)
    return tuple(
        EvidenceFile(name=file.name, set=of, rows=tuple(members)) for of, members in rows.items()
    )


def steps_of(files: Iterable[EvidenceFile], use: str) -> list[EvidenceFile]:
    """Files reduced to training steps; `use` names the purpose in an error.

    The other kinds describe their machine.
    """
    found = []
    for file in files:
        if file.set != "measured":
            found.append(file)
            continue
        steps = [part for part in parts_of(file) if part.set == "steps"]
        if not steps:
            raise InputError(
                f"{file.name}: has no training step to be {use}: measure train, or all"
            )
        found += steps
    return found


def rows_of_kind(rows: Iterable[EvidenceRow], *kinds: MeasuredKind) -> list[EvidenceRow]:
    return [row for row in rows if row.text("kind") in kinds and row.fault is None]
