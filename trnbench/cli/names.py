"""Completion of names on the command line: reads file names only, never a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trnbench.errors import TrnbenchError


def completes(
    sections: Sequence[str], *, several: bool = False, prefix: str = "", cut: bool = False
) -> Callable[[str], list[str]]:
    """Return a completion function for the names in some sections of the catalogue.

    With `several`, a name behind a comma is completed too, by one that is not yet there. `prefix`:
    only names that begin so, without it if `cut`.
    """

    def complete(incomplete: str) -> list[str]:
        from trnbench.facts.catalog.search import open_catalog

        try:
            catalog = open_catalog()
        except TrnbenchError:
            return []
        before, comma, begun = incomplete.rpartition(",") if several else ("", "", incomplete)
        taken = {name.partition(":")[0] for name in before.split(",")}
        names = {entry.name for section in sections for entry in catalog.entries(section)}
        found = {name for name in names if name.startswith(prefix)} - taken
        offered = {name.removeprefix(prefix) for name in found} if cut else found
        return [f"{before}{comma}{name}" for name in sorted(offered) if name.startswith(begun)]

    return complete


def completes_stacks() -> Callable[[str], list[str]]:
    """Return a completion function for training stacks, as --stack takes them."""
    calibrated = completes(("calibration",), prefix="training-", cut=True)

    def complete(incomplete: str) -> list[str]:
        from trnbench.facts.calibration.supports import SOFTWARE

        named = (name for name in SOFTWARE if name.startswith(incomplete))
        return sorted({*calibrated(incomplete), *named})

    return complete
