"""A calibration as data files: those it started from, with the numbers that moved, and why.

Numbers that the rows tell of are derived, with what they were before in the note; others may move a
little and stay assumed, or stand as they did. A calibration without rows of its own that inherits
from one that was fitted takes over every number on which both agreed before, with ranges twice as
wide (`spec/transfer.py`), but no wider than they were.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from trnbench.calibration.training_stack import CHIP_PREFIX, STACK_PREFIX, Spread
from trnbench.calibration.transfer import HANDED_ON, most_of, wider_ends
from trnbench.catalog.older_files import modern
from trnbench.catalog.provenance import join
from trnbench.catalog.search import Catalog
from trnbench.catalog.toml_file import read_toml, toml_text
from trnbench.evidence.calibrate import Calibration, Fitted, FittedRow, mean_error
from trnbench.predict.ranges import CHIP
from trnbench.predict.setup import family_of
from trnbench.units import Dimension, parse, show

Table: TypeAlias = dict[str, object]

DIGITS = 4
FIT_SOURCE = "fit"
_HEADER = """\
# Written by `trnbench calibrate`. What is derived was moved by measured steps and says what it was
# before; everything else stands as it was believed before any fit.
"""
_NO_FIT = ("sources", "spread", "unseen", "fit", "fragmentation", "memory_margin")
_ENDS = ("value", "low", "high")


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationFiles:
    """Makes the files of a calibration, stamped with a date; `catalog` holds those before it."""

    catalog: Catalog
    calibration: Calibration
    date: datetime.date
    _made: dict[str, Table] = field(default_factory=dict, init=False, repr=False)

    def names(self) -> tuple[str, ...]:
        """Return every calibration of a chip or a training stack."""
        known = (CHIP_PREFIX, STACK_PREFIX)
        entries = self.catalog.entries("calibration")
        return tuple(entry.name for entry in entries if entry.name.startswith(known))

    def text(self, of: str, *, name: str | None = None) -> str:
        """Return the file of a calibration, under another name if one is given."""
        table = self._table(of)
        return f"{_HEADER}\n{toml_text(table | {'name': name or of})}"

    def _before(self, name: str) -> Table:
        return modern(read_toml(self.catalog.find("calibration", name).path))

    def _table(self, name: str) -> Table:
        if name not in self._made:
            before, rows = self._before(name), self.calibration.rows_of(name)
            self._made[name] = self._fitted(name, rows) if rows else self._unfitted(before)
        return self._made[name]

    def _fitted(self, name: str, rows: tuple[FittedRow, ...]) -> Table:
        table = self._before(name)
        table.pop("inherits_from", None)
        source = self._cite(table, f"This project, fit to {len(rows)} measured steps")
        moved = self.calibration.of(name)
        for path, entry in _numbers(table):
            one = moved.get(f"{CHIP}.{path}" if name.startswith(CHIP_PREFIX) else path)
            if one is not None and one.moved:
                entry.update(_moved(entry, one, source))
        new: Table = {"fitted_rows": [row.row.id for row in rows]}
        if name.startswith(STACK_PREFIX):
            setups = [row.row.prepared.setup for row in rows]
            new["fitted_on"] = sorted({setup.platform.instance.name for setup in setups})
            table["basis"] = "measured"
            table["spread"] = _spread(self.calibration.spreads[name], source)
            if self.calibration.unseen is not None:
                table["unseen"] = _spread(self.calibration.unseen, source)
            new["fitted_to"] = sorted({family_of(setup.model) for setup in setups})
            table["fit"] = _errors(rows, source)
            if pairs := self._correlations(name, {row.row.chip for row in rows}):
                table["correlations"] = pairs
        return _behind(table, "title", new)

    def _correlations(self, stack: str, chips: set[str]) -> dict[str, dict[str, float]]:
        """Return the correlations between a stack's numbers and those of the one chip it ran on."""
        owners = {stack, *(chips if len(chips) == 1 else ())}
        pairs: dict[str, dict[str, float]] = {}
        for one, other, value in self.calibration.correlations:
            if {one[0], other[0]} <= owners:
                pairs.setdefault(one[1], {})[other[1]] = float(f"{value:.2f}")
        return pairs

    def _unfitted(self, before: Table) -> Table:
        """Return a calibration without rows: what it inherits, and how far unseen stacks lie."""
        table, parent = before, before.get("inherits_from")
        if isinstance(parent, str):
            self._hand_on(table, parent)
        if self.calibration.unseen is not None and "spread" in table:
            source = self._cite(table, "This project, fit to measured steps of other stacks")
            table["spread"] = table["unseen"] = _spread(self.calibration.unseen, source)
        return table

    def _hand_on(self, table: Table, parent: str) -> None:
        source = self._cite(table, "This project, fit to measured steps of other stacks")
        known, agreed = dict(_numbers(self._table(parent))), dict(_numbers(self._before(parent)))
        for path, entry in _numbers(table):
            if path in agreed and agreed[path]["value"] == entry["value"] and "low" in known[path]:
                entry.update(_handed_on(path, known[path], entry, (parent, source)))
        if "correlations" in self._table(parent):
            table["correlations"] = self._table(parent)["correlations"]
        basis = self._table(parent).get("basis")
        if "basis" in table and self.calibration.rows_of(parent):
            table["basis"] = "transferred"
        elif basis is not None and "basis" in table:
            table["basis"] = "assumed"

    def _cite(self, table: Table, title: str) -> str:
        """Add a source to a table, and return under which name."""
        before = table.get("sources")
        sources: Table = dict(before) if isinstance(before, dict) else {}
        entry = {"title": title, "date": self.date}
        name, number = FIT_SOURCE, 1
        while sources.get(name, entry) != entry:
            number += 1
            name = f"{FIT_SOURCE}-{number}"
        sources[name] = entry
        table["sources"] = sources
        return name


