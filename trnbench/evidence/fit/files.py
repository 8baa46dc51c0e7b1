"""A calibration as data files: the start files, with moved numbers and reasons.

Numbers determined by rows are derived, with the former value in the note; others may move a little
and stay assumed. A calibration without rows that inherits from a fitted one takes over every number
on which both agreed before, with doubled ranges (`facts/calibration/transfer.py`), but no wider
than before.
"""

from __future__ import annotations

import copy
import datetime
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from trnbench.evidence.fit.calibrate import (
    Calibration,
    Fitted,
    FittedRow,
    families_told,
    mean_error,
)
from trnbench.evidence.fit.collectives import TUNINGS, CollectiveFit
from trnbench.evidence.fit.left_out import covered, left_out
from trnbench.evidence.fit.memory import MemoryFit
from trnbench.evidence.fit.problem import KERNEL, STEP
from trnbench.evidence.fit.rows import SMALL
from trnbench.evidence.fit.start import Start, Table
from trnbench.facts.calibration.collective_stack import FILE_PREFIX
from trnbench.facts.calibration.coverage import Covered, Spread, widest
from trnbench.facts.calibration.training_stack import CHIP_PREFIX, STACK_PREFIX
from trnbench.facts.calibration.transfer import (
    AS_IN,
    BY_KERNELS,
    FIT_SOURCE,
    HANDED_ON,
    most_of,
    wider_ends,
)
from trnbench.facts.catalog.provenance import join
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.catalog.toml_file import read_toml, toml_text
from trnbench.facts.records import Record, asdict, field
from trnbench.facts.units import Dimension, parse, show
from trnbench.predict.ranges import CHIP, CHIP_RELEASES, OF_KERNELS, RELEASES

_HEADER = """\
# Written by `trnbench calibrate`. What is derived was moved by measured steps and says what it was
# before; everything else stands as it was believed before any fit.
"""
_LINKS_HEADER = """\
# Written by `trnbench calibrate`. What is derived was moved by timed collectives and says what it
# was before; everything else stands as it was believed before the fit.
"""
_DIGITS = 4
_LITTLE = 0.05
"""Share of the variance above which the part known from kernels alone is noted."""
_ENDS = ("value", "low", "high")
_NO_FIT = (
    *("sources", "spread", "unseen", "untested", "expert_spread", "fit", "fragmentation"),
    "small_spread",
    "memory",
    "memory_margin",
    "efa",
)


class CalibratedCollectives(Record, eq=False):
    """A communication stack fitted to timed collectives; `remarks` are the readers'."""

    fit: CollectiveFit
    name: str
    date: datetime.date
    catalog: Catalog
    remarks: tuple[str, ...] = ()

    def text(self, *, name: str | None = None) -> str:
        """The file's text, under another name if given."""
        fit = self.fit
        table = read_toml(self.catalog.find("calibration", fit.stack.name).path)
        title = f"{fit.stack.title}, fitted to collectives of {fit.instance}"
        table |= {"name": name or self.name, "title": title if fit.better else fit.stack.title}
        table["instances"] = [fit.instance]
        table["begun_as"] = fit.stack.name
        if not fit.better:
            return f"{_LINKS_HEADER}\n{toml_text(table)}"
        table.pop("inherits_from", None)
        source = _cited(table, f"This project, fit to {len(fit.rows)} timed collectives", self.date)
        tunings = cast("dict[str, Table]", table[TUNINGS])
        for (tuning, key), one in zip(fit.places, fit.parameters, strict=True):
            if one.moved:
                known = tunings[tuning][key]
                entry = dict(known) if isinstance(known, dict) else {"value": known}
                tunings[tuning][key] = entry | _moved_entry(entry, one, source)
        table = _behind(table, "title", {"fitted_rows": [row.id for row in fit.rows]})
        return f"{_LINKS_HEADER}\n{toml_text(table)}"


