from __future__ import annotations

from pathlib import Path

import pytest

from trnbench.errors import DataFileError, UnknownNameError
from trnbench.facts.catalog.document import load
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.workload.library import (
    CollectiveSuite,
    MatrixSuite,
    TrainingSuite,
    load_collective_suite,
    load_matrix_suite,
    load_training_suite,
)

CATALOG = open_catalog(environment={})


def broken(folder: Path, section: str, name: str, old: str, new: str) -> Path:
    text = CATALOG.find(section, name).path.read_text(encoding="utf-8")
    assert old in text
    path = folder / f"{name}.toml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return path


def faults(path: Path, record: type) -> str:
    with pytest.raises(DataFileError) as caught:
        load(path, record)
    return "\n".join(map(str, caught.value.faults))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"bf16"', '"bf17"', "unknown number format 'bf17'"),
        ("m = 256", "m = 0", "products[0]: `m` must be from 1"),
        ("k = 256", "q = 256", "products[0].q: unknown key"),
        ('chips = ["trainium1", "trainium2", "trainium3"]', "chips = []", "`chips` is empty"),
    ],
)
def test_malformed_matrix_suite(tmp_path, old, new, message):
    assert message in faults(broken(tmp_path, "matrix", "square", old, new), MatrixSuite)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"all-gather"', '"allgather"', "expected one of all-reduce"),
        ('"4 KiB"', '"2 GiB"', "sizes go up from `min_size` to `max_size`"),
        ('"4 KiB"', "1024", "min_size: expected a quantity with unit"),
        ("factor = 4", "factor = 1", "by a `factor` above 1"),
        ("nodes = 2", "nodes = 0", "places[1]: `nodes` must be from 1"),
    ],
)
def test_malformed_collective_suite(tmp_path, old, new, message):
    path = broken(tmp_path, "collective", "trn1", old, new)
    assert message in faults(path, CollectiveSuite)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tp = 8", "tp = 0", "case[0].layout: `tp` must be from 1"),
        ("tp = 8", "tensor = 8", "case[0].layout.tensor: unknown key"),
        (
            'recompute = "selective"',
            'recompute = "sel"',
            "case[0].layout: `recompute` 'sel' is not one of none",
        ),
        ('"llama3-8b, 4 x trn1"', '"llama2-7b, 1 x trn1"', "duplicate label 'llama2-7b, 1 x trn1'"),
        ("nodes = 1", 'nodes = "one"', "case[0].nodes: expected a whole number"),
    ],
)
def test_malformed_training_suite(tmp_path, old, new, message):
    path = broken(tmp_path, "training", "nxd-examples", old, new)
    assert message in faults(path, TrainingSuite)


def test_suites_by_name():
    assert load_matrix_suite(CATALOG, "square").products[0].m == 256
    assert load_collective_suite(CATALOG, "trn1").min_size_bytes == 4096
    assert load_training_suite(CATALOG, "nxd-examples").case[3].layout.tp == 16
    with pytest.raises(UnknownNameError, match="unknown training suite 'nxd'"):
        load_training_suite(CATALOG, "nxd")
