"""Closed forms of placed groups, kept from one process to the next by platform and stack.

A file's name is a hash of all its sources: the records of platform and stack, and the code that
places groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from trnbench.engines.analytic.collective.shape import Profile, Resource
from trnbench.engines.analytic.collective.time import ClosedForm, Lines, form_of
from trnbench.facts.calibration.collective_stack import Tuning
from trnbench.facts.catalog.kept import digest_of, keep, kept, modules_digest
from trnbench.machine.fabric import LinkKind

Stored: TypeAlias = list[Any]
"""A closed form, or an engine with those of its forms that are known, as JSON values."""
_KIND = "forms"
CODE = (
    *("engines/analytic/collective", "engines/analytic/step"),
    *("facts/calibration", "facts/hardware", "machine"),
)
"""Folders of the package whose code decides the content of a closed form."""


def stored_form(form: ClosedForm) -> Stored:
    """A closed form as lists of numbers, without its tuning."""
    profile, lines = form.profile, form.lines
    return [
        *(profile.ranks, profile.lanes, profile.add_s_per_byte),
        [(int(resource.kind), resource.s_per_byte) for resource in profile.resources],
        *(lines.start_s.tolist(), lines.s_per_byte.tolist(), lines.counts.tolist()),
        *(form.rounds, form.phases.tolist()),
    ]


def form_from(stored: Stored, tuning: Tuning) -> ClosedForm:
    """The closed form of stored lists of numbers."""
    ranks, lanes, add, resources, start_s, s_per_byte, counts, rounds, phases = stored
    return form_of(
        Profile(
            ranks=ranks,
            lanes=tuple(lanes),
            phases=(),
            resources=tuple(Resource(kind=LinkKind(k), s_per_byte=s) for k, s in resources),
            add_s_per_byte=add,
        ),
        tuning,
        Lines(
            start_s=np.array(start_s, dtype=float),
            s_per_byte=np.array(s_per_byte, dtype=float),
            counts=np.array(counts, dtype=np.int64),
        ),
        rounds=tuple(rounds),
        phases=np.array(phases, dtype=np.int64),
    )


def name_of(content: Iterable[object]) -> str:
    """Name of the file for content made from these records."""
    return digest_of(repr((*content, _code())))


def read(digest: str) -> Mapping[str, Stored]:
    """The engines stored under a name; none if there is no file."""
    engines = kept(_KIND, digest)
    return engines if isinstance(engines, dict) else {}


def write(digest: str, engines: Mapping[str, Stored]) -> None:
    """Store engines under a name."""
    keep(_KIND, digest, engines)


@cache
def _code() -> str:
    # Forms of another version of the code have another digest, so they are never read.
    return modules_digest(Path(__file__).parents[3], CODE)
