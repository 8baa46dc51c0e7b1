"""The accuracy of predicted steps: the page, the README and `validate` agree."""

from __future__ import annotations

import re

import pytest

from tests.golden.documents import README, check, text_of_all
from tests.validation.published import TOGETHER, scored
from trnbench.facts.records import asdict
from trnbench.show.text_table import markdown
from trnbench.verbs.validate.accuracy import (
    SETS,
    accuracy_of,
    sentences,
    shipped_accuracy,
    tables,
)

BLOCK = re.compile(r"(?<=<!-- training -->\n).*?(?=<!-- /training -->)", re.DOTALL)
KNOWN = shipped_accuracy()


def test_the_readme_shows_the_shipped_accuracy():
    said = "\n".join(f"- {text}" for text in sentences(KNOWN))
    shown = "\n\n".join([*map(markdown, tables(KNOWN)), said])
    (found,) = BLOCK.finditer(text_of_all())
    check(
        f"<!-- training -->\n{found[0]}<!-- /training -->",
        f"<!-- training -->\n{shown}\n<!-- /training -->",
    )


def test_the_readme_shows_what_a_prediction_rests_on():
    part = re.compile(r"(?<=<!-- steps -->\n).*?(?=<!-- /steps -->)", re.DOTALL)
    (found,) = part.finditer(README.read_text())
    check(
        f"<!-- steps -->\n{found[0]}<!-- /steps -->",
        f"<!-- steps -->\n{markdown(tables(KNOWN)[0])}\n<!-- /steps -->",
    )


def test_the_page_shows_the_shipped_accuracy(capfdbinary):
    from trnbench.cli.main import main

    assert main(["help", "accuracy"]) == 0
    page = capfdbinary.readouterr().out.decode()
    words = page.split()
    for table in tables(KNOWN):
        for row in table.rows:
            assert " ".join(row).split() == [w for w in " ".join(row).split() if w in words]
    assert "publishes its error on rows it has not seen" in " ".join(words)


def test_no_claim_is_wider_than_what_was_found():
    (claim, *_) = sentences(KNOWN)
    assert claim.startswith(
        "trnbench is the only open training planner for Trainium that publishes"
    )
    assert 0 < KNOWN.seen < KNOWN.steps.rows / 20
    assert KNOWN.steps.rows == sum(one.rows for one in KNOWN.rests_on.values())
    assert KNOWN.steps.rows == sum(one.rows for one in KNOWN.software.values())


@pytest.mark.slow
@TOGETHER
def test_the_shipped_accuracy_is_what_validate_says():
    assert tuple(scored()) == SETS
    found = asdict(accuracy_of(tuple(scored().values()), KNOWN.date))
    assert found == approximately(asdict(KNOWN))


def approximately(told):
    """Nested tables with numbers held to 2 % or two thousandths."""
    if isinstance(told, dict):
        return {name: approximately(one) for name, one in told.items()}
    return pytest.approx(told, rel=0.02, abs=2e-3) if isinstance(told, float) else told
