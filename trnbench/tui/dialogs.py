"""Dialogs over the view: yes or no, the name of a file, a place to jump to."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen, ScreenResultType
from textual.suggester import Suggester
from textual.widget import Widget
from textual.widgets import Input, Static


class Dialog(ModalScreen[ScreenResultType]):
    """Lies over a view and ends once: of a key that is pressed twice, the second is nobody's."""

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        return super().dismiss(result) if self.app.screen is self else AwaitComplete()


class Confirm(Dialog[bool]):
    """Ends with True for yes."""

    DEFAULT_CSS = """
    Confirm { align: center middle; }
    Confirm > Static {
        width: auto; max-width: 90%; height: auto; padding: 1 2; border: round $warning;
        background: $surface;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter", "dismiss(True)", "Yes", show=False),
        Binding("n,escape", "dismiss(False)", "No", show=False),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        yield Static(f"{self._question}\n\ny: yes   n: no", markup=False)


class AskPath(Dialog[str | None]):
    """Ends with the typed text, or with None."""

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

    def __init__(self, title: str, text: str, suggester: Suggester | None = None) -> None:
        super().__init__()
        self._title = title
        self._text = text
        self._suggester = suggester

    def compose(self) -> ComposeResult:
        """Yield the question."""
        with Vertical() as frame:
            frame.border_title = self._title
            yield Input(self._text, compact=True, suggester=self._suggester)
            yield Static("right completes, Enter takes it, Esc leaves", markup=False)

    @on(Input.Submitted)
    def _taken(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(event.value.strip() or None)


class JumpScreen(Dialog[Widget | None]):
    """Shows the letters over the screen below; ends with the widget that was chosen."""

    DEFAULT_CSS = """
    JumpScreen { background: $background 20%; }
    JumpScreen > Static {
        position: absolute; width: 3; height: 1; background: $warning; color: $background;
        text-style: bold;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Close", show=False)
    ]

    def __init__(self, targets: Sequence[Widget]) -> None:
        super().__init__()
        self._targets = dict(zip(ascii_lowercase, targets, strict=False))

    def compose(self) -> ComposeResult:
        """Yield a letter for each target."""
        for letter, target in self._targets.items():
            label = Static(f" {letter} ", markup=False)
            label.styles.offset = (target.region.x, target.region.y)
            yield label

    def on_key(self, event: events.Key) -> None:
        if event.key in self._targets:
            event.stop()
            self.dismiss(self._targets[event.key])
