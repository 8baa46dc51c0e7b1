"""Accuracy of predicted steps on rows that no calibration has seen, as a page and as data.

`accuracy.toml` beside this module holds what `validate` says of the shipped steps: by software and
chip, beside a baseline that has not seen the software either, by what predictions rest on, and how
well memory, crashes and the order of layouts are told. `make calibration` writes it; `trnbench help
accuracy` and the README print it.

    python -m trnbench.verbs.validate.accuracy DATE OUTPUT
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from trnbench.evidence.comparison import Comparison
from trnbench.evidence.statistics import Errors, errors_of, memory_errors_of, stranger_baseline
from trnbench.facts.catalog.search import open_catalog
from trnbench.facts.catalog.toml_file import read_toml, toml_text
from trnbench.facts.catalog.whole_file import write_whole
from trnbench.facts.hardware.library import load_instance
from trnbench.facts.records import Record, asdict, shaped
from trnbench.show.text_table import TextTable, percent
from trnbench.verbs.validate.answer import ScoredSet

SETS = ("trainium", "gpu")
FILE = Path(__file__).with_name("accuracy.toml")
CLASSES = {
    "inside rows": "measured, inside its stack's rows",
    "beyond rows": "measured stack, layout beyond its rows",
    "carried over": "stack carried over",
    "population": "software nobody measured",
    "seen": "set from these very steps",
}
"""What predictions rest on, in words."""


class Score(Record):
    """Errors of some steps; shares are |predicted / measured - 1|."""

    rows: int
    mean: float
    median: float
    inside: float | None = None
    """Share of measured times inside their 80 % interval."""
    naive_mean: float | None = None
    """Errors of the baseline: the median utilisation of other software on chips of the kind."""
    naive_median: float | None = None
    memory_rows: int = 0
    memory: float | None = None
    """Mean error of memory; `memory_inside`: share inside its 80 % interval."""
    memory_inside: float | None = None


class Called(Record):
    """How well crashes, and the order of layouts, are told."""

    ran: int
    crashed: int
    balanced_accuracy: float
    pairs: int
    tau: float
    regret: float


class Accuracy(Record):
    """What `validate` says of the shipped steps."""

    date: str
    steps: Score
    seen: int
    """Steps among them by which numbers were set by hand, which nothing is left out for."""
    rests_on: dict[str, Score]
    software: dict[str, Score]
    called: dict[str, Called]
    """By set."""


def accuracy_of(sections: Sequence[ScoredSet], date: str) -> Accuracy:
    """The accuracy that scored sets of steps show."""
    catalog = open_catalog(environment={})
    rows = [row for section in sections for row in section.rows if row.error is not None]
    platforms = {row.platform or "" for row in rows}
    chips = {name: load_instance(catalog, name).chip for name in platforms}
    software: dict[str, list[Comparison]] = {}
    for row in rows:
        software.setdefault(f"{row.software} on {chips[row.platform or '']}", []).append(row)
    naive = {row.id: row for row in stranger_baseline(rows)}
    called = {
        one.name: Called(
            ran=fit.ran,
            crashed=fit.crashed,
            balanced_accuracy=_rounded(fit.balanced_accuracy or 0.0),
            pairs=order.pairs,
            tau=_rounded(order.tau),
            regret=_rounded(order.regret),
        )
        for one in sections
        if (fit := one.summary.fit.get("all")) and (order := one.summary.ranking)
    }
    held = {name: [row for row in rows if row.rests_on == name] for name in CLASSES}
    return Accuracy(
        date=date,
        steps=_score(rows, naive),
        seen=len(held["seen"]),
        rests_on={name: _score(of, naive) for name, of in held.items() if of},
        software={name: _score(of, naive) for name, of in sorted(software.items())},
        called=called,
    )


def _score(rows: Sequence[Comparison], naive: dict[str, Comparison]) -> Score:
    errors, memory = errors_of(rows), memory_errors_of(rows)
    assert errors is not None
    base: Errors | None = errors_of(naive[row.id] for row in rows if row.id in naive)
    return Score(
        rows=errors.rows,
        mean=_rounded(errors.mape),
        median=_rounded(errors.median),
        inside=None if errors.coverage is None else _rounded(errors.coverage),
        naive_mean=None if base is None else _rounded(base.mape),
        naive_median=None if base is None else _rounded(base.median),
        memory_rows=0 if memory is None else memory.rows,
        memory=None if memory is None else _rounded(memory.mape),
        memory_inside=None
        if memory is None or memory.coverage is None
        else _rounded(memory.coverage),
    )


def _rounded(number: float) -> float:
    return float(f"{number:.3g}")


def shipped_accuracy() -> Accuracy:
    """The accuracy that was written with the shipped calibrations."""
    return shaped(read_toml(FILE), Accuracy)


_HEADINGS = ("steps of", "rows", "mean", "median", "inside 80 %", "baseline, mean", "median")


def tables(known: Accuracy) -> tuple[TextTable, TextTable]:
    """The accuracy by what predictions rest on, and by software and chip."""
    classes = [(CLASSES[name], one) for name, one in known.rests_on.items()]
    return _table([("all", known.steps), *classes]), _table([*known.software.items()])


def _table(scores: Sequence[tuple[str, Score]]) -> TextTable:
    weighed = any(one.memory_rows for _, one in scores)
    rows = [
        (
            name,
            f"{one.rows:,}",
            *map(percent, (one.mean, one.median, one.inside, one.naive_mean, one.naive_median)),
            *(
                [
                    f"{percent(one.memory)} of {one.memory_rows}" if one.memory_rows else "-",
                    percent(one.memory_inside),
                ]
                * weighed
            ),
        )
        for name, one in scores
    ]
    headings = (*_HEADINGS, *(["memory, mean", "inside 80 %"] * weighed))
    return TextTable(
        headings=headings, rows=tuple(rows), right=(False, *[True] * (len(headings) - 1))
    )


def sentences(known: Accuracy) -> tuple[str, ...]:
    """What the tables do not hold, in sentences."""
    orders = [
        f"{name}: {one.ran:,} steps ran and {one.crashed:,} crashed; balanced accuracy of the fit "
        f"{percent(one.balanced_accuracy)}. Order of layouts: Kendall's tau {one.tau:+.2f} over "
        f"{one.pairs:,} pairs; the layout called fastest is {percent(one.regret)} slower than the "
        f"fastest on average."
        for name, one in known.called.items()
    ]
    return (
        "trnbench is the only open training planner for Trainium that publishes its error on rows "
        "it has not seen.",
        "Every fitted row is predicted by a fit without its configuration; unmeasured software by "
        f"a population without it. {known.seen} rows set numbers by hand and are counted apart. "
        "Memory is predicted likewise; crashed rows enter no fit.",
        "The baseline takes the median MFU of other software on chips of the same kind (Trainium "
        "or GPU), each software one voice.",
        *orders,
    )


def main(words: Sequence[str]) -> None:
    """Write the accuracy of the shipped calibrations; the last word is the file."""
    from trnbench.verbs.validate.run import validate

    date, output = words
    table = asdict(accuracy_of(validate(set=SETS), date))
    plain = {name: _plain(value) for name, value in table.items()}
    write_whole(Path(output), f"# Written by `make calibration`.\n\n{toml_text(plain)}".encode())


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items() if one is not None}
    return value


if __name__ == "__main__":
    main(sys.argv[1:])
