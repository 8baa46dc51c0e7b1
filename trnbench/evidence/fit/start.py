"""Start of a training stack's fit: the known stack, or a new one.

A new stack copies the numbers of the stack named by `like` (or of the generic eager, compiled or
graph software), else of the stack of the rows' software, else of the generic software on their
chips. The new stack serves the software of its rows on every instance with their chips.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias, cast, get_args

from trnbench.errors import InputError
from trnbench.evidence.rows import EvidenceFile, RowFault
from trnbench.evidence.step_row import StepRow, step_of
from trnbench.facts.calibration.hosts import Dispatch
from trnbench.facts.calibration.population import load_population, weighed
from trnbench.facts.calibration.stack_of import Stacks, framework_named
from trnbench.facts.calibration.training_stack import (
    STACK_PREFIX,
    TrainingStack,
    full_name,
    generic_stack,
    load_training_stack,
    refuse_other_sort,
    training_file,
)
from trnbench.facts.catalog.document import load_once
from trnbench.facts.catalog.search import BUILT_IN, Catalog, Entry
from trnbench.facts.catalog.toml_file import read_toml
from trnbench.facts.hardware.instance import Platform
from trnbench.facts.hardware.library import load_chip, load_instance, load_published
from trnbench.facts.records import Record, asdict, replace

KINDS = get_args(Dispatch)
_VERSION = re.compile(r"([\s@=]+v?\d[\w.+-]*|[-_/]v?\d+\.[\w.+-]*)$", re.IGNORECASE)
_FEW = 3
_OF_ITS_FIT = (
    *("fitted_rows", "left_out", "memory_left_out", "fitted_on", "fitted_to", "fit"),
    *("default_for", "stands_for"),
)


Table: TypeAlias = dict[str, object]


class Start(Record, eq=False):
    """A stack before its fit, and its file as plain data."""

    stack: TrainingStack
    table: Table
    like: str | None = None
    """Stack whose numbers a new stack copies."""
    again: str | None = None
    """Start of an earlier fit, used again."""


def start_of(catalog: Catalog, name: str, files: Sequence[EvidenceFile], like: str | None) -> Start:
    """Start of a fit of the named stack to the rows of files."""
    said, faults = _read(files)
    stacks = Stacks(catalog)
    run_on = [_platform(catalog, step) for step in said]
    platforms = [platform for platform in run_on if platform is not None]
    name = _calibrated_name(stacks, name, platforms)
    _refuse_two(name, stacks, said, run_on)
    known = training_file(catalog, name)
    if known is not None:
        refuse_other_sort(catalog, known, platforms[0].instance.name if platforms else None)
    software = list(dict.fromkeys(_plain(step.framework) for step in said if step.framework))
    again = _begun_before(catalog, known) if known is not None and like is None else None
    if known is not None and (again == full_name(name) or (again or like) is None):
        entry = known if again is None else _shipped(catalog, full_name(name))
        stack = load_once(catalog, entry.path, TrainingStack)
        table = read_toml(entry.path) | {"begun_as": full_name(name)}
        return _serving(catalog, Start(stack=stack, table=table, again=again), software, platforms)
    if like is not None and full_name(like) == full_name(name):
        stack, own = load_training_stack(catalog, name), training_file(catalog, name)
        assert own is not None
        table = read_toml(own.path)
        return _serving(catalog, Start(stack=stack, table=table, like=name), software, platforms)
    like = like or again
    if not platforms:
        why = f"no known instance: {said[0].instance!r}" if said else "; ".join(faults[:_FEW])
        raise InputError(f"no row can be fitted: {why}")
    base = _base(catalog, stacks, said, platforms[0], (name, like))
    full = full_name(name)
    kind = None if base.frameworks or base.host is None else base.host.dispatch
    population = load_population(catalog) if kind in ("eager", "compiled") else None
    within = None if population is None else population.of(kind).within
    if within is not None:
        # Steps of one software scatter about its own level, which the rows are to tell.
        base = replace(base, spread=within)
        memory = population.of(kind).memory if population is not None else None
        if memory is not None and memory.within is not None:
            base = weighed(base, 1.0, memory.within)
    evolved = replace(
        base,
        name=full,
        title=f"{name.removeprefix(STACK_PREFIX)}, begun as {base.name}",
        stands_for=None,
        frameworks=(),
        default_for=(),
        instances=(),
        basis="assumed" if base.basis == "assumed" else "transferred",
        inherits_from=base.name,
        fitted_rows=(),
        left_out=(),
        memory_left_out=(),
        fitted_on=(),
        fitted_to=(),
        fit=None,
    )
    table = read_toml(catalog.find("calibration", base.name).path)
    table = {key: value for key, value in table.items() if key not in _OF_ITS_FIT}
    table |= {
        "name": full,
        "title": evolved.title,
        "basis": evolved.basis,
        "inherits_from": base.name,
        "begun_as": base.name,
    }
    if population is not None and within is not None:
        source = population.provenance.sources["left-out"]
        table["sources"] = cast("Table", table["sources"]) | {
            "left-out": {key: said for key, said in asdict(source).items() if said is not None}
        }
        ends = {"low": within.low, "high": within.high}
        table["spread"] = {"source": "left-out", "kind": "derived", **ends}
    start = Start(stack=evolved, table=table, like=base.name, again=again)
    return _serving(catalog, start, software or [name.removeprefix(STACK_PREFIX)], platforms)


def _calibrated_name(stacks: Stacks, name: str, platforms: Sequence[Platform]) -> str:
    """The stack of a framework where the rows ran; any other name is unchanged.

    Without a calibrated stack: a new one named after the framework and the chip.
    """
    if framework_named(stacks.catalog, name) is None:
        return name
    found = dict.fromkeys(
        one.stack.short_name if one.own else f"{name}-{platform.chip.name}"
        for platform, one in ((there, stacks.by_name(name, there)) for there in platforms)
    )
    if len(found) > 1:
        raise InputError(
            f"--stack {name} stands for {len(found)} training stacks where the rows ran: "
            f"{', '.join(found)}",
            hint="name one of them, with a file of its rows alone",
        )
    return next(iter(found), name)


def _read(files: Iterable[EvidenceFile]) -> tuple[list[StepRow], list[str]]:
    """Readable rows, and the faults of the others among the first rows of each file."""
    found, faults = [], []
    for file in files:
        for place, row in enumerate(file.rows):
            try:
                found.append(step_of(row))
            except RowFault as fault:  # the fit lists it with the reason
                if place < _FEW:
                    faults.append(f"{row.id}: {fault}")
    return found, faults


def _platform(catalog: Catalog, step: StepRow) -> Platform | None:
    instance = load_published(catalog, step.instance, "")
    if instance is None:
        return None
    return Platform(instance=instance, chip=load_chip(catalog, instance.chip))


def _plain(framework: str) -> str:
    return _VERSION.sub("", framework.strip()) or framework.strip()


def _refuse_two(
    name: str, stacks: Stacks, said: Sequence[StepRow], run_on: Sequence[Platform | None]
) -> None:
    """Refuse rows of several frameworks; several names of one stack are one framework."""
    found: dict[str, str] = {}
    for step, platform in zip(said, run_on, strict=True):
        if not step.framework or platform is None:
            continue
        stack = stacks.of(step.framework, step.release, platform)
        key = stack.stack.name if stack.own else _plain(step.framework).lower()
        found.setdefault(key, _plain(step.framework))
    if len(found) > 1:
        names = ", ".join(map(repr, found.values()))
        raise InputError(
            f"--stack {name}: rows of {len(found)} frameworks: {names}",
            hint="fit each to a stack of its own, from a file with its rows alone",
        )


def _base(
    catalog: Catalog,
    stacks: Stacks,
    said: Sequence[StepRow],
    platform: Platform,
    begun: tuple[str, str | None],
) -> TrainingStack:
    name, like = begun
    if like in KINDS:
        try:
            return generic_stack(catalog, like, platform.instance)  # type: ignore[arg-type]
        except InputError:
            raise InputError(
                f"--from {like}: nothing is assumed of such software on {platform.chip.name}"
            ) from None
    if like is not None:
        return load_training_stack(catalog, like)
    software = next((step.framework for step in said if step.framework), name)
    return stacks.of(software, "", platform).stack


def _serving(
    catalog: Catalog, start: Start, software: Sequence[str], platforms: Sequence[Platform]
) -> Start:
    """A start that serves software on every instance of some chips."""
    chips = {platform.chip.name for platform in platforms}
    alike = [
        entry.name
        for entry in catalog.entries("instances")
        if load_instance(catalog, entry.name).chip in chips
    ]
    known = start.stack.frameworks
    said = {name.lower() for name in known}
    frameworks = (*known, *(name for name in software if name.lower() not in said))
    instances = tuple(dict.fromkeys((*start.stack.instances, *alike)))
    return replace(
        start,
        stack=replace(start.stack, frameworks=frameworks, instances=instances),
        table=start.table | {"frameworks": list(frameworks), "instances": list(instances)},
    )


def _begun_before(catalog: Catalog, known: Entry) -> str | None:
    table = catalog.table(known.path)
    begun = table.get("begun_as") if known.origin != BUILT_IN and table.get("fitted_rows") else None
    return begun if isinstance(begun, str) else None


def _shipped(catalog: Catalog, full: str) -> Entry:
    entry = catalog.find("calibration", full)
    return replace(entry, path=entry.hides[-1]) if entry.hides else entry
