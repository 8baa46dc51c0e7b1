"""A result table in a frame: what its rows are above, how many are shown below."""

from __future__ import annotations

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input

from trnbench.facts.units import counted
from trnbench.tui.widgets.line_input import Completer, LineInput
from trnbench.tui.widgets.result_table import ResultTable

JOINT = "  |  "
FRAME = 2
LEAST_TABLE = 4
"""Lines of the smallest table, as its own style says."""


class TablePane(Vertical):
    """The table, the number of shown rows, and a line for filters that opens on demand."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=f"{id}-pane")
        self._table = ResultTable(id=id, open_filter=self._open)
        self._note = self._standing = ""
        self._laid_out = 0
        self.told = ""
        """What stands above and below the rows."""

    def compose(self) -> ComposeResult:
        yield LineInput(
            placeholder="words, or comparisons such as mfu>0.4 nodes<=64",
            compact=True,
            suggester=Completer(lambda: self._table.shown.columns, least=2),
        )
        yield self._table

    def say(self, note: str) -> None:
        """Say above the rows what they are."""
        self._note = note
        self.count()

    def stand(self, standing: str) -> None:
        """Say in place of the note that the rows answer an older question."""
        self._standing = standing
        self.count()

    def _open(self) -> None:
        line = self.query_one(Input)
        line.display = True
        self.count()
        self.screen.set_focus(line)

    def on_click(self, event: events.Click) -> None:
        if event.screen_y == self.region.bottom - 1:
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
        shown, words = self._table.shown, self._table.state.words
        parts = [f"filter: {words} ({shown.of_all})" if words else shown.count, shown.reason]
        hidden = self._table.hidden_columns
        parts += [f"{counted(len(hidden), 'more column')} ->"] if hidden else []
        below = Content(JOINT.join(filter(None, parts)))
        self.told = f"{self._standing or self._note}\n{below.plain}"
        self.border_subtitle = below.stylize("$text-warning") if words else below
        above = Content(self._standing or self._note)
        self.border_title = above.stylize("$text-warning") if self._standing else above
        # A short table leaves the room that it does not need to what stands below it.
        height = max(shown.total + 1, LEAST_TABLE) + FRAME + self.query_one(Input).display
        # To lay out the whole screen anew is most of what a key costs.
        if height != self._laid_out:
            self._laid_out = height
            self.styles.max_height = height
