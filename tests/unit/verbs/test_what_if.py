"""Suppositions: another speed, a known MFU, a cost of moving, and a deadline that is moved."""

from __future__ import annotations

import datetime
import math
from typing import Any

import numpy as np
import pytest

from trnbench.errors import InputError
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.parsing import deadline, moved_text
from trnbench.facts.records import replace
from trnbench.facts.workload.partial_layout import PartialLayout
from trnbench.money.market import candidates
from trnbench.predict.common_draws import CommonDraws
from trnbench.verbs.asking.run_parts import Part
from trnbench.verbs.compare.question import CompareQuestion
from trnbench.verbs.compare.run import compare_run
from trnbench.verbs.plan.question import PlanQuestion
from trnbench.verbs.quotes.buying import Buying
from trnbench.verbs.quotes.draws import drawn_way
from trnbench.verbs.quotes.markets import explore_all
from trnbench.verbs.quotes.notes import migration_lines
from trnbench.verbs.quotes.question import RunRequest
from trnbench.verbs.quotes.run import quote
from trnbench.verbs.quotes.what_if import WhatIf

CATALOG = open_catalog(environment={})
ONE, TWO = "trn1.2xlarge", "trn1.32xlarge"
RUN = RunRequest(
    model="tiny-gpt",
    parts=(Part(tokens=1e13),),
    instances=(ONE, TWO),
    nodes=(1,),
    layout=PartialLayout(tp=2, global_batch=16),
    bought=Buying(
        price_date=datetime.date(2026, 11, 21), prices=("trn1.2xlarge=1.5", "trn1.32xlarge=21.5")
    ),
)
BY_NODES = CompareQuestion(run=RUN)


def supposed(**texts: str) -> RunRequest:
    return RUN.but(what_if=WhatIf(**{name: (text,) for name, text in texts.items()}))


def bought(run: RunRequest) -> Any:
    """The only way to buy the first type: its market, its quote and its draws."""
    explored: Any = explore_all(CATALOG, run)[0]
    (way,) = candidates(explored.market)
    return way, quote(explored, way), drawn_way(explored, way, CommonDraws())


def test_a_slower_type_takes_longer_by_its_speed_in_every_draw():
    known, slow = bought(RUN), bought(supposed(speed="trn1.2xlarge=-20%"))
    was, now = known[1].step.step, slow[1].step.step
    assert now.step_time_s == pytest.approx(was.step_time_s / 0.8)
    assert now.high_step_time_s == pytest.approx(was.high_step_time_s / 0.8)
    assert sum(now.exposed_s.values()) == pytest.approx(now.step_time_s)
    assert now.mfu == pytest.approx(0.8 * was.mfu)
    assert slow[0].elapsed_s == pytest.approx(known[0].elapsed_s / 0.8, rel=1e-2)
    ratio = slow[2].elapsed_s / known[2].elapsed_s
    assert np.all(np.abs(0.8 * ratio - 1) < 0.05)


def test_other_types_keep_their_speed():
    before: Any = explore_all(CATALOG, RUN)[1]
    after: Any = explore_all(CATALOG, supposed(speed=f"{ONE}=-20%"))[1]
    assert candidates(before.market) == candidates(after.market)


def test_a_supposed_mfu_is_that_of_the_estimate():
    _, found, _ = bought(supposed(mfu="trn1.2xlarge=1.5%"))
    assert found.step.step.mfu == pytest.approx(0.015)
    assert found.step.step.low_step_time_s < found.step.step.step_time_s


def test_a_speed_above_the_peak_is_refused():
    mfu = bought(RUN)[1].step.step.mfu
    more = math.ceil(100 * (1 / mfu - 1)) + 1
    if more <= 900:
        with pytest.raises(InputError, match="above its peak"):
            explore_all(CATALOG, supposed(speed=f"trn1.2xlarge=+{more}%"))


