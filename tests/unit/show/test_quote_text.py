"""Quotes in words: sums, spans, layouts and purchases."""

from __future__ import annotations

import datetime
import math
from typing import Any

import pytest

from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.records import fields
from trnbench.facts.units import money_text
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.money.billing import Bill, Charges
from trnbench.money.purchase import Tariff
from trnbench.show.figures import FIGURES
from trnbench.show.report import interval_text
from trnbench.show.row import Interval
from trnbench.verbs.asking.run_parts import Part
from trnbench.verbs.compare.question import CompareQuestion
from trnbench.verbs.compare.run import compare_run
from trnbench.verbs.quotes.buying import Buying
from trnbench.verbs.quotes.question import RunRequest
from trnbench.verbs.quotes.text import layout_text, purchase_text, run_text, sentence, tokens_text


@pytest.mark.parametrize(
    ("usd", "text"),
    [(52.4, "USD 52.4"), (1540.0, "USD 1.54K"), (1.54e6, "USD 1.54M"), (2e9, "USD 2B")],
)
def test_money(usd, text):
    assert money_text(usd) == text


def test_spans():
    days = FIGURES["days"]
    assert interval_text(Interval(value=27.44, low=24.9, high=31.04), days) == "27.4 (24.9-31)"
    assert interval_text(Interval(value=3.0, low=3.0, high=3.0), days) == "3"
    endless = Interval(value=math.inf, low=30.0, high=math.inf)
    assert interval_text(endless, days) == "unbounded (30-unbounded)"


def test_layouts_name_what_matters():
    plain: dict[str, Any] = {"tp": 16, "pp": 4, "dp": 64, "cp": 1, "ep": 1, "vpp": 1}
    assert layout_text(PartialLayout(**plain)) == "TP 16 x PP 4 x DP 64"
    assert layout_text(PartialLayout(**plain | {"cp": 8, "vpp": 5})).endswith(
        "DP 64 x CP 8 x VPP 5"
    )


def bill(option, *, wall_s=1.0, billed_hours=1.0, **blocks: Any):
    nothing: dict[str, Any] = {one.name: 1.0 for one in fields(Charges)}
    return Bill(
        tariff=Tariff(
            instance="trn2.48xlarge",
            option=option,
            region="us-east-2",
            origin="published",
            list_usd_per_hour=1.0,
            low_list_usd_per_hour=1.0,
            high_list_usd_per_hour=1.0,
            discount=0.0,
        ),
        nodes=64,
        wall_s=wall_s,
        charged=Charges(**{**nothing, "billed_hours": billed_hours}),
        **blocks,
    )


def test_purchases():
    one = bill("capacity-block", blocks_days=(28,), block_sizes=(64,))
    assert purchase_text(one) == "as one 28-day Capacity Block"
    row = bill("capacity-block", blocks_days=(14, 4), block_sizes=(64,))
    assert purchase_text(row) == "as Capacity Blocks of 14 + 4 days"
    wide = bill("capacity-block", blocks_days=(28,), block_sizes=(64, 1))
    assert purchase_text(wide) == "as Capacity Blocks of 28 days, 64 + 1 machines"
    assert purchase_text(bill("on-demand")) == "on demand"


def test_the_sentence_of_a_plan():
    run = RunRequest(
        model="tiny-gpt",
        parts=(Part(tokens=1e13),),
        instances=("trn1.2xlarge",),
        nodes=(1,),
        layout=PartialLayout(tp=2, global_batch=16),
        bought=Buying(price_date=datetime.date(2026, 11, 21), prices=("trn1.2xlarge=2",)),
    )
    (row,) = compare_run(open_catalog(environment={}), CompareQuestion(run=run)).compared
    told = sentence(row.quote)
    assert tokens_text(row.quote) == "10T tokens"
    assert run_text("tiny-gpt", row.quote) == "tiny-gpt, 10T tokens"
    assert " days on 1 x trn1.2xlarge, TP 2 x PP 1 x DP 1, USD " in told
    assert told.endswith(" at your own price")


def test_a_layout_that_was_never_found_is_not_told():
    assert layout_text(PartialLayout()) == ""
