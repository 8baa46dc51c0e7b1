"""Completions of a text under the cursor: a known value, the last value of a list, a path."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from textual.suggester import Suggester


class ListSuggester(Suggester):
    """Completes the whole text; or, after a comma or a blank, its last word."""

    def __init__(self, known: Callable[[], Sequence[str]]) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._known = known

    async def get_suggestion(self, value: str) -> str | None:
        return completed(value, self._known())


class ColumnSuggester(Suggester):
    """Completes the name of a column in front of a comparison with a number."""

    def __init__(self, columns: Callable[[], Sequence[str]]) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._columns = columns

    async def get_suggestion(self, value: str) -> str | None:
        word = value.rpartition(" ")[2]
        return completed(value, self._columns()) if len(word) > 1 else None


class PathSuggester(Suggester):
    """Completes the name of a file or folder below a folder."""

    def __init__(self, folder: Path, ending: str) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._folder = folder
        self._ending = ending

    async def get_suggestion(self, value: str) -> str | None:
        """The path with its last part completed."""
        head, _, tail = value.rpartition("/")
        if not value or "\0" in value:
            return None
        try:
            place = self._folder / Path(f"{head}/" if head or value.startswith("/") else ".")
            with os.scandir(place.expanduser()) as entries:
                names = sorted(
                    f"{one.name}/" if one.is_dir() else one.name
                    for one in entries
                    if one.is_dir() or one.name.endswith(self._ending)
                )
        except (OSError, RuntimeError):
            return None
        fits = (name for name in names if tail and name.startswith(tail))
        name = next(fits, None)
        return None if name is None else value[: len(value) - len(tail)] + name


def completed(text: str, known: Sequence[str]) -> str | None:
    """A text with its end completed to a known value, in any case of letters."""
    for start in (0, max(text.rfind(","), text.rfind(" ")) + 1):
        word = text[start:]
        if not word:
            continue
        for one in known:
            if one.casefold().startswith(word.casefold()) and one.casefold() != word.casefold():
                return text + one[len(word) :]
    return None