def _numbers(table: Table, path: str = "") -> Iterator[tuple[str, Table]]:
    """Yield (key path, entry) of every number that has remarks, also those one table down."""
    for key, value in table.items():
        if isinstance(value, dict) and key not in _NO_FIT:
            here = join(path, key)
            if "value" in value:
                yield here, value
            else:
                yield from _numbers(value, here)


def _moved(entry: Table, one: Fitted, source: str) -> Table:
    ends = zip(_ENDS, (one.value, *one.ends), strict=True)
    before = ", ".join(str(entry[key]) for key in _ENDS if key in entry).replace(", ", " (", 1)
    before = before.replace(", ", " to ") + ")"
    return {
        **{key: _in_form(number, entry["value"]) for key, number in ends},
        "source": source,
        "kind": "derived" if one.told else entry.get("kind", "estimated"),
        "note": f"before the fit {before}; {100 * one.data_share:.0f} % of that told by rows",
    }


def _handed_on(path: str, entry: Table, before: Table, giver: tuple[str, str]) -> Table:
    value, low, high = (_number(entry[key]) for key in _ENDS)
    ends = wider_ends(value, low, high, HANDED_ON, most=most_of(path))
    if "low" in before:
        ends = max(ends[0], min(_number(before["low"]), value)), ends[1]
        ends = ends[0], min(ends[1], max(_number(before["high"]), value))
    numbers = zip(_ENDS, (value, *ends), strict=True)
    kind = entry.get("kind", "estimated")
    return {
        **{key: _in_form(number, entry["value"]) for key, number in numbers},
        "source": giver[1],
        "kind": "assumed" if kind == "assumed" else "estimated",
        "note": f"as in {giver[0]}",
    }


def _in_form(number: float, like: object) -> object:
    """Return a number as the file writes it: as a quantity where it did, else by itself."""
    if isinstance(like, str):
        return show(number, Dimension.SECONDS, digits=DIGITS)
    rounded = float(f"{number:.{DIGITS}g}")
    return int(rounded) if rounded == int(rounded) and isinstance(like, int) else rounded


def _number(value: object) -> float:
    return parse(value, Dimension.SECONDS) if isinstance(value, str) else float(str(value))


def _spread(spread: Spread, source: str) -> Table:
    return {
        "source": source,
        "kind": "derived",
        "low": _in_form(spread.low, 0.0),
        "high": _in_form(spread.high, 0.0),
    }


def _errors(rows: Iterable[FittedRow], source: str) -> Table:
    found = list(rows)
    errors: Mapping[str, list[float | None]] = {
        "error": [row.fitted for row in found],
        "without_row": [row.without_row for row in found],
        "without_configuration": [row.without_configuration for row in found],
        "without_stack": [row.without_stack for row in found],
    }
    table: Table = {"source": source, "kind": "derived", "rows": len(found)}
    for name, sizes in errors.items():
        told = [size for size in sizes if size is not None]
        if told:
            table[name] = float(f"{mean_error(told):.3g}")
    return table


def _behind(table: Table, key: str, new: Table) -> Table:
    """Return a table with more keys behind one of its own."""
    found: Table = {}
    for name, value in table.items():
        if name not in new:
            found[name] = value
        if name == key:
            found |= new
    return found
