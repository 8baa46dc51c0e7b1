"""A chart over textual-plot: logarithmic axes, colours, whiskers, a legend in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.style import Style
from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Static

from trnbench.tui.chart_data import ChartAxis, ChartData, ChartSeries, marks_of
from trnbench.tui.colours import series_colours
from trnbench.tui.ticks import labels_of, ticks_of
from trnbench.tui.widgets.frame import short_of_lines

if TYPE_CHECKING:
    from textual_plot.axis_formatter import AxisFormatter

    from trnbench.tui.widgets.plot import Plot

MARGIN = 0.05
"""Room around the points, of the width of an axis."""


class Chart(Vertical):
    """Draws its newest data, once `load` has imported the plotting library."""

    DEFAULT_CSS = """
    Chart { height: 1fr; min-height: 6; }
    Chart > .title { height: 1; text-style: bold; color: $foreground; }
    Chart > .legend { height: auto; max-height: 3; }
    Chart > .waiting { color: $text-muted; height: 1fr; }
    Chart PlotWidget { height: 1fr; }
    Chart PlotWidget > .plot--axis { color: $text-muted; }
    Chart PlotWidget > .plot--tick { color: $foreground; text-style: none; }
    Chart PlotWidget > .plot--label { color: $foreground; text-style: none; }
    Chart PlotWidget:focus > .plot--axis { color: $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("z", "reset", "Whole chart", show=False, id="chart.reset"),
    ]

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.data: ChartData | None = None
        self._plot: Plot | None = None

    def compose(self) -> ComposeResult:
        """Yield title, a place for the plot, and legend."""
        yield Static("", classes="title", markup=False)
        yield Static("", classes="waiting", markup=False)
        yield Static("", classes="legend", markup=False)

    def on_mount(self) -> None:
        """Draw anew in another theme."""
        self.app.theme_changed_signal.subscribe(self, lambda _: self._draw())

    @work(thread=True, exit_on_error=False)
    def load(self) -> None:
        """Import the plotting library in a thread."""
        from trnbench.tui.widgets.plot import Plot

        self.app.call_from_thread(self._loaded, Plot)  # type: ignore[arg-type]

    async def _loaded(self, kind: type[Plot]) -> None:
        if not self.is_attached:
            return
        plot = kind()
        plot.can_focus = True
        await self.mount(plot, after=self.query_one(".waiting"))
        plot.margin_top = 0
        self._plot = plot
        self._draw()

    def on_resize(self) -> None:
        """Draw with the margins there is room for."""
        self._draw()

    def show(self, data: ChartData) -> None:
        """Draw other data."""
        self.data = data
        self._draw()

    def action_reset(self) -> None:
        """Show all of the chart after zooming."""
        self._draw()

    def _draw(self) -> None:
        data, plot = self.data, self._plot
        if data is None:
            if plot is not None:
                plot.display = False
            return
        empty = not any(series.points for series in data.series)
        self.query_one(".title", Static).update(data.title)
        waiting = self.query_one(".waiting", Static)
        waiting.display = empty or plot is None
        waiting.update(data.missing or "nothing to draw" if empty else "drawing ...")
        self.query_one(".legend", Static).update("" if empty else self._legend(data))
        if plot is None:
            return
        plot.display = not empty
        if empty:
            return
        short = short_of_lines(self.screen)
        plot.margin_bottom = 1 if short else 3
        self.query_one(".title", Static).display = not short
        plot.clear()
        self._axes(plot, data)
        self._put(plot, data)

    def _axes(self, plot: Plot, data: ChartData) -> None:
        ends = _shown(data)
        plot.set_xlimits(*ends[0])
        plot.set_ylimits(*ends[1])
        plot.set_x_formatter(_formatter(data.x, plot, upright=False))
        plot.set_y_formatter(_formatter(data.y, plot, upright=True))
        plot.set_xlabel(data.x.title)
        plot.set_ylabel("")
        widest = max(
            len(text) for text in labels_of(data.y, [ends[1][0], sum(ends[1]) / 2, ends[1][1]])
        )
        plot.margin_left = min(max(widest, 4) + 3, 14)

    def _put(self, plot: Plot, data: ChartData) -> None:
        """Draw lines, then whiskers, then marks, that of the cursor last: none hides a mark."""
        from textual_plot import HiResMode

        from trnbench.tui.widgets.plot import PlotTag

        fine = HiResMode.BRAILLE
        styles = self._styles(data)
        drawn = list(zip(data.series, marks_of(data.series), styles, strict=True))
        at = {id(one): _places(one, data) for one in data.series}
        for one, _, style in drawn:
            if one.joined:
                plot.plot(*_columns(at[id(one)]), line_style=style, hires_mode=fine)
        for one, _, style in drawn:
            for (x, _), ends in zip(at[id(one)], one.whiskers, strict=False):
                if ends is not None:
                    low, high = _at(ends[0], data.y), _at(ends[1], data.y)
                    plot.plot([x, x], [low, high], line_style=style, hires_mode=fine)
        for one, mark, style in sorted(drawn, key=lambda each: each[0].strong):
            if one.marked:
                plot.scatter(*_columns(at[id(one)]), marker=mark, marker_style=style)
        plot.marks = tuple(point for one in data.series if one.marked for point in at[id(one)])
        plot.tags = tuple(
            PlotTag(*at[id(one)][-1], one.tag, style) for one, _, style in drawn if one.tag
        )

    def _legend(self, data: ChartData) -> Text:
        # Where the axis has no room for its title, the legend has it.
        over = f" over {data.x.title}" if short_of_lines(self.screen) else ""
        entries = [(f"{data.y.title}{over} ", Style(bold=True))] if data.y.title else []
        entries += [
            (f"{mark} {series.label}", Style.parse(style))
            for series, mark, style in zip(
                data.series, marks_of(data.series), self._styles(data), strict=True
            )
            if series.label
        ]
        if data.missing:
            entries.append((data.missing, Style(dim=True)))
        return flowed(entries, self.size.width)

    def _styles(self, data: ChartData) -> list[str]:
        hues = [number if one.hue is None else one.hue for number, one in enumerate(data.series)]
        colours = series_colours(self.app, max(hues, default=0) + 1)
        return [
            str(Style(color=colours[hue], bold=one.strong))
            for one, hue in zip(data.series, hues, strict=True)
        ]


