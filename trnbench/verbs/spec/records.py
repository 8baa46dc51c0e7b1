"""Kind of record that a spec file holds, and rules between files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from trnbench.errors import DataFileError, Fault, did_you_mean
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
from trnbench.facts.catalog.document import Documented, load
from trnbench.facts.catalog.search import Catalog, unknown_name
from trnbench.facts.catalog.toml_file import read_toml
from trnbench.facts.hardware.chip import Chip
from trnbench.facts.hardware.instance import Instance
from trnbench.facts.hardware.library import Reliability, load_chip
from trnbench.facts.prices.price import PriceList
from trnbench.facts.prices.purchase import PurchaseRules
from trnbench.program.features import known_features

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


READERS: Mapping[str, Callable[[Path], Documented]] = {
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
    """Return the section that a spec file's contents belong to, or None."""
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
    known = {*known_features(), ANYTHING_ELSE}
    for i, line in enumerate(stack.supports):
        for j, feature in enumerate(line.features):
            if feature not in known:
                message = f"no such feature {feature!r}{did_you_mean(feature, known)}"
                yield Fault(path=f"{KEY}[{i}].features[{j}]", message=message)
