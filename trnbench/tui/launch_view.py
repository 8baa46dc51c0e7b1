"""What Compare, Layouts and Plan share: a row that is marked can be launched."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from trnbench.show.row import Row
from trnbench.tui.view import View, hidden


class LaunchingView(View):
    """A view whose rows have all that a training job needs to be started."""

    BINDINGS: ClassVar[list[BindingType]] = [
        hidden(
            "L",
            "launch",
            "Launch",
            "view.launch",
            "Files that start the marked row (Compare, Layouts, Plan)",
        )
    ]

    def launch_row(self) -> Row | None:
        """The row to launch: the row under the cursor, if runnable."""
        row = None if self.table is None else self.table.row
        return row if row is not None and row.get("step_time_s") else None

    def action_launch(self) -> None:
        """Show the files that start the row."""
        from trnbench.tui.launch_screen import LaunchScreen

        row = self.launch_row()
        if row is None:
            self.notify("no row that can run is marked: nothing to launch", severity="warning")
        else:
            self.app.push_screen(LaunchScreen(dict(row), self.trnbench.folder))
