"""Workloads by name: models, and suites of products, collectives and training cases.

Suites name chips, instances and models; they hold no records of these. `READERS` has the reader of
each kind of workload file, and `cross_faults` the names in it that are in no catalogue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from trnbench.errors import Fault, did_you_mean
from trnbench.facts.catalog.document import Documented, load, load_named
from trnbench.facts.catalog.provenance import Sourced
from trnbench.facts.catalog.quantity import Bytes
from trnbench.facts.catalog.search import Catalog, unknown_name
from trnbench.facts.catalog.text_file import refused
from trnbench.facts.numbers.formats import FORMATS
from trnbench.facts.records import Sized, check_sizes
from trnbench.facts.workload.choices import Op
from trnbench.facts.workload.fleet import FleetFile, read_fleet
from trnbench.facts.workload.layout import KNOBS, Layout
from trnbench.facts.workload.model import Model
from trnbench.facts.workload.study import read_study
from trnbench.facts.workload.weights import parameter_count


class Product(Sized):
    """A matrix product: m x k by k x n, `batch` times; the label names its origin."""

    m: int
    k: int
    n: int
    batch: int = 1
    label: str = ""


class MatrixSuite(Sourced):
    """Matrix products to run in each of the formats on each of the chips."""

    name: str
    title: str
    aliases: tuple[str, ...] = ()
    chips: tuple[str, ...]
    formats: tuple[str, ...]
    products: tuple[Product, ...]

    def __post_init__(self) -> None:
        _refuse_empty(self, "chips", "formats", "products")
        unknown = sorted(set(self.formats) - set(FORMATS))
        if unknown:
            raise ValueError(f"unknown number format {unknown[0]!r}; known: {', '.join(FORMATS)}")


class Place(Sized):
    """A number of instances of a type."""

    instance: str
    nodes: int = 1


class CollectiveSuite(Sourced):
    """Collectives over all ranks of each place, with messages from `min_size` up by `factor`."""

    name: str
    title: str
    aliases: tuple[str, ...] = ()
    places: tuple[Place, ...]
    operations: tuple[Op, ...]
    min_size_bytes: Bytes
    max_size_bytes: Bytes
    factor: int

    def __post_init__(self) -> None:
        check_sizes(self)
        _refuse_empty(self, "places", "operations")
        if self.factor == 1 or self.min_size_bytes > self.max_size_bytes:
            raise ValueError("sizes go up from `min_size` to `max_size` by a `factor` above 1")


class TrainingCase(Sized):
    """One training configuration: a model on `nodes` instances in a layout."""

    label: str
    model: str
    instance: str
    nodes: int
    layout: Layout
    note: str = ""


class TrainingSuite(Sourced):
    """Training configurations to run one after the other."""

    name: str
    title: str
    aliases: tuple[str, ...] = ()
    case: tuple[TrainingCase, ...]

    def __post_init__(self) -> None:
        _refuse_empty(self, "case")
        labels = [case.label for case in self.case]
        twice = sorted({label for label in labels if labels.count(label) > 1})
        if twice:
            raise ValueError(f"duplicate label {twice[0]!r}")


def _refuse_empty(record: object, *names: str) -> None:
    for name in names:
        if not getattr(record, name):
            raise ValueError(f"`{name}` is empty")


def read_model(path: Path, catalog: Catalog | None = None) -> Model:
    """The model in the file, whose shapes must give the cited parameter count.

    A file in JSON is a configuration of Hugging Face.
    """
    if path.suffix == ".json":
        from trnbench.facts.workload.hf_config import configured_model

        return configured_model(path)
    model = load(path, Model, catalog)
    counted = parameter_count(model)
    if model.published is not None and not model.published.agrees(counted):
        message = f"{model.published.parameters:,} cited, but the shapes give {counted:,}"
        raise refused(path, message, "published.parameters")
    return model


def load_model(catalog: Catalog, name: str, *, where: str = "") -> Model:
    path = catalog.find("models", name, where=where).path
    return catalog.once(path, Model, lambda: read_model(path, catalog))


def load_matrix_suite(catalog: Catalog, name: str) -> MatrixSuite:
    return load_named(catalog, "matrix", name, MatrixSuite)


def load_collective_suite(catalog: Catalog, name: str) -> CollectiveSuite:
    return load_named(catalog, "collective", name, CollectiveSuite)


def load_training_suite(catalog: Catalog, name: str) -> TrainingSuite:
    return load_named(catalog, "training", name, TrainingSuite)


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
                yield Fault(f"job[{i}].layout", message)
    for what in ("quota", "commitment", "block"):
        for i, entry in enumerate(getattr(fleet, what)):
            yield from unknown_name(catalog, "instances", entry.instance, f"{what}[{i}].instance")
