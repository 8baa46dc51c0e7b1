"""Numbers of calibration files as table entries: fitted values, with the reason."""

from __future__ import annotations

import datetime
from typing import TypeAlias

from trnbench.evidence.fit.calibrate import Fitted
from trnbench.facts.calibration.transfer import BY_KERNELS, FIT_SOURCE
from trnbench.facts.units import Dimension, show

Table: TypeAlias = dict[str, object]

DIGITS = 4
LITTLE = 0.05
"""Share of the variance above which the part known from kernels alone is noted."""
ENDS = ("value", "low", "high")


def cited(table: Table, title: str, date: datetime.date) -> str:
    """Add a source to a table, and return under which name."""
    before = table.get("sources")
    sources: Table = dict(before) if isinstance(before, dict) else {}
    entry = {"title": title, "date": date}
    name, number = FIT_SOURCE, 1
    while sources.get(name, entry) != entry:
        number += 1
        name = f"{FIT_SOURCE}-{number}"
    sources[name] = entry
    table["sources"] = sources
    return name


def moved_entry(entry: Table, one: Fitted, source: str) -> Table:
    """The entry of a number that was fitted, with what it was before."""
    ends = zip(ENDS, (one.value, *one.ends), strict=True)
    before = ", ".join(str(entry[key]) for key in ENDS if key in entry).replace(", ", " (", 1)
    before = before.replace(", ", " to ") + ")"
    return {
        **{key: in_form(number, entry["value"]) for key, number in ends},
        "source": source,
        "kind": "derived" if one.told else entry.get("kind", "estimated"),
        "note": f"before the fit {before}; {100 * one.data_share:.0f} % of that told by rows"
        + (f", {100 * one.by_kernels:.0f} % {BY_KERNELS}" if one.by_kernels > LITTLE else ""),
    }


def in_form(number: float, like: object, dimension: Dimension = Dimension.SECONDS) -> object:
    """A number as the file writes it: as a quantity where it did, else by itself."""
    if isinstance(like, str):
        return show(number, dimension, digits=DIGITS)
    rounded = float(f"{number:.{DIGITS}g}")
    return int(rounded) if rounded == int(rounded) and isinstance(like, int) else rounded


def behind(table: Table, key: str, new: Table) -> Table:
    """A table with more keys behind one of its own."""
    found: Table = {}
    for name, value in table.items():
        if name not in new:
            found[name] = value
        if name == key:
            found |= new
    return found