def flowed(entries: Sequence[tuple[str, Style]], width: int) -> Text:
    """Entries line by line; none is broken in two."""
    text, column = Text(), 0
    for words, style in entries:
        if column and column + len(words) > width:
            text.append("\n")
            column = 0
        elif column:
            text.append("  ")
        text.append(words, style=style)
        column += len(words) + 2
    return text


def _places(series: ChartSeries, data: ChartData) -> list[tuple[float, float]]:
    return [(_at(x, data.x), _at(y, data.y)) for x, y in series.points]


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _at(value: float, axis: ChartAxis) -> float:
    # The plotting library has no logarithmic axes: points are given as logarithms.
    if not axis.log:
        return value
    return math.log10(value) if value > 0 else math.nan


def _shown(data: ChartData) -> tuple[tuple[float, float], tuple[float, float]]:
    """Ends of the axes, around all points, marks and whiskers."""
    xs = [_at(x, data.x) for series in data.series for x, _ in series.points]
    ys = [_at(y, data.y) for series in data.series for _, y in series.points]
    ends = (ends for series in data.series for ends in series.whiskers if ends is not None)
    ys += [_at(end, data.y) for pair in ends for end in pair]
    return _ends(xs, data.x), _ends(ys, data.y)


def _ends(values: Sequence[float], axis: ChartAxis) -> tuple[float, float]:
    known = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(known), max(known)
    room = (high - low) * MARGIN or (0.3 if axis.log else abs(high) * MARGIN or 1.0)
    return (
        low - room if axis.low is None else _at(axis.low, axis),
        high + room if axis.high is None else _at(axis.high, axis),
    )


def _formatter(axis: ChartAxis, plot: Plot, *, upright: bool) -> AxisFormatter:
    from textual_plot.axis_formatter import NumericAxisFormatter

    class Written(NumericAxisFormatter):
        """Ticks with as much room as the plot has, written as the axis says."""

        def get_ticks(self, min_: float, max_: float, max_ticks: int = 8) -> list[float]:
            columns, lines = plot.room
            cells = lines if upright else columns

            def place(tick: float) -> int:
                share = (tick - min_) / (max_ - min_)
                return math.floor((1 - share if upright else share) * max(cells - 1, 1))

            return ticks_of(axis, min_, max_, place, upright=upright)

        def get_labels_for_ticks(self, ticks: Sequence[float]) -> list[str]:
            return labels_of(axis, ticks)

    return Written()
