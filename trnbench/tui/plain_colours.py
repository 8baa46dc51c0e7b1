"""NO_COLOR with widgets of others: every segment gets a style before colours are taken away."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

_NULL = Style.null()


class Styled(LineFilter):
    """Gives a style to segments without one, which the filters of textual cannot take."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments, each with a style."""
        return [
            segment if segment.style is not None else Segment(segment.text, _NULL, segment.control)
            for segment in segments
        ]
