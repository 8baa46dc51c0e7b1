"""Published steps with typed columns: they are what the untouched originals say."""

from __future__ import annotations

import runpy

import pytest

from trnbench.catalog.search import built_in_folder, open_catalog
from trnbench.evidence.older_columns import steps_of
from trnbench.evidence.rows import EvidenceFile, read_evidence
from trnbench.evidence.step_comparison import compare_training
from trnbench.evidence.training_cases import Reader

PUBLISHED = built_in_folder() / "workloads" / "published"
CATALOG = open_catalog(environment={})
SCRIPT = runpy.run_path(str(PUBLISHED / "convert.py"))
FILES = sorted(SCRIPT["CONVERTED"].items())


def first(file: EvidenceFile, rows: int) -> EvidenceFile:
    return EvidenceFile(name="rows.csv", set=file.set, rows=file.rows[:rows])


@pytest.mark.parametrize(("original", "typed"), FILES)
def test_the_script_writes_what_is_shipped(original, typed):
    assert (PUBLISHED / typed).read_text() == SCRIPT["converted"](original)


@pytest.mark.parametrize(("original", "typed"), FILES)
def test_an_original_is_read_as_its_typed_copy(original, typed):
    translated = steps_of(CATALOG, read_evidence(PUBLISHED / original))
    file = read_evidence(PUBLISHED / typed)
    assert (translated.set, file.set) == ("steps", "steps")
    for one, other in zip(translated.rows, file.rows, strict=True):
        assert one.id == other.id
        assert dict(one.cells) == {name: cell for name, cell in other.cells.items() if cell}


@pytest.mark.slow
@pytest.mark.parametrize(("original", "typed"), FILES)
def test_both_are_predicted_alike(original, typed):
    pairs = [
        compare_training(Reader(CATALOG), first(read_evidence(PUBLISHED / name), 40))
        for name in (original, typed)
    ]
    assert pairs[0] == pairs[1]
    assert sum(row.predicted_s is not None for row in pairs[0]) > 20


def test_refusals_of_the_compiler_are_rows_that_crashed():
    rows = compare_training(Reader(CATALOG), read_evidence(PUBLISHED / "trainium_refusals.csv"))
    assert len(rows) == 3
    assert all(row.measured_s is None for row in rows)
