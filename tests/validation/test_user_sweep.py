"""A user's file of steps: a published sweep of layouts by eager software that no stack names.

The rows are the plot data of the nanotron ultrascale playbook (Apache-2.0): two models on 1, 4 and
16 nodes, with times, memory, and layouts that crashed or ran out of memory.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from trnbench.evidence.comparison import Comparison
from trnbench.evidence.predict import Predictor
from trnbench.evidence.rows import EvidenceFile, read_evidence
from trnbench.evidence.statistics import summarise
from trnbench.evidence.step_comparison import compare_training
from trnbench.evidence.training_cases import EvidenceCase, Reader
from trnbench.facts.catalog.search import open_catalog

CATALOG = open_catalog(environment={})
SWEEP = read_evidence(Path(__file__).parents[1] / "user_files" / "eager_sweep.csv")


@pytest.fixture(scope="module")
def rows() -> tuple[Comparison, ...]:
    return compare_training(Reader(CATALOG), SWEEP)


@pytest.mark.slow
def test_every_row_is_predicted_but_pipelines_deeper_than_the_model(rows):
    assert len(rows) == 576
    refused = [row for row in rows if row.reason is not None]
    assert len(refused) == 29
    assert all("layers" in (row.reason or "") for row in refused)
    for row in rows:
        assert (row.fit_probability is None) == (row.reason is not None)


@pytest.mark.slow
def test_order_memory_and_fit_are_scored_for_each_question(rows):
    found = summarise(rows)
    assert found.ranking is not None
    assert found.ranking.groups == 6
    assert found.ranking.tau > 0.4
    assert found.memory["all"].rows == 297
    assert (found.fit["all"].ran, found.fit["all"].crashed) == (297, 250)
    assert found.naive["all"].mape > found.errors["all"].mape


@pytest.mark.slow
def test_rows_lowered_together_are_predicted_as_one_by_one(rows):
    some = EvidenceFile(name=SWEEP.name, set="steps", rows=SWEEP.rows[::9])
    alone = Predictor()
    for row, case in zip(rows[::9], Reader(CATALOG).cases(some), strict=True):
        assert isinstance(case, EvidenceCase)
        if row.reason is None:
            found = alone.predict(case)
            held = alone.memory(case, found.mixture)
            told = (found.low_s, found.time_s, found.high_s, found.ideal_s)
            assert told == (row.low_s, row.predicted_s, row.high_s, row.ideal_s)
            assert (held.bytes, held.low_bytes, held.high_bytes, held.fit_probability) == (
                *(row.memory_predicted_bytes, row.memory_low_bytes, row.memory_high_bytes),
                row.fit_probability,
            )
