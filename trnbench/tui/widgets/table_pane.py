"""A result table with its filter line above and its count below."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input, Static

from trnbench.tui.widgets.line_input import LineInput
from trnbench.tui.widgets.result_table import ResultTable


class TablePane(Vertical):
    """The table, a line to filter it that appears when wanted, and how many rows are shown."""

    DEFAULT_CSS = """
    TablePane { height: 1fr; }
    TablePane > Input { display: none; height: 1; }
    TablePane > .count { height: auto; max-height: 2; color: $text-muted; }
    """

    def __init__(self, *, id: str) -> None:
        super().__init__(id=f"{id}-pane")
        self._table = ResultTable(id=id, open_filter=self._open)
        self._note = ""

    def compose(self) -> ComposeResult:
        """Yield filter line, table and count."""
        yield LineInput(placeholder="words, or comparisons such as mfu>0.4 nodes<=64", compact=True)
        yield self._table
        yield Static("", classes="count", markup=False)

    def say(self, note: str) -> None:
        """Show a note behind the count."""
        self._note = note
        self.count()

    def _open(self) -> None:
        line = self.query_one(Input)
        line.display = True
        # At once, not after the next refresh: keys may be waiting already.
        self.screen.set_focus(line)

    @on(Input.Changed)
    def _filter(self, event: Input.Changed) -> None:
        event.stop()
        self._table.filter_by(event.value)

    @on(Input.Submitted)
    def _done(self, event: Input.Submitted) -> None:
        event.stop()
        self.leave_filter()

    def leave_filter(self) -> None:
        """Go back to the table; the filter stays if it has words."""
        line = self.query_one(Input)
        self._table.focus()
        line.display = bool(line.value)

    @on(ResultTable.Arranged)
    def count(self) -> None:
        """Write how many rows and columns are shown."""
        shown = self._table.shown
        parts = [shown.count]
        if shown.reason:
            parts.append(f"filter: {shown.reason}")
        hidden = self._table.hidden_columns
        if hidden:
            parts.append(f"{len(hidden)} more column{'' if len(hidden) == 1 else 's'} ->")
        if self._note:
            parts.append(self._note)
        self.query_one(".count", Static).update("  |  ".join(parts))
