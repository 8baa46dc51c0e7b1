"""`trnbench claims`: a row a claim, verdicts, prices of days and regions, claims of one's own."""

from __future__ import annotations

import csv
import io

import pytest

from trnbench.evidence.claims.claim import VERDICTS

KEYS = {
    *("claim", "group", "text", "aspect", "sources", "source_dates", "check", "verdict", "says"),
    *("reason", "note", "price_dates", "cases", "moves"),
}
MINE = """
name = "mine"
title = "A claim of my own"
rounding = { value = "1%", source = "s", kind = "estimated" }

[sources]
s = { title = "A page", date = 2026-01-01 }

[[statement]]
id = "mine-memory"
said = [{ text = "32 GiB a chip", by = "s" }]
figure = { instances = ["trn1.2xlarge"], figures = ["memory_bytes"], claimed = "32 GiB" }
"""


def test_claims_by_name(run):
    answer = run("claims", "trn1-bf16", "trn1-memory-bandwidth", "--json").json
    assert answer["schema"] == "trnbench.claims/1"
    rows = {row["claim"]: row for row in answer["rows"]}
    assert {name: row["verdict"] for name, row in rows.items()} == {
        "trn1-bf16": "holds",
        "trn1-memory-bandwidth": "does not",
    }
    assert all(set(row) >= KEYS for row in rows.values())
    case = rows["trn1-memory-bandwidth"]["cases"]["memory bandwidth"]
    assert case["value"] == pytest.approx(16 * 820e9)
    assert answer["summary"]["verdicts"] == {
        verdict: sum(row["verdict"] == verdict for row in rows.values()) for verdict in VERDICTS
    }


@pytest.mark.slow
def test_a_price_date_takes_the_prices_of_that_day(run):
    done = run("claims", "trn2-price-performance", "--price-date", "2026-07-22", "--json")
    assert done.code == 0
    (row,) = done.json["rows"]
    assert row["price_dates"] == ["2026-07-22"]
    (move,) = row["moves"].values()
    assert move["verdict"] in VERDICTS
    assert len(move["cases"]) == 4  # two runs against P5e and P5en
    for case in move["cases"].values():
        assert case["low"] < case["value"] < case["high"]
    assert done.json["inputs"]["price_date"] == "2026-07-22"


def test_prices_of_a_region_that_has_none(run):
    (row,) = run(
        *("claims", "trn2-price-performance", "--region", "ap-south-1"),
        *("--price-date", "2026-07-22", "--json"),
    ).json["rows"]
    assert row["verdict"] == "undecided"
    assert row["reason"].startswith("no price of trn2.48xlarge as capacity-block")


def test_every_claim_is_a_line_of_csv(run):
    out = run("claims", "trn1-bf16", "trn3-compute", "--format", "csv").out
    assert [row["claim"] for row in csv.DictReader(io.StringIO(out))] == [
        "trn1-bf16",
        "trn3-compute",
    ]


def test_claims_of_ones_own_are_tried_too(run, tmp_path):
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "mine.toml").write_text(MINE)
    done = run("claims", "mine-memory", "--spec-dir", tmp_path)
    assert done.code == 0
    assert "A claim of my own" in done.out
    assert "1 claim: holds 1," in done.out


def test_lines_fit(run):
    out = run("claims", "gpu-price-cut", "trn1-network-highest", "trn2-over-trn1").out
    assert max(map(len, out.splitlines())) <= 100


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["trn1-bf17"], "did you mean 'trn1-bf16'"),
        (["--price-date", "July"], "--price-date: 'July' is not a date"),
        (["--region", "us-east-11"], "unknown region 'us-east-11'; did you mean"),
    ],
)
def test_what_is_not_known_is_refused(run, arguments, told):
    done = run("claims", *arguments)
    assert done.code == 2
    assert told in done.err
