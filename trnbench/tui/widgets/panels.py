"""Small panels: scrolling text, a fault, and the question that a view waits for."""

from __future__ import annotations

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widgets import Static


class TextPanel(VerticalScroll):
    """A text that may be larger than its place, plain or with the escape codes of a drawing.

    `wrap` breaks long lines; drawings keep theirs.
    """

    DEFAULT_CSS = """
    TextPanel { height: 1fr; overflow-x: auto; scrollbar-size-vertical: 1; }
    TextPanel > Static { width: auto; min-width: 100%; height: auto; }
    TextPanel.-wrapped > Static { width: 100%; }
    """

    class Resized(Message):
        """There is more room, or less."""

    def __init__(self, *, id: str, wrap: bool = False) -> None:
        super().__init__(id=id, classes="-wrapped" if wrap else None)
        self.text = ""

    def compose(self) -> ComposeResult:
        yield Static("", markup=False)

    def on_resize(self) -> None:
        self.post_message(self.Resized())

    @property
    def room(self) -> int:
        """Columns that a line may have beside the bar that scrolls."""
        return self.size.width - 1

    def show(self, text: str | Text) -> None:
        drawn = Text.from_ansi(text) if isinstance(text, str) else text
        self.text = drawn.plain
        self.query_one(Static).update(drawn)


class ErrorPanel(Static):
    """A fault and its remedy; hidden without a fault."""

    DEFAULT_CSS = """
    ErrorPanel {
        display: none; height: auto; max-height: 8; padding: 0 1;
        border: round $error; color: $foreground;
    }
    ErrorPanel.-shown { display: block; }
    """

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self.text = ""

    def say(self, title: str, detail: str = "") -> None:
        """Show a fault."""
        self.text = f"{title}\n{detail}".strip()
        self.border_title = "error"
        self.update(self.text)
        self.add_class("-shown")

    def clear(self) -> None:
        self.text = ""
        self.remove_class("-shown")
