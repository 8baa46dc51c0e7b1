"""Whether a study can be answered at all, told by a few cells that have each value of each axis.

Where all of these are malformed for one reason, what is wrong is in every cell: it is said in a
line, nothing is kept, and the other cells are not asked.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from trnbench.errors import DataFileError, Fault
from trnbench.facts.workload.study import Cell, Study, label_of
from trnbench.store.studies import KeptCell

Keyed = list[tuple[str, Cell]]


def sample_first(cells: Keyed) -> tuple[Keyed, Keyed]:
    """Return cells in which each value of each axis occurs, and the others."""
    seen: set[tuple[str, str]] = set()
    sample: Keyed = []
    others: Keyed = []
    for key, cell in cells:
        new = {*cell.axes.items()} - seen
        seen |= new
        (sample if new else others).append((key, cell))
    return sample, others


def unless_hopeless(
    study: Study, outcomes: Iterable[Sequence[KeptCell]], sample: Collection[str]
) -> Iterator[Sequence[KeptCell]]:
    """Yield what came of cells; raise DataFileError where the sample is refused for one reason."""
    left, held = {*sample}, list[KeptCell]()
    for done in outcomes:
        held += done
        reasons = {cell.reason if cell.malformed else None for cell in held}
        left -= {cell.key for cell in held}
        if left and reasons and len(reasons) == 1 and None not in reasons:
            continue
        if sample and len(reasons) == 1 and None not in reasons:
            _refuse(study, *reasons)
        sample, left = (), set()
        yield held
        held = []
    if held:
        yield held


def _refuse(study: Study, reason: str | None) -> None:
    told = reason or ""
    shared = {f"fixed.{name}": value for name, value in study.fixed.items()}
    shared |= {f"axes.{name}": one[0] for name, one in study.axes.items() if len(one) == 1}
    places = [place for place, value in shared.items() if _says(told, label_of(value))]
    place = places[0] if len(places) == 1 else ""
    raise DataFileError(
        study.provenance.path or study.name,
        [Fault(path=place, message=f"{told}; no cell of it can be asked")],
    )


def _says(text: str, value: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(value)}(?![\w-])", text) is not None
