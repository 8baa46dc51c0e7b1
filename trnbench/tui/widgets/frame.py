"""The frame of every view: places and views above, where one is, and the keys below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import ClassVar, cast

from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.reactive import Reactive
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from trnbench.tui.views import PLACE_OF, PLACES, VIEWS

SEPARATOR = " | "
STEP = " > "
LAST_KEYS = 2
"""So many keys at the end, those of help and leaving, are there however narrow a terminal is."""


def roomy(screen: Screen[object]) -> bool:
    """Tell whether a screen has room for more panels than those of the cursor."""
    return screen.has_class("-wide") and screen.has_class("-tall")


class SizedNow:
    """A screen that is laid out for the terminal as it is, whatever size a message tells.

    A layout for another size sends the screen a message of that size, behind those that wait.
    Two sizes on their way would else take turns for ever, each with a layout of its own.
    """

    def on_resize(self, event: events.Resize) -> None:
        event.size = cast("Screen[object]", self).app.size


class ScrolledPanel(VerticalScroll):
    """A panel that scrolls; the size of its content comes from a layout, and asks for no other."""

    virtual_size = Reactive(Size(0, 0))


def offered(key: str, action: str, label: str, id: str, tooltip: str = "") -> Binding:
    """A binding that the line of keys below the view shows."""
    return Binding(key, action, label, tooltip=tooltip, id=id)


def hidden(
    key: str, action: str, label: str, id: str, tooltip: str = "", *, priority: bool = False
) -> Binding:
    """A binding that only the list of all keys shows."""
    return Binding(key, action, label, show=False, priority=priority, tooltip=tooltip, id=id)


def fitted(text: str, width: int, lines: int) -> str:
    """The first sentences of a text that fit into so many lines; at least one."""
    sentences = text.split(". ")
    for count in range(len(sentences), 1, -1):
        told = ". ".join(sentences[:count]) + "." * (count < len(sentences))
        if sum(len(wrap(line, max(width, 1))) for line in told.splitlines()) <= lines:
            return told
    return sentences[0] + "." * (len(sentences) > 1)


class ViewBar(Static):
    """The places by number, and the views of the place one is in; a click goes there."""

    class Wanted(Message):
        """The user wants to see another view, or the view of a place that was seen last."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(self, current: str) -> None:
        super().__init__("", markup=False)
        self._current = current

    def on_resize(self, event: events.Resize) -> None:
        """Write whole names where there is room, and places in short where there is not."""
        for gap, most in ((3, 99), (2, 99), (1, 99), (1, 4), (1, 0)):
            text = self._written(gap, most)
            if len(text) <= event.size.width:
                break
        self.update(text, layout=False)

    def _written(self, gap: int, most: int) -> Text:
        """The bar with so many columns between views; other places have at most so many letters."""
        text = Text(" ", no_wrap=True)
        for number, (place, views) in enumerate(PLACES.items(), start=1):
            here = place == PLACE_OF[self._current]
            name = f"{number} {place if here else place[:most]}".strip()
            text.append(name, Style(bold=here, meta={"go": place}))
            text.append(" " * gap)
            for view in views if here else ():
                shown = view == self._current
                label = f"[{VIEWS[view][0]}]" if shown else f" {VIEWS[view][0]} "
                text.append(label, Style(bold=shown, reverse=shown, meta={"go": view}))
            text.append(" " * (gap if here else 0))
        return text

    def on_click(self, event: events.Click) -> None:
        """Go to the place or the view whose name was clicked."""
        if go := event.style.meta.get("go"):
            self.post_message(self.Wanted(go))


class Crumbs(Static):
    """Place of the user: the question, the row, the view; what is left of the line has details."""

    def say(self, steps: Sequence[str], details: str = "") -> None:
        told = [step for step in steps if step]
        text = Content(STEP.join(told[:-1]) + STEP * (len(told) > 1))
        text += Content.styled("".join(told[-1:]), "bold")
        self.update(text + Content(f"   {details}" if details else ""), layout=False)


class StatusLine(Static):
    """Sources of the numbers to the left, the current activity to the right."""

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

    COMPONENT_CLASSES: ClassVar[set[str]] = {"key-line--key", "key-line--label"}
    ALLOW_SELECT = False

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._changed)

    def _changed(self, screen: Screen[object]) -> None:
        if self.app.app_focus:
            self.refresh()

    def _keys(self) -> Iterator[tuple[Binding, str]]:
        """Yield the bindings to show, those of this view before those that any table has."""
        active = [one for one in self.screen.active_bindings.values() if one.binding.show]
        own = self.screen.name or ""
        for mine in (True, False):
            for one in active:
                if (one.binding.id or "").partition(".")[0] == own or not mine:
                    yield one.binding, one.tooltip or one.binding.description

    def render(self) -> Text:
        """Keys with their actions; where not all fit, the last stay."""
        key_style = self.get_component_rich_style("key-line--key")
        label_style = self.get_component_rich_style("key-line--label")
        shown: dict[str, Text] = {}
        for binding, tip in self._keys():
            if binding.action not in shown:
                here = Style(meta={"key": binding.key, "tip": tip})
                text = Text().append(self.app.get_key_display(binding), key_style + here)
                shown[binding.action] = text.append(f" {binding.description}", label_style + here)
        keys = list(shown.values())
        while len(keys) > LAST_KEYS and sum(len(key) + 2 for key in keys) > self.size.width + 1:
            del keys[-LAST_KEYS - 1]
        return Text("  ", no_wrap=True, end="").join(keys)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        self.tooltip = event.style.meta.get("tip")

    def on_click(self, event: events.Click) -> None:
        if key := event.style.meta.get("key"):
            self.app.simulate_key(key)
