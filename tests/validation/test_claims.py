"""The shipped claims: all are tried, and what the specs alone decide is decided so."""

from __future__ import annotations

import pytest

from trnbench.evidence.claims.claim import VERDICTS, load_claims
from trnbench.facts.catalog.search import open_catalog
from trnbench.verbs.claims.run import claims

CATALOG = open_catalog(environment={})
BY_SPECS = {
    "trn1-bf16": "holds",
    "trn1-fp8": "holds",
    "trn1-210tf": "does not",
    "trn1-3360tf": "does not",
    "trn1-fp32-chip": "does not",
    "trn1-fp32": "does not",
    "trn1-memory": "holds only if",
    "trn1-memory-chip": "holds only if",
    "trn1-memory-gib": "holds",
    "trn1-memory-bandwidth": "does not",
    "trn1-memory-bandwidth-gib": "holds only if",
    "trn1-memory-bandwidth-chip": "holds only if",
    "trn1-network": "holds",
    "trn1-network-1600": "holds only if",
    "trn1-network-highest": "holds",
    "trn1-network-small-25": "does not",
    "trn1-network-small": "holds",
    "trn1-storage": "does not",
    "trn1-storage-small": "does not",
    "trn1-cluster": "holds",
    "trn2-fp8": "holds only if",
    "trn2-bf16": "holds only if",
    "trn2-fp32": "holds only if",
    "trn2-sparse": "holds",
    "trn2-sparsity": "holds only if",
    "trn2-over-trn1": "holds only if",
    "trn2-four-times-compute": "holds only if",
    "trn2-four-times-bandwidth": "does not",
    "trn2-three-times-memory": "holds",
    "trn2-memory": "holds only if",
    "trn2-memory-gib": "holds",
    "trn2-memory-bandwidth": "holds",
    "trn2-links": "holds",
    "trn2-network": "holds",
    "ultraserver-fp8": "holds only if",
    "ultraserver-bf16": "holds only if",
    "ultraserver-fp32": "holds only if",
    "ultraserver-sparse": "holds",
    "ultraserver-memory": "holds only if",
    "ultraserver-memory-gib": "holds",
    "ultraserver-memory-bandwidth": "holds",
    "ultraserver-network": "holds",
    "ultraserver-network-3200": "holds only if",
    "ultraserver-links": "holds",
    "ultraserver-chips": "holds",
    "ultraserver-fast": "holds",
    "trn3-compute": "holds only if",
    "gpu-price-cut": "holds only if",
    "savings-plan-compute": "undecided",
    "savings-plan-instance": "undecided",
}


pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("claims")]


@pytest.fixture(scope="module")
def found():
    return {claim.id: claim for claim in claims(catalog=CATALOG)}


def test_every_claim_is_tried(found):
    shipped = [
        statement
        for entry in CATALOG.entries("claims")
        for statement in load_claims(entry.path).statement
    ]
    assert list(found) == [statement.id for statement in shipped]
    for claim in found.values():
        assert claim.finding.verdict in VERDICTS
        assert claim.finding.reason
        assert "\n" not in claim.finding.says + claim.finding.reason


def test_what_specs_and_prices_decide(found):
    decided = ("figure", "ratio", "price")
    assert {
        claim.id: claim.finding.verdict for claim in found.values() if claim.check in decided
    } == BY_SPECS


def test_what_the_model_decides_has_cases_with_intervals(found):
    speeds = [claim for claim in found.values() if claim.check == "speed"]
    assert len(speeds) == 3
    for claim in speeds:
        assert claim.finding.says
        for case in claim.finding.cases:
            assert case.low <= case.value <= case.high


def test_what_turns_on_prices_is_tried_whenever_one_changed(found):
    costs = {claim.id: claim.finding for claim in found.values() if claim.check == "cost"}
    assert set(costs) == {"trn1-cost", "trn2-price-performance"}
    for finding in costs.values():
        priced = [move for move in finding.moves if move.best is not None]
        assert len(priced) >= 3
        days = [move.price_date for move in finding.moves]
        assert days == sorted(days)
    days = [str(move.price_date) for move in costs["trn1-cost"].moves]
    # the announcement; the last prices before the cut of June 2025, and the first after it
    assert days[0] == "2022-10-10"
    assert {"2025-04-28", "2025-06-23"} <= set(days)


def test_dearer_gpus_never_speak_against_trainium(found):
    # Capacity Blocks of P5en rose from January to July to October 2026, those of Trn2 did not.
    moves = found["trn2-price-performance"].finding.moves
    gains = [move.best.value for move in moves if move.best is not None]
    # Two sources of October round differently.
    assert gains == pytest.approx(sorted(gains), abs=1e-3)
