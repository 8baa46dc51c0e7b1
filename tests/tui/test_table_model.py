"""Which rows a table shows, in which order, and what stands in them."""

from __future__ import annotations

import pytest

from trnbench.show.report import Report, columns
from trnbench.show.row import Row
from trnbench.tui.widgets.table_model import MOST_ROWS, TableSource, TableState, arrange, visible

COLUMNS = columns("name", "days", "cost_usd", "nodes")
ROWS: tuple[Row, ...] = (
    {"name": "a", "days": 9.5, "cost_usd": 2e6, "nodes": 16, "feasible": True},
    {"name": "b", "days": 10.0, "cost_usd": None, "nodes": 2, "feasible": False},
    {"name": "c", "days": 100.0, "cost_usd": 1e6, "nodes": 128, "feasible": True},
)


@pytest.fixture
def source():
    report = Report(verb="test", inputs={}, rows=ROWS, columns=COLUMNS)
    return TableSource(report=report, keys=("a", "b", "c"), deltas=frozenset({"days", "cost_usd"}))


def keys(source, **state):
    return [line.key for line in arrange(source, TableState(**state)).lines]


def test_rows_are_sorted_by_value_not_by_text(source):
    # As text "100" comes before "9.5", and "128" before "16" before "2".
    assert keys(source, sort="days") == ["a", "b", "c"]
    assert keys(source, sort="nodes") == ["b", "a", "c"]
    assert keys(source, sort="nodes", descending=True) == ["c", "a", "b"]


def test_rows_without_a_value_stand_last_either_way(source):
    assert keys(source, sort="cost_usd") == ["c", "a", "b"]
    assert keys(source, sort="cost_usd", descending=True) == ["a", "c", "b"]


def test_sorting_goes_up_then_down_then_as_it_came():
    state = TableState().sorted_by("days")
    assert (state.sort, state.descending) == ("days", False)
    state = state.sorted_by("days")
    assert (state.sort, state.descending) == ("days", True)
    assert state.sorted_by("days").sort is None
    assert state.sorted_by("nodes") == TableState(sort="nodes")


def test_pinned_rows_stand_on_top_in_the_order_of_the_rest(source):
    assert keys(source, sort="days", pinned=frozenset({"c", "b"})) == ["b", "c", "a"]


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("B", ["b"]),
        ("days<=10", ["a", "b"]),
        ("cost_usd>1.5M", ["a"]),
        ("nodes>2 nodes<100", ["a"]),
        ("feasible=true", ["a", "c"]),
        ("nowhere", []),
    ],
)
def test_words_and_comparisons_filter(source, words, left):
    assert keys(source, words=words) == left


def test_a_comparison_that_cannot_be_read_is_said_and_hides_nothing(source):
    shown = arrange(source, TableState(words="days>soon"))
    assert len(shown.lines) == 3
    assert "soon" in shown.reason


def test_others_are_compared_with_the_baseline(source):
    shown = arrange(source, TableState(baseline="a"))
    cells = {line.key: line.cells for line in shown.lines}
    # 10 / 9.5 = 1.0526; 100 / 9.5 = 10.53; 1 / 2 of the cost
    assert cells["a"][1] == "9.5"
    assert cells["b"][1] == "10 +5.3%"
    assert cells["c"][1] == "100 x10.53"
    assert cells["c"][2].endswith("x0.50")
    assert cells["c"][3] == "128"


def test_headings_have_the_unit_and_the_arrow(source):
    assert arrange(source, TableState(sort="cost_usd")).headings[2] == "cost (M USD) \u2191"
    shown = arrange(source, TableState(sort="days", descending=True))
    assert shown.headings[1] == "days \u2193"


def test_no_more_than_so_many_rows_and_an_honest_count():
    rows: tuple[Row, ...] = tuple({"name": str(i), "days": float(i)} for i in range(MOST_ROWS + 5))
    source = TableSource(
        report=Report(verb="test", inputs={}, rows=rows, columns=COLUMNS[:2]),
        keys=tuple(map(str, range(len(rows)))),
    )
    shown = arrange(source, TableState())
    assert len(shown.lines) == MOST_ROWS
    assert shown.count == "2,000 of 2,005 rows (most that are shown)"
    assert arrange(source, TableState(words="days<3")).count == "3 of 2,005 rows"


def test_what_is_exported_is_what_is_seen(source):
    shown = arrange(source, TableState(sort="days", descending=True, words="days>9.9"))
    assert [row["name"] for row in visible(source, shown).rows] == ["c", "b"]
