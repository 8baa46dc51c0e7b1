"""The table of claims: cells that wrap, verdicts that move, within the width of a terminal."""

from __future__ import annotations

import datetime
import json

import pytest

from trnbench.evidence.claims.claim import Case, Claimed, Finding, Move, Words
from trnbench.facts.catalog.provenance import Source
from trnbench.show.formats import render
from trnbench.show.text_table import Style
from trnbench.verbs.claims.text import claims_report

DAY = datetime.date(2026, 7, 22)
BEST = Case(
    what="llama3.1-8b against p5en.48xlarge, capacity-block",
    verdict="holds",
    says="37 % (31 to 45)",
    value=0.37,
    low=0.31,
    high=0.45,
)
CLAIMED = Claimed(
    id="cheaper",
    group="Machines",
    said=(
        Words(text="30% better", by="a", source=Source(title="A page", date=DAY)),
        Words(text="cheaper", by="b", source=Source(title="B page", date=DAY)),
    ),
    aspect="training",
    note="the price basis is not published",
    check="cost",
    finding=Finding(
        verdict="holds only if",
        says="at best 37 %",
        reason="only llama3.1-8b",
        moves=(
            Move(price_date=DAY, region=None, verdict="holds", best=BEST, cases=(BEST,)),
            Move(
                price_date=DAY,
                region="us (region not stated)",
                verdict="undecided",
                best=None,
                cases=(),
            ),
        ),
    ),
)
REPORT = claims_report([CLAIMED], {})


@pytest.mark.parametrize("width", [80, 100, 120])
def test_it_fits_and_tells_all(width):
    text = render(REPORT, "table", Style(width=width)).decode()
    assert max(map(len, text.splitlines())) <= width
    joined = " ".join(text.split())
    for part in ("holds only if", "cheaper:", "[a, b]", "[b] B page, 2026-07-22"):
        assert part in joined
    assert "2026-07-22 holds 37 % (31 to 45)" in joined
    assert "no price of one side, us (region not stated)" in joined
    assert "1 claim: holds 0, holds only if 1, does not hold 0, undecided 0" in joined


def test_machines_get_every_move_with_its_cases():
    (row,) = json.loads(render(REPORT, "json", Style()))["rows"]
    assert row["price_dates"] == ["2026-07-22", "2026-07-22"]
    assert row["also_worded"] == ["cheaper"]
    moves = row["moves"]
    assert list(moves) == ["2026-07-22", "2026-07-22, us (region not stated)"]
    assert moves["2026-07-22"]["cases"][BEST.what]["low"] == 0.31
    assert moves["2026-07-22, us (region not stated)"]["best"] is None
