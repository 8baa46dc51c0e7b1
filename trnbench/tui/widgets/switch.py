"""Several pictures in the same place, one at a time; the names of all stand above."""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widget import Widget
from textual.widgets import ContentSwitcher, Static

HEAD = "c: "


class PictureSwitch(Vertical):
    """Shows one of its pictures; `turn` shows the next."""

    DEFAULT_CSS = """
    PictureSwitch { height: 1fr; }
    PictureSwitch > .names { height: 1; color: $text-muted; }
    PictureSwitch > ContentSwitcher { height: 1fr; }
    """

    class Turned(Message):
        """Another picture is shown."""

    def __init__(self, pictures: Mapping[str, Widget], *, id: str) -> None:
        super().__init__(id=id)
        self._pictures = dict(pictures)

    def compose(self) -> ComposeResult:
        """Yield names and pictures."""
        yield Static("", classes="names", markup=False)
        pictures = self._pictures.values()
        with ContentSwitcher(initial=next(iter(pictures)).id):
            yield from pictures

    def on_mount(self) -> None:
        self._write()

    @property
    def shown(self) -> str:
        current = self.query_one(ContentSwitcher).current
        return next(name for name, picture in self._pictures.items() if picture.id == current)

    def turn(self, by: int = 1) -> None:
        names = list(self._pictures)
        self.turn_to(names[(names.index(self.shown) + by) % len(names)])

    def turn_to(self, name: str) -> None:
        """Show a picture by name, if there is such a picture."""
        if name in self._pictures:
            self.query_one(ContentSwitcher).current = self._pictures[name].id
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
