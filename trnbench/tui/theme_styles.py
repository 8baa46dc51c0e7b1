"""Colours of the current theme as styles of drawn text."""

from __future__ import annotations

from rich.style import Style
from textual.app import App
from textual.color import Color, ColorParseError


def theme_style(app: App[object], name: str, *, bold: bool = False, reverse: bool = False) -> Style:
    """Return the style of a theme variable; one that names no colour leaves the colour alone."""
    try:
        colour = Color.parse(app.theme_variables.get(name, "")).rich_color
    except ColorParseError:
        colour = None
    return Style(color=colour, bold=bold, reverse=reverse)
