"""Charts of an answer, taken from its rows: what a report and `--plot-file` draw.

A chart is data; `svg` draws it. Which charts an answer has follows from the figures of its rows, so
that a kept answer has the same ones.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from trnbench.facts.records import Record, replace
from trnbench.facts.units import Dimension, show
from trnbench.show.figures import FIGURES, HIGH, LOW
from trnbench.show.plot import PlotAxis
from trnbench.show.report import Report, cell_text, figure_or_key
from trnbench.show.row import Row
from trnbench.show.step_parts import EXPOSED_PARTS, MEMORY_PARTS

_MOST_SERIES = 8
_MOST_BARS = 12
Mark = tuple[float, float, float, float]
"""A point's x, y, and the ends of y's interval."""


class PictureSeries(Record):
    """Points of one kind, joined by a line or not."""

    label: str
    points: tuple[Mark, ...]
    joined: bool = False


class PointChart(Record):
    """Points over two axes; `diagonal` draws where both are equal."""

    title: str
    x: PlotAxis
    y: PlotAxis
    series: tuple[PictureSeries, ...]
    diagonal: bool = False


class BarChart(Record):
    """Bars, each of parts from `start` on, in one unit; parts are named once for all bars."""

    title: str
    parts: tuple[str, ...]
    bars: tuple[tuple[str, float, tuple[float, ...]], ...]
    text: Callable[[float], str]


Chart = PointChart | BarChart


def charts_of(report: Report) -> tuple[Chart, ...]:
    """Return the charts that the rows of an answer have figures for."""
    rows = [row for row in report.rows if row.get("feasible") is not False]
    found = (make(rows) for make in _MAKERS)
    return tuple(chart for chart in found if chart is not None)


def _money(rows: Sequence[Row]) -> Chart | None:
    return _points(
        "cost over time; bars are 80 % intervals",
        PlotAxis(title="days", text=_plain),
        PlotAxis(title="USD", text=_in(Dimension.USD)),
        _series(rows, "days", "cost_usd", ("instance",)),
    )


def _validated(rows: Sequence[Row]) -> Chart | None:
    told = [row for row in rows if row.get("error") is not None]
    chart = _points(
        "predicted over measured",
        PlotAxis(title="measured", text=_seconds),
        PlotAxis(title="predicted", text=_seconds),
        _series(told, "measured_s", "predicted_s", ("set",)),
    )
    return chart and replace(chart, diagonal=True)


def _collective(rows: Sequence[Row]) -> Chart | None:
    keys = ("op", "instance", "nodes", "algorithm", "engine")
    return _points(
        "bus bandwidth by size",
        PlotAxis(title="size", text=_in(Dimension.BYTES)),
        PlotAxis(title="busbw", text=_in(Dimension.BYTES_PER_S)),
        _series(rows, "size_bytes", "busbw_bytes_per_s", keys, joined=True),
    )


def _rooflines(rows: Sequence[Row]) -> Chart | None:
    return _points(
        "rate by intensity",
        PlotAxis(title="FLOP per byte", text=_plain),
        PlotAxis(title="rate", text=_in(Dimension.FLOP_PER_S)),
        _series(rows, "intensity_flop_per_byte", "flop_per_s", ("chip", "dtype", "engine")),
    )


def _scaling(rows: Sequence[Row]) -> Chart | None:
    if not any("efficiency" in row for row in rows):
        return None
    return _points(
        "speed by nodes",
        PlotAxis(title="nodes", text=_whole),
        PlotAxis(title="samples/s", text=_in(Dimension.COUNT)),
        _series(rows, "nodes", "sequences_per_s", ("instance",), joined=True),
    )


def _losses(rows: Sequence[Row]) -> Chart | None:
    return _points(
        "loss by step",
        PlotAxis(title="step", text=_whole, linear=True),
        PlotAxis(title="loss", text=lambda value: f"{value:.4g}", linear=True),
        _series(rows, "step", "loss", (), joined=True),
    )


def _step_time(rows: Sequence[Row]) -> Chart | None:
    return _bars("time of a training step", rows, _parts(rows, EXPOSED_PARTS), _seconds)


def _memory(rows: Sequence[Row]) -> Chart | None:
    return _bars("memory of a rank", rows, _parts(rows, MEMORY_PARTS), _in(Dimension.BYTES))


def _parts(rows: Sequence[Row], titles: Mapping[str, str]) -> dict[str, str]:
    """Return the titles of those parts of a whole that rows have, by key."""
    return {key: title for key, title in titles.items() if any(key in row for row in rows)}


def _timeline(rows: Sequence[Row]) -> Chart | None:
    spans = []
    for row in rows:
        start, end = row.get("starts_on"), row.get("ends_on")
        if isinstance(start, str) and isinstance(end, str):
            days = [datetime.date.fromisoformat(one).toordinal() for one in (start, end)]
            spans.append((_name(row), days[0], days[1] + 1))
    if not spans:
        return None
    first = min(start for _, start, _ in spans)
    return BarChart(
        title=f"when jobs run, in days from {datetime.date.fromordinal(first)} on",
        parts=("running",),
        bars=tuple((name, float(s - first), (float(e - s),)) for name, s, e in spans),
        text=lambda value: f"{value:.0f} days",
    )


def _moved(rows: Sequence[Row]) -> Chart | None:
    moved = [row for row in rows if isinstance(row.get("change"), float) and "figure" in row]
    if not moved:
        return None
    bars = []
    for row in islice(sorted(moved, key=lambda one: -abs(_number(one["change"]))), _MOST_BARS):
        change = _number(row["change"])
        title = figure_or_key(str(row["figure"])).title
        bars.append((f"{row['row']}: {title}", min(change, 0.0), (abs(change),)))
    return BarChart(
        title="change of figures",
        parts=("change",),
        bars=tuple(bars),
        text=lambda value: f"{100 * value:.3g} %",
    )


_MAKERS = (
    *(_money, _validated, _collective, _rooflines, _scaling, _losses),
    *(_step_time, _memory, _timeline, _moved),
)


def _points(
    title: str, x: PlotAxis, y: PlotAxis, series: tuple[PictureSeries, ...]
) -> PointChart | None:
    return PointChart(title=title, x=x, y=y, series=series) if series else None


def _series(
    rows: Sequence[Row], x: str, y: str, names: Sequence[str], *, joined: bool = False
) -> tuple[PictureSeries, ...]:
    found: dict[str, list[Mark]] = {}
    varying = [key for key in names if len({str(row.get(key)) for row in rows}) > 1] or names[:1]
    for row in rows:
        one, two = _number(row.get(x)), _number(row.get(y))
        if one > 0 and two > 0:
            label = " ".join(str(row[key]) for key in varying if row.get(key) is not None)
            low = _number(row.get(LOW + y)) or two
            high = _number(row.get(HIGH + y)) or two
            found.setdefault(label, []).append((one, two, low, high))
    kept = islice(found.items(), _MOST_SERIES)
    return tuple(
        PictureSeries(label=label, points=tuple(points), joined=joined) for label, points in kept
    )


def _bars(
    title: str, rows: Sequence[Row], names: Mapping[str, str], text: Callable[[float], str]
) -> Chart | None:
    bars = [
        (_name(row), 0.0, tuple(_number(row.get(key)) for key in names))
        for row in islice(rows, _MOST_BARS)
    ]
    used = [n for n in range(len(names)) if any(parts[n] > 0 for _, _, parts in bars)]
    if not used:
        return None
    return BarChart(
        title=title,
        parts=tuple([*names.values()][n] for n in used),
        bars=tuple((name, 0.0, tuple(parts[n] for n in used)) for name, _, parts in bars),
        text=text,
    )


def _name(row: Row) -> str:
    if row.get("name"):
        return str(row["name"])
    nodes = f"{row['nodes']} x " if row.get("nodes") else ""
    return str(row.get("case") or f"{nodes}{row.get('instance') or row.get('model') or ''}")


def _number(value: object) -> float:
    good = isinstance(value, int | float) and math.isfinite(value)
    return float(value) if good else 0.0  # type: ignore[arg-type]


def _seconds(value: float) -> str:
    return cell_text(value, FIGURES["time_s"])


def _plain(value: float) -> str:
    return f"{value:.3g}"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _in(dimension: Dimension) -> Callable[[float], str]:
    return lambda value: show(value, dimension, digits=3)
