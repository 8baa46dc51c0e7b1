"""An application whose modes are its views, each made when first shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import cast

from textual.screen import Screen
from textual.widget import AwaitMount, Widget

from trnbench.tui.pressing import KeysInOrder
from trnbench.tui.view import View
from trnbench.tui.views import PLACE_OF, VIEWS


def class_of(name: str) -> type[View]:
    module = import_module(f"trnbench.tui.views.{name}")
    return cast("type[View]", getattr(module, VIEWS[name][1]))


class ViewModes(KeysInOrder):
    """Makes views when they are first shown, so that start-up pays for a single view."""

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[str, View] = {}
        self.last_seen: dict[str, str] = {}
        """By place, the view that was seen last."""
        self._themes: dict[str, str] = {}
        self._is_styled = False
        for name in VIEWS:
            self.add_mode(name, partial(self._view, name))

    def _view(self, name: str) -> View:
        return self.made.setdefault(name, class_of(name)())

    @property
    def view(self) -> View | None:
        """The view below whatever lies over it."""
        return next(
            (screen for screen in reversed(self.screen_stack) if isinstance(screen, View)), None
        )

    def switch_mode(self, mode: str) -> AwaitMount:
        """Go to a view; after a change of theme the style sheet is read anew."""
        self._is_styled = self._themes.get(mode, self.theme) == self.theme
        self._themes[mode] = self.theme
        self.last_seen[PLACE_OF.get(mode, "")] = mode
        try:
            return super().switch_mode(mode)
        finally:
            self._is_styled = False

    def refresh_css(self, animate: bool = True) -> None:
        """Read the style sheet anew, unless no shown widget was styled by an older sheet."""
        if not self._is_styled:
            super().refresh_css(animate)

    def is_ready(self) -> bool:
        """Tell whether every screen has its widgets, and a view its first question."""
        return super().is_ready() and (not isinstance(self.screen, View) or self.screen.begun)

    def screens(self) -> Iterator[Screen[object]]:
        """Yield the screens of every mode that was opened."""
        for mode in VIEWS:
            with suppress(KeyError):
                yield from self.get_screen_stack(mode)

    def screens_and_widgets(self) -> Iterator[Widget]:
        for screen in self.screens():
            yield screen
            yield from screen.query(Widget)
