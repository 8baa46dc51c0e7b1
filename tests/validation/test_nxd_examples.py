"""The configurations that NxD Training ships run as they are; made much heavier, they do not."""

from __future__ import annotations

import re

import pytest

from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.records import replace
from trnbench.verbs.train.question import TrainQuestion
from trnbench.verbs.train.run import run

SUITE = TrainQuestion(suite="nxd-examples")


@pytest.fixture
def catalog(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return open_catalog()


def test_all_examples_fit_as_shipped(catalog):
    answers = run(catalog, SUITE.settled(catalog))
    assert len(answers) == 6
    assert [answer.label for answer in answers if not answer.feasible] == []


def test_unfused_attention_without_recompute_at_twice_the_length_does_not_fit(catalog):
    heavier = tuple(
        replace(
            case,
            layout=case.layout.changed(
                attention="naive",
                recompute="none",
                sequence=2 * case.layout.degree("sequence"),
            ),
        )
        for case in SUITE.settled(catalog).cases
    )
    answers = run(catalog, SUITE.but(of_suite=heavier))
    refused = [answer for answer in answers if not answer.feasible]
    assert len(refused) >= 5
    words = re.compile(r"per rank, [\d.]+x the [\d.]+ GiB available: activations")
    assert all(words.search(answer.reasons[0]) for answer in refused)
