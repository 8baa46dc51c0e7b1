"""Names of what a step keeps busy, as both engines use them; all are seconds."""

from __future__ import annotations

TENSOR, VECTOR, MEMORY = "tensor engine", "vector and scalar engine", "memory"
LINK = "busiest link"
EXCHANGED = "exchanges, nothing hidden"
WAITING = "waiting"
"""What a category takes beside its busiest part."""
