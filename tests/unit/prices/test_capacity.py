"""Capacity Blocks of a quote, asked of AWS as botocore describes it."""

from __future__ import annotations

import datetime

import pytest

from tests.unit.prices.test_aws_calls import ARN, NOW, REGION, Cloud
from tests.unit.show.test_quote_text import bill
from tests.unit.show.test_verdict import quote
from trnbench.facts.catalog.search import open_catalog
from trnbench.verbs.quotes.capacity import capacity_checks

OPERATION = "describe_capacity_block_offerings"
ASKED = {
    "InstanceType": "trn2.48xlarge",
    "InstanceCount": 64,
    "CapacityDurationHours": 49 * 24,
    "AllAvailabilityZones": True,
}
ROW = quote("trn2.48xlarge", bill=bill("capacity-block", blocks_days=(49, 6), block_sizes=(64, 64)))


@pytest.fixture
def cloud(monkeypatch):
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return Cloud()


def block(fee: str, days_ahead: int) -> dict[str, object]:
    return {
        "InstanceType": "trn2.48xlarge",
        "InstanceCount": 64,
        "AvailabilityZone": "us-east-2b",
        "StartDate": NOW + datetime.timedelta(days=days_ahead),
        "CapacityBlockDurationHours": 49 * 24,
        "CapacityBlockDurationMinutes": 49 * 24 * 60,
        "UpfrontFee": fee,
        "CurrencyCode": "USD",
    }


def checked(cloud, *quotes):
    found = capacity_checks(open_catalog(), quotes, to=cloud, now=NOW, pause=cloud.pauses.append)
    for stub in cloud.stubs.values():
        stub.assert_no_pending_responses()
    return found


def test_blocks_of_a_row_are_asked_for_once_and_told_with_the_time(cloud):
    answer = {"CapacityBlockOfferings": [block("2800000", 9), block("2700000", 4)]}
    cloud.says("ec2", OPERATION, answer, ASKED)
    (found,) = checked(cloud, ROW, ROW)
    assert found.text == (
        "64 x trn2.48xlarge for 49 days in us-east-2: 2 on offer, the first for USD 2.7M from "
        f"{found.offers[0].starts_at} in us-east-2b (asked 2026-11-22 12:00 UTC)"
    )
    assert found.row()["offers"][1]["usd"] == 2_800_000


def test_none_on_offer(cloud):
    cloud.says("ec2", OPERATION, {}, ASKED)
    (found,) = checked(cloud, ROW)
    assert "no Capacity Block is on offer (asked 2026-11-22 12:00 UTC)" in found.text


def test_a_refusal_is_told_without_the_account(cloud):
    cloud.refuses("ec2", OPERATION, "UnauthorizedOperation")
    (found,) = checked(cloud, ROW)
    assert "AWS does not say: " in found.text
    assert ARN not in found.text
    assert REGION in found.text


def test_only_blocks_are_asked_for(cloud):
    assert checked(cloud, quote("trn2.48xlarge"), quote("p5.48xlarge", usd=None)) == ()
