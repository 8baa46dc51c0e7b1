"""Rules of purchase and failure rates: shipped ones complete, contradictions refused."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from trnbench.errors import InputError
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import Reliability, load_reliability
from trnbench.facts.prices.price import Price
from trnbench.facts.prices.purchase import (
    BlockRules,
    CommitmentRules,
    MeteredRules,
    SpotRules,
    load_purchase_rules,
)

CATALOG = open_catalog(environment={})
RULES: Any = load_purchase_rules(CATALOG, "AWS")


def test_the_rules_of_amazon():
    assert (RULES.metered.minimum_s, RULES.metered.step_s) == (60, 1)
    assert RULES.commitment.years == (1, 3)
    assert RULES.commitment.year_s == 8760 * 3600
    assert RULES.block.sizes == (1, 2, 4, 8, 16, 32, 64)
    assert RULES.block.most == 256
    assert RULES.block.ends_early_s == 1800
    assert RULES.block.ahead_s == 8 * 7 * 86400
    assert load_purchase_rules(CATALOG, "aws") == RULES


def test_nobody_elses_rules_are_known():
    assert load_purchase_rules(CATALOG, "NVIDIA") is None


def test_every_chip_has_a_failure_rate_with_a_range():
    for entry in CATALOG.entries("chips"):
        known = load_reliability(CATALOG, entry.name)
        evidence = known.provenance.evidence["failures_per_node_day"]
        assert evidence.low is not None
        assert evidence.high is not None
        assert evidence.low < known.failures_per_node_day < evidence.high


def test_published_rates_by_hand():
    # 419 interruptions in 54 days on 16,384 GPUs, 8 to a node: 419 / 54 / 2,048 = 3.79e-3.
    hopper = load_reliability(CATALOG, "h100")
    assert hopper.failures_per_node_day == pytest.approx(419 / 54 / 2048, rel=1e-3)
    # 7.9 h between failures on 1,024 GPUs: 24 / 7.9 / 128 = 0.0237.
    ampere = load_reliability(CATALOG, "a100-80gb")
    high = ampere.provenance.evidence["failures_per_node_day"].high
    assert high == pytest.approx(24 / 7.9 / 128, rel=0.02)


def test_an_unknown_chip_says_what_to_do():
    with pytest.raises(InputError, match="no failure rate is known for chip tpu") as caught:
        load_reliability(CATALOG, "tpu")
    assert "reliability/" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("terms", "years"),
    [("1 year, standard, no upfront", 1), ("3 years", 3), ("standard", None), (None, None)],
)
def test_the_length_of_a_term(terms, years):
    day = datetime.date(2026, 1, 1)
    price = Price(region="a", option="reserved", terms=terms, date_from=day, date_to=day)
    assert price.term_years == years


BLOCK: dict[str, Any] = {
    "single_days_to": 2,
    "step_days": 2,
    "longest_days": 6,
    "sizes": (1,),
    "ends_early_s": 0.0,
    "ahead_s": 0.0,
}


def test_lengths_of_blocks():
    assert BlockRules(**BLOCK).durations_days == (1, 2, 4, 6)
    assert BlockRules(**BLOCK | {"single_days_to": 3}).durations_days == (1, 2, 3, 4, 6)


@pytest.mark.parametrize(
    ("record", "fields"),
    [
        (MeteredRules, {"step_s": 0.0, "minimum_s": 60.0}),
        (CommitmentRules, {"years": (), "year_s": 1.0}),
        (CommitmentRules, {"years": (0,), "year_s": 1.0}),
        (CommitmentRules, {"years": (1,), "year_s": 0.0}),
        (BlockRules, BLOCK | {"single_days_to": 0}),
        (BlockRules, BLOCK | {"longest_days": 1}),
        (BlockRules, BLOCK | {"step_days": 0}),
        (BlockRules, BLOCK | {"sizes": ()}),
        (BlockRules, BLOCK | {"sizes": (0,)}),
        (BlockRules, BLOCK | {"sizes": (4,), "most": 3}),
        (
            SpotRules,
            {"reclaimed_per_month": 1.0, "month_s": 1.0, "notice_s": 1.0, "wait_s": 1.0},
        ),
        (
            Reliability,
            {
                "name": "a",
                "title": "A",
                "chips": ("a",),
                "failures_per_node_day": 0.1,
                "node_chips": 0,
                "detect_s": 1.0,
                "launch_s": 1.0,
                "compile_s": 1.0,
                "write_per_node_bytes_per_s": 1.0,
                "write_total_bytes_per_s": 1.0,
                "stalled_share": 1.0,
            },
        ),
    ],
)
def test_contradictions_are_refused(record, fields):
    with pytest.raises(ValueError, match=r"`|terms of at least"):
        record(**fields)
