"""Horizontal bars: the drawing of the terminal, in colours."""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style
from rich.text import Text
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from trnbench.facts.records import replace
from trnbench.show.charts.dots import dot_lines
from trnbench.show.charts.record import GREY, HUES, BarChart, BarPart
from trnbench.show.charts.text import bar_lines
from trnbench.tui.colours import filled as filled_style
from trnbench.tui.colours import series_colours

LEAST_SHARE = 0.01
"""A part that is less of every bar has no letter of its own."""
OTHER = BarPart(name="other", letter=".", hue=GREY)


def hue_styles(app: App[object]) -> list[Style]:
    """Styles of filled cells by colour; with NO_COLOR they have none."""
    if app.no_color:
        return [Style.null()] * HUES
    return [filled_style(colour) for colour in series_colours(app, HUES)]


def draw_bars(data: BarChart, width: int, styles: Sequence[Style]) -> Text:
    """The bars as lines of text of this width, under their title; `styles` by hue."""
    title = f"{data.title}, {data.caption}" if data.caption else data.title
    text = Text()
    text.append(title, style="bold")
    filled = styles[0].bgcolor is not None
    dots = data.estimates
    lines = dot_lines(data, width) if dots else bar_lines(merged(data), width, filled=filled)
    for line in lines:
        text.append("\n")
        for span in line:
            style = Style.null() if span.hue is None else styles[span.hue]
            coloured = Style(color=style.bgcolor) if dots and filled else style
            text.append(span.text, "bold" if span.strong else coloured)
    if data.missing:
        text.append(f"\n{data.missing}", style="dim")
    return text


def merged(data: BarChart) -> BarChart:
    """Stacked bars whose parts that are small in every bar are one: other."""
    small = {
        part.name
        for part in data.parts
        if all(bar.parts.get(part.name, 0.0) < LEAST_SHARE * bar.total for bar in data.bars)
    }
    if len(small) < 2 or len(data.parts) - len(small) < 2:
        return data
    bars = []
    for bar in data.bars:
        kept = {name: size for name, size in bar.parts.items() if name not in small}
        rest = sum(size for name, size in bar.parts.items() if name in small)
        bars.append(replace(bar, parts={**kept, OTHER.name: rest}))
    parts = tuple(part for part in data.parts if part.name not in small)
    return replace(data, bars=tuple(bars), parts=(*parts, OTHER))


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

    @property
    def drawn(self) -> object:
        return self.data

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
