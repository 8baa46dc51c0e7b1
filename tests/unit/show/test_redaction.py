"""What is handed on without money is the same whatever the own prices are."""

from __future__ import annotations

import json

import pytest

from trnbench.cli.main import ask
from trnbench.facts.units import Dimension
from trnbench.show.figures import FIGURES
from trnbench.show.page import html_page, markdown_page
from trnbench.show.redaction import (
    REDACTED,
    money_told,
    redacted_cells,
    redacted_report,
    tells_own_money,
    without_money,
)
from trnbench.verbs.runs.keeping import kept_answer

RUN = {"model": "llama2-7b", "tokens": "300B", "price_date": "2026-11-21", "pp": "1"}
ON = {"on": "trn1.32xlarge,trn2.48xlarge,p5.48xlarge", "tp": "8"}
QUESTIONS = (
    ("compare", {**RUN, **ON, "nodes": "4"}),
    ("compare", {**RUN, **ON, "deadline": "60d", "equal_cost": True}),
    ("plan", {**RUN, "on": "trn2.48xlarge,trn1.32xlarge", "max_nodes": "8", "deadline": "30d"}),
)


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "question"), QUESTIONS)
def test_nothing_that_is_left_follows_from_own_prices(verb, question):
    left = []
    for price, discount, budget in (("30", "18%", "2.0M"), ("30.4", "17.6%", "1.9M")):
        own = {"price": [f"trn2.48xlarge={price}"], "discount": discount}
        own |= {"budget": budget} if verb == "plan" else {}
        report, _ = ask(verb, {**question, **own})
        assert report is not None
        redacted = redacted_report(report)
        plain = kept_answer(redacted)
        texts = (plain.inputs, plain.rows, plain.summary, redacted.notes)
        pages = (html_page(redacted, ""), markdown_page(redacted, ""))
        left.append((json.dumps(texts), *pages))
    assert left[0] == left[1]
    assert '"days"' in left[0][0]


FLEET = """
name = "mine"
title = "One job bought by the hour"
starts_on = 2027-01-04
horizon = "120 d"
price_date = 2026-11-21
on = ["trn1.32xlarge"]
max_nodes = 2
purchase = ["on-demand"]
prices = ["trn1.32xlarge={price}"]
discount = "{discount}"
budget = "{budget} USD"
[[job]]
name = "small"
model = "tinyllama-1.1b"
tokens = "150B"
deadline = 2027-03-31
layout = {{ tp = 8, pp = 1, zero = 1, global_batch = 256, recompute = "selective" }}
[[month]]
month = "2027-01"
usd = "{month} USD"
"""


@pytest.mark.slow
def test_nothing_that_is_left_of_a_fleet_follows_from_what_its_file_says_of_money(tmp_path):
    left = []
    for money in (
        {"price": "13.37", "discount": "17%", "budget": "77777", "month": "31415"},
        {"price": "13.41", "discount": "18.1%", "budget": "66666", "month": "29876"},
    ):
        (tmp_path / "mine.toml").write_text(FLEET.format(**money))
        report, code = ask("fleet", {"file": str(tmp_path / "mine.toml")})
        assert report is not None
        assert code == 0
        assert tells_own_money({}, report.inputs)
        rate = kept_answer(report).summary["prices"][0]["usd_per_hour"]
        assert rate == pytest.approx(float(money["price"]))
        assert b"What to buy when" in html_page(report, "")
        redacted = redacted_report(report)
        plain = kept_answer(redacted)
        texts = (plain.inputs, plain.rows, plain.summary, redacted.notes)
        left.append((json.dumps(texts), html_page(redacted, ""), markdown_page(redacted, "")))
    assert left[0] == left[1]
    assert "very deadline holds" in left[0][0]


def test_every_figure_in_money_is_left_out():
    for key, figure in FIGURES.items():
        if figure.dimension is Dimension.USD or "USD" in figure.title or "cost" in key:
            for name in (key, f"low_{key}", f"high_{key}"):
                assert redacted_cells({name: 1.5}) == {name: None}


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("more than the baseline's 24,011", f"more than the baseline's {REDACTED}"),
        ("24.01K a run", f"{REDACTED} a run"),
        ("less a discount of 18 %", f"less a discount of {REDACTED} %"),
        ("24,013 tokens on 4 x trn2.48xlarge, 2026-11-21", None),
        ("in 30 days on 24011-gpu", None),
    ],
)
def test_a_text_repeats_no_number_that_a_cell_of_money_holds(text, left):
    told = money_told({"cost_usd": 24011.3, "discount": 0.18, "usd_per_hour": 30.0, "days": 5})
    assert without_money(text, told) == (left or text)
