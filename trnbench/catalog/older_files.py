"""Files of earlier versions: what they wrote otherwise, put into the form of today."""

from __future__ import annotations

import re
from collections.abc import Mapping

_PAIR = re.compile(r"(\S+) ~ (\S+): (-?[01]?\.?\d+)")


def modern(table: Mapping[str, object]) -> dict[str, object]:
    """Return the table of a data file in today's form.

    Version 0.1.0 wrote the correlations of a training stack as texts, "one ~ other: -0.5", and
    what it supports as lists and switches.
    """
    return _supports(_correlations(table))


def _correlations(table: Mapping[str, object]) -> dict[str, object]:
    texts = table.get("correlations")
    if not isinstance(texts, list):
        return dict(table)
    pairs: dict[str, dict[str, float]] = {}
    for text in texts:
        found = _PAIR.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            return dict(table)
        pairs.setdefault(found[1], {})[found[2]] = float(found[3])
    return {**table, "correlations": pairs}


_LISTED = {
    "schedules": ("schedule", ("gpipe", "1f1b", "interleaved", "zb-h1")),
    "recompute": ("recompute", ("none", "selective", "full")),
    "zero": ("zero", (0, 1, 2, 3)),
}
"""Key of a list of what runs -> the features it tells of: their knob, and every value."""
_SWITCHES = ("tensor", "pipeline", "sequence", "context", "expert")
_ALWAYS_SAID = ("sequence_parallel", "context_parallel", "expert_parallel")


def _supports(table: dict[str, object]) -> dict[str, object]:
    """Return the table with lines of features; of what it had no words for, nothing is doubted."""
    old = table.get("supports")
    if not isinstance(old, dict) or not old.keys() >= {*_LISTED, *_ALWAYS_SAID}:
        return table
    if not all(isinstance(old[key], list) for key in _LISTED):
        return table
    runs = {f"{kind} parallel": old.get(f"{kind}_parallel", True) for kind in _SWITCHES}
    for key, (knob, values) in _LISTED.items():
        runs |= {f"{knob} {value}": value in old[key] for value in values}
    lines = [
        {"status": "runs", "features": [*(name for name, does in runs.items() if does), _REST]},
        {"status": "untested", "features": [name for name, does in runs.items() if not does]},
    ]
    return {**table, "supports": lines}


_REST = "anything else"
