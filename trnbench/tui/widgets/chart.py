"""A chart over textual-plot: logarithmic axes, colours, whiskers, a legend in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.style import Style
from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from trnbench.show.charts.record import GREY, HUES, ChartAxis, PointChart, Series, marks_of
from trnbench.show.charts.ticks import labels_of, ticks_of
from trnbench.tui.colours import series_colours
from trnbench.tui.widgets.frame import hidden

if TYPE_CHECKING:
    from textual_plot.axis_formatter import AxisFormatter

    from trnbench.tui.widgets.plot import Plot


ROOMY = 16
"""Lines from which on a chart has its title above it, and a title at its axis."""


class Chart(Vertical):
    """Draws its newest data, once `load` has imported the plotting library."""

    BINDINGS: ClassVar[list[BindingType]] = [hidden("z", "reset", "Whole chart", "chart.reset")]

    def __init__(self) -> None:
        super().__init__()
        self.data: PointChart | None = None
        self._plot: Plot | None = None

    def compose(self) -> ComposeResult:
        yield Static("", classes="title", markup=False)
        yield Static("no answer yet", classes="waiting", markup=False)
        yield Static("", classes="legend", markup=False)

    @work(thread=True, exit_on_error=False)
    def load(self) -> None:
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
        self.set_class(self._short, "-short")
        self._draw()

    @property
    def _short(self) -> bool:
        """True where a line of the plot is worth more than lines that say the obvious."""
        return self.size.height < ROOMY

    @property
    def drawn(self) -> object:
        return self.data

    def show(self, data: PointChart) -> None:
        self.data = data
        self._draw()

    def action_reset(self) -> None:
        self._draw()

    def _draw(self) -> None:
        data, plot = self.data, self._plot
        if data is None:
            if plot is not None:
                plot.display = False
            return
        empty = data.empty
        self.query_one(".title", Static).update(_titled(data))
        waiting = self.query_one(".waiting", Static)
        waiting.display = empty or plot is None
        waiting.update(data.missing or "nothing to draw" if empty else "drawing ...")
        self.query_one(".legend", Static).update("" if empty else self._legend(data))
        if plot is None:
            return
        plot.display = not empty
        if empty:
            return
        plot.margin_bottom = 1 if self._short else 3
        self.query_one(".title", Static).display = not self._short
        self.border_subtitle = Content(_titled(data) * self._short)
        plot.clear()
        self._axes(plot, data)
        self._put(plot, data)

    def _axes(self, plot: Plot, data: PointChart) -> None:
        xs, ys = data.spans
        plot.set_xlimits(*xs)
        plot.set_ylimits(*ys)
        plot.set_x_formatter(_formatter(data.x, plot, upright=False))
        plot.set_y_formatter(_formatter(data.y, plot, upright=True))
        plot.set_xlabel(data.x.heading)
        plot.set_ylabel("")
        widest = max(map(len, labels_of(data.y, [ys[0], sum(ys) / 2, ys[1]])))
        plot.margin_left = min(max(widest, 4) + 3, 14)

    def _put(self, plot: Plot, data: PointChart) -> None:
        """Draw guides and lines, then intervals, then marks, that of the cursor last."""
        from textual_plot import HiResMode

        fine = HiResMode.BRAILLE
        series = data.drawn
        styles = self._styles(series)
        drawn = list(zip(series, marks_of(series), styles, strict=True))
        at = [[(data.x.place(x), data.y.place(y)) for x, y in line.points] for line in series]
        (left, right), (low, high) = data.spans
        for guide in data.guides:
            xs = (left, right) if guide.x is None else (data.x.place(guide.x),) * 2
            ys = (low, high) if guide.y is None else (data.y.place(guide.y),) * 2
            plot.plot(xs, ys, line_style=series_colours(self.app, HUES)[GREY], hires_mode=fine)
        for (line, _, style), places in zip(drawn, at, strict=True):
            if line.joined:
                plot.plot(*_columns(places), line_style=style, hires_mode=fine)
        for line, _, style in drawn:
            for ends in data.intervals(line):
                plot.plot(*_columns(ends), line_style=style, hires_mode=fine)
        plot.intervals = tuple(ends for line in series for ends in data.intervals(line))
        of_mark = sorted(zip(drawn, at, strict=True), key=lambda each: each[0][0].strong)
        for (line, mark, style), places in of_mark:
            if line.marked:
                plot.scatter(*_columns(places), marker=mark, marker_style=style)
        plot.marks = tuple(
            point
            for line, places in zip(series, at, strict=True)
            if line.marked
            for point in places
        )
        plot.tags = tuple(
            (places[-1], line.tag, style)
            for (line, _, style), places in zip(drawn, at, strict=True)
            if line.tag
        )

    def _legend(self, data: PointChart) -> Text:
        # Where the axis has no room for its title, the legend has it.
        over = f" over {data.x.heading}" if self._short else ""
        entries = [(f"{data.y.heading}{over} ", Style(bold=True))] if data.y.title else []
        series = data.drawn
        entries += [
            (f"{mark} {line.label}", Style.parse(style))
            for line, mark, style in zip(
                series, marks_of(series), self._styles(series), strict=True
            )
            if line.label
        ]
        entries += [(f": {guide.label}", Style(dim=True)) for guide in data.guides]
        entries += [(note, Style(dim=True)) for note in (data.missing,) if note]
        return flowed(entries, self.size.width)

    def _styles(self, series: Sequence[Series]) -> list[str]:
        colours = series_colours(self.app, HUES)
        return [str(Style(color=colours[line.hue or 0], bold=line.strong)) for line in series]


def _titled(data: PointChart) -> str:
    return f"{data.title}; {data.caption}" if data.caption else data.title


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


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _formatter(axis: ChartAxis, plot: Plot, *, upright: bool) -> AxisFormatter:
    from textual_plot.axis_formatter import NumericAxisFormatter

    class Written(NumericAxisFormatter):
        """Ticks with as much room as the plot has, written as the axis says."""

        def get_ticks(self, min_: float, max_: float, max_ticks: int = 8) -> list[float]:
            columns, lines = plot.room
            cells = lines if upright else columns

            def cell(tick: float) -> int:
                share = (tick - min_) / (max_ - min_)
                return math.floor((1 - share if upright else share) * max(cells - 1, 1))

            return ticks_of(axis, min_, max_, cell, upright=upright)

        def get_labels_for_ticks(self, ticks: Sequence[float]) -> list[str]:
            return labels_of(axis, ticks)

    return Written()
