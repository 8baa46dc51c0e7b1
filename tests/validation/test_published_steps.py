"""Published steps that crashed: rows without a time that say which layout ran out of memory."""

from __future__ import annotations

from trnbench.evidence.rows import read_evidence
from trnbench.evidence.step_comparison import compare_training
from trnbench.evidence.training_cases import Reader
from trnbench.facts.catalog.search import built_in_folder, open_catalog

PUBLISHED = built_in_folder() / "workloads" / "published"
CATALOG = open_catalog(environment={})


def test_refusals_of_the_compiler_are_rows_that_crashed():
    rows = compare_training(Reader(CATALOG), read_evidence(PUBLISHED / "trainium_refusals.csv"))
    assert len(rows) == 3
    assert all(row.measured_s is None for row in rows)
