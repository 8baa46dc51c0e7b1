"""Files of earlier versions: what they wrote otherwise, put into the form of today."""

from __future__ import annotations

import re
from collections.abc import Mapping

_PAIR = re.compile(r"(\S+) ~ (\S+): (-?[01]?\.?\d+)")


def modern(table: Mapping[str, object]) -> dict[str, object]:
    """Return the table of a data file in today's form.

    Version 0.1.0 wrote the correlations of a training stack as texts, "one ~ other: -0.5".
    """
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
