"""A question for a file's name, asked over the view."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static


class AskPath(ModalScreen[str | None]):
    """Ends with what was typed, or with None."""

    DEFAULT_CSS = """
    AskPath { align: center middle; }
    AskPath > Vertical {
        width: 70; max-width: 95%; height: auto; border: round $primary; background: $surface;
        padding: 0 1;
    }
    AskPath Static { height: auto; color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Close", show=False)
    ]

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self._title = title
        self._text = text

    def compose(self) -> ComposeResult:
        """Yield the question."""
        with Vertical() as frame:
            frame.border_title = self._title
            yield Input(self._text, compact=True)
            yield Static("Enter takes it, Esc leaves", markup=False)

    @on(Input.Submitted)
    def _taken(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(event.value.strip() or None)
