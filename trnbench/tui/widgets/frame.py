"""The frame of every view: the names of all views above, status line and keys below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from trnbench.tui.views import VIEWS

SEPARATOR = " | "
LAST_KEYS = 2
"""So many keys at the end, those of help and leaving, are there however narrow a terminal is."""


def short_of_lines(screen: Screen[object]) -> bool:
    """Tell whether a line of a screen is worth more than lines that say the obvious."""
    return screen.has_class("-short") or screen.has_class("-low")


def offered(
    key: str, action: str, label: str, id: str, tooltip: str = "", *, priority: bool = False
) -> Binding:
    """A binding that the line of keys below the view shows."""
    return Binding(key, action, label, priority=priority, tooltip=tooltip, id=id)


def hidden(
    key: str, action: str, label: str, id: str, tooltip: str = "", *, priority: bool = False
) -> Binding:
    """A binding that only the list of all keys shows."""
    return Binding(key, action, label, show=False, priority=priority, tooltip=tooltip, id=id)


class ViewBar(Static):
    """The views by number; a click goes there."""

    DEFAULT_CSS = """
    ViewBar { height: 1; background: $panel; color: $text-muted; }
    """

    class Wanted(Message):
        """The user wants to see another view."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(self, current: str) -> None:
        super().__init__("", markup=False)
        self._current = current
        self._ends: list[tuple[int, str]] = []

    def on_resize(self, event: events.Resize) -> None:
        """Write whole names where there is room, and short ones where there is not."""
        for labels in self._labels():
            if sum(map(len, labels)) < event.size.width:
                break
        text = Text()
        self._ends = []
        for name, label in zip(VIEWS, labels, strict=True):
            here = name == self._current
            shown = f"[{label.strip()}]" if here else label
            text.append(shown, style="bold reverse" if here else "")
            self._ends.append((len(text), name))
        self.update(text, layout=False)

    def _labels(self) -> Iterator[list[str]]:
        """Yield the labels of all views, from long to short."""
        titles = (title for title, _ in VIEWS.values())
        numbered = [(number % 10, title) for number, title in enumerate(titles, start=1)]
        yield [f" {number} {title} " for number, title in numbered]
        yield [f"{number} {title} " for number, title in numbered]
        yield [f"{number}{title} " for number, title in numbered]
        here, _ = VIEWS[self._current]
        for most in (6, 5, 4, 3, 2, 1):
            yield [
                f"{number} {title if title == here else title[:most]} "
                for number, title in numbered
            ]
        yield [f"{number} {title if title == here else ''}" for number, title in numbered]

    def on_click(self, event: events.Click) -> None:
        """Go to the view whose name was clicked."""
        for end, name in self._ends:
            if event.x < end:
                self.post_message(self.Wanted(name))
                return


class StatusLine(Static):
    """Sources of the numbers to the left, the current activity to the right."""

    DEFAULT_CSS = """
    StatusLine { height: 1; background: $panel; color: $foreground; padding: 0 1; }
    """

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self._facts: tuple[str, ...] = ()
        self.activity = ""

    def on_resize(self) -> None:
        self._write()

    def state(self, facts: Sequence[str]) -> None:
        """Write where the numbers come from, the most important first."""
        self._facts = tuple(facts)
        self._write()

    def say(self, activity: str) -> None:
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
        self.update(left + right.rjust(width - len(left)), layout=False)


class KeyLine(Widget):
    """The keys that matter here, in a line; a click on a key is as good as the key.

    One widget, drawn anew when keys change. Textual's footer is a widget for every key, made anew
    a dozen times at the start, and one more to lay out for each whenever anything changes.
    """

    DEFAULT_CSS = """
    KeyLine {
        dock: bottom; height: 1; color: $footer-foreground; background: $footer-background;
    }
    KeyLine > .key-line--key {
        color: $footer-key-foreground; background: $footer-key-background; text-style: bold;
    }
    KeyLine > .key-line--label {
        color: $footer-description-foreground; background: $footer-description-background;
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {"key-line--key", "key-line--label"}
    ALLOW_SELECT = False

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._changed)

    def _changed(self, screen: Screen[object]) -> None:
        if self.app.app_focus:
            self.refresh()

    def render(self) -> Text:
        """Keys with their actions; where not all fit, the last stay."""
        key_style = self.get_component_rich_style("key-line--key")
        label_style = self.get_component_rich_style("key-line--label")
        shown: dict[str, Text] = {}
        for active in self.screen.active_bindings.values():
            binding = active.binding
            if binding.show and binding.action not in shown:
                tip = active.tooltip or binding.description
                here = Style(meta={"key": binding.key, "tip": tip})
                text = Text().append(self.app.get_key_display(binding), key_style + here)
                shown[binding.action] = text.append(f" {binding.description}", label_style + here)
        keys = list(shown.values())
        while len(keys) > LAST_KEYS and sum(len(key) + 1 for key in keys) > self.size.width + 1:
            del keys[-LAST_KEYS - 1]
        return Text(" ", no_wrap=True, end="").join(keys)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        self.tooltip = event.style.meta.get("tip")

    def on_click(self, event: events.Click) -> None:
        if key := event.style.meta.get("key"):
            self.app.simulate_key(key)
