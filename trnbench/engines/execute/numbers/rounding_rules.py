"""Rounding rules of results, by name. Imports nothing: questions name these before numpy loads."""

from __future__ import annotations

from typing import Literal

RoundingRule = Literal["rne", "sr"]
"""To nearest even, or stochastically."""
ROUNDINGS: tuple[RoundingRule, ...] = ("rne", "sr")
