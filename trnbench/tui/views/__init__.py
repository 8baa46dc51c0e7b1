"""The views: a module each in one of four places, registered here and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping

VIEWS: Mapping[str, tuple[str, str]] = {
    "compare": ("Compare", "CompareView"),
    "plan": ("Plan", "PlanView"),
    "what_if": ("What if", "WhatIfView"),
    "layouts": ("Layouts", "LayoutsView"),
    "memory": ("Memory", "MemoryView"),
    "schedule": ("Schedule", "ScheduleView"),
    "matrix": ("Matrix", "MatrixView"),
    "collective": ("Collective", "CollectiveView"),
    "evidence": ("Evidence", "EvidenceView"),
    "runs": ("Runs", "RunsView"),
}
"""Name -> label and class, in the module of that name; bar, palette and help follow.

The ids of a view's bindings begin with its name.
"""
PLACES: Mapping[str, tuple[str, ...]] = {
    "Decide": ("compare", "plan", "what_if"),
    "Step": ("layouts", "memory", "schedule"),
    "Hardware": ("matrix", "collective"),
    "Trust": ("evidence", "runs"),
}
"""Views of each place; its number is its key, and tab goes through its views."""
PLACE_OF: Mapping[str, str] = {view: place for place, views in PLACES.items() for view in views}
ABOVE: Mapping[str, str] = {"layouts": "compare", "memory": "layouts", "schedule": "layouts"}
"""The view that Escape goes up to; a view that was entered from another goes back there."""
