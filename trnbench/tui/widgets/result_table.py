"""The table of results: draws only the lines that are in view, so that thousands cost nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from trnbench.facts.records import replace
from trnbench.show.report import Report, as_table
from trnbench.show.row import Row
from trnbench.tui.widgets.frame import hidden, offered
from trnbench.tui.widgets.table_model import (
    EMPTY,
    Arranged,
    Line,
    TableSource,
    TableState,
    arrange,
    visible,
)

GUTTER = 2
GAP = 2
HEADER = 1
CUT = "..."
FACTS = ("spec-list", "workload-list")
"""Reports of files, which no question overtakes."""
FIRST_SHARE = 0.45
"""The first column, which never scrolls away, takes at most this part of the width."""
LEAST_FIRST = 16
LEAST_CUT = 16
"""Least columns of room in which a text is cut; with less room its column is hidden."""


class ResultTable(ScrollView, can_focus=True):
    """Rows with a cursor: sort, filter, pin, baseline. The first column never scrolls away."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "result-table--header",
        "result-table--column",
        "result-table--cursor",
        "result-table--pinned",
        "result-table--no",
        "result-table--stale",
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        hidden("up,k", "move(-1)", "Up", "table.up"),
        hidden("down,j", "move(1)", "Down", "table.down"),
        hidden("pageup", "page(-1)", "Page up", "table.page_up"),
        hidden("pagedown", "page(1)", "Page down", "table.page_down"),
        hidden("home,g", "move(-1_000_000)", "First row", "table.first"),
        hidden("end,G", "move(1_000_000)", "Last row", "table.last"),
        hidden("left,h", "column(-1)", "Column left", "table.left"),
        hidden("right,l", "column(1)", "Column right", "table.right"),
        offered("s", "sort", "Sort", "table.sort", "Sort by the marked column"),
        hidden("C", "columns", "Columns", "table.columns", "Choose the columns"),
        offered("space", "pin", "Pin", "table.pin", "Pin the row to the top"),
        offered("b", "baseline", "Baseline", "table.baseline", "Compare others with this row"),
        offered("slash", "filter", "Filter", "table.filter", "Show matching rows only"),
    ]

    stale: reactive[bool] = reactive(False)

    class Highlighted(Message):
        """The cursor is on another row, or the row under it has changed."""

    class Chosen(Message):
        """Enter, or a click on the row under the cursor."""

        def __init__(self, table: ResultTable, row: Row) -> None:
            super().__init__()
            self.table = table
            self.row = row

    class Arranged(Message):
        """The lines are others: after a sort, a filter or new rows."""

    def __init__(self, *, id: str, open_filter: Callable[[], None]) -> None:
        super().__init__(id=id)
        self._open_filter = open_filter
        self.source: TableSource = EMPTY
        self._whole: TableSource = EMPTY
        self.chosen_columns: tuple[str, ...] = ()
        self._written = as_table(EMPTY.report)
        self.state = TableState()
        self.shown: Arranged = arrange(self.source, self.state)
        self.cursor = 0
        self.column = 0
        self._first_column = 1

    @property
    def _here(self) -> Line | None:
        lines = self.shown.lines
        return lines[self.cursor] if self.cursor < len(lines) else None

    @property
    def key(self) -> str | None:
        return None if self._here is None else self._here.key

    @property
    def row(self) -> Row | None:
        return None if self._here is None else self._here.row

    @property
    def answer(self) -> object:
        """The record of the row under the cursor; None without such a row."""
        return None if self._here is None else self._here.answer

    @property
    def answers(self) -> list[Any]:
        return [line.answer for line in self.shown.lines if line.answer is not None]

    @property
    def pinned(self) -> list[Line]:
        return [line for line in self.shown.lines if line.key in self.state.pinned]

    @property
    def answers_something(self) -> bool:
        """True when the rows are an answer that a newer question can overtake, not facts."""
        return bool(self.source.keys) and self.source.report.verb not in FACTS

    @property
    def report(self) -> Report:
        return visible(self.source, self.shown)

    @property
    def hidden_columns(self) -> tuple[str, ...]:
        """Headings of the columns that are out of view to the right."""
        return tuple(
            self.shown.headings[i]
            for i in range(self._first_column, len(self.shown.headings))
            if i not in self._in_view
        )

    def show(self, source: TableSource, *, fresh: bool = False) -> None:
        """Show rows; those of a `fresh` question with the cursor on the first of them."""
        self._whole = source
        self.stale = False
        if fresh:
            self.shown, self.cursor = arrange(EMPTY, TableState()), 0
        self._narrow()

    def choose_columns(self, keys: Sequence[str]) -> None:
        """Show these columns alone, in this order; without any those of the answer."""
        self.chosen_columns = tuple(keys)
        self._narrow()

    @property
    def all_columns(self) -> Mapping[str, str]:
        """Title of each column of the answer, by its key."""
        return {one.key: one.figure.title for one in self._whole.report.columns}

    def _narrow(self) -> None:
        report = self._whole.report
        known = {one.key: one for one in report.columns}
        wanted = tuple(known[key] for key in self.chosen_columns if key in known)
        self.source = replace(self._whole, report=replace(report, columns=wanted or report.columns))
        self._written = as_table(self.source.report)
        self._arrange()

    def choose_state(self, state: TableState) -> None:
        self.state = state
        self._arrange()

    def filter_by(self, words: str) -> None:
        self.choose_state(replace(self.state, words=words))

    def _arrange(self) -> None:
        before = self.key
        self.shown = arrange(self.source, self.state, self._written)
        keys = [line.key for line in self.shown.lines]
        # The cursor belongs to a row, not to a line: sorting and new rows move both.
        self.cursor = keys.index(before) if before in keys else min(self.cursor, len(keys) - 1)
        self.cursor = max(self.cursor, 0)
        self.column = min(self.column, max(len(self.shown.columns) - 1, 0))
        self.virtual_size = Size(self.size.width, len(keys) + HEADER)
        self._keep_in_view()
        self.refresh()
        self.post_message(self.Arranged())
        self.post_message(self.Highlighted())

    def on_resize(self) -> None:
        """Keep cursor and column in view."""
        self.virtual_size = Size(self.size.width, len(self.shown.lines) + HEADER)
        self._keep_in_view()
        self.refresh()
        self.post_message(self.Arranged())

    def action_move(self, rows: int) -> None:
        self._go(self.cursor + rows)

    def go_to(self, key: str) -> None:
        keys = [line.key for line in self.shown.lines]
        if key in keys:
            self._go(keys.index(key))

    def action_page(self, pages: int) -> None:
        self._go(self.cursor + pages * max(self.size.height - HEADER - 1, 1))

    def action_column(self, columns: int) -> None:
        last = max(len(self.shown.columns) - 1, 0)
        self.column = min(max(self.column + columns, 0), last)
        self._keep_in_view()
        self.refresh()
        self.post_message(self.Arranged())

    def action_sort(self) -> None:
        if self.shown.columns:
            self.choose_state(self.state.sorted_by(self.shown.columns[self.column]))

    def action_pin(self) -> None:
        if self.key is not None:
            self.choose_state(self.state.with_pin(self.key))

    def action_baseline(self) -> None:
        if self.key is not None:
            self.choose_state(self.state.with_baseline(self.key))

    def action_columns(self) -> None:
        """Let columns be chosen from a list of all."""
        from trnbench.tui.picker import Picker

        marked = self.chosen_columns or self.shown.columns

        def chosen(keys: tuple[str, ...] | None) -> None:
            if keys is not None:
                self.choose_columns(keys)

        known = [*self.all_columns.items()]
        self.app.push_screen(Picker("columns", known, marked, several=True), chosen)

    def action_filter(self) -> None:
        self._open_filter()

    def action_choose(self) -> None:
        if self.row is not None:
            self.post_message(self.Chosen(self, self.row))

    def on_click(self, event: events.Click) -> None:
        """Sort by a heading, move to a row, choose the row under the cursor."""
        if event.y < HEADER:
            column = self._column_at(event.x)
            if column is not None:
                self.column = column
                self.action_sort()
            return
        row = event.y - HEADER + self.scroll_offset.y
        if row == self.cursor and event.chain > 1:
            self.action_choose()
        elif row < len(self.shown.lines):
            self._go(row)

    def _go(self, row: int) -> None:
        last = len(self.shown.lines) - 1
        self.cursor = min(max(row, 0), max(last, 0))
        self._keep_in_view()
        self.refresh()
        self.post_message(self.Highlighted())

    def _keep_in_view(self) -> None:
        room = max(self.size.height - HEADER, 1)
        top = int(self.scroll_offset.y)
        if self.cursor < top:
            self.scroll_to(y=self.cursor, animate=False, immediate=True)
        elif self.cursor >= top + room:
            self.scroll_to(y=self.cursor - room + 1, animate=False, immediate=True)
        if self.column < self._first_column:
            self._first_column = max(self.column, 1)
        while self.column > self._first_column and self.column in self._partly_from(
            self._first_column
        ):
            self._first_column += 1
        # Use the room to the right before hiding anything to the left.
        while self._first_column > 1 and not self._partly_from(self._first_column - 1):
            self._first_column -= 1

    def _wide(self, column: int) -> int:
        width = self.shown.widths[column]
        most = max(int(FIRST_SHARE * self.size.width), LEAST_FIRST)
        return min(width, most) if column == 0 else width

    @property
    def _in_view(self) -> dict[int, int]:
        return self._widths_from(self._first_column)

    def _widths_from(self, first: int) -> dict[int, int]:
        """The columns in view, with the cells of each, if `first` follows the first one.

        A text for which there is not all of its room is cut, not hidden; a number never is.
        """
        if not self.shown.widths:
            return {}
        ranges = {column.key for column in self.source.report.columns if column.interval}
        widths = {0: self._wide(0)}
        room = self.size.width - 1 - GUTTER - widths[0]
        for i in range(first, len(self.shown.widths)):
            room -= GAP
            number = self.shown.right[i] or self.shown.columns[i] in ranges
            wide = self._wide(i)
            widths[i] = wide if number or room < LEAST_CUT else min(wide, room)
            room -= widths[i]
            if room < 0:
                del widths[i]
                break
        return widths

    def _partly_from(self, first: int) -> list[int]:
        shown = self._widths_from(first)
        return [i for i in range(first, len(self.shown.widths)) if shown.get(i) != self._wide(i)]

    def _column_at(self, x: int) -> int | None:
        at = GUTTER
        for i, width in self._in_view.items():
            at += width + GAP
            if x < at:
                return i
        return None

    def render_line(self, y: int) -> Strip:
        """One line of the screen."""
        width = self.size.width
        if y < HEADER:
            return self._header(width)
        number = y - HEADER + int(self.scroll_offset.y)
        if number >= len(self.shown.lines):
            return Strip.blank(width, self.rich_style)
        return self._line(number, self.shown.lines[number], width)

    def _header(self, width: int) -> Strip:
        plain = self.get_component_rich_style("result-table--header")
        marked = self.get_component_rich_style("result-table--column")
        segments = [Segment(" " * GUTTER, plain)]
        for i, wide in self._in_view.items():
            text = self._padded(self.shown.headings[i], i, wide)
            segments.append(Segment(text, marked if i == self.column else plain))
            segments.append(Segment(" " * GAP, plain))
        return Strip(segments).adjust_cell_length(width, plain)

    def _line(self, number: int, line: Line, width: int) -> Strip:
        style = self.rich_style
        if line.lifted:
            style += self._over("result-table--pinned")
        if line.no:
            style += self._over("result-table--no")
        if self.stale:
            style += self._over("result-table--stale")
        if number == self.cursor:
            style += self.get_component_rich_style("result-table--cursor")
        head = ">" if number == self.cursor else " "
        cells = [
            self._padded(line.cells[i], i, wide) + " " * GAP for i, wide in self._in_view.items()
        ]
        return Strip([Segment(f"{head}{line.mark}{''.join(cells)}", style)]).adjust_cell_length(
            width, style
        )

    def _over(self, component: str) -> Style:
        # Without a background of its own the cell keeps that of its row.
        style = self.get_component_rich_style(component, partial=True)
        return Style(color=style.color, bold=style.bold, dim=style.dim, italic=style.italic)

    def _padded(self, text: str, column: int, width: int) -> str:
        if len(text) > width:
            text = text[: width - len(CUT)] + CUT
        return text.rjust(width) if self.shown.right[column] else text.ljust(width)
