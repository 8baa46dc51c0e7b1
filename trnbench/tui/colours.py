"""Themes, colours of drawn text also with NO_COLOR, and letters of terminals with ASCII alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from textual.app import App
from textual.color import Color, ColorParseError
from textual.filter import LineFilter
from textual.theme import Theme

from trnbench.facts.catalog.toml_file import read_toml

OWN_THEMES = tuple(
    Theme(name=name, **cast("Any", colours))
    for name, colours in read_toml(Path(__file__).with_name("styles") / "themes.toml").items()
)
HIGH_CONTRAST = tuple(theme for theme in OWN_THEMES if "contrast" in theme.name)
THEMES = (*(theme.name for theme in OWN_THEMES), "ansi-dark", "ansi-light")
"""The themes that a key goes through; the last two have the terminal's own colours."""

_NULL = Style.null()
_FULL = Style(dim=False)

DARK = ("#56b4e9", "#e69f00", "#2fc49a", "#e58ac0", "#f0e442", "#ff7f50", "#b9a3ff", "#c8c8c8")
LIGHT = ("#0067a8", "#a85800", "#007a5a", "#a8327c", "#756900", "#c2330c", "#5b3fb5", "#4a4a4a")
ANSI = ("blue", "yellow", "green", "magenta", "cyan", "red", "bright_black", "default")
"""Colours that also people who see fewer tell apart: those of Okabe and Ito, made lighter or darker
until they stand out from the background."""
_ON = ("#101010", "#ffffff")
"""Letters on these colours, of the dark and of the light palette."""


class Styled(LineFilter):
    """Gives a style to segments without style, which the filters of textual cannot take."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            segment if segment.style is not None else Segment(segment.text, _NULL, segment.control)
            for segment in segments
        ]


class Undimmed(LineFilter):
    """Leaves nothing dim: for themes whose point is contrast."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            Segment(segment.text, segment.style + _FULL, segment.control)
            if segment.style is not None and segment.style.dim
            else segment
            for segment in segments
        ]


_ACROSS = {*range(0x2500, 0x2502), 0x2550}
_UPRIGHT = {*range(0x2502, 0x2504), 0x2506, 0x250A, 0x2551}
_LIKE = {
    **{"\u2191": "^", "\u2193": "v", "\u2190": "<", "\u2192": ">"},
    **{"\u2026": ".", "\u2800": " ", "\u25cf": "o"},
}
_RANGES = ((0x2500, 0x2580, "+"), (0x2580, 0x25A0, "#"), (0x2801, 0x2900, "."))
"""Frames, blocks and dots: first and end of their letters, and the letter like them."""


def in_ascii(text: str) -> str:
    """A text in ASCII that takes as many columns."""
    return text if text.isascii() else "".join(map(_ascii_letter, text))


def _ascii_letter(letter: str) -> str:
    code = ord(letter)
    if code < 128:
        return letter
    if code in _ACROSS or code in _UPRIGHT:
        return "-" if code in _ACROSS else "|"
    like = (mark for first, end, mark in _RANGES if first <= code < end)
    return _LIKE.get(letter) or next(like, "?" * cell_len(letter))


class InAscii(LineFilter):
    """Leaves nothing but ASCII: for terminals whose fonts have no more."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            segment
            if segment.control
            else Segment(in_ascii(segment.text), segment.style, segment.control)
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
    palette = DARK if app.current_theme.dark else LIGHT
    if app.theme.startswith("ansi"):
        palette = ANSI
    return [palette[number % len(palette)] for number in range(count)]


def own_ansi(palette: Sequence[str]) -> TerminalTheme:
    """The palette for drawings that come with the eight colours of terminals."""
    on, *colours = (
        Color.parse(colour).rgb
        for colour in (_ON[palette is LIGHT], *(palette[hue] for hue in (5, 2, 1, 6, 3, 0, 7)))
    )
    return TerminalTheme(on, colours[-1], [on, *colours])


def filled(colour: str) -> Style:
    """The style of a readable cell filled with a colour of `series_colours`."""
    on = _ON[colour in LIGHT] if colour in (*DARK, *LIGHT) else "black"
    return Style(color=on, bgcolor=colour)
