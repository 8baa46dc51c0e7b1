"""One title and one way to write its numbers for every figure."""

from __future__ import annotations

import pytest

from trnbench.facts.units import UNITS
from trnbench.show.figures import FIGURES, figure_of
from trnbench.show.report import Report, as_table, columns

ROWS = (
    {"days": 9.23, "low_days": 8.0, "high_days": 11.0, "cost_usd": 2_470_000.0, "nodes": 16},
    {"days": 10.0, "low_days": 10.0, "high_days": 10.0, "cost_usd": None, "nodes": 4},
)


def table(*shown):
    return as_table(Report(verb="demo", inputs={}, rows=ROWS, columns=shown))


def test_a_figure_is_filed_under_its_key_and_its_unit_exists():
    for key, figure in FIGURES.items():
        assert figure.key == key
        if figure.unit is not None:
            assert figure.dimension is not None
            assert figure.unit in UNITS[figure.dimension]
        if figure.end_of is not None:
            assert figure.end_of in FIGURES
            assert figure.title.rpartition(", ")[2] in ("low", "high")


def test_the_ends_of_every_figure_are_figures_and_nothing_else_is():
    assert figure_of("low_days").title == "days, low"
    assert figure_of("high_mfu").end_of == "mfu"
    assert figure_of("low_mfu").digits == FIGURES["mfu"].digits
    # Ends of their own: those of a prediction, not of a figure called "s".
    assert figure_of("low_s").end_of == "predicted_s"
    with pytest.raises(KeyError):
        figure_of("tokens_a_second")


def test_an_end_right_behind_its_figure_has_a_short_heading_and_the_same_unit():
    close = table(*columns("nodes", "days", "low_days", "high_days"))
    assert close.headings == ("nodes", "days", "low", "high")
    apart = table(*columns("days", "nodes", "low_days"))
    assert apart.headings == ("days", "nodes", "days, low")


def test_an_interval_is_written_from_the_numbers_of_the_row():
    shown = table(*columns("days", interval=True), *columns("cost_usd", "nodes"))
    assert shown.headings == ("days", "cost (M USD)", "nodes")
    assert shown.rows == (("9.23 (8-11)", "2.47", "16"), ("10", "-", "4"))
    assert shown.right == (False, True, True)
