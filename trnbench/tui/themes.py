"""Themes of our own beside those of textual: as much contrast as a screen can give."""

from __future__ import annotations

from textual.theme import Theme

HIGH_CONTRAST = (
    Theme(
        name="high-contrast-dark",
        dark=True,
        primary="#00d7ff",
        secondary="#ffffff",
        accent="#ffff00",
        warning="#ffaf00",
        error="#ff8080",
        success="#5fff5f",
        foreground="#ffffff",
        background="#000000",
        surface="#000000",
        panel="#303030",
        variables={"text-muted": "#ffffff", "text-disabled": "#d0d0d0"},
    ),
    Theme(
        name="high-contrast-light",
        dark=False,
        primary="#0000c0",
        secondary="#000000",
        accent="#7a0000",
        warning="#7a3d00",
        error="#b00000",
        success="#005c00",
        foreground="#000000",
        background="#ffffff",
        surface="#ffffff",
        panel="#dcdcdc",
        variables={"text-muted": "#000000", "text-disabled": "#303030"},
    ),
)
