"""Charts as SVG: well formed, titled, captioned, and with all that the record says."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from trnbench.facts.units import Dimension
from trnbench.show.charts.record import (
    Bar,
    BarChart,
    ChartAxis,
    GanttChart,
    GanttLane,
    Guide,
    PointChart,
    Series,
    Span,
    SpanKind,
    axis_of,
    parts_of,
)
from trnbench.show.charts.svg import HEIGHT, TOP, WIDTH, chart_svg
from trnbench.show.row import Interval

SPACE = "{http://www.w3.org/2000/svg}"
HOSTILE = '</text><script>"&\x1b'
POINTS = PointChart(
    title="cost <over> days",
    caption="80 % intervals & more",
    x=ChartAxis(title="days", kind="log"),
    y=axis_of("cost", Dimension.USD, [2e6, 3e6]),
    series=(
        Series(
            label=HOSTILE,
            points=((40.0, 2e6),),
            across=((20.0, 80.0),),
            upright=((1e6, 4e6),),
            strong=True,
            tag="cheapest: a",
        ),
        Series(label="line", points=((40.0, 2e6), (50.0, 3e6)), joined=True, marked=False),
        Series(label="nowhere", points=((0.0, 2e6),)),
    ),
    guides=(Guide(label="deadline", x=60.0), Guide(label="level", y=2.5e6)),
)
BARS = BarChart(
    title="memory",
    caption="per rank",
    axis=ChartAxis(title="bytes", dimension=Dimension.BYTES),
    bars=(Bar(label="a", parts={"weights": 3.0, "rest": 1.0}, limit=8.0),),
    parts=parts_of(("weights", "rest")),
    limit="available",
)
DAYS = BarChart(
    title="days",
    caption="80 % intervals",
    axis=ChartAxis(title="days"),
    bars=(Bar(label="a", estimate=Interval(value=20.0, low=10.0, high=30.0), strong=True),),
)
JOBS = GanttChart(
    title="jobs",
    caption="a lane a job",
    axis=ChartAxis(title="day", kind="date"),
    start=740000.0,
    end=740030.0,
    lanes=(GanttLane(name="a", spans=(Span(740000.0, 740010.0, "runs"),), mark=740020.0),),
    kinds={"runs": SpanKind(letter="#", fill="#", colour="cyan", legend="runs")},
)


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("chart", [POINTS, BARS, DAYS, JOBS], ids=lambda one: one.title)
def test_every_chart_is_well_formed_titled_and_captioned(chart, alone):
    root = ElementTree.fromstring(chart_svg(chart, alone=alone))
    assert root.findtext(f"{SPACE}title") == chart.title
    assert chart.caption in (root.findtext(f"{SPACE}desc") or "")
    texts = [one.text for one in root.iter(f"{SPACE}text")]
    assert (chart.title in texts) is alone
    assert not list(root.iter(f"{SPACE}script"))


def drawn(chart, tag, kind):
    root = ElementTree.fromstring(chart_svg(chart))
    return [one.attrib for one in root.iter(f"{SPACE}{tag}") if one.get("class") == kind]


def test_points_have_both_intervals_the_deadline_and_the_winner():
    # Colour 0: an interval along each axis with two caps each, and its sign in the legend is none.
    lines = drawn(POINTS, "line", "l0")
    across = [one for one in lines if one["y1"] == one["y2"] and one["x1"] != one["x2"]]
    assert len(lines) == 6
    assert max(float(one["x2"]) - float(one["x1"]) for one in across) > 100
    guides = drawn(POINTS, "line", "guide")
    assert [one["y1"] for one in guides if one["x1"] == one["x2"]] == [f"{TOP:.1f}"]
    assert len(guides) == 2
    texts = chart_svg(POINTS)
    for words in ("deadline", "level", "cheapest: a", "line"):
        assert f">{words}</text>" in texts
    assert "nowhere" not in texts
    (circle,) = drawn(POINTS, "path", "ends")
    assert circle["d"].startswith("M")


def test_parts_and_estimates_have_lengths_in_proportion():
    weights, rest = drawn(BARS, "rect", "f0")[0], drawn(BARS, "rect", "f1")[0]
    assert float(weights["width"]) + 1 == pytest.approx(3 * (float(rest["width"]) + 1), abs=0.3)
    assert ">4 B of 8 B</text>" in chart_svg(BARS)
    (dot,) = drawn(DAYS, "circle", "f0")
    (over,) = drawn(DAYS, "path", "l0 wide")
    low, high = (float(over["d"].partition(sign)[2].split()[0].partition("M")[0]) for sign in "MH")
    assert float(dot["cx"]) - low == pytest.approx(high - float(dot["cx"]), abs=0.2)
    assert high > low


def test_everything_is_on_the_paper():
    for chart in (POINTS, BARS, DAYS, JOBS):
        root = ElementTree.fromstring(chart_svg(chart, alone=True))
        _, _, width, height = map(float, root.get("viewBox", "").split())
        assert width == WIDTH
        assert height > 40
        for one in root.iter(f"{SPACE}rect"):
            if one.get("width") != "100%":
                assert float(one.get("x", "0")) >= 0
                assert float(one.get("x", "0")) + float(one.get("width", "0")) <= WIDTH
                assert float(one.get("y", "0")) <= max(height, HEIGHT)