class Calibrated(Record, eq=False):
    """A calibration and its files, and unused rows with the reasons."""

    catalog: Catalog
    """Has the files before the fit."""
    calibration: Calibration
    memory: Mapping[str, MemoryFit]
    """Fit of the memory numbers, by stack."""
    unused: tuple[tuple[str, str], ...]
    date: datetime.date
    start: Start | None = None
    """The requested stack before its fit."""
    remarks: tuple[str, ...] = ()
    collectives: CalibratedCollectives | None = None
    """Communication stack fitted before the steps, which depend on it."""
    _made: dict[str, Table] = field(default_factory=dict)

    @property
    def stack(self) -> str | None:
        """Full name of the requested stack."""
        return self.start.stack.name if self.start else None

    def names(self) -> tuple[str, ...]:
        """Calibrations that the rows affect: fitted ones, and their heirs."""
        known = (CHIP_PREFIX, STACK_PREFIX)
        names = [entry.name for entry in self.catalog.entries("calibration")]
        return tuple(name for name in names if name.startswith(known) and self._is_told(name))

    def _is_told(self, name: str) -> bool:
        parent = self._before(name).get("inherits_from")
        if isinstance(parent, str):
            return bool(self.calibration.rows_of(name)) or self._is_told(parent)
        return bool(self.calibration.rows_of(name))

    def text(self, of: str, *, name: str | None = None) -> str:
        """The file of a calibration, under another name if one is given."""
        table = self._table(of)
        if name not in (None, of):
            stack = table.get("stands_for", of)
            table = _behind(table | {"name": name}, "title", {"stands_for": stack})
        return f"{_HEADER}\n{toml_text(table)}"

    def _before(self, name: str) -> Table:
        if self.start is not None and name == self.stack:
            return copy.deepcopy(self.start.table)
        return read_toml(self.catalog.find("calibration", name).path)

    def _table(self, name: str) -> Table:
        if name not in self._made:
            before, rows = self._before(name), self.calibration.rows_of(name)
            if not self.calibration.better:
                self._made[name] = before
            else:
                self._made[name] = self._fitted(name, rows) if rows else self._unfitted(before)
            self._made[name] = self._with_memory(name, self._made[name])
        return self._made[name]

    def _with_memory(self, name: str, table: Table) -> Table:
        """A table with the numbers of memory that rows moved."""
        found = self.memory.get(name)
        if found is None or not found.moved:
            return table
        source = _cited(
            table, f"This project, fit to memory of {found.rows} measured steps", self.date
        )
        for path, one in found.moved.items():
            entry = table
            for key in path.split("."):
                entry = cast("Table", entry[key])
            before, like = (
                ", ".join(str(entry[key]) for key in _ENDS if key in entry),
                entry["value"],
            )
            for key, number in zip(_ENDS, (one.value, one.low, one.high), strict=True):
                entry[key] = _in_form(number, like, Dimension.BYTES)
            entry |= {"source": source, "kind": "derived", "note": f"before the fit {before}"}
        told = [f"{row}: {one.text}" for row, one in found.left_out.items()]
        return _behind(table, "title", {"memory_left_out": told})

    def _fitted(self, name: str, rows: tuple[FittedRow, ...]) -> Table:
        table = self._before(name)
        table.pop("inherits_from", None)
        known = [self.calibration.rows_of(chip) for chip in {row.row.chip for row in rows}]
        kernels = sum(row.row.quantity == KERNEL for of_chip in known for row in of_chip)
        beside = f" and {kernels} kernels" if kernels else ""
        steps = sum(row.row.quantity != KERNEL for row in rows)
        source = _cited(table, f"This project, fit to {steps} measured steps{beside}", self.date)
        moved = self.calibration.of(name)
        for path, entry in _numbers(table):
            one = moved.get(f"{CHIP}.{path}" if name.startswith(CHIP_PREFIX) else path)
            if one is not None and one.moved:
                entry.update(_moved_entry(entry, one, source))
        new: Table = {"fitted_rows": list(dict.fromkeys(row.row.id for row in rows))}
        told = [row for row in rows if row.row.quantity == KERNEL or name == row.row.stack]
        if entries := list(left_out(told, self.calibration.unseen)):
            new["left_out"] = entries
        if not name.startswith(CHIP_PREFIX):
            new["fitted_on"] = sorted({row.row.instance for row in rows})
            table["basis"] = "measured"
            table["spread"] = _spread(self.calibration.spreads[name], source)
            if (small := self.calibration.small_spreads.get(name)) is not None:
                new["small_spread"] = {**_spread(small, source), "parameters": SMALL}
            if self.calibration.unseen is not None:
                unseen, own = self.calibration.unseen, self.calibration.spreads[name]
                # Machines that nobody saw scatter no less than those of the rows.
                wider = Spread(low=min(unseen.low, own.low), high=max(unseen.high, own.high))
                table["unseen"] = _spread(wider, source)
            new["fitted_to"] = sorted(set(families_told(rows)))
            table["fit"] = _errors(rows, source)
            covers = covered([one.row for one in rows])
            assert covers is not None
            table["covers"] = {"source": source, "kind": "derived", **_plain(covers)}
            if pairs := self._correlations(name, {row.row.chip for row in rows}):
                table["correlations"] = pairs
        return _behind(table, "title", new)

    def _correlations(self, stack: str, chips: set[str]) -> dict[str, dict[str, float]]:
        """The correlations between a stack's numbers and those of the one chip it ran on."""
        owners = {stack, *(chips if len(chips) == 1 else ())}
        release = self._before(stack).get("release")
        pairs: dict[str, dict[str, float]] = {}
        for one, other, value in self.calibration.correlations:
            if one[1].startswith(OF_KERNELS) or other[1].startswith(OF_KERNELS):
                continue  # an answer about steps does not depend on it
            # An answer is about one release, which is not another one's neighbour then.
            others = [key for _, key in (one, other) if key.startswith((RELEASES, CHIP_RELEASES))]
            if any(key != join(CHIP_RELEASES, str(release)) for key in others):
                continue
            if {one[0], other[0]} <= owners:
                pairs.setdefault(one[1], {})[other[1]] = float(f"{value:.2f}")
        return pairs

    def _unfitted(self, before: Table) -> Table:
        """A calibration without rows: what it inherits, and how far unseen stacks lie."""
        table, parent = before, before.get("inherits_from")
        if isinstance(parent, str):
            self._hand_on(table, parent)
        if self.calibration.unseen is not None and "spread" in table:
            source = _cited(table, "This project, fit to measured steps of other stacks", self.date)
            # What takes over numbers scatters no less than what it takes them from.
            known = filter(None, (self.calibration.spreads.get(str(parent)),))
            reaches = widest(self.calibration.unseen, *known)
            unseen = _reaching(_spread(reaches, source), table["spread"])
            table["spread"] = table["unseen"] = unseen
        return table

    def _hand_on(self, table: Table, parent: str) -> None:
        given = self._table(parent)
        # On the machines of the measured steps nothing is carried far: reach and ranges stay.
        names = {*_names(table)}
        same = bool(names) and names <= {*_names(given)}
        if same and "covers" in given:
            table["covers"] = given["covers"]
        source = _cited(table, "This project, fit to measured steps of other stacks", self.date)
        known, agreed = dict(_numbers(self._table(parent))), dict(_numbers(self._before(parent)))
        for path, entry in _numbers(table):
            if path in agreed and agreed[path]["value"] == entry["value"] and "low" in known[path]:
                # Other software on the same chips may still run other kernels.
                further = 1.0 if same and not path.startswith("kernels.") else HANDED_ON
                entry.update(_handed_on(path, known[path], entry, (parent, source), further))
        if "correlations" in self._table(parent):
            table["correlations"] = self._table(parent)["correlations"]
        # Software of another make is assumed to be like this one, whatever that was fitted to.
        if table.get("basis") == "transferred" and not self.calibration.rows_of(parent):
            table["basis"] = "assumed"


