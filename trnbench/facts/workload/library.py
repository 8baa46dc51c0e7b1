"""Workloads by name: models and suites of the catalogue."""

from __future__ import annotations

from pathlib import Path

from trnbench.errors import DataFileError, Fault
from trnbench.facts.catalog.document import load, load_named
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.workload.model import Model
from trnbench.facts.workload.suite import CollectiveSuite, MatrixSuite, TrainingSuite
from trnbench.facts.workload.weights import parameter_count


def read_model(path: Path) -> Model:
    """The model in the file, whose shapes must give the cited parameter count."""
    model = load(path, Model)
    counted = parameter_count(model)
    if model.published is not None and not model.published.agrees(counted):
        message = f"{model.published.parameters:,} cited, but the shapes give {counted:,}"
        raise DataFileError(str(path), [Fault(path="published.parameters", message=message)])
    return model


def load_model(catalog: Catalog, name: str, *, where: str = "") -> Model:
    """The model with this name or alias."""
    path = catalog.find("models", name, where=where).path
    return catalog.once(path, Model, lambda: read_model(path))


def load_matrix_suite(catalog: Catalog, name: str) -> MatrixSuite:
    """The matrix suite with this name or alias."""
    return load_named(catalog, "matrix", name, MatrixSuite)


def load_collective_suite(catalog: Catalog, name: str) -> CollectiveSuite:
    """The collective suite with this name or alias."""
    return load_named(catalog, "collective", name, CollectiveSuite)


def load_training_suite(catalog: Catalog, name: str) -> TrainingSuite:
    """The training suite with this name or alias."""
    return load_named(catalog, "training", name, TrainingSuite)
