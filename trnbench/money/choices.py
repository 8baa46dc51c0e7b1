"""Choices of a buyer by name; light, for questions name them."""

from __future__ import annotations

from typing import Literal

Commitment = Literal["whole", "share"]
"""How a term that outlasts a run is charged: whole, or only by the run's share of it, the rest
being of use to others."""
Objective = Literal["cost", "time", "pareto"]
"""What decides between plans."""