def _numbers(table: Table, path: str = "") -> Iterator[tuple[str, Table]]:
    """Yield (key path, entry) of every number that has remarks, also those one table down."""
    for key, value in table.items():
        if isinstance(value, dict) and key not in _NO_FIT:
            here = join(path, key)
            if "value" in value:
                yield here, value
            else:
                yield from _numbers(value, here)


def _handed_on(
    path: str, entry: Table, before: Table, giver: tuple[str, str], further: float
) -> Table:
    """A number taken over from another calibration, with ranges `further` times as wide."""
    value, low, high = (_number(entry[key]) for key in _ENDS)
    ends = wider_ends(value, low, high, further, most=most_of(path))
    if "low" in before:
        # No wider than was believed of the heir, and never narrower than what it takes over.
        ends = max(ends[0], min(_number(before["low"]), low)), ends[1]
        ends = ends[0], min(ends[1], max(_number(before["high"]), high))
    numbers = zip(_ENDS, (value, *ends), strict=True)
    kind = entry.get("kind", "estimated")
    return {
        **{key: _in_form(number, entry["value"]) for key, number in numbers},
        "source": giver[1],
        "kind": "assumed" if kind == "assumed" else "estimated",
        "note": f"{AS_IN}{giver[0]}",
    }


def _number(value: object) -> float:
    return parse(value, Dimension.SECONDS) if isinstance(value, str) else float(str(value))


