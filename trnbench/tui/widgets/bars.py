"""Horizontal bars: the drawing of the terminal, in colours."""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style
from rich.text import Text
from textual.app import App, ComposeResult
from textual.content import Content
from textual.widgets import Static

from trnbench.show.charts.dots import dot_lines
from trnbench.show.charts.record import HUES, BarChart, title_of
from trnbench.show.charts.text import bar_lines
from trnbench.tui.colours import filled as filled_style
from trnbench.tui.colours import series_colours
from trnbench.tui.widgets.frame import ScrolledPanel


def hue_styles(app: App[object]) -> list[Style]:
    """Styles of filled cells by colour; with NO_COLOR they have none."""
    if app.no_color:
        return [Style.null()] * HUES
    return [filled_style(colour) for colour in series_colours(app, HUES)]


def titled(data: BarChart) -> str:
    """Title of the bars and their caption."""
    return ", ".join(filter(None, (title_of(data), data.caption)))


def draw_bars(data: BarChart, width: int, styles: Sequence[Style]) -> Text:
    """The bars as lines of text of this width, under their title; `styles` by hue."""
    text = Text()
    text.append(titled(data), style="bold")
    filled = styles[0].bgcolor is not None
    dots = data.estimates
    lines = dot_lines(data, width) if dots else bar_lines(data, width, filled=filled)
    for line in lines:
        text.append("\n")
        for span in line:
            style = Style.null() if span.hue is None else styles[span.hue]
            coloured = Style(color=style.bgcolor) if dots and filled else style
            text.append(span.text, "bold" if span.strong else coloured)
    if data.missing:
        text.append(f"\n{data.missing}", style="dim")
    return text


class StackedBars(ScrolledPanel):
    """Draws its newest bars over its whole width."""

    def __init__(self) -> None:
        super().__init__()
        self.data: BarChart | None = None
        self._lines = (-1, "", False)

    def compose(self) -> ComposeResult:
        yield Static(Text("no answer yet", "dim"), markup=False)

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
        lines = drawn.plain.count("\n"), data.missing
        # Where room is short, the title stands in the frame.
        short = lines[0] >= self.size.height
        self.border_subtitle = Content(titled(data) if short else "")
        if short:
            drawn = Text("\n").join(drawn.split("\n", allow_blank=True)[1:])
        self.query_one(Static).update(drawn, layout=(*lines, short) != self._lines)
        self._lines = (*lines, short)
