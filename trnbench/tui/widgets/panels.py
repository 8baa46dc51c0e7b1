"""Small panels: scrolling text, a fault, and several pictures in one place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.message import Message
from textual.widgets import ContentSwitcher, Static

if TYPE_CHECKING:
    from trnbench.tui.widgets.bars import StackedBars
    from trnbench.tui.widgets.chart import Chart

HEAD = "c: "
Picture: TypeAlias = "TextPanel | StackedBars | Chart"


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
        """The room has become more, or less."""

    def __init__(self, *, wrap: bool = False) -> None:
        super().__init__(classes="-wrapped" if wrap else None)
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


class PictureSwitch(Vertical):
    """Shows one of its pictures; `turn` shows the next. A picture shows what `show` is given."""

    DEFAULT_CSS = """
    PictureSwitch { height: 1fr; }
    PictureSwitch > .names { height: 1; color: $text-muted; }
    PictureSwitch > ContentSwitcher { height: 1fr; }
    """

    class Turned(Message):
        """Another picture is shown."""

    def __init__(self, pictures: Mapping[str, Picture]) -> None:
        super().__init__()
        self._pictures = dict(pictures)
        self.shown = next(iter(pictures))
        for name, picture in pictures.items():
            picture.id = "picture-" + re.sub("[^a-z]", "-", name)

    def compose(self) -> ComposeResult:
        """Yield names and pictures."""
        yield Static("", classes="names", markup=False)
        with ContentSwitcher(initial=self.picture.id):
            yield from self._pictures.values()

    def on_mount(self) -> None:
        self._write()

    @property
    def picture(self) -> Picture:
        return self._pictures[self.shown]

    def turn(self, by: int = 1) -> None:
        names = list(self._pictures)
        self.turn_to(names[(names.index(self.shown) + by) % len(names)])

    def turn_to(self, name: str) -> None:
        """Show a picture by name, if there is such a picture."""
        if name in self._pictures:
            self.shown = name
            self.query_one(ContentSwitcher).current = self.picture.id
            self._write()
            self.post_message(self.Turned())

    @on(events.Click, ".names")
    def _clicked(self, event: events.Click) -> None:
        """Show the picture whose name was clicked."""
        at = len(HEAD)
        for name in self._pictures:
            at += len(name) + 2
            if event.x < at:
                self.turn_to(name)
                return

    def _write(self) -> None:
        text = Text(HEAD)
        for name in self._pictures:
            here = name == self.shown
            text.append(f"[{name}]" if here else f" {name} ", style="bold" if here else "")
        self.query_one(".names", Static).update(text, layout=False)
