"""The plot of a chart, which stands still where it has no room, and has words beside its marks."""

from __future__ import annotations

from typing import Any

from textual_plot import PlotWidget

from trnbench.records import Record
from trnbench.tui.chart_data import tag_place


class PlotTag(Record, kw_only=False):
    """A text beside a point, in the coordinates of the plot."""

    x: float
    y: float
    text: str
    style: str


class Plot(PlotWidget):
    """A plot that may be smaller than its axes; `marks` are the points that no text may hide."""

    tags: tuple[PlotTag, ...] = ()
    marks: tuple[tuple[float, float], ...] = ()

    def get_coordinate_from_pixel(self, x: int, y: int) -> tuple[float, float]:
        """Return the coordinates of a place; without room, of one place for all."""
        if not self._scale_rectangle.area:
            return 0.0, 0.0
        return super().get_coordinate_from_pixel(x, y)

    @property
    def room(self) -> tuple[int, int]:
        """Columns and lines between the axes."""
        return self._scale_rectangle.width, self._scale_rectangle.height

    def _render_plot(self) -> None:
        """Draw the plot, then the words."""
        super()._render_plot()
        if not self._scale_rectangle.area:
            return
        canvas: Any = self.query_one("#plot")
        taken = frozenset(self.get_pixel_from_coordinate(x, y) for x, y in self.marks)
        size = (self._scale_rectangle.width, self._scale_rectangle.height)
        for tag in self.tags:
            at = self.get_pixel_from_coordinate(tag.x, tag.y)
            place = tag_place(at, tag.text, taken, size)
            if place is not None:
                for number, letter in enumerate(tag.text):
                    canvas.set_pixel(place[0] + number, place[1], letter, tag.style)
