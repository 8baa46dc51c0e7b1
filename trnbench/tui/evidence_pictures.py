"""The picture of predictions beside measurements: errors over measured times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trnbench.facts.units import Dimension, counted
from trnbench.tui.chart_data import ChartAxis, ChartData, ChartSeries, log_axis, number

if TYPE_CHECKING:
    from trnbench.evidence.comparison import Comparison

BAND = 10.0
"""Errors of the two lines that bound small errors, %."""
MOST = 100.0
"""Error beyond which points are drawn at the edge, %."""


def error_chart(
    rows: Sequence[Comparison], here: Comparison | None, missing: str = ""
) -> ChartData:
    """The errors in per cent over the measured times; the band is drawn below the marks."""
    points = {
        label: tuple(point for row in rows if (point := _point(row)) and row.fitted is fitted)
        for label, fitted in (("unseen", False), ("fitted", True))
    }
    found = [point for each in points.values() for point in each]
    series = []
    if found:
        least, most = min(x for x, _ in found), max(x for x, _ in found)
        series = [
            ChartSeries(
                label=f"+-{BAND:.0f} %" if error > 0 else "",
                points=((least, error), (most, error)),
                joined=True,
                marked=False,
                hue=7,
            )
            for error in (-BAND, BAND)
        ]
    series += [
        ChartSeries(label=f"{label}, {counted(len(each), 'row')}", points=each, hue=hue)
        for hue, (label, each) in enumerate(points.items())
        if each
    ]
    if here is not None and (point := _point(here)):
        series.append(ChartSeries(label=here.id, points=(point,), strong=True, hue=3))
    beyond = sum(abs(row.error or 0.0) * 100 > MOST for row in rows)
    edge = f"{beyond} beyond {MOST:.0f} %, drawn at the edge" if beyond else ""
    return ChartData(
        title="error of the prediction over the measured time; above 0: predicted too slow",
        series=tuple(series),
        x=log_axis("measured", Dimension.SECONDS, [x for x, _ in found], unit="s"),
        y=ChartAxis(title="error (%)", text=number),
        missing="; ".join(filter(None, (missing, edge))),
    )


def _point(row: Comparison) -> tuple[float, float] | None:
    if row.measured_s is None or row.error is None:
        return None
    return row.measured_s, min(max(100 * row.error, -MOST), MOST)
