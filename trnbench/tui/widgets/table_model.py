"""The lines of a result table: rows of a report, filtered, sorted, and compared with a baseline.

Pure: the state in, the lines out. Rows are sorted by their values, never by their text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from trnbench.errors import UnitError
from trnbench.facts.records import Record, field, replace
from trnbench.facts.units import Dimension, counted, parse
from trnbench.show.report import Report, as_table
from trnbench.show.row import Cell, Row
from trnbench.show.text_table import TextTable

WIDEST = 56
"""A longer text is cut in its column; the row in full stands elsewhere."""
MOST_ROWS = 2_000
"""More are not shown; the count says how many there are."""
BEST = "*"
"""Before the best value of a column, and before the row that an answer settles on."""
PINNED, BASELINE = "+", "="
"""Before rows that the user has set apart."""
UP, DOWN = "\u2191", "\u2193"

_COMPARED = re.compile(r"(?P<key>\w+)(?P<sign><=|>=|<|>|=)(?P<value>\S+)")


class TableState(Record):
    """Choices of the user: sort column (a row key) and direction, words to filter by, pins."""

    sort: str | None = None
    descending: bool = False
    words: str = ""
    pinned: frozenset[str] = frozenset()
    baseline: str | None = None

    def sorted_by(self, column: str) -> TableState:
        """The state after sorting by a column: up, then down, then unsorted."""
        if self.sort != column:
            return replace(self, sort=column, descending=False)
        if not self.descending:
            return replace(self, descending=True)
        return replace(self, sort=None, descending=False)

    def with_pin(self, key: str) -> TableState:
        return replace(self, pinned=self.pinned ^ {key})

    def with_baseline(self, key: str) -> TableState:
        return replace(self, baseline=None if self.baseline == key else key)


class TableSource(Record):
    """A report's rows with a key each."""

    report: Report
    keys: tuple[str, ...]
    answers: tuple[object, ...] = ()
    """Records of the rows, where a view needs more than a row."""
    deltas: frozenset[str] = frozenset()
    """Columns that are compared with a baseline."""
    best: Mapping[str, int] = field(default_factory=dict)
    """Columns whose best value is marked: 1 where the largest is best, -1 the smallest."""
    chosen: str | None = None
    """Key of the row that an answer settles on."""

    @classmethod
    def of(cls, report: Report, *columns: str, answers: tuple[object, ...] = ()) -> TableSource:
        """A report's rows, keyed by these columns, numbered where they are alike."""
        seen: Counter[str] = Counter()
        keys = []
        for row in report.rows:
            name = " ".join(str(row.get(column)) for column in columns)
            seen[name] += 1
            keys.append(name if seen[name] == 1 else f"{name} {seen[name]}")
        return cls(report=report, keys=tuple(keys), answers=answers)

    @property
    def rows(self) -> Mapping[str, Row]:
        return dict(zip(self.keys, self.report.rows, strict=True))


class Line(Record):
    """One row as shown: its cells, and the mark before them."""

    key: str
    row: Row
    answer: object
    """Record of the row; None where there is none."""
    cells: tuple[str, ...]
    mark: str

    @property
    def lifted(self) -> bool:
        """True when the user has pinned the row or made it the baseline."""
        return self.mark in (PINNED, BASELINE)

    @property
    def no(self) -> bool:
        """True when the row stands for what cannot run."""
        return self.row.get("feasible") is False


class Arranged(Record):
    """The lines of a table in order, with headings and widths; `matched` rows passed the filter."""

    headings: tuple[str, ...]
    columns: tuple[str, ...]
    right: tuple[bool, ...]
    widths: tuple[int, ...]
    lines: tuple[Line, ...]
    matched: int
    total: int
    reason: str = ""

    @property
    def count(self) -> str:
        """Number of rows shown, in words."""
        shown = len(self.lines)
        if shown == self.total:
            return counted(shown, "row")
        if shown < self.matched:
            return f"{shown:,} of {self.matched:,} rows (most that are shown)"
        return f"{shown:,} of {counted(self.total, 'row')}"

    @property
    def of_all(self) -> str:
        most = f", {len(self.lines):,} shown" if len(self.lines) < self.matched else ""
        return f"{self.matched:,} of {self.total:,}{most}"


