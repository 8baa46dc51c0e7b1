"""Colours of drawn text: of the current theme, and with NO_COLOR; drawings side by side."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.app import App
from textual.color import Color, ColorParseError
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


def theme_style(app: App[object], name: str, *, bold: bool = False, reverse: bool = False) -> Style:
    """Return the style of a theme variable; one that names no colour leaves the colour alone."""
    try:
        colour = Color.parse(app.theme_variables.get(name, "")).rich_color
    except ColorParseError:
        colour = None
    return Style(color=colour, bold=bold, reverse=reverse)


def abreast(blocks: Sequence[Sequence[Text]], width: int, *, gap: int) -> Text:
    """Return blocks of equally many lines side by side as far as `width` goes, then below."""
    text = Text()
    widths = [max(len(line) for line in block) + gap for block in blocks]
    start = 0
    while start < len(blocks):
        end, used = start + 1, widths[start]
        while end < len(blocks) and used + widths[end] <= width:
            used += widths[end]
            end += 1
        for lines in zip(*blocks[start:end], strict=True):
            for line, wide in zip(lines, widths[start:end], strict=True):
                padded = line.copy()
                padded.pad_right(max(wide - len(line), 0))
                text.append_text(padded)
            text.append("\n")
        text.append("\n")
        start = end
    return text
