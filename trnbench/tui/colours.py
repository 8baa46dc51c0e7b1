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
_FULL = Style(dim=False)

DARK = ("#56b4e9", "#e69f00", "#2fc49a", "#e58ac0", "#f0e442", "#ff7f50", "#b9a3ff", "#c8c8c8")
LIGHT = ("#0067a8", "#a85800", "#007a5a", "#a8327c", "#756900", "#c2330c", "#5b3fb5", "#4a4a4a")
ANSI = ("blue", "yellow", "green", "magenta", "cyan", "red", "bright_black", "default")
"""Colours that also people who see fewer tell apart: those of Okabe and Ito, made lighter or darker
until they stand out from the background."""


class Styled(LineFilter):
    """Gives a style to segments without style, which the filters of textual cannot take."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The segments, each with a style."""
        return [
            segment if segment.style is not None else Segment(segment.text, _NULL, segment.control)
            for segment in segments
        ]


class Undimmed(LineFilter):
    """Leaves nothing dim: for themes whose point is contrast."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The segments, none of them dim."""
        return [
            Segment(segment.text, segment.style + _FULL, segment.control)
            if segment.style is not None and segment.style.dim
            else segment
            for segment in segments
        ]


def theme_style(app: App[object], name: str, *, bold: bool = False, reverse: bool = False) -> Style:
    """The style of a theme variable; without a colour in it the text keeps its own."""
    try:
        colour = Color.parse(app.theme_variables.get(name, "")).rich_color
    except ColorParseError:
        colour = None
    return Style(color=colour, bold=bold, reverse=reverse)


def series_colours(app: App[object], count: int) -> list[str]:
    """Colours of neighbouring series in a drawing; they repeat after eight."""
    known = DARK if app.current_theme.dark else LIGHT
    if app.theme.startswith("ansi"):
        known = ANSI
    return [known[number % len(known)] for number in range(count)]


def filled(colour: str) -> Style:
    """The style of a readable cell filled with a colour of `series_colours`."""
    on = "#101010" if colour in DARK else "#ffffff" if colour in LIGHT else "black"
    return Style(color=on, bgcolor=colour)


def abreast(blocks: Sequence[Sequence[Text]], width: int, *, gap: int) -> Text:
    """Blocks of equal height side by side as far as `width` goes, then below."""
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