def arrange(source: TableSource, state: TableState, table: TextTable | None = None) -> Arranged:
    """The lines to show; `table` has the cells of the source, if already written.

    Writing thousands of them takes longer than a key may.
    """
    report = source.report
    table = table or as_table(report)
    cells = dict(zip(source.keys, table.rows, strict=True))
    rows = source.rows
    reason = ""
    try:
        kept = [key for key in source.keys if _matches(rows[key], cells[key], state.words)]
    except UnitError as error:
        kept, reason = list(source.keys), error.message
    if state.sort is not None:
        kept = _in_order(kept, rows, state.sort, descending=state.descending)
    kept.sort(key=lambda key: key not in state.pinned)
    matched, kept = len(kept), kept[:MOST_ROWS]
    base = rows.get(state.baseline) if state.baseline else None
    marks: Mapping[str, Collection[str | None]] = {
        BASELINE: {state.baseline},
        PINNED: state.pinned,
        BEST: {source.chosen},
    }
    marked = {column: _best(rows, column, sign) for column, sign in source.best.items()}
    answers = dict(zip(source.keys, source.answers, strict=False))
    lines = tuple(
        Line(
            key=key,
            row=rows[key],
            answer=answers.get(key),
            cells=tuple(
                _mark(key, marked.get(column.key))
                + text
                + _delta(column.key, rows[key], base, source.deltas)
                for column, text in zip(report.columns, cells[key], strict=True)
            ),
            mark=next((mark for mark, keys in marks.items() if key in keys), " "),
        )
        for key in kept
    )
    headings = tuple(
        heading + _arrow(column.key, state)
        for column, heading in zip(report.columns, table.headings, strict=True)
    )
    widths = tuple(
        min(max(len(heading), *(len(line.cells[i]) for line in lines), 1), WIDEST)
        for i, heading in enumerate(headings)
    )
    return Arranged(
        headings=headings,
        columns=tuple(column.key for column in report.columns),
        right=table.right,
        widths=widths,
        lines=lines,
        matched=matched,
        total=len(source.keys),
        reason=reason,
    )


def visible(source: TableSource, arranged: Arranged) -> Report:
    """The report of the rows that are shown, in their order."""
    rows = tuple(line.row for line in arranged.lines)
    return replace(source.report, rows=rows, people=None)


def _best(rows: Mapping[str, Row], column: str, sign: int) -> frozenset[str]:
    """The keys of the rows that have the best value of a column, of two or more."""
    values = {
        key: float(value) * sign
        for key, row in rows.items()
        if isinstance(value := row.get(column), int | float) and row.get("feasible") is not False
    }
    if len(set(values.values())) < 2:
        return frozenset()
    most = max(values.values())
    return frozenset(key for key, value in values.items() if value == most)


def _mark(key: str, best: frozenset[str] | None) -> str:
    if best is None:
        return ""
    return BEST if key in best else " " * len(BEST)


def _arrow(column: str, state: TableState) -> str:
    if column != state.sort:
        return ""
    return f" {DOWN if state.descending else UP}"


def _in_order(
    keys: Sequence[str], rows: Mapping[str, Row], column: str, *, descending: bool
) -> list[str]:
    """The keys sorted by a column; rows without a value stand last either way."""
    filled = [key for key in keys if rows[key].get(column) is not None]
    unknown = [key for key in keys if rows[key].get(column) is None]
    numbers = all(_is_number(rows[key].get(column)) for key in filled)

    def value(key: str) -> float | str:
        cell = rows[key].get(column)
        return float(cell) if numbers and isinstance(cell, int | float) else str(cell)

    return [*sorted(filled, key=value, reverse=descending), *unknown]


def _is_number(cell: Cell) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _delta(column: str, row: Row, base: Row | None, deltas: frozenset[str]) -> str:
    """Difference of a value from the baseline's."""
    if base is None or column not in deltas:
        return ""
    value, reference = row.get(column), base.get(column)
    if not isinstance(value, int | float) or not isinstance(reference, int | float):
        return ""
    if row is base or not reference:
        return ""
    ratio = value / reference
    return f" x{ratio:.2f}" if ratio >= 2 or ratio <= 0.5 else f" {100 * (ratio - 1):+.1f}%"


def _matches(row: Row, cells: Sequence[str], words: str) -> bool:
    """Tell whether every word is in some cell, or holds as a comparison such as mfu>0.4."""
    for word in words.split():
        compared = _COMPARED.fullmatch(word)
        if compared is not None and compared["key"] in row:
            if not _holds(row[compared["key"]], compared["sign"], compared["value"]):
                return False
        elif not any(word.casefold() in cell.casefold() for cell in cells):
            return False
    return True


def _holds(cell: Cell, sign: str, text: str) -> bool:
    if isinstance(cell, bool):
        return sign == "=" and text.casefold() in (("yes", "true") if cell else ("no", "false"))
    if not isinstance(cell, int | float):
        return sign == "=" and str(cell).casefold() == text.casefold()
    wanted = parse(text, Dimension.RATIO if text.endswith("%") else Dimension.COUNT)
    return {
        "<": cell < wanted,
        ">": cell > wanted,
        "<=": cell <= wanted,
        ">=": cell >= wanted,
        "=": cell == wanted,
    }[sign]


EMPTY = TableSource(report=Report(verb="", inputs={}, rows=(), columns=()), keys=())
