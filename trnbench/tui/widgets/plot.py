"""The plot of a chart: nothing is drawn without room, and words stand beside marks."""

from __future__ import annotations

from typing import Any

from textual.app import RenderResult
from textual_plot import PlotWidget

from trnbench.show.charts.record import Point
from trnbench.show.charts.ticks import cells_between, tag_place


class Plot(PlotWidget):
    """A plot that may be smaller than its axes; texts hide no mark, and no interval if they can."""

    tags: tuple[tuple[Point, str, str], ...] = ()
    """Texts beside points in the coordinates of the plot, and their styles."""
    marks: tuple[Point, ...] = ()
    intervals: tuple[tuple[Point, Point], ...] = ()

    def get_coordinate_from_pixel(self, x: int, y: int) -> tuple[float, float]:
        """The coordinates of a place; without room, the same for all places."""
        try:
            return super().get_coordinate_from_pixel(x, y)
        except ZeroDivisionError:
            return 0.0, 0.0

    @property
    def room(self) -> tuple[int, int]:
        """Columns and lines between the axes."""
        canvas = self.query_one("#plot")
        return max(canvas.size.width - 2, 0), max(canvas.size.height - 2, 0)

    def render(self) -> RenderResult:
        """Draw the plot, then the words."""
        drawn = super().render()
        if all(self.room):
            self._draw_tags()
        return drawn

    def _draw_tags(self) -> None:
        canvas: Any = self.query_one("#plot")
        taken = frozenset(self.get_pixel_from_coordinate(x, y) for x, y in self.marks)
        lines = frozenset(
            cell
            for ends in self.intervals
            for cell in cells_between([self.get_pixel_from_coordinate(x, y) for x, y in ends])
        )
        for point, text, style in self.tags:
            at = self.get_pixel_from_coordinate(*point)
            place = tag_place(at, text, taken, self.room, lines)
            if place is not None:
                for number, letter in enumerate(text):
                    canvas.set_pixel(place[0] + number, place[1], letter, style)
