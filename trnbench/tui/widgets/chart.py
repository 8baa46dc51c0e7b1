"""A chart over textual-plot: logarithmic axes, theme colours, whiskers, a legend in words."""

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
from trnbench.tui.colours import theme_style

if TYPE_CHECKING:
    from textual_plot import PlotWidget
    from textual_plot.axis_formatter import AxisFormatter

COLOURS = ("primary", "warning", "success", "error", "accent", "secondary", "foreground")
"""Theme variables, one after the other for each series."""
MOST_TICKS = 6
TICK_MARGIN = 0.03
"""So much of an axis, at its end, has no tick."""
MARGIN = 0.05
"""Room around the points, of the width of an axis."""


class Chart(Vertical):
    """Draws the data it was last given, once `load` has imported the plotting library."""

    DEFAULT_CSS = """
    Chart { height: 1fr; min-height: 6; }
    Chart > .title { height: 1; text-style: bold; color: $foreground; }
    Chart > .legend { height: auto; max-height: 3; }
    .-short Chart > .legend { max-height: 2; }
    Chart > .waiting { color: $text-muted; height: 1fr; }
    Chart PlotWidget { height: 1fr; }
    Chart PlotWidget > .plot--axis { color: $text-muted; }
    Chart PlotWidget > .plot--tick { color: $foreground; text-style: none; }
    Chart PlotWidget > .plot--label { color: $foreground; text-style: none; }
    Chart PlotWidget:focus > .plot--axis { color: $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("0", "reset", "Whole chart", show=False, id="chart.reset"),
    ]

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.data: ChartData | None = None
        self._plot: PlotWidget | None = None

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
        import textual_plot

        self.app.call_from_thread(self._loaded, textual_plot.PlotWidget)  # type: ignore[arg-type]

    async def _loaded(self, kind: type[PlotWidget]) -> None:
        if not self.is_attached:
            return
        plot = kind()
        plot.can_focus = True
        await self.mount(plot, after=self.query_one(".waiting"))
        plot.margin_top = 1
        plot.margin_left = 13
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
        short = self.screen.has_class("-short")
        plot.margin_bottom = 1 if short else 3
        self.query_one(".title", Static).display = not short
        plot.clear()
        plot.set_x_formatter(_formatter(data.x))
        plot.set_y_formatter(_formatter(data.y))
        plot.set_xlabel(data.x.title)
        plot.set_ylabel("")
        self._limits(plot, data)
        marks = marks_of(data.series)
        for number, (series, mark) in enumerate(zip(data.series, marks, strict=True)):
            self._series(plot, data, series, mark, self._style(number, series))

    def _series(
        self, plot: PlotWidget, data: ChartData, series: ChartSeries, mark: str, style: str
    ) -> None:
        from textual_plot import HiResMode

        fine = HiResMode.BRAILLE
        at = [(_at(x, data.x), _at(y, data.y)) for x, y in series.points]
        if series.joined:
            plot.plot(*_columns(at), line_style=style, hires_mode=fine)
        for (x, _), ends in zip(at, series.whiskers, strict=False):
            if ends is not None:
                low, high = _at(ends[0], data.y), _at(ends[1], data.y)
                plot.plot([x, x], [low, high], line_style=style, hires_mode=fine)
        if series.marked:
            plot.scatter(*_columns(at), marker=mark, marker_style=style)

    def _limits(self, plot: PlotWidget, data: ChartData) -> None:
        xs = [_at(x, data.x) for series in data.series for x, _ in series.points]
        ys = [_at(y, data.y) for series in data.series for _, y in series.points]
        ys += [
            _at(end, data.y)
            for series in data.series
            for ends in series.whiskers
            if ends is not None
            for end in ends
        ]
        plot.set_xlimits(*_ends(xs, data.x))
        plot.set_ylimits(*_ends(ys, data.y))

    def _legend(self, data: ChartData) -> Text:
        # Where the axis has no room for its title, the legend has it.
        over = f" over {data.x.title}" if self.screen.has_class("-short") else ""
        entries = [(f"{data.y.title}{over} ", Style(bold=True))] if data.y.title else []
        entries += [
            (f"{mark} {series.label}", Style.parse(self._style(number, series)))
            for number, (series, mark) in enumerate(
                zip(data.series, marks_of(data.series), strict=True)
            )
            if series.label
        ]
        if data.missing:
            entries.append((data.missing, Style(dim=True)))
        return flowed(entries, self.size.width)

    def _style(self, number: int, series: ChartSeries) -> str:
        hue = number if series.hue is None else series.hue
        style = theme_style(self.app, COLOURS[hue % len(COLOURS)], bold=series.strong)
        return str(style)


def flowed(entries: Sequence[tuple[str, Style]], width: int) -> Text:
    """Return entries in a line, and below where it is full: none is broken in two."""
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


def _at(value: float, axis: ChartAxis) -> float:
    """Return where a value lies: plots know no logarithms, so they get them."""
    if not axis.log:
        return value
    return math.log10(value) if value > 0 else math.nan


def _ends(values: Sequence[float], axis: ChartAxis) -> tuple[float, float]:
    known = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(known), max(known)
    room = (high - low) * MARGIN or (0.3 if axis.log else abs(high) * MARGIN or 1.0)
    return (
        low - room if axis.low is None else _at(axis.low, axis),
        high + room if axis.high is None else _at(axis.high, axis),
    )


def log_ticks(low: float, high: float, most: int = MOST_TICKS) -> list[float]:
    """Return the exponents of ten, from `low` to `high`, at which an axis has ticks."""
    for steps in ((1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        inside = [
            at
            for power in range(math.floor(low), math.ceil(high) + 1)
            for step in steps
            if low <= (at := power + math.log10(step)) <= high
        ]
        if len(inside) <= most:
            break
    if len(inside) < 2:
        return [low + (high - low) * share for share in (0.1, 0.9)]
    return inside[:: -(-len(inside) // most)]


def binary_ticks(low: float, high: float, most: int = MOST_TICKS) -> list[float]:
    """Return the exponents of ten, from `low` to `high`, of powers of two."""
    bit = math.log10(2)
    powers = range(math.ceil(low / bit), math.floor(high / bit) + 1)
    stride = next(
        (one for one in (1, 2, 5, 10) if len(range(0, len(powers), one)) <= most), len(powers)
    )
    return [power * bit for power in powers if power % stride == 0]


def _formatter(axis: ChartAxis) -> AxisFormatter:
    from textual_plot.axis_formatter import NumericAxisFormatter

    class Written(NumericAxisFormatter):
        """Writes the numbers of one axis."""

        def get_ticks(self, min_: float, max_: float, max_ticks: int = 8) -> list[float]:
            # A label at the very end of an axis would be cut off.
            last = max_ - TICK_MARGIN * (max_ - min_)
            if axis.binary:
                return binary_ticks(min_, last)
            if axis.log:
                return log_ticks(min_, last)
            return [tick for tick in super().get_ticks(min_, max_, MOST_TICKS) if tick <= last]

        def get_labels_for_ticks(self, ticks: Sequence[float]) -> list[str]:
            return [axis.text(10**tick if axis.log else tick) for tick in ticks]

    return Written()
