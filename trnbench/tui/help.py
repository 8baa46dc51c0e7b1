"""The list of every key, made from the bindings themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.dom import DOMNode
from textual.widgets import Static

from trnbench.tui.dialogs import Dialog
from trnbench.tui.views import VIEWS

GROUPS = {
    "app": "Everywhere",
    "view": "In every view",
    **{name: label for name, (label, _) in VIEWS.items()},
    "launch": "In launch files",
    "table": "In tables",
    "field": "In fields",
    "chart": "In charts",
}


def every_binding(owners: Iterable[type[DOMNode]]) -> Iterator[Binding]:
    """Yield the bindings with ids, of the application, its views, and the widgets."""
    from trnbench.tui.launch_screen import LaunchScreen
    from trnbench.tui.widgets.chart import Chart
    from trnbench.tui.widgets.field import Field
    from trnbench.tui.widgets.result_table import ResultTable

    widgets: list[type[DOMNode]] = [LaunchScreen, ResultTable, Field, Chart]
    kinds = dict.fromkeys(kind for owner in [*owners, *widgets] for kind in owner.__mro__)
    for kind in kinds:
        for binding in vars(kind).get("BINDINGS", ()):
            if isinstance(binding, Binding) and (binding.id or "").partition(".")[0] in GROUPS:
                yield binding


def bindings_by_group(bindings: Iterator[Binding]) -> dict[str, dict[str, Binding]]:
    """Bindings by the group that begins their id; those without an id belong to Textual."""
    groups: dict[str, dict[str, Binding]] = {group: {} for group in GROUPS}
    for binding in bindings:
        group = (binding.id or "").partition(".")[0]
        if binding.id and group in groups:
            groups[group].setdefault(binding.id, binding)
    return {group: each for group, each in groups.items() if each}


class HelpScreen(Dialog[None]):
    """Every key with its action, and the id by which the user can give the action another key."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark", "dismiss", "Close", show=False),
        Binding("i", "ids", "Ids", show=False),
    ]

    def __init__(
        self,
        groups: dict[str, dict[str, Binding]],
        keys: dict[str, str],
        config: str,
        view: str = "",
    ) -> None:
        super().__init__()
        first = (view, "view", "table", "field", "chart", "app")
        order = [*(name for name in first if name in groups), *groups]
        self._groups = {name: groups[name] for name in dict.fromkeys(order)}
        self._keys = keys
        self._config = config
        self._ids = False
        self._list = Static(self.text, markup=False)

    @property
    def text(self) -> Text:
        """The list, with ids if they are wanted."""
        text = Text()
        for group, bindings in self._groups.items():
            text.append(f"{GROUPS[group]}\n", style="bold")
            for name, binding in bindings.items():
                what = binding.tooltip or binding.description
                key = self._keys.get(name) or binding.key
                text.append(f"  {shown(key):<15}{what}")
                text.append(f"  {name}\n" if self._ids else "\n", style="dim")
            text.append("\n")
        text.append("Mouse\n", style="bold")
        text.append("  views, charts' names, headings and rows: click; a row twice to open it\n")
        text.append("  v behind a field: its list; the line below a table: the next column\n")
        text.append("  drag and wheel pan and zoom charts; the wheel zooms a schedule\n\n")
        text.append(f"Other keys: [keys] in {self._config}, id = key; i shows the ids.")
        return text

    def action_ids(self) -> None:
        self._ids = not self._ids
        self._list.update(self.text)

    def compose(self) -> ComposeResult:
        with Vertical() as frame:
            frame.border_title = "keys (i: ids, Esc closes)"
            with VerticalScroll():
                yield self._list


class GuideScreen(Dialog[None]):
    """A page of the guide, as `trnbench help PAGE` prints it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,f1", "dismiss", "Close", show=False),
    ]

    def __init__(self, page: str) -> None:
        super().__init__()
        self._page = page

    def compose(self) -> ComposeResult:
        from trnbench.show.guide import page

        with Vertical() as frame:
            frame.border_title = f"trnbench help {self._page} (Esc closes)"
            with VerticalScroll():
                yield Static(page(self._page), markup=False)

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()


def shown(keys: str) -> str:
    """Keys as people write them."""
    names = {
        "slash": "/",
        "question_mark": "?",
        "left_square_bracket": "[",
        "right_square_bracket": "]",
        "full_stop": ".",
        "comma": ",",
        "plus": "+",
        "minus": "-",
        "equals_sign": "=",
    }
    return " ".join(names.get(key, key) for key in keys.split(","))
