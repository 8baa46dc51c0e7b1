"""Differences between two kept answers: matched rows, moved figures, the causes, and regressions.

The foundations of an answer are exchanged part by part, in the order of `PARTS`, and the question
is asked again each time. The figures on the way from the first answer to the second form a chain,
and the changes of its parts add up. `held_against` finds figures that got worse, and lost rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trnbench.facts.records import Record, field
from trnbench.store.runs import KeptAnswer, KeptRun

PARTS = ("prices", "calibration", "specs", "question", "code")
"""Foundations of an answer, in the order of exchange; code is the remainder."""
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
"""Verb -> keys that name the subject of a row."""
CHOSEN = "chosen_plan"
"""Marks the row of a plan that is the plan."""
_SAME = 1e-9
"""Relative difference up to which numbers count as equal."""

KeptRows = Sequence[Mapping[str, Any]]
Chain = Sequence[tuple[str, KeptRows]]
"""Answers on the way from one to another, each with the part exchanged before it."""


class MovedFigure(Record):
    """A figure of a row that differs between two answers."""

    label: str
    key: str
    before: Any
    after: Any
    by: tuple[str, ...] = ()
    """Parts at whose exchange the figure changed."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Change by each part, in the figure's own unit."""

    @property
    def change(self) -> float | None:
        """Relative change from the first to the second; None for texts and from 0."""
        if not (_is_number(self.before) and _is_number(self.after)) or not self.before:
            return None
        return float((self.after - self.before) / abs(self.before))


class RunDiff(Record):
    """Two kept answers to one verb, and their differences."""

    first: KeptRun
    second: KeptRun
    options: tuple[tuple[str, Any, Any], ...]
    """Options that differ, each with both values."""
    files: Mapping[str, tuple[str, ...]]
    """Section -> data files that differ."""
    moved: tuple[MovedFigure, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    unexplained: str = ""
    """Why nothing could be asked again; empty where the chain is complete."""


def moved_figures(
    verb: str, first: KeptAnswer, second: KeptAnswer, chain: Chain | None
) -> tuple[MovedFigure, ...]:
    """Visible figures that differ, row by row; with a chain, also the parts that moved them."""
    keys = dict.fromkeys((*first.columns, *second.columns))
    answers = [first.rows, *(rows for _, rows in chain)] if chain else [first.rows]
    tables = [labelled(verb, rows, first.rows) for rows in (*answers, second.rows)]
    moved = []
    for label, before in tables[0].items():
        ways = [table.get(label) for table in tables]
        after = ways[-1]
        if after is None:
            continue
        for key in keys:
            if not same(before.get(key), after.get(key)):
                values = [None if row is None else row.get(key) for row in ways[:-1]]
                moved.append(_moved(label, key, [*values, after.get(key)], chain))
    return tuple(moved)


def labelled(verb: str, rows: KeptRows, beside: KeptRows) -> dict[str, Mapping[str, Any]]:
    """Rows by the label of their subject; a single row matches a single row."""
    if verb == "plan":
        rows, beside = _chosen(rows), _chosen(beside)
    keys = LABELS.get(verb, ("cell",))
    if len(rows) == len(beside) == 1:
        return {_label(beside[0], keys): rows[0]}
    # Keys with a single value in all rows name nothing: labels leave them out.
    varying = [key for key in keys if len({str(row.get(key)) for row in beside}) > 1]
    by_label: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        label = name = _label(row, varying or keys[:1])
        count = 1
        while label in by_label:
            count += 1
            label = f"{name} ({count})"
        by_label[label] = row
    return by_label


def unmatched(
    verb: str, first: KeptRows, second: KeptRows
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Labels of rows in the first answer only, and of rows in the second only."""
    one, two = labelled(verb, first, first), labelled(verb, second, first)
    return (
        tuple(label for label in one if label not in two),
        tuple(label for label in two if label not in one),
    )


def changed_options(
    first: Mapping[str, Any], second: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    for name in dict.fromkeys((*first, *second)):
        if first.get(name) != second.get(name):
            yield name, first.get(name), second.get(name)


def same(one: object, two: object) -> bool:
    """True where two cells have the same value."""
    # Sums in another order differ in the last digits, which is no difference of answers.
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
            # Also changes too small to count as moved: the parts add up to the whole change.
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


WATCHED: Mapping[str, tuple[str, ...]] = {"compare": ("days", "cost_usd")}
"""Verb -> figures that get worse when they grow."""
MEAN_ERROR = "mean error"


class Worse(Record):
    """A figure before and after."""

    label: str
    key: str
    before: float
    after: float
    by: float
    """Growth: a share, or points of a share for `MEAN_ERROR`."""


class Against(Record):
    """Comparison of an answer with a kept run."""

    run: KeptRun
    figures: tuple[Worse, ...]
    lost: tuple[str, ...]
    """Rows that were feasible, and are not feasible or not there now."""
    allowed: float | None
    """Allowed growth of a figure; None without a limit."""

    @property
    def failed(self) -> tuple[Worse, ...]:
        if self.allowed is None:
            return ()
        return tuple(figure for figure in self.figures if figure.by > self.allowed)

    @property
    def regressed(self) -> bool:
        return self.allowed is not None and bool(self.failed or self.lost)


def held_against(base: KeptAnswer, run: KeptRun, now: KeptAnswer, allowed: float | None) -> Against:
    """Comparison of an answer with that of a kept run of the same verb."""
    if run.verb == "validate":
        figures = _errors(base.summary, now.summary)
        return Against(run=run, figures=figures, lost=(), allowed=allowed)
    before = labelled(run.verb, base.rows, base.rows)
    after = labelled(run.verb, now.rows, base.rows)
    grown = []
    for label, row in before.items():
        for key in WATCHED[run.verb]:
            was, is_now = row.get(key), after.get(label, {}).get(key)
            if was and is_now is not None:
                by = is_now / was - 1
                grown.append(Worse(label=label, key=key, before=was, after=is_now, by=by))
    # Rows are matched by the kept answer's labels: a row under another label counts as lost.
    lost = tuple(
        label
        for label, row in before.items()
        if row.get("feasible") and not after.get(label, {}).get("feasible")
    )
    return Against(run=run, figures=tuple(grown), lost=lost, allowed=allowed)


def _errors(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Worse, ...]:
    """Mean error of every set in both summaries, in points."""
    grown = []
    for name, section in before["sets"].items():
        was, now = (
            scored.get("errors", {}).get("all") for scored in (section, after["sets"].get(name, {}))
        )
        if was and now:
            before_error, two = was["mape"], now["mape"]
            grown.append(
                Worse(
                    label=name,
                    key=MEAN_ERROR,
                    before=before_error,
                    after=two,
                    by=two - before_error,
                )
            )
    return tuple(grown)
