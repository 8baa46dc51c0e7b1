"""A line of text that takes keys in the order they were pressed, and completes their words."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual import events
from textual.suggester import Suggester
from textual.widgets import Input

TURNS = {"tab": 1, "shift+tab": -1}
"""Keys that lead to the next or the previous place."""


class LineInput(Input):
    """An input whose editing keys act at once.

    Textual takes letters where they arrive, but hands other keys up to the application and back:
    where a slow line delivers several keys together, a letter would overtake the backspace or the
    tab before it.
    """

    def update_node_styles(self, animate: bool = True) -> None:
        """Style an input after the mount, not for each class that it gets before."""
        if self.parent is not None:
            super().update_node_styles(animate)

    async def on_key(self, event: events.Key) -> None:
        """Take a letter, an editing key or Tab; keys for another input are passed on to it."""
        focused = self.screen.focused
        if isinstance(focused, LineInput) and focused is not self:
            event.prevent_default().stop()
            focused.post_message(events.Key(event.key, event.character))
        elif event.key in TURNS:
            event.prevent_default().stop()
            turn = self.screen.focus_next if TURNS[event.key] > 0 else self.screen.focus_previous
            turn()
        elif not event.is_printable and (action := self._action_of(event.key)):
            event.prevent_default().stop()
            await self.run_action(action)

    def _action_of(self, key: str) -> str | None:
        bound = self.screen.active_bindings.get(key)
        return bound.binding.action if bound is not None and bound.node is self else None


class Completer(Suggester):
    """Completes the whole text; or, after a comma or a blank, its last word.

    Its last word has `least` letters.
    """

    def __init__(self, known: Callable[[], Sequence[str]], *, least: int = 0) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._known = known
        self._least = least

    async def get_suggestion(self, value: str) -> str | None:
        last = value.rpartition(" ")[2]
        return completed(value, self._known()) if len(last) >= self._least else None


def completed(text: str, known: Sequence[str]) -> str | None:
    """A text with its end completed to a known value, in any case of letters."""
    for start in (0, max(text.rfind(","), text.rfind(" ")) + 1):
        word = text[start:]
        if not word:
            continue
        for name in known:
            if name.casefold().startswith(word.casefold()) and name.casefold() != word.casefold():
                return text + name[len(word) :]
    return None
