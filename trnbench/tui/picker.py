"""A list of choices: letters search, space marks, Enter takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import shorten
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.fuzzy import Matcher
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from trnbench.tui.dialogs import Dialog
from trnbench.tui.widgets.line_input import LineInput


class Choices(OptionList):
    """A list of options; in a list without area, Textual lays out no lines, and no pages."""

    @property
    def _has_lines(self) -> bool:
        return bool(self.scrollable_content_region)

    def action_page_up(self) -> None:
        if self._has_lines:
            super().action_page_up()  # type: ignore[no-untyped-call]

    def action_page_down(self) -> None:
        if self._has_lines:
            super().action_page_down()  # type: ignore[no-untyped-call]


_CUT = "..."
"""Behind a text that is cut, where there is room for as much."""


class SearchLine(LineInput):
    """A line that leaves the space bar to the list: no name has a blank."""

    def check_consume_key(self, key: str, character: str | None) -> bool:
        return key != "space" and super().check_consume_key(key, character)


class Picker(Dialog[tuple[str, ...] | None]):
    """Ends with the marked names, or with the name under the cursor; or with None.

    `known` are names, each with what is to be known of it. With `several`, space marks.
    """

    LINE: ClassVar[type[LineInput]] = SearchLine
    NAME_WIDTH: ClassVar[int] = 26
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Close", show=False, priority=True),
        Binding("up", "move(-1)", "Up", show=False, priority=True),
        Binding("down", "move(1)", "Down", show=False, priority=True),
        Binding("pageup", "move(-10)", "Page up", show=False, priority=True),
        Binding("pagedown", "move(10)", "Page down", show=False, priority=True),
        Binding("space", "mark", "Mark", show=False, priority=True),
        Binding("enter", "take", "Take", show=False, priority=True),
    ]

    def __init__(
        self, title: str, known: Sequence[tuple[str, str]], marked: Sequence[str], *, several: bool
    ) -> None:
        super().__init__()
        self._title = title
        self._known = dict(known)
        self._several = several
        self.marked = [name for name in marked if name in self._known]

    def compose(self) -> ComposeResult:
        with Vertical() as frame:
            frame.border_title = self._title
            yield self.LINE(placeholder="letters of what you look for", compact=True)
            yield Choices()
            yield Static("", classes="foot", markup=False)

    def on_mount(self) -> None:
        self.query_one(Input).focus()
        self.call_after_refresh(self._open)

    def _open(self) -> None:
        """Fill the list, the cursor on the chosen name."""
        typed = self.query_one(Input).value
        self._fill(typed)
        if self.marked and not typed:
            self._list.highlighted = list(self._known).index(self.marked[0])

    @property
    def _list(self) -> OptionList:
        return self.query_one(OptionList)

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        # What was typed may come when the list is leaving, or gone.
        if self.is_current and self.is_attached:
            self._fill(event.value)

    def _fill(self, wanted: str) -> None:
        self._list.clear_options()
        self._list.add_options(
            Option(self._line(name), id=name) for name in found(wanted, self._known)
        )
        self._list.highlighted = 0 if self._list.option_count else None
        keys = "space marks, " if self._several else ""
        count = f"{len(self.marked)} marked: {', '.join(self.marked)}\n" if self._several else ""
        self.query_one(".foot", Static).update(f"{count}{keys}Enter takes, Esc leaves")

    def _line(self, name: str) -> Text:
        box = ("[x] " if name in self.marked else "[ ] ") if self._several else ""
        line = Text(f"{box}{name:<{self.NAME_WIDTH}} ")
        room = max(self._list.size.width - len(line) - 3, 0)
        if room >= len(_CUT):
            line.append(shorten(self._known[name], room, placeholder=f" {_CUT}"), style="dim")
        return line

    @property
    def _here(self) -> str | None:
        if not self._list.option_count:
            self._open()
        at = self._list.highlighted
        return None if at is None else self._list.get_option_at_index(at).id

    def action_move(self, by: int) -> None:
        count = self._list.option_count
        if count:
            self._list.highlighted = min(max((self._list.highlighted or 0) + by, 0), count - 1)

    def action_mark(self) -> None:
        """Mark or unmark the name under the cursor; in a list of a single choice, take the name."""
        name = self._here
        if name is None:
            return
        if not self._several:
            self.dismiss((name,))
            return
        if name in self.marked:
            self.marked.remove(name)
        else:
            self.marked.append(name)
        at = self._list.highlighted
        self._fill(self.query_one(Input).value)
        self._list.highlighted = at

    def action_take(self) -> None:
        name = self._here
        chosen = tuple(self.marked) if self._several and self.marked else (name,) if name else None
        self.dismiss(chosen)

    @on(OptionList.OptionSelected)
    def _clicked(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.action_mark()


class Palette(Picker):
    """Ends with the title of a command; a blank is a letter here, and the list marks nothing."""

    LINE = LineInput
    NAME_WIDTH = 34

    def __init__(self, commands: Mapping[str, str]) -> None:
        super().__init__("commands", list(commands.items()), (), several=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "mark"


def found(wanted: str, known: Sequence[str] | dict[str, str]) -> list[str]:
    """Names with the letters in this order, the best first; else those with matching facts."""
    if not wanted:
        return list(known)
    matcher = Matcher(wanted)
    scores = {name: matcher.match(name) for name in known}
    names = sorted((name for name in known if scores[name] > 0), key=lambda name: -scores[name])
    if isinstance(known, dict):
        inside = (name for name in known if wanted.casefold() in known[name].casefold())
        names += [name for name in inside if name not in names]
    return names
