"""Several pictures in one place, one at a time; the names of all stand above."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widget import Widget
from textual.widgets import ContentSwitcher, Static


class PictureSwitch(Vertical):
    """Shows one of its pictures; `turn` shows the next."""

    DEFAULT_CSS = """
    PictureSwitch { height: 1fr; }
    PictureSwitch > .names { height: 1; color: $text-muted; }
    PictureSwitch > ContentSwitcher { height: 1fr; }
    """

    class Turned(Message):
        """Another picture is shown."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(self, pictures: Sequence[tuple[str, Widget]], *, id: str) -> None:
        super().__init__(id=id)
        self._pictures = tuple(pictures)

    def compose(self) -> ComposeResult:
        """Yield names and pictures."""
        yield Static("", classes="names", markup=False)
        with ContentSwitcher(initial=self._pictures[0][1].id):
            for _, picture in self._pictures:
                yield picture

    def on_mount(self) -> None:
        """Write the names."""
        self._write()

    @property
    def shown(self) -> str:
        """The name of the picture that is shown."""
        current = self.query_one(ContentSwitcher).current
        return next(name for name, picture in self._pictures if picture.id == current)

    def turn(self, by: int = 1) -> None:
        """Show the next picture."""
        names = [name for name, _ in self._pictures]
        self.turn_to(names[(names.index(self.shown) + by) % len(names)])

    def turn_to(self, name: str) -> None:
        """Show a picture by name, if there is one of it."""
        for known, picture in self._pictures:
            if known == name:
                self.query_one(ContentSwitcher).current = picture.id
                self._write()
                self.post_message(self.Turned(name))

    def _write(self) -> None:
        text = Text("c: ", style="dim")
        for name, _ in self._pictures:
            here = name == self.shown
            text.append(f"[{name}]" if here else f" {name} ", style="bold" if here else "dim")
        self.query_one(".names", Static).update(text)
