"""The frame of every view: the names of all views above, the status line below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text
from textual import events
from textual.message import Message
from textual.widgets import Static

SEPARATOR = " | "


class ViewBar(Static):
    """The views by number; a click goes there."""

    DEFAULT_CSS = """
    ViewBar { height: 1; background: $panel; color: $text-muted; }
    """

    @dataclass
    class Wanted(Message):
        """The user wants to see another view."""

        name: str

    def __init__(self, views: Sequence[tuple[str, str]], current: str) -> None:
        super().__init__("", markup=False)
        self._views = tuple(views)
        self._current = current
        self._ends: list[tuple[int, str]] = []

    def on_resize(self, event: events.Resize) -> None:
        """Write whole names where there is room, and short ones where there is not."""
        for most in (99, 6, 4):
            labels = [
                (name, f" {number} {title[:most]} ")
                for number, (name, title) in enumerate(self._views, start=1)
            ]
            if sum(len(label) for _, label in labels) <= event.size.width:
                break
        text, at = Text(), 0
        self._ends = []
        for name, label in labels:
            here = name == self._current
            text.append(f"[{label[1:-1]}]" if here else label, style="bold reverse" if here else "")
            at += len(label)
            self._ends.append((at, name))
        self.update(text)

    def on_click(self, event: events.Click) -> None:
        """Go to the view whose name was clicked."""
        for end, name in self._ends:
            if event.x < end:
                self.post_message(self.Wanted(name))
                return


class StatusLine(Static):
    """Where the numbers come from to the left, the current activity to the right."""

    DEFAULT_CSS = """
    StatusLine { height: 1; background: $panel; color: $foreground; padding: 0 1; }
    """

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self._facts: tuple[str, ...] = ()
        self.activity = ""

    def on_resize(self) -> None:
        """Write anew."""
        self._write()

    def state(self, facts: Sequence[str]) -> None:
        """Write where the numbers come from, the most important first."""
        self._facts = tuple(facts)
        self._write()

    def say(self, activity: str) -> None:
        """Write the current activity."""
        self.activity = activity
        self._write()

    def _write(self) -> None:
        width = self.content_size.width
        if not width:
            return
        right = self.activity[:width]
        room = width - len(right) - len(SEPARATOR)
        facts = list(self._facts)
        while facts and len(SEPARATOR.join(facts)) > room:
            facts.pop()
        left = SEPARATOR.join(facts)
        self.update(left + right.rjust(width - len(left)))
