"""A form's field: a text, and below it why it cannot be used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.message import Message
from textual.suggester import SuggestFromList
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input, Static

from trnbench.errors import TrnbenchError
from trnbench.tui.widgets.line_input import LineInput

DEBOUNCE_S = 0.15
"""So long after the last key a text is looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSpec:
    """A field: its key, its label, how a text becomes a value, and known values.

    `parse` raises a TrnbenchError whose message is shown. `advice` stands where nothing is typed.
    `choices` complete what is typed, and are stepped through with up and down.
    """

    key: str
    label: str
    parse: Callable[[str], object]
    text: str = ""
    advice: str = ""
    choices: tuple[str, ...] = ()


class Field(Widget):
    """A label, a text, and the reason if the text is no good; keeps the last good value."""

    DEFAULT_CSS = """
    Field { height: auto; }
    Field > Horizontal { height: 1; }
    Field .label { width: 13; color: $text-muted; }
    Field.-entered .label { color: $accent; text-style: bold; }
    Field Input { width: 1fr; }
    Field .reason { height: auto; padding: 0 0 0 2; color: $text-error; display: none; }
    Field.-bad .reason { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "step(-1)", "Previous choice", show=False, id="field.previous"),
        Binding("down", "step(1)", "Next choice", show=False, id="field.next"),
    ]

    @dataclass
    class Changed(Message):
        """A field has another good value."""

        field: Field

    def __init__(self, spec: FieldSpec) -> None:
        super().__init__(id=f"field-{spec.key.replace('_', '-')}")
        self.spec = spec
        self.good_text = spec.text
        self.value = spec.parse(spec.text)
        self.reason = ""
        self._timer: Timer | None = None

    def compose(self) -> ComposeResult:
        """Yield label, input and reason."""
        with Horizontal():
            yield Static(self.spec.label, classes="label", markup=False)
            yield LineInput(
                self.good_text,
                placeholder=self.spec.advice,
                compact=True,
                select_on_focus=False,
                suggester=SuggestFromList(self.spec.choices, case_sensitive=False)
                if self.spec.choices
                else None,
            )
        yield Static("", classes="reason", markup=False)

    @property
    def text(self) -> str:
        """The text in the input."""
        return self.query_one(Input).value

    def put(self, text: str) -> None:
        """Write another text, as if typed."""
        place = self.query_one(Input)
        place.value = text
        place.cursor_position = len(text)

    def action_step(self, by: int) -> None:
        """Take the next of the choices."""
        choices = self.spec.choices
        if choices:
            here = choices.index(self.text) if self.text in choices else -min(by, 0)
            at = here + by if self.text in choices else here
            self.put(choices[at % len(choices)])

    def on_descendant_focus(self) -> None:
        """Mark the label."""
        self.add_class("-entered")

    def on_descendant_blur(self) -> None:
        """Mark the label no longer."""
        self.remove_class("-entered")

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

    def look(self) -> None:
        """Take what is typed if it is good; else say why not."""
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        text = self.text.strip()
        try:
            value = self.spec.parse(text)
        except TrnbenchError as error:
            self._say(error.message)
            return
        self._say("")
        if text != self.good_text:
            self.good_text, self.value = text, value
            self.post_message(self.Changed(self))

    def _say(self, reason: str) -> None:
        self.reason = reason
        self.set_class(bool(reason), "-bad")
        self.query_one(".reason", Static).update(f"! {reason}" if reason else "")


class Form(VerticalScroll, can_focus=False):
    """Fields below each other."""

    DEFAULT_CSS = """
    Form { height: 1fr; padding: 0 1; scrollbar-size-vertical: 1; }
    """

    def __init__(self, specs: Sequence[FieldSpec], *, id: str) -> None:
        super().__init__(id=id)
        self.fields = {spec.key: Field(spec) for spec in specs}

    def compose(self) -> ComposeResult:
        """Yield the fields."""
        yield from self.fields.values()

    @property
    def texts(self) -> dict[str, str]:
        """The last good text of every field."""
        return {key: one.good_text for key, one in self.fields.items()}

    @property
    def values(self) -> dict[str, Any]:
        """The last good value of every field."""
        return {key: one.value for key, one in self.fields.items()}

    def put(self, texts: Mapping[str, str]) -> None:
        """Write texts into the fields they are for."""
        for key, text in texts.items():
            if key in self.fields:
                self.fields[key].put(text)

    def look(self) -> None:
        """Take what is typed into every field, without waiting."""
        for one in self.fields.values():
            one.look()

    @property
    def first(self) -> Input:
        """The input of the first field."""
        return next(iter(self.fields.values())).query_one(Input)
