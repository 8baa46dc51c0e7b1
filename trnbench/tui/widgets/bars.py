"""Horizontal bars: the drawing of the terminal, in colours."""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style
from rich.text import Text
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from trnbench.show.charts.record import HUES, BarChart
from trnbench.show.charts.text import bar_lines
from trnbench.tui.colours import filled, series_colours


def hue_styles(app: App[object]) -> list[Style]:
    """Styles of filled cells by colour; with NO_COLOR they have none."""
    if app.no_color:
        return [Style.null()] * HUES
    return [filled(colour) for colour in series_colours(app, HUES)]


def draw_bars(data: BarChart, width: int, styles: Sequence[Style]) -> Text:
    """The bars as lines of text of this width, under their title; `styles` by hue."""
    title = f"{data.title}, {data.caption}" if data.caption else data.title
    text = Text()
    text.append(title, style="bold")
    for line in bar_lines(data, width, filled=styles[0].bgcolor is not None):
        text.append("\n")
        for span in line:
            text.append(
                span.text, "bold" if span.strong else "" if span.hue is None else styles[span.hue]
            )
    if data.missing:
        text.append(f"\n{data.missing}", style="dim")
    return text


class StackedBars(VerticalScroll):
    """Draws its newest bars over its whole width."""

    def __init__(self) -> None:
        super().__init__()
        self.data: BarChart | None = None
        self._lines = (-1, "")

    def compose(self) -> ComposeResult:
        yield Static("", markup=False)

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _: self._draw())

    def on_resize(self) -> None:
        self._draw()

    def show(self, data: BarChart) -> None:
        self.data = data
        self._draw()

    def _draw(self) -> None:
        data = self.data
        if data is None or not self.size.width:
            return
        drawn = draw_bars(data, self.size.width - 1, hue_styles(self.app))
        lines = str(drawn).count("\n"), data.missing
        self.query_one(Static).update(drawn, layout=lines != self._lines)
        self._lines = lines
