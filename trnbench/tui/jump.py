"""A letter on every place that takes the keyboard: press it to go there."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Static


class JumpScreen(ModalScreen[Widget | None]):
    """Shows the letters over the screen below; ends with the widget that was chosen."""

    DEFAULT_CSS = """
    JumpScreen { background: $background 20%; }
    JumpScreen > Static {
        position: absolute; width: 3; height: 1; background: $warning; color: $background;
        text-style: bold;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Close", show=False)
    ]

    def __init__(self, targets: Sequence[Widget]) -> None:
        super().__init__()
        self._targets = dict(zip(ascii_lowercase, targets, strict=False))

    def compose(self) -> ComposeResult:
        """Yield a letter for each target."""
        for letter, target in self._targets.items():
            label = Static(f" {letter} ", markup=False)
            label.styles.offset = (target.region.x, target.region.y)
            yield label

    def on_key(self, event: events.Key) -> None:
        """Go where the letter stands."""
        if event.key in self._targets:
            event.stop()
            self.dismiss(self._targets[event.key])
