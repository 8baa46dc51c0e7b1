"""Common base of Compare and Plan: a scenario, and a sentence with the verdict."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.binding import BindingType
from textual.widget import Widget
from textual.widgets import Static

from trnbench.tui.launch_view import LaunchingView
from trnbench.tui.scenario_form import SCENARIO_KEYS, scenario_line, scenario_of, texts_of
from trnbench.tui.view import hidden
from trnbench.tui.widgets.field import Field, Form
from trnbench.verbs.asking.option import Given


class ScenarioView(LaunchingView):
    """A view of the scenario that was edited last, here or in another view."""

    DEFAULT_CSS = """
    ScenarioView .verdict { height: auto; max-height: 4; padding: 0 1; text-style: bold; }
    ScenarioView.-short .verdict { max-height: 3; }
    ScenarioView.-low .verdict { max-height: 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        hidden("m", "pick('model')", "Model", "view.model", "Choose the model from a list"),
        hidden(
            "i", "pick('instances')", "Instances", "view.instances", "Choose instances from a list"
        ),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._taken: dict[str, str] | None = None

    def main(self) -> Iterable[Widget]:
        return Static("", classes="verdict", markup=False), *super().main()

    @property
    def form(self) -> Form:
        return self.query_one(Form)

    @property
    def scenario(self) -> Given:
        return scenario_of(self.form)

    def subject(self) -> str:
        return scenario_line(self.form.texts)

    def verdict(self, text: str) -> None:
        self.query_one(".verdict", Static).update(text)

    def take(self, scenario: Given) -> None:
        self._put(texts_of(scenario))

    def begin(self) -> None:
        """Take the scenario that another view has edited, if any; then ask."""
        self._put(self.trnbench.scenario)
        super().begin()

    def on_screen_resume(self) -> None:
        if self._taken is not None and self._taken is not self.trnbench.scenario:
            self._put(self.trnbench.scenario)

    def _put(self, texts: dict[str, str]) -> None:
        self._taken = texts
        self.form.put(texts)
        self.form.look()

    @on(Field.Changed)
    def _edited(self) -> None:
        texts = self.form.texts
        self._taken = self.trnbench.scenario = {key: texts[key] for key in SCENARIO_KEYS}
        self.state_facts()
        self.action_again()