def _spread(spread: Spread, source: str) -> Table:
    return {
        "source": source,
        "kind": "derived",
        "low": _in_form(spread.low, 0.0),
        "high": _in_form(spread.high, 0.0),
    }


def _reaching(spread: Table, before: object) -> Table:
    """A spread with those ends of the one before the fit that reach farther."""
    assert isinstance(before, dict)
    found = dict(spread)
    for key, further in (("low", min), ("high", max)):
        told = before[key] if isinstance(before[key], dict) else {"value": before[key]}
        if further(told["value"], spread[key]) != spread[key]:
            found[key] = {**told, "source": before["source"], "kind": before["kind"]}
    return found


def _names(table: Table) -> list[str]:
    """Instances that a stack's file names."""
    names = table.get("instances")
    return [str(name) for name in names] if isinstance(names, list) else []


def _plain(covers: Covered) -> Table:
    return {**asdict(covers), "jobs": list(covers.jobs)}


def _errors(rows: Iterable[FittedRow], source: str) -> Table:
    found = [row for row in rows if row.row.quantity == STEP]
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


def _cited(table: Table, title: str, date: datetime.date) -> str:
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


def _moved_entry(entry: Table, one: Fitted, source: str) -> Table:
    """The entry of a number that was fitted, with what it was before."""
    ends = zip(_ENDS, (one.value, *one.ends), strict=True)
    before = ", ".join(str(entry[key]) for key in _ENDS if key in entry).replace(", ", " (", 1)
    before = before.replace(", ", " to ") + ")"
    return {
        **{key: _in_form(number, entry["value"]) for key, number in ends},
        "source": source,
        "kind": "derived" if one.told else entry.get("kind", "estimated"),
        "note": f"before the fit {before}; {100 * one.data_share:.0f} % of that told by rows"
        + (f", {100 * one.by_kernels:.0f} % {BY_KERNELS}" if one.by_kernels > _LITTLE else ""),
    }


def _in_form(number: float, like: object, dimension: Dimension = Dimension.SECONDS) -> object:
    """A number as the file writes it: as a quantity where it did, else by itself."""
    if isinstance(like, str):
        return show(number, dimension, digits=_DIGITS)
    rounded = float(f"{number:.{_DIGITS}g}")
    return int(rounded) if rounded == int(rounded) and isinstance(like, int) else rounded


def _behind(table: Table, key: str, new: Table) -> Table:
    """A table with more keys behind one of its own."""
    found: Table = {}
    for name, value in table.items():
        if name not in new:
            found[name] = value
        if name == key:
            found |= new
    return found


def stack_name(asked: str | None, instance: str) -> str:
    name = asked or f"own-{instance}"
    bare = name.removeprefix("training-").removeprefix(FILE_PREFIX)
    return f"{FILE_PREFIX}{bare}"
