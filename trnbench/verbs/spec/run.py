"""Data files: shown, held against one another, and checked, each for itself and among others.

Which record a spec file holds, and what must hold between files, stands here once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from os.path import isdir
from pathlib import Path

from trnbench.errors import DataFileError, Fault, InputError, UnknownNameError, did_you_mean
from trnbench.evidence.claims.claim import ClaimList, instances_of, load_claims
from trnbench.evidence.explain.causes import CauseList
from trnbench.facts.calibration import collective_stack, training_stack
from trnbench.facts.calibration.chip_efficiency import ChipEfficiency
from trnbench.facts.calibration.collective_stack import CollectiveStack
from trnbench.facts.calibration.compiler import Compiler
from trnbench.facts.calibration.coverage import BeyondRows
from trnbench.facts.calibration.hosts import JobRates
from trnbench.facts.calibration.population import Population
from trnbench.facts.calibration.software import TrainingSoftware
from trnbench.facts.calibration.supports import ANYTHING_ELSE, KEY
from trnbench.facts.calibration.training_stack import TrainingStack
from trnbench.facts.calibration.transfer import stack_file
from trnbench.facts.catalog.document import Documented, load, load_named
from trnbench.facts.catalog.provenance import Provenance
from trnbench.facts.catalog.search import (
    SECTIONS,
    SINGULAR,
    WORKLOAD_SECTIONS,
    Catalog,
    Entry,
    FileCheck,
    Folder,
    unknown_name,
)
from trnbench.facts.catalog.text_file import files_below
from trnbench.facts.catalog.toml_file import read_toml
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.figures import Compared, chip_figures, compare, figures
from trnbench.facts.hardware.instance import Instance
from trnbench.facts.hardware.library import Reliability, load_chip, load_platform
from trnbench.facts.prices.price import PriceList, find_prices
from trnbench.facts.prices.purchase import PurchaseRules
from trnbench.facts.workload import library as workload_files
from trnbench.facts.workload.model import Model
from trnbench.facts.workload.study import Study
from trnbench.facts.workload.weights import (
    active_parameter_count,
    parameter_count,
    parameters_by_block,
)
from trnbench.program.features import known_features
from trnbench.show.sheet import Sheet
from trnbench.verbs.study.checks import OptionsOf, check_options

_CALIBRATIONS: Mapping[
    str, type[CollectiveStack | ChipEfficiency | TrainingStack | JobRates | BeyondRows | Population]
] = {
    "tunings": CollectiveStack,
    "tensor_share": ChipEfficiency,
    "kernels": TrainingStack,
    "engine_share": JobRates,
    "degrees": BeyondRows,
    "eager": Population,
}
"""Calibrations by a key that no other has."""


def load_calibration(path: Path) -> Documented:
    """Return the record of the calibration in a file, whichever it is."""
    table = read_toml(path)
    record = next((record for key, record in _CALIBRATIONS.items() if key in table), None)
    if record is None:
        keys = ", ".join(f"`{key}`" for key in _CALIBRATIONS)
        message = f"cannot tell which calibration this is; it needs one of {keys}"
        raise DataFileError(str(path), [Fault(path="", message=message)])
    return load(path, record)


SPEC_READERS: Mapping[str, Callable[[Path], Documented]] = {
    "chips": partial(load, record=Chip),
    "instances": partial(load, record=Instance),
    "prices": partial(load, record=PriceList),
    "purchase": partial(load, record=PurchaseRules),
    "reliability": partial(load, record=Reliability),
    "calibration": load_calibration,
    "claims": load_claims,
    "explain": partial(load, record=CauseList),
    "software": partial(load, record=TrainingSoftware),
    "compilers": partial(load, record=Compiler),
}

INHERITING: Mapping[str, type[Chip | Instance]] = {"chips": Chip, "instances": Instance}
"""Records that may be `like` another of their section."""

_MARKS = {
    "price": "prices",
    "statement": "claims",
    "cause": "explain",
    "metered": "purchase",
    "failures_per_node_day": "reliability",
    "graph_instructions": "compilers",
    "chip": "instances",
    "fabric": "instances",
    "like": "instances",
    "cores": "chips",
    "multiprocessors": "chips",
    **dict.fromkeys(_CALIBRATIONS, "calibration"),
}


def section_of(table: Mapping[str, object]) -> str | None:
    return next((section for key, section in _MARKS.items() if key in table), None)


def cross_faults(record: Documented, catalog: Catalog) -> Iterator[Fault]:
    """Yield the names in an instance, a calibration or claims that are in no catalogue."""
    match record:
        case Instance():
            yield from unknown_name(catalog, "chips", record.chip, "chip")
            if record.host_instance is not None:
                yield from unknown_name(catalog, "instances", record.host_instance, "host_instance")
        case ChipEfficiency() | Reliability():
            for i, chip in enumerate(record.chips):
                yield from unknown_name(catalog, "chips", chip, f"chips[{i}]")
        case CollectiveStack() | TrainingStack():
            for i, instance in enumerate(record.instances):
                yield from unknown_name(catalog, "instances", instance, f"instances[{i}]")
        case ClaimList():
            for i, run in enumerate(record.run):
                yield from unknown_name(catalog, "models", run.model, f"run[{i}].model")
            for i, statement in enumerate(record.statement):
                place = f"statement[{i}].{statement.kind}"
                for instance in instances_of(statement.check):
                    yield from unknown_name(catalog, "instances", instance, place)
    if isinstance(record, ChipEfficiency | CollectiveStack | TrainingStack):
        inherited = record.inherits_from
        if inherited is not None:
            yield from unknown_name(catalog, "calibration", inherited, "inherits_from")
    if isinstance(record, TrainingStack):
        yield from _unknown_features(record)
    if isinstance(record, TrainingStack) and record.collectives is not None:
        yield from unknown_name(catalog, "calibration", record.collectives, "collectives")


def use_of(catalog: Catalog, instance: Instance) -> tuple[str, ...]:
    """Return in words whose calibrations an instance takes over; refuse one that cannot be used.

    Nothing is said of one that calibrations name.
    """
    from trnbench.machine.fabric import build_fabric  # lists and sheets need no numpy

    chip = load_chip(catalog, instance.chip)
    nodes = 2 if instance.network else 1
    build_fabric(instance, nodes=nodes, ranks_per_chip=chip.ranks())
    notes = []
    for what, prefix, keys in (
        ("training", training_stack.STACK_PREFIX, training_stack.STACK_KEYS),
        ("communication", collective_stack.FILE_PREFIX, collective_stack.STACK_KEYS),
    ):
        entry, nearest = stack_file(catalog, instance, prefix, keys)
        if nearest is not None:
            notes.append(f"{what} by {entry.name}, from {nearest.instance}: {nearest.alike}")
    return tuple(notes)


def _unknown_features(stack: TrainingStack) -> Iterator[Fault]:
    features = {*known_features(), ANYTHING_ELSE}
    for i, line in enumerate(stack.supports):
        for j, feature in enumerate(line.features):
            if feature not in features:
                message = f"no such feature {feature!r}{did_you_mean(feature, features)}"
                yield Fault(path=f"{KEY}[{i}].features[{j}]", message=message)


READERS = {**SPEC_READERS, **workload_files.READERS}


def sheet(catalog: Catalog, name: str, sections: Sequence[str]) -> Sheet:
    """Return the data file with this name or alias (or `section/name`).

    An instance comes before the price list of its name; workloads that share a name do not.
    """
    entry = _find(catalog, name, sections)
    if entry.section == "instances":
        platform = load_platform(catalog, entry.name)
        return Sheet(
            entry=entry,
            record=platform.instance,
            figures=figures(platform),
            chip=platform.chip,
            prices=find_prices(catalog, entry.name),
        )
    record = _read(catalog, entry.section, entry.path)
    match record:
        case Chip():
            return Sheet(entry=entry, record=record, figures=chip_figures(record))
        case Model():
            return Sheet(entry=entry, record=record, parameters=parameters(record))
        case ChipEfficiency() | TrainingStack():
            return Sheet(entry=entry, record=record, givers=_givers(catalog, record))
        case _:
            return Sheet(entry=entry, record=record)


def _givers(catalog: Catalog, record: ChipEfficiency | TrainingStack) -> Mapping[str, Provenance]:
    """Return the provenance of each calibration that numbers were taken over from, by name."""
    givers: dict[str, Provenance] = {}
    name = record.inherits_from
    while name is not None and name not in givers:
        giver = load_named(catalog, "calibration", name, type(record))
        givers[name] = giver.provenance
        name = giver.inherits_from
    return givers


def parameters(model: Model) -> tuple[tuple[str, int], ...]:
    total, active = parameter_count(model), active_parameter_count(model)
    rows = [*parameters_by_block(model).items(), ("total", total)]
    return tuple(rows if active == total else [*rows, ("active for a token", active)])


def diff(catalog: Catalog, names: Sequence[str]) -> tuple[tuple[str, ...], tuple[Compared, ...]]:
    """Return (the specs' names, their figures side by side): instances, or chips."""
    if len(names) < 2:
        raise InputError("nothing to compare: give two names or more")
    entries = [_find(catalog, name, ("instances", "chips")) for name in names]
    if len({entry.section for entry in entries}) > 1:
        raise InputError("cannot compare a chip with an instance; give names of one kind")
    columns = [
        figures(load_platform(catalog, entry.name))
        if entry.section == "instances"
        else chip_figures(load_chip(catalog, entry.name))
        for entry in entries
    ]
    return tuple(entry.name for entry in entries), compare(columns)


def check_files(
    catalog: Catalog,
    paths: Sequence[Path],
    sections: Sequence[str],
    options_of: OptionsOf | None = None,
) -> tuple[FileCheck, ...]:
    """Return every fault of every named file; folders stand for the TOML files below them.

    Files in a folder named for their section may name each other, as if the folder were searched.
    With the options of verbs, studies are checked for options that none of theirs has.
    """
    files = list(_files(paths))
    folders = dict.fromkeys(path.parent.parent for path in files if path.parent.name in SECTIONS)
    searched = Catalog((*(Folder(path, "validated") for path in folders), *catalog.folders))
    return tuple(_check(searched, path, sections, options_of) for path in files)


def _find(catalog: Catalog, name: str, sections: Sequence[str]) -> Entry:
    wanted, _, bare = name.rpartition("/")
    if wanted in sections:
        return catalog.find(wanted, bare)
    entries = [catalog.find(s, name) for s in sections if name in catalog.names(s)]
    if len(entries) > 1 and entries[0].section in WORKLOAD_SECTIONS:
        spelled = " or ".join(f"{entry.section}/{name}" for entry in entries)
        raise InputError(f"{name!r} names {len(entries)} workloads; write {spelled}")
    if entries:
        return entries[0]
    for section in sections:
        catalog.refuse_unreadable(section)
    names = [*(n for section in sections for n in catalog.names(section))]
    raise UnknownNameError(" or ".join(SINGULAR[s] for s in sections[:2]), name, names)


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        # Unlike Path.is_dir, this is no error for a path that may not be looked at.
        if not isdir(path):
            yield path
            continue
        below = [file for file in files_below(path) if file.suffix == ".toml"]
        if not below:
            raise InputError(f"{path}: no TOML files in this folder")
        yield from below


def _check(
    catalog: Catalog, path: Path, sections: Sequence[str], options_of: OptionsOf | None
) -> FileCheck:
    section = None
    try:
        section = _section_of(path, sections)
        record = _read(catalog, section, path)
        if isinstance(record, Study) and options_of is not None:
            check_options(record, options_of)
    except DataFileError as error:
        return FileCheck(path=path, section=section, faults=error.faults)
    faults = [*_name_faults(catalog, section, path, record)]
    faults += [*cross_faults(record, catalog)]
    faults += [*workload_files.cross_faults(record, catalog)]
    notes: tuple[str, ...] = ()
    if isinstance(record, Instance) and not faults:
        try:
            notes = use_of(catalog, record)
        except InputError as error:
            faults.append(Fault(path="fabric", message=error.message))
    return FileCheck(path=path, section=section, faults=tuple(faults), notes=notes)


def _read(catalog: Catalog, section: str, path: Path) -> Documented:
    inheriting = INHERITING.get(section)
    return load(path, inheriting, catalog) if inheriting else READERS[section](path)


def _section_of(path: Path, sections: Sequence[str]) -> str:
    table = read_toml(path)
    by_content = section_of(table) or workload_files.section_of(table)
    section = path.parent.name if path.parent.name in sections else by_content
    if section is None or section not in sections:
        what = ", ".join(SINGULAR[section] for section in sections)
        message = f"cannot tell what this describes; expected one of: {what}"
        raise DataFileError(str(path), [Fault(path="", message=message)])
    return section


def _name_faults(catalog: Catalog, section: str, path: Path, record: Documented) -> Iterator[Fault]:
    names = (record.name, *getattr(record, "aliases", ()))
    for name in dict.fromkeys(names):
        others = [u for u in catalog.users(section).get(name, ()) if u.name != path.stem]
        if names.count(name) > 1:
            yield Fault(path="aliases", message=f"duplicate name {name!r}: twice in this file")
        elif others:
            key = "name" if name == record.name else "aliases"
            yield Fault(path=key, message=f"duplicate name {name!r}: {others[0].path} has it")
