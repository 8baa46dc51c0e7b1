"""What is drawn in characters: bars, heat maps, planes of a torus, ticks of an axis."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.style import Style

from trnbench.show.charts.record import HUES, Bar, BarChart, ChartAxis, parts_of
from trnbench.show.report import Report, as_table, columns
from trnbench.show.text_table import Style as TextStyle
from trnbench.tui.difference import PIN_TWO, difference_text
from trnbench.tui.drawings import (
    COARSE,
    POWERS,
    SCALE,
    draw_area,
    draw_heat,
    draw_planes,
    level_of,
    size_text,
    sizes_for,
    stretches,
)
from trnbench.tui.picker import found
from trnbench.tui.questions.layouts import Window
from trnbench.tui.widgets.bars import draw_bars
from trnbench.tui.widgets.chart import flowed
from trnbench.tui.widgets.line_input import completed
from trnbench.verbs.collective.answer import Plane
from trnbench.verbs.plan.details import break_even_block
from trnbench.verbs.quotes.charts import (
    ClusterPoint,
    Picked,
    cost_chart,
    front_chart,
    time_chart,
)
from trnbench.verbs.train.beside import time_beside

PLAIN = (Style(), Style(), Style(), Style(), Style())


def test_bars_are_filled_in_colours_and_begin_with_their_letter():
    data = BarChart(
        title="memory",
        caption="per rank",
        axis=ChartAxis(title="bytes"),
        bars=(Bar(label="a", parts={"weights": 30.0, "rest": 10.0}, strong=True),),
        parts=parts_of(("weights", "rest")),
    )
    filled = draw_bars(data, 52, [Style(bgcolor="red")] * HUES)
    plain = draw_bars(data, 52, [Style()] * HUES)
    # Room: 52 - 3 of the label - 4 of the total = 45 for 40: 33.75 and 11.25 cells.
    assert filled.plain.splitlines()[1] == ">a W" + " " * 33 + "R" + " " * 10 + " 40"
    assert plain.plain.splitlines()[1] == ">a " + "W" * 34 + "R" * 11 + " 40"
    assert filled.plain.splitlines()[0] == "memory, per rank"


def test_a_legend_breaks_between_its_entries_only():
    entries = [(f"{mark} instance.{mark}", Style()) for mark in "ox+*"]
    # 12 columns each and 2 between: three are 40 wide, a fourth would be 54.
    assert flowed(entries, 40).plain.splitlines() == [
        "o instance.o  x instance.x  + instance.+",
        "* instance.*",
    ]
    assert "\n" not in flowed(entries, 54).plain


@pytest.mark.parametrize(("share", "level"), [(0.0, 0), (0.25, 1), (0.6, 2), (0.9, 4), (1.0, 4)])
def test_levels_of_a_heat_map(share, level):
    assert level_of(share) == level


def test_a_heat_map_says_its_numbers_and_what_cannot_run():
    values = {(128, 128): 0.123, (128, 512): 0.5, (512, 128): 0.95, (512, 512): None}
    heat = {"trainium1 bf16": values}
    lines = draw_heat(heat, 80, PLAIN).plain.splitlines()
    assert lines[2].split() == ["128", "12", "50:"]
    assert lines[3].split() == ["512", "95#", "no"]
    # A filled cell needs no sign.
    filled = draw_heat(heat, 80, [Style(bgcolor="blue")] * 5).plain.splitlines()
    assert filled[2].split() == ["128", "12", "50"]


def test_a_heat_map_has_as_many_cells_as_there_is_room_for():
    assert len(sizes_for(100, 30)) == 17
    assert sizes_for(60, 30) == sizes_for(100, 8) == POWERS
    assert sizes_for(40, 30) == COARSE
    assert [size_text(size) for size in (128, 1024, 1536, 32768)] == ["128", "1k", "1.5k", "32k"]


TORUS = Plane(
    name="torus 0",
    shape=(2, 2),
    right=(1.0, 0.25, 0.5, 0.0),
    below=(0.0, 0.75, 1.0, 0.5),
    onward=(0.1, 0.2, 0.3, 0.4),
)


def test_planes_stand_beside_each_other_where_there_is_room():
    wide = draw_planes([TORUS, TORUS], 200, PLAIN[:3]).plain
    narrow = draw_planes([TORUS, TORUS], 30, PLAIN[:3]).plain
    assert wide.splitlines()[0].count("torus 0") == 2
    assert narrow.splitlines()[0].count("torus 0") == 1
    assert "0 -100- 1 - 25-" in wide
    assert wide.splitlines()[-3].split() == ["10", "20", "10", "20"]


def test_memory_is_drawn_as_an_area_below_its_limit():
    instants = [{"weights": 4.0, "activations": each} for each in (0.0, 4.0, 2.0, 0.0)]
    size = (8 + SCALE + 1, 11)
    # 8 lines for 16 bytes, besides a mark and a legend of two lines: weights have 2 lines,
    # activations up to 2, and each slot 2 of 8 columns.
    plain = draw_area(instants, 16.0, 1, size, [Style()] * HUES).plain
    rows = [line[SCALE + 1 :] for line in plain.splitlines()]
    assert rows[0] == "-" * 8
    assert [rows[line] for line in (4, 5, 6, 7)] == ["  AA    ", "  AAAA  ", "WWWWWWWW", "WWWWWWWW"]
    assert rows[8] == "  ^"
    assert plain.splitlines()[0].startswith("      16 B |")
    # In colours each part has its letter where it begins, for whom colours tell nothing.
    filled = [Style(bgcolor="red")] * HUES
    rows = [
        line[SCALE + 1 :].rstrip()
        for line in draw_area(instants, 16.0, 1, size, filled).plain.splitlines()
    ]
    assert [rows[line] for line in (4, 5, 6, 7)] == ["  A", "  A", "W", "W"]


def test_the_tables_of_a_plan_are_no_wider_than_their_place():
    other = SimpleNamespace(
        nodes=256,
        instance="trn1.32xlarge",
        mfu=0.299,
        break_even_mfu=0.279,
        against="64 x p5.48xlarge",
        against_usd=3.01e6,
    )
    plan: Any = SimpleNamespace(break_even=(other, other))
    wide, narrow = (break_even_block(plan, TextStyle(width=w, terminal=True)) for w in (100, 70))
    assert "0.93x  64 x p5.48xlarge (USD 3.01M)" in wide
    lines = narrow.splitlines()[1:]
    assert max(map(len, lines)) <= 70
    # There is no room for the last column: it stands below its rows.
    assert lines[-2].split() == ["256", "x", "trn1.32xlarge", "29.9", "%", "27.9", "%", "0.93x"]
    assert lines[-1] == "  64 x p5.48xlarge (USD 3.01M)"


@given(st.integers(0, 400), st.integers(1, 90))
def test_every_instant_has_one_column(count, columns):
    drawn = stretches(count, columns)
    assert [one for group in drawn for one in group] == list(range(count))
    assert len(drawn) == min(count, columns)


def test_two_steps_beside_each_other_say_in_what_they_differ(canned):
    one = canned.step_answer(canned.compare_row("trn1.32xlarge", 256, 48.0, 2.87e6))
    row = canned.compare_row("trn2.48xlarge", 64, 45.0, 2.47e6, exposed_matrix_s=4.0)
    other = canned.step_answer(row | {"memory_weights_bytes": 8e9})
    parts = time_beside(one, other)
    assert parts[0] == ("matrix", 10.0, 4.0)
    assert sum(second - first for _, first, second in parts) == -6.0
    drawn = difference_text([("A1", one), ("B1", other)], 80, PLAIN[:2]).plain.splitlines()
    assert drawn[4].split() == ["all", "20", "14", "-6"]
    assert drawn[5].split()[:4] == ["matrix", "10", "4", "-6"]
    assert drawn[5].endswith("---")
    (weights,) = (line for line in drawn if line.startswith("weights"))
    assert weights.split()[3] == "+3.73"  # 4e9 bytes in GiB
    assert difference_text([("A1", one)], 80, PLAIN[:2]).plain == PIN_TWO


def test_a_list_is_searched_by_letters_in_order_and_by_what_is_known():
    known = {"llama3.1-8b": "Meta", "llama3.1-70b": "Meta", "mixtral-8x7b": "Mistral AI"}
    assert found("8b", known) == ["llama3.1-8b", "mixtral-8x7b"]
    assert found("l70", known) == ["llama3.1-70b"]
    assert found("mistral", known) == ["mixtral-8x7b"]
    assert found("", known) == list(known)


@pytest.mark.parametrize(
    ("typed", "whole"),
    [
        ("trn1.32", "trn1.32xlarge"),
        ("p5.48xlarge, TRN2", "p5.48xlarge, TRN2.48xlarge"),
        ("trn1.32xlarge", None),
        ("p5,", None),
        ("x", None),
    ],
)
def test_the_last_of_several_names_is_completed(typed, whole):
    assert completed(typed, ("trn1.32xlarge", "trn2.48xlarge", "p5.48xlarge")) == whole


def test_a_window_zooms_around_its_middle_and_stays_inside():
    half = Window().zoomed(0.5)
    assert (half.start, half.end) == (0.25, 0.75)
    assert half.moved(10) == Window(start=0.5, end=1.0)
    assert half.moved(-10) == Window(start=0.0, end=0.5)
    assert half.zoomed(4).whole


@pytest.mark.parametrize(
    ("days", "unit", "seconds"),
    [(40.0, "days", 86400.0), (0.25, "hours", 3600.0), (0.01, "minutes", 60.0)],
)
def test_charts_have_the_unit_of_time_of_the_table_beside_them(canned, days, unit, seconds):
    report = Report(
        verb="test", inputs={}, rows=({"days": days},), columns=columns("days", interval=True)
    )
    assert as_table(report).headings == (unit,)
    quotes = [canned.quote(canned.compare_row("trn2.48xlarge", 64, days, 2e6))]
    half = ClusterPoint(
        instance="trn2.48xlarge", nodes=32, days=2 * days, cost_usd=1.9e6, tokens_per_s=4e3
    )
    cost, front = cost_chart(quotes, Picked(), [half]), front_chart(quotes, Picked())
    times = time_chart(quotes, Picked(deadline_s=90 * 86400.0))
    assert cost.x.title == front.x.title == times.axis.title == unit
    here = days * 86400.0 / seconds
    assert [one.points[0][0] for one in cost.series] == pytest.approx([2 * here, here])
    assert front.series[-1].points[0] == pytest.approx((here, 2e6))
    assert front.series[-1].across[0] == pytest.approx((0.8 * here, 1.4 * here))
    (bar,) = times.bars
    assert bar.label == "trn2.48xlarge:64"
    assert bar.estimate is not None
    assert (bar.estimate.low, bar.estimate.high) == pytest.approx((0.8 * here, 1.4 * here))
    assert bar.limit == pytest.approx(90 * 86400.0 / seconds)
