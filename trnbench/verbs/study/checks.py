"""Checks of a study before it runs: of its options, then of its first cells.

The first cells have each value of each axis. Where all of these are malformed for one reason, what
is wrong is in every cell: it is said in a line, nothing is kept, and the others are not asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from trnbench.errors import LISTS_FAULTS, DataFileError, Fault, did_you_mean
from trnbench.facts.workload.study import VERB, Cell, Study, label_of
from trnbench.store.studies import KeptCell

SPEC_DIR = "spec_dir"
"""An axis, or a fixed option, that names a folder of data files to look in first."""


OptionsOf = Callable[[str], frozenset[str]]
"""Returns the names of the options that a verb takes."""


def check_options(study: Study, options_of: OptionsOf) -> None:
    """Raise DataFileError with every option that no verb of the study has."""
    options = {verb: options_of(verb) | {SPEC_DIR} for verb in _verbs(study)}
    faults = [
        Fault(path=place, message=_unknown(name, verb, options[verb]))
        for place, name, verbs in _named(study, tuple(options))
        for verb in verbs[:1]
        if not any(name in options[one] for one in verbs)
    ]
    if faults:
        also = f"also {'; '.join(map(str, faults[1:]))}" if faults[1:] else LISTS_FAULTS
        raise DataFileError(study.provenance.path or study.name, faults, hint=also)


def _verbs(study: Study) -> dict[str, None]:
    return {study.verb: None} | {
        str(table[VERB]): None for _, table in _tables(study) if VERB in table
    }


def _named(study: Study, verbs: tuple[str, ...]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield every option with its place in the file and the verbs of which one must have it.

    What stands outside a table that names its verb is asked of every verb of the study.
    """
    for name in study.fixed:
        yield from ((f"fixed.{name}", name, (verb,)) for verb in verbs)
    for axis, values in study.axes.items():
        if not all(isinstance(value, dict) for value in values):
            yield from ((f"axes.{axis}", axis, (verb,)) for verb in verbs)
    for place, table in _tables(study):
        # The verb of a cell may be said by a table of another axis.
        takes = (str(table[VERB]),) if VERB in table else verbs
        yield from ((f"{place}.{name}", name, takes) for name in table if name != VERB)


def _tables(study: Study) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for axis, values in study.axes.items():
        for place, value in enumerate(values):
            if isinstance(value, dict):
                yield f"axes.{axis}[{place}]", value


def _unknown(name: str, verb: str, options: frozenset[str]) -> str:
    meant = did_you_mean(name.lstrip("-").replace("-", "_"), options)
    return f"{verb} has no option {name!r} that a study can ask{meant}"


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
    reasons = reason or ""
    shared = {f"fixed.{name}": value for name, value in study.fixed.items()}
    shared |= {f"axes.{name}": values[0] for name, values in study.axes.items() if len(values) == 1}
    places = [place for place, value in shared.items() if _says(reasons, label_of(value))]
    place = places[0] if len(places) == 1 else ""
    raise DataFileError(
        study.provenance.path or study.name,
        [Fault(path=place, message=f"{reasons}; no cell of it can be asked")],
    )


def _says(text: str, value: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(value)}(?![\w-])", text) is not None
