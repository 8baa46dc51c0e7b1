"""Two kept answers beside each other: which rows are one, which figures moved, and by which part.

What an answer rests on is exchanged part by part, in the order of `PARTS`, and asked again each
time. A figure's way from the first answer to the second is then a chain, and its parts add up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trnbench.facts.records import Record, field
from trnbench.store.runs import KeptAnswer, KeptRun

PARTS = ("prices", "calibration", "specs", "question", "code")
"""What answers rest on, in the order in which it is exchanged; code is what remains."""
LABELS: Mapping[str, tuple[str, ...]] = {
    "matrix": ("label", "shape", "chip", "dtype", "engine", "kernel", "cores"),
    "collective": ("op", "instance", "nodes", "group_size", "size_bytes", "dtype", "engine"),
    "train": ("case", "model", "instance", "nodes", "engine", "step"),
    "compare": ("instance",),
    "plan": ("instance", "nodes", "purchase"),
    "fleet": ("name",),
    "validate": ("id",),
    "calibrate": ("calibration", "number"),
    "numerics": ("precision",),
    "measure": ("id",),
    "verify": ("id",),
}
"""By verb, the keys that say what a row is about."""
CHOSEN = "chosen_plan"
"""Marks the row of a plan that is the plan."""
_SAME = 1e-9
"""Numbers so near to each other, relatively, are one."""

KeptRows = Sequence[Mapping[str, Any]]
Chain = Sequence[tuple[str, KeptRows]]
"""Answers on the way from one to another, each with the part by which it follows from the last."""


class MovedFigure(Record):
    """A figure of a row that two answers do not have alike.

    `parts` are what each part added, in the figure's own unit; `by` the parts at which it changed.
    """

    label: str
    key: str
    before: Any
    after: Any
    by: tuple[str, ...] = ()
    parts: Mapping[str, float] = field(default_factory=dict)

    @property
    def change(self) -> float | None:
        """How much more the second is, as a share of the first; None for texts and from 0."""
        if not (_is_number(self.before) and _is_number(self.after)) or not self.before:
            return None
        return float((self.after - self.before) / abs(self.before))


class RunDiff(Record):
    """Two kept answers to one verb, and what is between them.

    `options` are those that differ, with both values; `files` data files that differ, by section.
    `unexplained` says why nothing could be asked again; empty where it was.
    """

    first: KeptRun
    second: KeptRun
    options: tuple[tuple[str, Any, Any], ...]
    files: Mapping[str, tuple[str, ...]]
    moved: tuple[MovedFigure, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    unexplained: str = ""


def moved_figures(
    verb: str, first: KeptAnswer, second: KeptAnswer, chain: Chain | None
) -> tuple[MovedFigure, ...]:
    """Return the visible figures that differ, row by row; with a chain, by what they moved."""
    keys = dict.fromkeys((*first.columns, *second.columns))
    answers = [first.rows, *(rows for _, rows in chain)] if chain else [first.rows]
    tables = [labelled(verb, rows, first.rows) for rows in (*answers, second.rows)]
    found = []
    for label, before in tables[0].items():
        ways = [table.get(label) for table in tables]
        after = ways[-1]
        if after is None:
            continue
        for key in keys:
            if not same(before.get(key), after.get(key)):
                values = [None if row is None else row.get(key) for row in ways[:-1]]
                found.append(_moved(label, key, [*values, after.get(key)], chain))
    return tuple(found)


def labelled(verb: str, rows: KeptRows, beside: KeptRows) -> dict[str, Mapping[str, Any]]:
    """Return rows by what they are about; a single row beside a single one is about the same."""
    if verb == "plan":
        rows, beside = _chosen(rows), _chosen(beside)
    keys = LABELS.get(verb, ("cell",))
    if len(rows) == len(beside) == 1:
        return {_label(beside[0], keys): rows[0]}
    varying = [key for key in keys if len({str(row.get(key)) for row in beside}) > 1]
    found: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        label = name = _label(row, varying or keys[:1])
        count = 1
        while label in found:
            count += 1
            label = f"{name} ({count})"
        found[label] = row
    return found


def unmatched(
    verb: str, first: KeptRows, second: KeptRows
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the labels of rows that only the first answer has, and that only the second has."""
    one, two = labelled(verb, first, first), labelled(verb, second, first)
    return (
        tuple(label for label in one if label not in two),
        tuple(label for label in two if label not in one),
    )


def changed_options(
    first: Mapping[str, Any], second: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the options that two questions do not have alike, with both values."""
    for name in dict.fromkeys((*first, *second)):
        if first.get(name) != second.get(name):
            yield name, first.get(name), second.get(name)


def same(one: object, two: object) -> bool:
    """Tell whether two cells say the same."""
    if _is_number(one) and _is_number(two):
        assert isinstance(one, int | float)
        assert isinstance(two, int | float)
        return abs(one - two) <= _SAME * max(abs(one), abs(two))
    return one == two


def _moved(label: str, key: str, values: Sequence[Any], chain: Chain | None) -> MovedFigure:
    parts: dict[str, float] = {}
    by: dict[str, None] = {}
    if chain:
        # From the last answer of the chain to the second as it was kept, only code can have moved.
        names = [*(name for name, _ in chain), PARTS[-1]]
        for name, before, after in zip(names, values, values[1:], strict=False):
            if not same(before, after):
                by[name] = None
            if _is_number(before) and _is_number(after):
                parts[name] = parts.get(name, 0.0) + (after - before)
    return MovedFigure(
        label=label,
        key=key,
        before=values[0],
        after=values[-1],
        by=tuple(part for part in PARTS if part in by),
        parts={part: parts[part] for part in PARTS if part in by and part in parts},
    )


def _chosen(rows: KeptRows) -> KeptRows:
    return [row for row in rows if row.get(CHOSEN)] or rows


def _label(row: Mapping[str, Any], keys: Sequence[str]) -> str:
    return " ".join(str(row[key]) for key in keys if row.get(key) not in (None, ""))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
