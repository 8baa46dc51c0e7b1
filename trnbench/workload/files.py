"""Which record a workload file holds, and what must hold between files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from trnbench.catalog.document import Documented, load
from trnbench.catalog.listing import unknown_name
from trnbench.catalog.search import Catalog
from trnbench.errors import Fault
from trnbench.workload.library import read_model
from trnbench.workload.suite import CollectiveSuite, MatrixSuite, TrainingSuite

READERS: Mapping[str, Callable[[Path], Documented]] = {
    "models": read_model,
    "matrix": partial(load, record=MatrixSuite),
    "collective": partial(load, record=CollectiveSuite),
    "training": partial(load, record=TrainingSuite),
}

_MARKS = {"products": "matrix", "places": "collective", "case": "training"}


def section_of(table: Mapping[str, object]) -> str | None:
    """Return the section that a workload file's contents belong to, or None."""
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
        case TrainingSuite():
            for i, case in enumerate(record.case):
                yield from unknown_name(catalog, "models", case.model, f"case[{i}].model")
                yield from unknown_name(catalog, "instances", case.instance, f"case[{i}].instance")
