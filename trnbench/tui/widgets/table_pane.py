"""A result table with its filter line above and its count below."""

from __future__ import annotations

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input, Static

from trnbench.facts.units import counted
from trnbench.tui.widgets.frame import short_of_lines
from trnbench.tui.widgets.line_input import Completer, LineInput
from trnbench.tui.widgets.result_table import ResultTable

JOINT = "  |  "
LEAST_TABLE = 4
"""Lines of the smallest table, as its own style says."""


class TablePane(Vertical):
    """The table, the number of shown rows, and a line for filters that opens on demand."""

    DEFAULT_CSS = """
    TablePane { height: 1fr; }
    TablePane > Input { display: none; height: 1; }
    TablePane > .count { height: auto; max-height: 2; color: $text-muted; }
    """

    def __init__(self, *, id: str) -> None:
        super().__init__(id=f"{id}-pane")
        self._table = ResultTable(id=id, open_filter=self._open)
        self._note = self._legend = self._standing = ""
        self._laid_out = (0, 0, 0)

    def compose(self) -> ComposeResult:
        """Yield filter line, table and count."""
        yield LineInput(
            placeholder="words, or comparisons such as mfu>0.4 nodes<=64",
            compact=True,
            suggester=Completer(lambda: self._table.shown.columns, least=2),
        )
        yield self._table
        yield Static("", classes="count", markup=False)

    def say(self, note: str, legend: str = "") -> None:
        """Show a note behind the count, and a legend where that costs no line that is needed."""
        self._note, self._legend = note, legend
        self.count()

    def stand(self, standing: str) -> None:
        """Say before the note that the rows answer an older question."""
        self._standing = standing
        self.count()

    def _open(self) -> None:
        line = self.query_one(Input)
        line.display = True
        self.count()
        # At once, not after the next refresh: keys may be waiting already.
        self.screen.set_focus(line)

    @on(events.Click, ".count")
    def _onward(self) -> None:
        self._table.action_column(1)

    @on(Input.Changed)
    def _filter(self, event: Input.Changed) -> None:
        event.stop()
        self._table.filter_by(event.value)

    @on(Input.Submitted)
    def _done(self, event: Input.Submitted) -> None:
        event.stop()
        self.leave_filter()

    def leave_filter(self) -> None:
        # At once, as in `_open`.
        self.screen.set_focus(self._table)
        self.query_one(Input).display = False
        self.count()

    @property
    def filtered(self) -> bool:
        return bool(self._table.state.words)

    def clear_filter(self) -> None:
        self.query_one(Input).value = ""
        self._table.filter_by("")
        self.leave_filter()

    @on(ResultTable.Arranged)
    def count(self) -> None:
        """Write how many rows and columns are shown."""
        shown = self._table.shown
        words = self._table.state.words
        told_rows = f"filter: {words} ({shown.of_all})" if words else shown.count
        parts = [*filter(None, (told_rows, shown.reason))]
        hidden = self._table.hidden_columns
        if hidden:
            parts.append(f"{counted(len(hidden), 'more column')} ->")
        parts += filter(None, (self._standing, self._note))
        text, whole = JOINT.join(parts), JOINT.join(filter(None, (*parts, self._legend)))
        wide = not short_of_lines(self.screen) or len(whole) <= self.size.width
        text = whole if wide else text
        # A short table leaves the room that it does not need to what stands below it.
        below = 1 if len(text) <= self.size.width else 2
        rows = max(shown.total + 1, LEAST_TABLE)
        height = rows + below + self.query_one(Input).display
        # To lay out the whole screen anew is most of what a key costs.
        others = (height, below, self.size.width) != self._laid_out
        self._laid_out = height, below, self.size.width
        self.query_one(".count", Static).update(text, layout=others)
        if others:
            self.styles.max_height = height
