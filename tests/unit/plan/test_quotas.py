"""Quotas to request and limits of clusters."""

from __future__ import annotations

from typing import Any

import pytest

from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.hardware.library import load_instance
from trnbench.facts.prices.purchase import load_purchase_rules
from trnbench.money.market import cluster_limit, quota_request

CATALOG = open_catalog(environment={})
RULES: Any = load_purchase_rules(CATALOG, "AWS")


@pytest.mark.parametrize(
    ("name", "nodes", "option", "code", "vcpus"),
    [
        # 64 x 192 = 12,288
        ("trn2.48xlarge", 64, "on-demand", "L-2C3B7624", 12288),
        ("trn1.32xlarge", 2, "reserved", "L-2C3B7624", 256),
        ("trn1.2xlarge", 1, "spot", "L-6B0D517C", 8),
        ("p4d.24xlarge", 8, "on-demand", "L-417A185B", 768),
        ("p4d.24xlarge", 8, "spot", "L-7212CCBC", 768),
        ("p5.48xlarge", 1, "spot", "L-C4BD4855", 192),
    ],
)
def test_quotas_by_hand(name, nodes, option, code, vcpus):
    request = quota_request(load_instance(CATALOG, name), nodes, option, RULES)
    assert request is not None
    assert (request.code, request.vcpus) == (code, vcpus)


def test_blocks_and_unknown_sellers_have_no_quota():
    trn2 = load_instance(CATALOG, "trn2.48xlarge")
    assert quota_request(trn2, 64, "capacity-block", RULES) is None
    assert quota_request(trn2, 64, "on-demand", None) is None


def test_clusters_end_somewhere():
    p5 = load_instance(CATALOG, "p5.48xlarge")
    assert cluster_limit(p5, 2500) is None
    assert cluster_limit(p5, 2501) == "20,008 chips are more than the 20,000 of one cluster"
    assert cluster_limit(load_instance(CATALOG, "trn2.48xlarge"), 100000) is None
