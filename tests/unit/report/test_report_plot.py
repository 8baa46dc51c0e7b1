"""Plots in characters: points where they belong, axes labelled, nothing drawn out of nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trnbench.show.plot import LEFT, PlotAxis, PlotSeries, log_plot

X = PlotAxis(title="x", text=lambda value: f"{value:.3g}")
Y = PlotAxis(title="y", text=lambda value: f"{value:.3g}")


def canvas(text, height):
    return [line[LEFT + 1 :] for line in text.splitlines()[1 : height + 1]]


def test_a_diagonal_in_logarithms_is_a_diagonal_on_screen():
    points = ((1.0, 1.0), (10.0, 10.0), (100.0, 100.0))
    text = log_plot([PlotSeries(label="d", points=points)], X, Y, width=34, height=11)
    rows = canvas(text, 11)
    # 21 columns, 11 rows: a decade is 10 columns and 5 rows.
    assert [(i, row.index("o")) for i, row in enumerate(rows) if "o" in row] == [
        (0, 20),
        (5, 10),
        (10, 0),
    ]


def test_axes_and_legend_are_labelled():
    points = ((1.0, 2.0), (1000.0, 2000.0))
    text = log_plot([PlotSeries(label="shapes", points=points)], X, Y)
    assert text.startswith("y\n")
    assert "o shapes" in text
    for label in ("1", "1e+03", "2e+03"):
        assert label in text


def test_marks_stand_over_lines_and_series_differ():
    line = PlotSeries(label="roof", points=((1, 1), (100, 100)), joined=True)
    first, second = (
        PlotSeries(label="a", points=((10, 10),)),
        PlotSeries(label="b", points=((1, 100),)),
    )
    text = log_plot([first, second, line], X, Y)
    assert "o a" in text
    assert "x b" in text
    assert ". roof" in text
    assert any("o" in row for row in canvas(text, 18))


def test_nothing_positive_is_nothing_to_plot():
    assert log_plot([PlotSeries(label="a", points=((0, 1), (1, 0)))], X, Y) == "nothing to plot"


@given(
    st.lists(st.tuples(st.floats(1e-12, 1e18), st.floats(1e-12, 1e18)), min_size=1, max_size=20),
    st.integers(30, 200),
)
def test_any_points_stay_inside_the_frame(points, width):
    text = log_plot([PlotSeries(label="p", points=tuple(points))], X, Y, width=width)
    assert all(len(line) <= max(width, 34) for line in text.splitlines())
