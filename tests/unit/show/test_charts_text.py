"""Charts in characters: points where they belong, axes labelled, nothing drawn out of nothing."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trnbench.facts.records import replace
from trnbench.facts.units import Dimension
from trnbench.show.charts.record import (
    Bar,
    BarChart,
    ChartAxis,
    Guide,
    PointChart,
    Series,
    axis_of,
    parts_of,
    without_small,
)
from trnbench.show.charts.text import HEIGHT, bar_lines, cells_of, chart_text
from trnbench.show.charts.ticks import MOST_TICKS, labels_of, tag_place, ticks_of
from trnbench.show.row import Interval
from trnbench.show.text_table import Style


def chart(*series, guides=(), kind="log"):
    axes = [ChartAxis(title=name, kind=kind) for name in "xy"]
    return PointChart(title="t", caption="c", x=axes[0], y=axes[1], series=series, guides=guides)


def lines(text):
    """The rows between the axes, without labels."""
    return [line.partition("|")[2] for line in text.splitlines()[2 : 2 + HEIGHT]]


def test_a_diagonal_in_logarithms_is_a_diagonal_on_screen():
    points = tuple((10.0**n, 10.0**n) for n in range(3))
    rows = lines(chart_text(chart(Series(label="d", points=points)), Style(width=80)))
    at = [(row, line.index("o")) for row, line in enumerate(rows) if "o" in line]
    # Ends have as much room; the middle point is in the middle.
    (top, right), (middle, centre), (bottom, left) = at
    assert top + bottom == HEIGHT - 1
    assert abs(middle - (top + bottom) / 2) <= 0.5
    assert abs(centre - (left + right) / 2) <= 0.5


def test_axes_legend_title_and_caption_are_written():
    text = chart_text(chart(Series(label="shapes", points=((1.0, 2.0), (1000.0, 2000.0)))), Style())
    assert text.startswith("t\ny\n")
    assert text.endswith("c")
    for words in ("o shapes", "x", "1", "1,000"):
        assert words in text


def test_marks_stand_over_lines_and_intervals_and_series_differ():
    roof = Series(label="roof", points=((1, 1), (100, 100)), joined=True, marked=False)
    first = Series(label="a", points=((10, 10),), across=((2, 50),), upright=((2, 50),))
    second = Series(label="b", points=((1, 100),))
    text = chart_text(chart(roof, first, second), Style())
    for words in ("o a", "x b", ". roof"):
        assert words in text
    rows = lines(text)
    (row,) = (line for line in rows if "o" in line)
    assert "-o-" in row.replace("o", "o")
    assert sum("|" in line for line in rows) >= 3


def test_only_what_is_drawn_is_in_the_legend():
    one = Series(label="drawn", points=((1, 1), (2, 2)))
    other = Series(label="nowhere", points=((0, 1), (math.inf, 1)))
    text = chart_text(chart(one, other), Style())
    assert "drawn" in text
    assert "nowhere" not in text


def test_a_deadline_is_a_line_of_its_own_and_inside():
    one = Series(label="a", points=((10.0, 10.0),))
    text = chart_text(chart(one, guides=(Guide(label="deadline", x=60.0),)), Style())
    columns = {line.index(":") for line in lines(text)}
    assert len(columns) == 1
    assert ": deadline" in text


def test_nothing_positive_is_nothing_to_plot():
    text = chart_text(chart(Series(label="a", points=((0, 1), (1, 0)))), Style())
    assert text.splitlines()[1] == "nothing to plot"


@given(
    st.lists(st.tuples(st.floats(1e-12, 1e18), st.floats(1e-12, 1e18)), min_size=1, max_size=20),
    st.integers(30, 200),
    st.sampled_from(("log", "linear", "binary")),
)
def test_any_points_stay_inside_the_frame(points, width, kind):
    text = chart_text(chart(Series(label="p", points=tuple(points)), kind=kind), Style(width=width))
    assert all(len(line) <= max(width, 60) for line in text.splitlines())
    assert "o" in "".join(lines(text))


@given(st.floats(-9, 12), st.floats(0.05, 20), st.integers(3, 150), st.booleans(), st.booleans())
def test_labels_of_an_axis_never_collide_and_stand_inside(low, width, room, log, upright):
    axis = ChartAxis(title="", kind="log" if log else "linear")

    def cell(tick):
        share = (tick - low) / width
        return math.floor((1 - share if upright else share) * (room - 1))

    ticks = ticks_of(axis, low, low + width, cell, upright=upright)
    assert 1 <= len(ticks) <= MOST_TICKS
    assert ticks == sorted(ticks)
    assert all(low - 1e-6 <= tick <= low + width + 1e-6 for tick in ticks)
    cells: list[int] = []
    for tick, label in zip(ticks, labels_of(axis, ticks), strict=True):
        length = 1 if upright else len(label)
        first = cell(tick) - length // 2
        cells += range(first, first + length)
    assert len(set(cells)) == len(cells)


def test_an_axis_of_costs_names_its_prefix_once():
    # The labels of 700 K and 1 M USD once fell on one line and read 701 M USD.
    axis = axis_of("cost", Dimension.USD, [4e5, 7e5, 1e6, 2.4e6])
    assert axis.heading == "cost (M USD)"
    assert [axis.text(value) for value in (7e5, 1e6, 2e6)] == ["0.7", "1", "2"]
    wide = axis_of("size", Dimension.BYTES, [1024.0, 2.0**30], kind="binary")
    assert (wide.heading, wide.text(1024.0)) == ("size", "1 KiB")


def test_sizes_have_ticks_at_powers_of_two():
    # From 1 KiB to 1 GiB there are 21 powers; every fifth is round.
    axis = axis_of("size", Dimension.BYTES, [1024.0, 2.0**30], kind="binary")
    low, high = math.log10(1024), math.log10(2**30) * 1.04
    ticks = ticks_of(axis, low, high, lambda tick: round(100 * (tick - low)), upright=False)
    assert [round(10**tick) for tick in ticks] == [2**10, 2**15, 2**20, 2**25, 2**30]


@pytest.mark.parametrize(
    ("low", "high", "numbers"),
    [(40.0, 56.0, [40, 45, 50, 55]), (0.9, 120.0, [1, 2, 5, 10, 20, 50, 100])],
)
def test_ticks_are_round_numbers_also_where_an_axis_is_short(low, high, numbers):
    ends = math.log10(low), math.log10(high)
    ticks = ticks_of(
        ChartAxis(title="days", kind="log"),
        *ends,
        lambda tick: round(90 * (tick - ends[0]) / (ends[1] - ends[0])),
        upright=False,
    )
    assert [round(10**tick, 6) for tick in ticks] == numbers


def test_a_name_beside_a_mark_hides_no_other():
    marks = frozenset({(10, 5), (13, 5)})
    assert tag_place((10, 5), "best", frozenset({(10, 5)}), (40, 10)) == (12, 5)
    assert tag_place((10, 5), "best", marks, (40, 10)) == (5, 5)
    assert tag_place((10, 5), "best", marks | {(4, 5)}, (40, 10)) == (12, 4)
    assert tag_place((10, 5), "longer than all", marks, (20, 10)) is None


def test_every_part_has_a_letter_of_its_own_and_categories_have_one_everywhere():
    letters = {part.name: part.letter for part in parts_of(("dense", "dispatch", "data", "rest"))}
    # `data` is D in every figure, so it is not left for the first name that begins so.
    assert letters["data"] == "D"
    assert len(set(letters.values())) == 4
    both = [
        {part.name: (part.letter, part.hue) for part in parts_of(names)}
        for names in (("matrix", "data", "optimizer"), ("bubble", "optimizer", "matrix"))
    ]
    assert all(both[0][name] == both[1][name] for name in ("matrix", "optimizer"))


@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=8), st.floats(0.01, 3.0))
def test_parts_fill_the_rounded_length_of_a_bar(values, scale):
    cells = cells_of(values, scale)
    assert abs(sum(cells) - sum(values) * scale) <= 0.5 + 1e-6
    assert all(abs(count - value * scale) <= 1 for count, value in zip(cells, values, strict=True))


def drawn_bars(data, width):
    return ["".join(one.text for one in line) for line in bar_lines(data, width)]


def test_bars_stand_on_one_scale_with_limit_total_and_shares():
    data = BarChart(
        title="memory",
        caption="per rank",
        axis=ChartAxis(title="bytes"),
        bars=(
            Bar(label="a", parts={"weights": 30.0, "rest": 10.0}, limit=80.0, strong=True),
            Bar(label="bb", parts={"weights": 20.0, "rest": 0.0}, limit=80.0),
        ),
        parts=parts_of(("weights", "rest")),
        shares=True,
    )
    # Room: 52 - 4 of labels - 4 of totals = 44 for 80, so 0.55 a unit: 16.5 and 22 cells.
    rows = drawn_bars(data, 52)
    assert rows[0] == ">a  " + "W" * 16 + "R" * 6 + " " * 22 + "| 40"
    assert rows[1] == " bb " + "W" * 11 + " " * 33 + "| 20"
    assert "W weights 75.0%" in rows[3]
    assert "R rest 25.0%" in rows[3]


def test_an_estimate_is_a_dot_on_its_interval_and_the_deadline_a_stroke():
    data = BarChart(
        title="days",
        caption="with intervals",
        axis=ChartAxis(title="days"),
        bars=(
            Bar(label="a", estimate=Interval(value=20.0, low=10.0, high=30.0), limit=40.0),
            Bar(label="b", estimate=Interval(value=5.0, low=5.0, high=5.0), limit=40.0),
        ),
        limit="deadline",
    )
    # Room: 57 - 3 of labels - 12 + 2 of "20 (10-30)" = 42, for 5 to 40 days and 1.75 more at
    # each end: 38.5 days, so that 1 day is 1.091 cells. 10 lies at 7, 20 at 18, 30 at 29.
    rows = drawn_bars(data, 57)
    assert (
        rows[0]
        == " a " + " " * 7 + "[" + "-" * 10 + "o" + "-" * 10 + "]" + " " * 10 + "| 20 (10-30)"
    )
    assert rows[1] == " b " + " " * 2 + "o" + " " * 37 + "| 5"
    inside = replace(data, bars=(replace(data.bars[0], limit=15.0),))
    # 10 to 30 days and 1 at each end: 1 day is 1.909 cells, 15 lies at 11.
    assert drawn_bars(inside, 57)[0] == " a   [--------|---------o------------------] 20 (10-30)"
    assert rows[-1].strip() == "| deadline"


def test_parts_below_a_hundredth_of_every_bar_are_other():
    parts = {"matrix": 60.0, "tensor": 39.0, "data": 0.6, "fixed": 0.4}
    a, b = (Bar(label="a", parts=parts), Bar(label="b", parts={**parts, "tensor": 0.0}))
    kept = without_small((a,))[0].parts
    assert kept == {"matrix": 60.0, "tensor": 39.0, "other": pytest.approx(1.0)}
    assert sum(kept.values()) == a.total
    # Of 61.0 a hundredth is 0.61: still little in both; tensor is not in the first.
    assert without_small((a, b))[1].parts == {
        **{"matrix": 60.0, "tensor": 0.0},
        "other": pytest.approx(1.0),
    }
    # A single little part keeps its name.
    assert without_small((Bar(label="c", parts={"matrix": 99.5, "data": 0.5}),))[0].parts == {
        **{"matrix": 99.5, "data": 0.5}
    }


def test_parts_are_named_in_words():
    data = BarChart(
        title="step",
        caption="by part",
        axis=ChartAxis(title="s"),
        bars=(Bar(label="a", parts={"element_wise": 2.0}),),
        parts=parts_of(("element_wise",)),
    )
    assert "E element-wise" in drawn_bars(data, 40)[-1]
