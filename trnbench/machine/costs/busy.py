"""Names of the parts that a step keeps busy, as both engines use them; all are in seconds."""

from __future__ import annotations

TENSOR, VECTOR, MEMORY = "tensor engine", "vector and scalar engine", "memory"
LINK = "busiest link"
EXCHANGED = "exchanges, nothing hidden"
WAITING = "waiting"
"""Seconds of a category besides its busiest part."""
