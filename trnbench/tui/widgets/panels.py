"""Small panels: scrolling text, a fault, and several pictures in one place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import Container
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from trnbench.tui.widgets.chart import Chart
from trnbench.tui.widgets.frame import ScrolledPanel, roomy

if TYPE_CHECKING:
    from trnbench.tui.widgets.bars import StackedBars

MOST = 4
"""Pictures where there is room to the side, too."""
FOR_TWO = 20
"""Lines from which on the next picture stands below the chosen one."""
GAP, FRAME = "  ", 6
Picture: TypeAlias = "TextPanel | StackedBars | Chart"


class TextPanel(ScrolledPanel):
    """A text that may be larger than its place, plain or with the escape codes of a drawing.

    `wrap` breaks long lines; drawings keep theirs.
    """

    class Resized(Message):
        """The room has become more, or less."""

    def __init__(self, *, wrap: bool = False) -> None:
        super().__init__(classes="-wrapped" if wrap else None)
        self.text = ""
        self.drawn = Text()

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
        if drawn != self.drawn:  # to lay out the screen anew is most of what a key costs
            self.drawn, self.text = drawn, drawn.plain
            self.query_one(Static).update(drawn)


class ErrorPanel(Static):
    """A fault and its remedy; hidden without a fault."""

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self.text = ""

    def say(self, title: str, detail: str = "") -> None:
        self.text = f"{title}\n{detail}".strip()
        self.border_title = "error"
        self.update(self.text)
        self.add_class("-shown")

    def clear(self) -> None:
        self.text = ""
        self.remove_class("-shown")


class PictureSwitch(Container):
    """Shows one of its pictures, or the next ones beside it; a picture shows what it is given.

    The frame of the chosen picture names all of them.
    """

    class Turned(Message):
        """Another picture is shown."""

    def __init__(self, pictures: Mapping[str, Picture]) -> None:
        super().__init__()
        self._pictures = dict(pictures)
        self.shown = next(iter(pictures))
        for name, picture in pictures.items():
            picture.id = "picture-" + re.sub("[^a-z]", "-", name)
            picture.add_class("picture")
        self._arrange(1)

    def compose(self) -> ComposeResult:
        yield from self._pictures.values()

    def on_resize(self) -> None:
        """Show more pictures where there is room, and their names as far as they fit."""
        before = self.visible_pictures
        self._arrange(MOST if roomy(self.screen) else 1 + (self.size.height >= FOR_TWO))
        if set(self.visible_pictures) - set(before):
            self.post_message(self.Turned())

    @property
    def picture(self) -> Picture:
        return self._pictures[self.shown]

    @property
    def visible_pictures(self) -> tuple[str, ...]:
        """Names of the pictures that are shown, the chosen one first."""
        return self._visible

    def of(self, name: str) -> Picture:
        return self._pictures[name]

    def turn(self, by: int = 1) -> None:
        names = list(self._pictures)
        self.turn_to(names[(names.index(self.shown) + by) % len(names)])

    def turn_to(self, name: str) -> None:
        """Show a picture by name, if there is such a picture."""
        if name in self._pictures:
            self.shown = name
            self._arrange(len(self._visible))
            self.post_message(self.Turned())

    def on_click(self, event: events.Click) -> None:
        """Show the picture whose name was clicked in the frame of the chosen one."""
        place = self.picture.region
        if event.screen_y != place.y:
            return
        at = place.x + 2
        for name in self._names() if self._names_fit else ():
            at += len(name) + len(GAP)
            if event.screen_x < at:
                self.turn_to(name)
                return
        self.turn()

    def _names(self) -> list[str]:
        return [f"[{name}]" if name == self.shown else name for name in self._pictures]

    @property
    def _names_fit(self) -> bool:
        wide = self.size.width // (1 + self.has_class("-of-4")) - FRAME
        return len(GAP.join(self._names())) <= max(self.picture.size.width, wide)

    def _arrange(self, count: int) -> None:
        names = list(self._pictures)
        at = names.index(self.shown)
        self._visible = tuple((names[at:] + names[:at])[:count])
        for wanted in (3, 4):
            self.set_class(len(self._visible) == wanted, f"-of-{wanted}")
        self.set_class(isinstance(self.picture, Chart), "-plotted")
        for name, picture in self._pictures.items():
            picture.display = name in self._visible
            picture.set_class(name == self.shown, "-chosen")
            picture.border_title = Content(name)
        if len(names) > 1 and self._names_fit:
            parts = [
                Content.styled(name, "bold $accent" if name[0] == "[" else "")
                for name in self._names()
            ]
            self.picture.border_title = Content(GAP).join(parts)
        elif len(names) > 1:
            self.picture.border_title = Content(f"{self.shown}  {at + 1} of {len(names)}, c: next")
        for number, name in enumerate(self._visible):
            self.move_child(self._pictures[name], before=number) if self.is_mounted else None
