"""Closed forms of placed groups, kept by platform and stack: in a process, and in the user's cache.

A file's name is a hash of all its sources: the records of platform and stack, and the code that
places groups. So forms of another version of the code are never read.
"""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from trnbench.engines.analytic.collective.shape import Profile, Resource
from trnbench.engines.analytic.collective.time import ClosedForm, Lines, form_of
from trnbench.facts.calibration.collective_stack import CollectiveStack, Tuning
from trnbench.facts.catalog.kept import digest_of, keep, kept, modules_digest
from trnbench.facts.memo import Memo
from trnbench.facts.records import Record, State, field
from trnbench.facts.workload.choices import Op
from trnbench.machine.fabric import LinkKind
from trnbench.machine.message_plan.algorithm import Refusal
from trnbench.machine.rank_groups import GroupPlace

EngineKey: TypeAlias = tuple[Op, GroupPlace]
Stored: TypeAlias = list[Any]  # A closed form, or an engine with its known ones, as JSON values
KIND = "forms"
PLATFORMS_KEPT = 64  # Platforms with a stack whose closed forms a process keeps, the latest ones
CODE = (  # Folders of the package whose code decides the content of a closed form
    *("engines/analytic/collective", "engines/analytic/step"),
    *("facts/calibration", "facts/hardware", "machine"),
)


class ExchangeEngine(Record, eq=False):
    """The algorithms of one group of ranks by size.

    The first begins at 0 bytes, or else only the last is known, for sizes from its start on.
    """

    starts: tuple[float, ...]  # Smallest size in bytes of each algorithm
    tunings: tuple[str, ...]  # Name of the tuning of each algorithm
    forms: Memo[int, ClosedForm] = field(default_factory=Memo)  # by algorithm, without phases


class KeptForms(State, kw_only=False, eq=False):
    """Engines of one platform with one stack."""

    digest: str  # Hash of the contents of platform and stack: the name of the file
    stack: CollectiveStack
    stored: dict[str, Stored]  # as the file has them; records on the first request
    engines: dict[EngineKey, ExchangeEngine | Refusal] = field(default_factory=dict)
    written: int = 0  # What `_known` counts of the engines that the file already has

    def get(self, key: EngineKey) -> ExchangeEngine | Refusal | None:
        """The engine of a group, None where it is not known yet."""
        found = self.engines.get(key)
        if found is None and (stored := self.stored.get(_name(key))) is not None:
            found = self.engines[key] = self._record(stored)
            self.written += _known(found)
        return found

    def write(self) -> None:
        """Store the closed forms made since the last write."""
        known = sum(map(_known, self.engines.values()))
        if known == self.written:
            return
        mine = {_name(key): _stored(engine) for key, engine in self.engines.items()}
        # Another process may have added forms since this one read the file: keep them.
        self.stored = {**_read(self.digest), **self.stored, **mine}
        keep(KIND, self.digest, self.stored)
        self.written = known

    def _record(self, stored: Stored) -> ExchangeEngine | Refusal:
        reason, starts, tunings, forms = stored
        if reason is not None:
            return Refusal(reason=reason)
        engine = ExchangeEngine(starts=tuple(starts), tunings=tuple(tunings))
        for number, form in forms:
            engine.forms.of(number, partial(_form, form, self.stack.tuning(tunings[number])))
        return engine


_kept: dict[str, KeptForms] = {}


def kept_forms(stack: CollectiveStack, *sources: object) -> KeptForms:
    """The engines known for a stack and whatever else their closed forms are made from."""
    digest = digest_of(f"({', '.join(map(_text, (*sources, stack, _code())))})")
    forms = _kept.pop(digest, None) or KeptForms(digest, stack, _read(digest))
    _kept[digest] = forms
    # Dictionaries keep the order of insertion, so the first key is the least recently used.
    while len(_kept) > PLATFORMS_KEPT:
        del _kept[next(iter(_kept))]
    return forms


_texts: dict[int, tuple[Record, str]] = {}
_MOST_TEXTS = 256
"""Texts that are remembered; a process that reads specs anew begins again behind them."""


def _text(source: object) -> str:
    """Text of a source, made once for a record: those of chips and fabrics are long."""
    if not isinstance(source, Record):
        return repr(source)
    known = _texts.get(id(source))
    if known is None or known[0] is not source:
        if len(_texts) >= _MOST_TEXTS:
            _texts.clear()
        known = _texts[id(source)] = source, repr(source)
    return known[1]


def keep_all_forms() -> None:
    """Store the forms of every platform in this process; call while no other thread prices any."""
    for forms in _kept.values():
        forms.write()


def _read(digest: str) -> dict[str, Stored]:
    engines = kept(KIND, digest)
    return engines if isinstance(engines, dict) else {}


@cache
def _code() -> str:
    return modules_digest(Path(__file__).parents[3], CODE)


def _name(key: EngineKey) -> str:
    op, where = key
    return " ".join((op, *map(str, where)))


def _known(engine: ExchangeEngine | Refusal) -> int:
    if isinstance(engine, Refusal):
        return 1
    return len(engine.forms) + (1 if engine.starts[0] else 2)  # one more where all sizes are known


def _stored(engine: ExchangeEngine | Refusal) -> Stored:
    if isinstance(engine, Refusal):
        return [engine.reason, (), (), ()]
    forms = [(number, _numbers(form)) for number, form in engine.forms.items()]
    return [None, engine.starts, engine.tunings, forms]


def _numbers(form: ClosedForm) -> Stored:
    profile, lines = form.profile, form.lines
    return [
        *(profile.ranks, profile.lanes, profile.add_s_per_byte),
        [(int(resource.kind), resource.s_per_byte) for resource in profile.resources],
        *(lines.start_s.tolist(), lines.s_per_byte.tolist(), lines.counts.tolist()),
        *(form.rounds, form.phases.tolist()),
    ]


def _form(numbers: Stored, tuning: Tuning) -> ClosedForm:
    """The closed form of numbers as they are stored, which lack its tuning."""
    ranks, lanes, add, resources, start_s, s_per_byte, counts, rounds, phases = numbers
    shared = tuple(Resource(kind=LinkKind(kind), s_per_byte=s) for kind, s in resources)
    profile = Profile(
        ranks=ranks, lanes=tuple(lanes), phases=(), resources=shared, add_s_per_byte=add
    )
    start, slope = (np.array(values, dtype=float) for values in (start_s, s_per_byte))
    lines = Lines(start_s=start, s_per_byte=slope, counts=np.array(counts, dtype=np.int64))
    found = np.array(phases, dtype=np.int64)
    return form_of(profile, tuning, lines, rounds=tuple(rounds), phases=found)