def test_a_migration_is_paid_once_in_every_draw():
    known, moved = bought(RUN), bought(supposed(migration_cost="trn1.2xlarge=250K"))
    assert moved[0].cost_usd == pytest.approx(known[0].cost_usd + 250_000)
    assert np.allclose(moved[2].cost_usd, known[2].cost_usd + 250_000)
    for end in ("value", "low", "high"):
        more = getattr(moved[1].cost_usd, end) - getattr(known[1].cost_usd, end)
        assert more == pytest.approx(250_000)
    assert moved[1].row()["migration_usd"] == 250_000


def test_a_migration_pays_after_so_many_runs():
    quotes: dict[str, Any] = {
        one.quote.instance: one.quote for one in compare_run(CATALOG, BY_NODES).compared
    }

    def line(cheap: float, dear: float, once: float) -> str:
        cheaper = replace(quotes[ONE], bill=replace(quotes[ONE].bill, once_usd=once))
        cheaper = replace(cheaper, mean_cost_usd=cheap + once, reasons=())
        return migration_lines((cheaper, replace(quotes[TWO], mean_cost_usd=dear, reasons=())))[0]

    # 250K are saved by 10K a run after 25 runs, by 9K after 28.
    assert "pays after 25 such runs against trn1.32xlarge" in line(90e3, 100e3, 250e3)
    assert "pays after 28 such runs" in line(91e3, 100e3, 250e3)
    assert "never pays" in line(100e3, 100e3, 250e3)


def test_suppositions_are_said_again_and_assumed():
    asked = CompareQuestion.asked(
        CATALOG,
        {
            **{"model": "tiny-gpt", "tokens": "1e13", "on": f"{ONE},{TWO}", "deadline": "60d"},
            **{"speed": [f"{ONE}=-10%"], "migration_cost": [f"{TWO}=1K"]},
        },
    )
    assert CompareQuestion.read(asked.said()).run.what_if == asked.run.what_if
    assert [one.text for one in asked.run.what_if.assumed] == [
        f"speed of {ONE} -10%: what if",
        f"migration cost, USD, of {TWO} 1K: what if",
    ]


@pytest.mark.parametrize(
    ("option", "text", "words"),
    [
        ("speed", "p5.48xlarge=-10%", "not among --on"),
        ("speed", f"{ONE}=0.9", "NAME=CHANGE"),
        ("speed", f"{ONE}=-100%", "more than -100%"),
        ("mfu", f"{ONE}=0%", "above 0%"),
        ("mfu", ONE, "NAME=VALUE"),
        ("migration_cost", f"{ONE}=-5", "must be above 0"),
    ],
)
def test_a_supposition_that_makes_no_sense_is_refused(option, text, words):
    with pytest.raises(InputError, match=words):
        RUN.but(what_if=WhatIf(**{option: (text,)})).settled(CATALOG)


def test_a_deadline_is_moved():
    read = deadline("--deadline")
    assert read("60d+15d") == 75 * 86400
    assert read("60d-10%") == 54 * 86400
    assert read("60 d + 15 d - 50%") == 37.5 * 86400
    assert moved_text("60 d", "+15d") == "60 d+15d"
    assert moved_text(60 * 86400.0, "-10%") == "60d-10%"
    assert moved_text("60d", "30d") == "30d"
    for text in ("+15d", "-10%", "60d-60d"):
        with pytest.raises(InputError):
            read(text)


@pytest.mark.parametrize(
    ("kind", "more", "days"),
    [
        (CompareQuestion, {}, 75),
        (PlanQuestion, {}, 75),
        (CompareQuestion, {"nodes": "1"}, None),
        (PlanQuestion, {"objective": "time"}, None),
    ],
)
def test_the_usual_deadline_is_moved_where_there_is_one(kind, more, days):
    given = {"model": "tiny-gpt", "tokens": "1e13", "on": ONE, "deadline": "+15d", **more}
    if days is None:
        with pytest.raises(InputError, match="nothing is there to move"):
            kind.asked(CATALOG, given)
    else:
        assert kind.asked(CATALOG, given).deadline_s == days * 86400
