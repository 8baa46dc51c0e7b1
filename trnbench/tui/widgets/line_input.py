"""A line of text that takes keys in the order they were pressed, however quickly they come."""

from __future__ import annotations

from textual import events
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
