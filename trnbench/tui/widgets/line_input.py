"""A line of text that completes its words."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.suggester import Suggester
from textual.widgets import Input


class LineInput(Input):
    """An input that is styled once, after the mount, not for each class that it gets before."""

    def update_node_styles(self, animate: bool = True) -> None:
        if self.parent is not None:
            super().update_node_styles(animate)


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
