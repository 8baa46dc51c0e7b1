"""Whether a study asks what its verbs can be asked: told before its first cell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from trnbench.errors import LISTS_FAULTS, DataFileError, Fault, did_you_mean
from trnbench.facts.workload.study import VERB, Study
from trnbench.verbs.study.run import SPEC_DIR

OptionsOf = Callable[[str], frozenset[str]]
"""Returns the names of the options that a verb takes."""


def check_options(study: Study, options_of: OptionsOf) -> None:
    """Raise DataFileError with every option that no verb of the study has."""
    known = {verb: options_of(verb) | {SPEC_DIR} for verb in _verbs(study)}
    faults = [
        Fault(path=place, message=_unknown(name, verb, known[verb]))
        for place, name, verbs in _named(study, tuple(known))
        for verb in verbs[:1]
        if not any(name in known[one] for one in verbs)
    ]
    if faults:
        also = f"also {'; '.join(map(str, faults[1:]))}" if faults[1:] else LISTS_FAULTS
        raise DataFileError(study.provenance.path or study.name, faults, hint=also)


def _verbs(study: Study) -> dict[str, None]:
    return {study.verb: None} | {str(one[VERB]): None for _, one in _tables(study) if VERB in one}


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


def _unknown(name: str, verb: str, known: frozenset[str]) -> str:
    meant = did_you_mean(name.lstrip("-").replace("-", "_"), known)
    return f"{verb} has no option {name!r} that a study can ask{meant}"
