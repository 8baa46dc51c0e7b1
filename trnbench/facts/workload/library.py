"""Workloads by name: models, and suites of products, collectives and training cases.

Suites name chips, instances and models; they hold no records of these.
"""

from __future__ import annotations

from pathlib import Path

from trnbench.errors import DataFileError, Fault
from trnbench.facts.catalog.document import load, load_named
from trnbench.facts.catalog.provenance import Sourced
from trnbench.facts.catalog.quantity import Bytes
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.numbers.formats import FORMATS
from trnbench.facts.records import Record, check_sizes
from trnbench.facts.workload.choices import Op
from trnbench.facts.workload.layout import Layout
from trnbench.facts.workload.model import Model
from trnbench.facts.workload.weights import parameter_count


class Product(Record):
    """A matrix product: m x k by k x n, `batch` times; the label names its origin."""

    m: int
    k: int
    n: int
    batch: int = 1
    label: str = ""

    def __post_init__(self) -> None:
        check_sizes(self)


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


class Place(Record):
    """A number of instances of a type."""

    instance: str
    nodes: int = 1

    def __post_init__(self) -> None:
        check_sizes(self)


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


class TrainingCase(Record):
    """One training configuration: a model on `nodes` instances in a layout."""

    label: str
    model: str
    instance: str
    nodes: int
    layout: Layout
    note: str = ""

    def __post_init__(self) -> None:
        check_sizes(self)


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


def read_model(path: Path) -> Model:
    """The model in the file, whose shapes must give the cited parameter count."""
    model = load(path, Model)
    counted = parameter_count(model)
    if model.published is not None and not model.published.agrees(counted):
        message = f"{model.published.parameters:,} cited, but the shapes give {counted:,}"
        raise DataFileError(str(path), [Fault(path="published.parameters", message=message)])
    return model


def load_model(catalog: Catalog, name: str, *, where: str = "") -> Model:
    path = catalog.find("models", name, where=where).path
    return catalog.once(path, Model, lambda: read_model(path))


def load_matrix_suite(catalog: Catalog, name: str) -> MatrixSuite:
    return load_named(catalog, "matrix", name, MatrixSuite)


def load_collective_suite(catalog: Catalog, name: str) -> CollectiveSuite:
    return load_named(catalog, "collective", name, CollectiveSuite)


def load_training_suite(catalog: Catalog, name: str) -> TrainingSuite:
    return load_named(catalog, "training", name, TrainingSuite)
