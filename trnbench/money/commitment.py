"""How a term that outlasts a run is charged, by name; light, for questions name it."""

from __future__ import annotations

from typing import Literal

Commitment = Literal["whole", "share"]
"""Whole, or only by the run's share of it, the rest being of use to others."""
