"""Changes between two kept answers, and causes: asked again with one input exchanged at a time."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from trnbench.errors import InputError, TrnbenchError
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.records import Record
from trnbench.facts.workload.study import cells_of
from trnbench.show.redaction import OWN_MONEY
from trnbench.show.report import Report
from trnbench.show.row import Row
from trnbench.store import snapshot
from trnbench.store.database import read
from trnbench.store.difference import (
    Chain,
    KeptRows,
    RunDiff,
    changed_options,
    moved_figures,
    unmatched,
)
from trnbench.store.place import store_path
from trnbench.store.runs import inputs_of
from trnbench.store.snapshot import KeptFile
from trnbench.store.studies import KeptCell
from trnbench.verbs.asking.use_case import Progress, quiet
from trnbench.verbs.runs.keeping import DATED, kept_answer
from trnbench.verbs.runs.run import AnsweredRun, read_run
from trnbench.verbs.study.checks import SPEC_DIR
from trnbench.verbs.study.run import answered_cell, study_named
from trnbench.verbs.study.text import cell_rows

AskAgain = Callable[[str, Mapping[str, Any], Catalog | None], tuple[Report | None, int]]
"""Answers a verb's options with a catalogue's data files, printing nothing."""
_OWN_PRICES = (*OWN_MONEY[:3], DATED)
_SECTIONS: Mapping[str, tuple[str, ...]] = {
    "prices": ("prices", "purchase"),
    "calibration": ("calibration",),
}


STUDY = "study"
NOT_ASKED_AGAIN = ("measure",)
"""Verbs whose answers take a machine."""
MOST_CELLS = 200
"""A study of more takes too long to be asked again, part by part."""
_NOT_ASKED = "answers of this verb are not asked again, and more than one part differs"


class _Side(Record):
    """Basis of one of the answers: options, data files, and files that were read."""

    options: Mapping[str, Any]
    files: tuple[KeptFile, ...]


def diff_runs(
    first: str, second: str, ask: AskAgain | None, *, progress: Progress = quiet
) -> RunDiff:
    """Return the differences between two runs, and the cause of each part.

    Without `ask`, which part is known only where one alone differs.
    """
    with read(store_path()) as connection, tempfile.TemporaryDirectory(prefix="trnbench-") as place:
        one, two = (read_run(connection, name) for name in (first, second))
        if one.run.verb != two.run.verb:
            raise InputError(
                f"{first} is of {one.run.verb}, {second} of {two.run.verb}; give two of one verb"
            )
        sides = []
        why = _NOT_ASKED if one.run.verb in NOT_ASKED_AGAIN else ""
        for side in (one, two):
            made = _side(connection, side, Path(place))
            why = why or (made if isinstance(made, str) else "")
            sides.append(made)
        files = snapshot.changed(
            snapshot.files_of(connection, one.run.snapshot),
            snapshot.files_of(connection, two.run.snapshot),
        )
        # Studies are long: where one part alone differs, nothing of them need be asked.
        chain = _only_part(one, two, files) if one.run.verb == STUDY else None
        moves = bool(moved_figures(one.run.verb, one.answer, two.answer, None))
        if moves and chain is None and not why and ask is not None:
            asked = _Asked(connection, one.run.verb, ask, Path(place), progress)
            try:
                chain = asked.chain(*sides)  # type: ignore[arg-type]
            except TrnbenchError as error:
                why = f"asked again, it ends so: {error.message}"
    chain = chain or _only_part(one, two, files)
    moved = moved_figures(one.run.verb, one.answer, two.answer, chain)
    only_first, only_second = unmatched(one.run.verb, one.answer.rows, two.answer.rows)
    return RunDiff(
        first=one.run,
        second=two.run,
        options=tuple(changed_options(one.run.options, two.run.options)),
        files=files,
        moved=moved,
        only_first=only_first,
        only_second=only_second,
        unexplained=why if moved and not chain else "",
    )


def _only_part(
    one: AnsweredRun, two: AnsweredRun, files: Mapping[str, tuple[str, ...]]
) -> Chain | None:
    """Return the way between answers that differ in one part: then nothing need be asked again."""
    parts = {
        next((part for part, held in _SECTIONS.items() if section in held), "specs")
        for section in files
    }
    parts |= {"code"} if one.run.version != two.run.version else set()
    same = all(
        one.answer.inputs.get(key) == two.answer.inputs.get(key) for key in one.answer.inputs
    )
    parts |= set() if same else {"question"}
    if len(parts) != 1 or not one.run.snapshot or not two.run.snapshot:
        return None
    (part,) = parts
    return [(part, two.answer.rows)]


def _side(connection: Connection, answered: AnsweredRun, place: Path) -> _Side | str:
    """Return the inputs of an answer, its files restored; or the reason that keeps it from this."""
    run = answered.run
    files = snapshot.files_of(connection, run.snapshot)
    if not files:
        return f"the data files of {run.id} are not kept here"
    restored: dict[str, str] = {}
    for name, sha256, content in inputs_of(connection, run):
        if content is None:
            return f"of {name}, no text is kept with {run.id}"
        path = place / run.id / sha256[:8] / Path(name).name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        restored[name] = str(path)

    def moved(value: Any) -> Any:  # noqa: ANN401 - plain data
        if isinstance(value, list):
            return [moved(item) for item in value]
        return restored.get(value, value) if isinstance(value, str) else value

    return _Side(options={k: moved(v) for k, v in run.options.items()}, files=files)


class _Asked:
    """Asks a verb again, on mixtures of two sides; the same mixture once."""

    def __init__(
        self, connection: Connection, verb: str, ask: AskAgain, place: Path, progress: Progress
    ) -> None:
        self._connection = connection
        self._verb = verb
        self._ask = ask
        self._place = place
        self._progress = progress
        self._known: list[tuple[_Side, KeptRows]] = []

    def chain(self, first: _Side, second: _Side) -> Chain:
        """Return the answers on the way: today's program first, then part by part."""
        sides = [("code", first)]
        for part in ("prices", "calibration", "specs", "question"):
            sides.append((part, _exchanged(sides[-1][1], second, part)))
        return [(part, self._rows(side, done, part)) for done, (part, side) in enumerate(sides)]

    def _rows(self, side: _Side, done: int, part: str) -> KeptRows:
        for earlier, answered in self._known:
            if earlier == side:
                return answered
        self._progress(done, 5, f"asking again: {part}")
        folder = self._place / f"mixture-{len(self._known)}"
        catalog = snapshot.restore(self._connection, side.files, folder)
        if catalog is None:
            raise InputError("a data file that it rests on is not kept any more")
        rows: KeptRows
        if self._verb == STUDY:
            rows = self._cells(side, catalog)
        else:
            report, _ = self._ask(self._verb, side.options, catalog)
            rows = () if report is None else kept_answer(report).rows
        self._known.append((side, rows))
        return rows

    def _cells(self, side: _Side, catalog: Catalog) -> KeptRows:
        """Return the rows of a study on these data files."""
        if "file" not in side.options:
            raise InputError("it was kept without its file")
        study = study_named(catalog, side.options["file"])
        cells = [*cells_of(study)]
        if len(cells) > MOST_CELLS:
            raise InputError(f"of {len(cells):,} cells no more than {MOST_CELLS} are asked again")
        if any(SPEC_DIR in cell.options for cell in cells):
            raise InputError("what is in the folders that its cells name is not kept")
        rows: list[Row] = []
        for cell in cells:
            answered = answered_cell(self._ask, cell, catalog, study.keep)
            rows += cell_rows(cell, KeptCell(key="", rows=answered[0], reason=answered[1]))
        return rows


def _exchanged(side: _Side, second: _Side, part: str) -> _Side:
    """Return a side with one part of the second's."""
    if part == "question":
        return second
    if part == "specs":
        return _Side(options=side.options, files=second.files)
    files = snapshot.mixed(side.files, second.files, _SECTIONS[part].__contains__)
    options = dict(side.options)
    if part == "prices":
        for name in _OWN_PRICES:
            options.pop(name, None)
            with suppress(KeyError):
                options[name] = second.options[name]
    return _Side(
        options=options, files=tuple(sorted(files, key=lambda file: (file.section, file.name)))
    )
