"""A form's field: a text, and below the text its fault."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, ClassVar

from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.geometry import Size
from textual.message import Message
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input, Static

from trnbench.errors import TrnbenchError
from trnbench.facts.records import Record
from trnbench.tui.widgets.frame import hidden
from trnbench.tui.widgets.line_input import Completer, LineInput

LABEL, LIST = 13, 2
"""Columns of a label, and of the sign that there is a list."""
DEBOUNCE_S = 0.15
"""So long after the last key a text is looked at."""
_NUMBERS = count(1)
"""Edits of all fields, in their order."""


class FieldSpec(Record):
    """A field of a form."""

    key: str
    label: str
    parse: Callable[[str], object]
    """Value of a text; a TrnbenchError, whose message is shown, for an invalid text."""
    text: str = ""
    advice: str = ""
    """Text that stands in an empty field."""
    choices: tuple[str, ...] = ()
    """Values that complete a text, and that up and down step through."""
    known: Callable[[], Sequence[tuple[str, str]]] | None = None
    """Names to pick from, each with its facts."""
    several: bool = False
    """True when the field takes several of these names."""
    group: str = ""
    """Heading of the folded fields among which it stands."""


class Field(Widget):
    """A label, a text, and the reason if the text is no good; keeps the last good value."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "field--label",
        "field--entered",
        "field--reason",
        "field--list",
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        hidden("up", "step(-1)", "Previous choice", "field.previous"),
        hidden("down", "step(1)", "Next choice", "field.next"),
        hidden("f2,ctrl+l", "pick", "List", "field.pick", "Choose from a list, where there is one"),
    ]

    class Changed(Message):
        """A field has another good value."""

        def __init__(self, field: Field) -> None:
            super().__init__()
            self.field = field

    class Wanted(Message):
        """The user wants to choose the field's value from a list."""

        def __init__(self, field: Field) -> None:
            super().__init__()
            self.field = field

    class Judged(Message):
        """The typed text has become usable, or is so no longer."""

    def __init__(self, spec: FieldSpec) -> None:
        super().__init__(
            id=f"field-{spec.key.replace('_', '-')}", classes="-list" if spec.known else ""
        )
        self.spec = spec
        self.form: Form | None = None
        self.good_text = spec.text
        self.value = spec.parse(spec.text)
        self.reason = ""
        self._typed_text = spec.text
        self._edits: list[tuple[int, str]] = []
        self._bad_since = 0
        self._timer: Timer | None = None

    def compose(self) -> ComposeResult:
        yield LineInput(
            self._typed_text, placeholder=self.spec.advice, compact=True, select_on_focus=False
        )

    def render(self) -> Text:
        """The label, the sign of a list, and the fault of the text.

        Drawn here, under the input: a form of a dozen fields is on screen twice as soon as one
        whose every word is a widget.
        """
        style = self.get_component_rich_style
        label = style("field--entered" if self.has_class("-entered") else "field--label")
        drawn = Text(f"{self.spec.label:<{LABEL}.{LABEL}}", style=label)
        if self.spec.known is not None:
            drawn.append(" " * max(self.size.width - LABEL - LIST, 0))
            drawn.append(" v", style=style("field--list"))
        kind = "field--reason" if self.reason else "field--label"
        for line in self._lines_below(self.size.width):
            drawn.append(f"\n  {line}", style=style(kind))
        return drawn

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return 1 + len(self._lines_below(width))

    def _lines_below(self, width: int) -> list[str]:
        """The fault of the text, or all of a text that is too long for its line."""
        long = len(self.good_text) > width - LABEL - LIST
        text = f"! {self.reason}" if self.reason else self.good_text * long
        return textwrap.wrap(text, max(width - 2, 10), break_on_hyphens=False)

    def on_click(self, event: events.Click) -> None:
        if event.widget is self and event.y == 0 and event.x >= self.size.width - LIST:
            self.action_pick()

    @property
    def text(self) -> str:
        """Text that is typed, or would be, where the field is folded away."""
        return self.query_one(Input).value if self.children else self._typed_text

    @property
    def told(self) -> bool:
        """True where the field says something: other than its default, or nothing usable."""
        return bool(self.reason) or self.good_text not in ("", self.spec.text)

    def put(self, text: str) -> None:
        self._typed_text = text
        for place in self.query(Input):
            place.value = text
            place.cursor_position = len(text)

    def action_step(self, by: int) -> None:
        choices = self.spec.choices
        if choices:
            here = choices.index(self.text) if self.text in choices else -min(by, 0)
            at = here + by if self.text in choices else here
            self.put(choices[at % len(choices)])

    def _completions(self) -> tuple[str, ...]:
        names = self.spec.known() if self.spec.known is not None else ()
        return (*(choice for choice in self.spec.choices if choice), *(name for name, _ in names))

    def action_pick(self) -> None:
        if self.spec.known is not None:
            self.post_message(self.Wanted(self))

    def on_descendant_focus(self) -> None:
        """Mark the label; the known values are read when somebody is about to type."""
        self.add_class("-entered")
        self.refresh()
        place = self.query_one(Input)
        if place.suggester is None and (self.spec.choices or self.spec.known):
            place.suggester = Completer(self._completions)

    def on_descendant_blur(self) -> None:
        self.remove_class("-entered")
        self.refresh()

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(DEBOUNCE_S, self.look)

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        event.stop()
        self.look()

    @property
    def newest_edit(self) -> int:
        """The number of the newest edit that can be taken back, of all fields'; 0 if none can."""
        return self._bad_since or (self._edits[-1][0] if self._edits else 0)

    def undo(self) -> None:
        """Take the newest edit back: the text that cannot be used, or the last that could."""
        if self._bad_since:
            self.put(self.good_text)
            self.look()
            return
        _, before = self._edits.pop()
        self.put(before)
        self.look()
        if self._edits:
            self._edits.pop()

    def look(self) -> None:
        """Take a valid text; of any other show the fault."""
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        text = self.text.strip()
        try:
            value = self.spec.parse(text)
        except TrnbenchError as error:
            self._bad_since = self._bad_since or next(_NUMBERS)
            self._say(error.message)
            return
        self._bad_since = 0
        self._say("")
        if text != self.good_text:
            self._edits.append((next(_NUMBERS), self.good_text))
            self.good_text, self.value = text, value
            self.refresh(layout=True)
            self._post(self.Changed(self))

    def _post(self, message: Message) -> None:
        # A folded field is not among the widgets: its form speaks for it.
        (self if self.is_attached or self.form is None else self.form).post_message(message)

    def _say(self, reason: str) -> None:
        if reason == self.reason:
            return
        if bool(reason) != bool(self.reason):
            self._post(self.Judged())
        self.reason = reason
        self.set_class(bool(reason), "-bad")
        self.refresh(layout=True)


