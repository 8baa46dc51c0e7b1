"""Charging rule of a term that outlasts a run; separate, so that questions import it cheaply."""

from __future__ import annotations

from typing import Literal

Commitment = Literal["whole", "share"]
"""The whole term, or only the run's share of it, the rest being of use to others."""
