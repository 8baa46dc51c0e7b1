"""The views: a module each, registered here and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping

VIEWS: Mapping[str, tuple[str, str]] = {
    "compare": ("Compare", "CompareView"),
    "layouts": ("Layouts", "LayoutsView"),
    "matrix": ("Matrix", "MatrixView"),
    "collective": ("Collective", "CollectiveView"),
    "schedule": ("Schedule", "ScheduleView"),
    "evidence": ("Evidence", "EvidenceView"),
    "run": ("Run", "RunView"),
    "plan": ("Plan", "PlanView"),
    "memory": ("Memory", "MemoryView"),
    "runs": ("Runs", "RunsView"),
}
"""Name -> label and class, in the module of that name; keys, bar, palette and help follow.

The ids of a view's bindings begin with its name. The first ten have a digit for a key.
"""
