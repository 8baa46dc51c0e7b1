"""Record class of each workload file, and consistency checks between files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from trnbench.errors import Fault, did_you_mean
from trnbench.facts.catalog.document import Documented, load
from trnbench.facts.catalog.search import Catalog, unknown_name
from trnbench.facts.workload.fleet import FleetFile, read_fleet
from trnbench.facts.workload.layout import KNOBS
from trnbench.facts.workload.library import CollectiveSuite, MatrixSuite, TrainingSuite, read_model
from trnbench.facts.workload.study import read_study

READERS: Mapping[str, Callable[[Path], Documented]] = {
    "models": read_model,
    "matrix": partial(load, record=MatrixSuite),
    "collective": partial(load, record=CollectiveSuite),
    "training": partial(load, record=TrainingSuite),
    "fleets": read_fleet,
    "studies": read_study,
}

_MARKS = {
    "products": "matrix",
    "places": "collective",
    "case": "training",
    "horizon": "fleets",
    "axes": "studies",
}


def section_of(table: Mapping[str, object]) -> str | None:
    if "transformer" in table or "recommender" in table:
        return "models"
    return next((section for key, section in _MARKS.items() if key in table), None)


def cross_faults(record: Documented, catalog: Catalog) -> Iterator[Fault]:
    """Yield the names in a suite that are in no catalogue."""
    match record:
        case MatrixSuite():
            for i, name in enumerate(record.chips):
                yield from unknown_name(catalog, "chips", name, f"chips[{i}]")
        case CollectiveSuite():
            for i, place in enumerate(record.places):
                yield from unknown_name(
                    catalog, "instances", place.instance, f"places[{i}].instance"
                )
        case FleetFile():
            yield from _unknown_in(record, catalog)
        case TrainingSuite():
            for i, case in enumerate(record.case):
                yield from unknown_name(catalog, "models", case.model, f"case[{i}].model")
                yield from unknown_name(catalog, "instances", case.instance, f"case[{i}].instance")


def _unknown_in(fleet: FleetFile, catalog: Catalog) -> Iterator[Fault]:
    for i, instance in enumerate(fleet.on):
        yield from unknown_name(catalog, "instances", instance, f"on[{i}]")
    for i, job in enumerate(fleet.job):
        yield from unknown_name(catalog, "models", job.model, f"job[{i}].model")
        for j, instance in enumerate(job.on):
            yield from unknown_name(catalog, "instances", instance, f"job[{i}].on[{j}]")
        for name in job.layout:
            if name not in KNOBS:
                message = f"a layout has no {name!r}{did_you_mean(name, KNOBS)}"
                yield Fault(path=f"job[{i}].layout", message=message)
    for what in ("quota", "commitment", "block"):
        for i, one in enumerate(getattr(fleet, what)):
            yield from unknown_name(catalog, "instances", one.instance, f"{what}[{i}].instance")
