"""Completion of names on the command line: reads file names only, never a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trnbench.errors import TrnbenchError


def completes(sections: Sequence[str]) -> Callable[[str], list[str]]:
    """Return a completion function for the names in some sections of the catalogue."""

    def complete(incomplete: str) -> list[str]:
        from trnbench.catalog.search import open_catalog

        try:
            catalog = open_catalog()
        except TrnbenchError:
            return []
        names = {entry.name for section in sections for entry in catalog.entries(section)}
        return sorted(name for name in names if name.startswith(incomplete))

    return complete