class More(Static, can_focus=True):
    """The line that shows or folds the fields that hardly anybody needs."""

    BINDINGS: ClassVar[list[BindingType]] = [
        hidden("enter,space", "turn", "More", "field.more", "Show or fold the other fields")
    ]

    class Turned(Message):
        """The other fields are wanted, or wanted no longer."""

    def action_turn(self) -> None:
        self.post_message(self.Turned())

    def on_click(self) -> None:
        self.action_turn()


class Form(VerticalScroll, can_focus=False):
    """Fields below each other: those of a card, then those that say something, the rest folded.

    `card` gives the keys of the card by the texts of all fields; without it every field stands
    there. `more` makes fields that are read when somebody wants them.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        hidden("tab", "onward(1)", "Next field", "field.onward"),
        hidden("shift+tab", "onward(-1)", "Field before", "field.backward"),
    ]

    def __init__(
        self,
        specs: Sequence[FieldSpec],
        *,
        id: str,
        card: Callable[[Mapping[str, str]], Sequence[str]] | None = None,
        more: Callable[[], Sequence[FieldSpec]] | None = None,
    ) -> None:
        super().__init__(id=id)
        self.fields: dict[str, Field] = {}
        self._card, self._rest = card, more
        self._open = False
        self._more = More("", markup=False)
        self._headings: dict[str, Static] = {}
        self._add(specs)

    def _add(self, specs: Sequence[FieldSpec]) -> None:
        for spec in specs:
            field = self.fields[spec.key] = Field(spec)
            field.form = self

    def compose(self) -> ComposeResult:
        yield from self._wanted()

    def _wanted(self) -> list[Widget]:
        """The widgets to show, in their order."""
        if self._card is None:
            return [*self.fields.values()]
        card = [self.fields[key] for key in self._card(self.texts)]
        others = [field for field in self.fields.values() if field not in card]
        shown = [one for one in others if one.told or one.has_focus_within]
        count = "" if self._rest else f" ({len(others) - len(shown)})"
        self._more.update("fewer fields" if self._open else f"more fields{count}")
        if not self._open:
            return [*card, *shown, self._more]
        wanted: list[Widget] = [*card, self._more]
        for group in dict.fromkeys(one.spec.group for one in others):
            wanted.append(
                self._headings.setdefault(group, Static(group, classes="heading", markup=False))
            )
            wanted += [one for one in others if one.spec.group == group]
        return wanted

    def settle(self) -> None:
        """Show the fields that belong to the card now, and those that say something."""
        if not self.is_attached or self._card is None:
            return
        wanted = self._wanted()
        if [child for child in self.children if child.display] == wanted:
            return
        fresh = [one for one in wanted if not one.is_attached]
        if fresh:
            self.mount(*fresh)
        place = {one: number for number, one in enumerate(wanted)}
        for child in self.children:
            child.display = child in place
        self.sort_children(key=lambda child: place.get(child, len(place)))

    @on(More.Turned)
    def _turn(self, event: More.Turned) -> None:
        event.stop()
        self._open = not self._open
        self._complete()
        self.settle()

    def _complete(self) -> None:
        if self._rest is not None:
            rest, self._rest = self._rest, None
            self._add(rest())

    @on(Field.Changed)
    @on(Field.Judged)
    def _judged(self) -> None:
        self.settle()

    def action_onward(self, by: int) -> None:
        (self.screen.focus_next if by > 0 else self.screen.focus_previous)()

    @property
    def texts(self) -> dict[str, str]:
        return {key: field.good_text for key, field in self.fields.items()}

    @property
    def told(self) -> dict[str, str]:
        """Texts other than the defaults."""
        return {
            key: field.good_text
            for key, field in self.fields.items()
            if field.good_text != field.spec.text
        }

    @property
    def values(self) -> dict[str, Any]:
        return {key: field.value for key, field in self.fields.items()}

    def put(self, texts: Mapping[str, str]) -> None:
        if any(text and key not in self.fields for key, text in texts.items()):
            self._complete()
        for key, text in texts.items():
            if key in self.fields:
                self.fields[key].put(text)

    def look(self) -> None:
        for field in self.fields.values():
            field.look()
        self.settle()

    @property
    def first(self) -> Input:
        return next(one for one in self.children if one.display).query_one(Input)
