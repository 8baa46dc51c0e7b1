"""Running a study: its open cells on several processes or a cluster, each kept when it is done."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from functools import cache
from pathlib import Path
from typing import Any

from trnbench.errors import EnvironmentFault, InputError, TrnbenchError
from trnbench.facts.catalog.search import SECTIONS, Catalog, open_catalog
from trnbench.facts.processes.workers import WorkerLost, Workers
from trnbench.facts.records import Record, replace
from trnbench.facts.units import counted
from trnbench.facts.workload.study import Cell, Study, cells_of, read_study
from trnbench.show.report import Report
from trnbench.store.content import digest
from trnbench.store.database import Say, read
from trnbench.store.place import StoreFault, store_path
from trnbench.store.runs import utc_now
from trnbench.store.studies import KeptCell, cells_keeper, cells_kept
from trnbench.verbs.asking.use_case import Cancel, Progress, never, quiet
from trnbench.verbs.runs.keeping import code_version, kept_answer
from trnbench.verbs.study.checks import SPEC_DIR, sample_first, unless_hopeless
from trnbench.verbs.study.on_dask import on_dask
from trnbench.verbs.study.question import StudyEffort

MANY_CELLS = 100_000
"""A study of more is asked for twice."""
INTERRUPTED = 130
_CHUNK_S = 0.4
"""How long a worker is to be busy before it hands in: done cells are kept within a second."""
_LOSSES = 3
"""So often a cell may take its worker down before it is left open."""
_HOPELESS = 10
"""So many workers lost with no answer between them: the others would be, too."""
_LISTEN_S = 0.2
_PATIENCE_S = 1.0
"""Cells that are being answered when the study is to stop have so long to be done."""
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_ALWAYS = ("feasible", "reasons")

CellAsk = Callable[[str, Mapping[str, Any], Catalog | None], tuple[Report | None, int]]


class StudyAnswer(Record):
    """A study with what came of its cells so far; `asked` cells were answered just now.

    `lost`: how a worker ended before it answered, where that left cells open.
    """

    study: Study
    id: str
    cells: tuple[Cell, ...]
    kept: Mapping[str, KeptCell]
    keys: tuple[str, ...]
    asked: int = 0
    lost: str | None = None

    @property
    def open_count(self) -> int:
        return sum(key not in self.kept for key in self.keys)

    @property
    def complete(self) -> bool:
        return not self.open_count

    def each(self) -> Iterator[tuple[Cell, KeptCell | None]]:
        for cell, key in zip(self.cells, self.keys, strict=True):
            yield cell, self.kept.get(key)


def study_named(catalog: Catalog, name: str) -> Study:
    if name.endswith(".toml") or os.sep in name:
        return read_study(Path(name))
    return read_study(catalog.find("studies", name).path)


def kept_study(catalog: Catalog, study: Study, *, say: Say, required: bool = False) -> StudyAnswer:
    """Return the kept answers of a study, asking nothing.

    Where that cannot be read it is nothing, and `say` is told why, unless it is `required`.
    """
    base = [str(f.path.resolve()) for f in catalog.folders if f.origin == "--spec-dir"]
    cells = tuple(_placed(cell, base) for cell in cells_of(study))
    if not cells:
        raise InputError(f"{study.name} has no cell: all are excluded")
    data = {folder: data_digest(folder) for folder in {_folder(cell) for cell in cells}}
    version = code_version()
    keys = tuple(_key(cell, study.keep, data[_folder(cell)], version) for cell in cells)
    name = digest("\n".join((study.name, *keys)).encode())[:10]
    kept: dict[str, KeptCell] = {}
    try:
        with read(store_path()) as connection:
            kept = cells_kept(connection, name, say=say)
    except StoreFault as error:
        if required:
            raise
        say(f"trnbench: what is known of {study.name} cannot be read: {error}")
    return StudyAnswer(study=study, id=name, cells=cells, kept=kept, keys=keys)


def run_study(
    before: StudyAnswer,
    ask: CellAsk,
    effort: StudyEffort,
    *,
    say: Say,
    progress: Progress = quiet,
    cancel: Cancel = never,
) -> StudyAnswer:
    """Ask the cells that are open, and return the study with all that is kept of it then."""
    if len(before.cells) > MANY_CELLS and not effort.confirmed:
        raise InputError(
            f"{before.study.name} has {counted(len(before.cells), 'cell')}",
            hint="--yes asks them all",
        )
    kept = dict(before.kept)
    open_cells = [
        (key, cell)
        for cell, key in zip(before.cells, before.keys, strict=True)
        if key not in kept or (effort.retry and kept[key].reason is not None)
    ]
    # Once cells are known, the study can be answered.
    sample, others = ([], open_cells) if kept else sample_first(open_cells)
    asked = 0
    started = time.monotonic()
    course = _Course(cancel)
    with (
        cells_keeper(before.id, keep=not effort.no_keep, say=say) as keep_done,
        contextlib.closing(_outcomes(before, [*sample, *others], ask, effort, course)) as outcomes,
    ):
        for done in unless_hopeless(before.study, outcomes, [key for key, _ in sample]):
            at = utc_now()
            keep_done(done, at)
            kept |= {cell.key: cell for cell in done}
            asked += len(done)
            left = (time.monotonic() - started) / asked * (len(open_cells) - asked)
            progress(len(kept), len(before.cells), f"{_time(left)} left")
    return replace(before, kept=kept, asked=asked, lost=course.how)


def answer_chunk(
    ask: CellAsk,
    cells: Sequence[tuple[str, Cell]],
    keep: Sequence[str],
    data: Mapping[str, str],
    version: str,
) -> list[KeptCell]:
    """Answer cells in this process; one that is interrupted is left out.

    `data`, by folder, and `version` are those of the process that asks.
    """
    done = []
    for key, cell in cells:
        folder = _folder(cell)
        if code_version() != version or data_digest(folder) != data[folder]:
            raise EnvironmentFault("a worker has another trnbench or other data files")
        began = time.monotonic()
        rows, reason, code = answered_cell(ask, cell, _catalog(folder), keep)
        if code == INTERRUPTED:
            continue
        seconds = time.monotonic() - began
        malformed = reason is not None and code == InputError.exit_code
        done.append(
            KeptCell(key=key, rows=rows, reason=reason, seconds=seconds, malformed=malformed)
        )
    return done


def answered_cell(
    ask: CellAsk, cell: Cell, catalog: Catalog, keep: Sequence[str]
) -> tuple[tuple[Mapping[str, Any], ...], str | None, int]:
    """Return the rows of a cell on these data files, or why it has none, and the exit code."""
    options = {name: value for name, value in cell.options.items() if name != SPEC_DIR}
    try:
        report, code = ask(cell.verb, options, catalog)
        return (() if report is None else _rows(report, keep)), None, code
    except TrnbenchError as error:
        return (), error.message, error.exit_code
    except (ArithmeticError, LookupError, TypeError, ValueError, MemoryError) as error:
        return (), f"internal error: {type(error).__name__}: {error}", 1


@cache
def data_digest(folder: str) -> str:
    """Return the digest of all data files, those of a folder first."""
    catalog = _catalog(folder)
    content = hashlib.sha256()
    for section in SECTIONS:
        for entry in catalog.entries(section):
            content.update(f"{section}/{entry.name} {digest(entry.path.read_bytes())}\n".encode())
    return content.hexdigest()


def _outcomes(
    before: StudyAnswer,
    cells: Sequence[tuple[str, Cell]],
    ask: CellAsk,
    effort: StudyEffort,
    course: _Course,
) -> Generator[list[KeptCell], None, None]:
    """Yield what came of cells as it comes, with a few chunks on the way at a time."""
    waiting = deque(cells)
    data = {folder: data_digest(folder) for folder in {_folder(cell) for _, cell in cells}}
    size = 1.0
    with _executor(effort) as (executor, workers):
        running: dict[Future[list[KeptCell]], list[tuple[str, Cell]]] = {}
        cancelled_at: float | None = None
        while True:
            if course.cancel() and cancelled_at is None:
                cancelled_at = time.monotonic()
            while waiting and len(running) < 2 * workers:
                if cancelled_at is not None or course.in_a_row >= _HOPELESS:
                    break
                # Cells whose worker was lost are asked one by one: one of them may be the cause.
                count = 1 if waiting[0][0] in course.times else min(round(size), len(waiting))
                chunk = [waiting.popleft() for _ in range(count)]
                shared = before.study.keep, data, code_version()
                running[executor.submit(answer_chunk, ask, chunk, *shared)] = chunk
            if not running:
                return
            if cancelled_at is not None and time.monotonic() > cancelled_at + _PATIENCE_S:
                return
            for future in wait(running, timeout=_LISTEN_S, return_when=FIRST_COMPLETED).done:
                chunk = running.pop(future)
                try:
                    done = future.result()
                except WorkerLost as lost:
                    waiting.extend(course.again(chunk, str(lost)))
                    size = 1.0
                    continue
                took = sum(cell.seconds for cell in done) / max(len(done), 1)
                size = min(max(_CHUNK_S / max(took, 1e-4), 1.0), 2 * size)
                if done:
                    course.in_a_row = 0
                    yield done


class _Course:
    """Course of a study: the wish to stop, and cells whose worker was lost before it answered.

    `how`: the way in which the last worker was lost.
    """

    def __init__(self, cancel: Cancel) -> None:
        self.cancel = cancel
        self.times: dict[str, int] = {}
        self.in_a_row = 0
        self.how: str | None = None

    def again(self, cells: Sequence[tuple[str, Cell]], how: str) -> Iterator[tuple[str, Cell]]:
        """Yield the cells of a lost worker that are asked once more."""
        self.how = how
        self.in_a_row += 1
        for key, cell in cells:
            self.times[key] = self.times.get(key, 0) + 1
            if self.times[key] < _LOSSES or len(cells) > 1:
                yield key, cell


@contextlib.contextmanager
def _executor(effort: StudyEffort) -> Iterator[tuple[Executor, int]]:
    if effort.scheduler is not None:
        with on_dask(effort.scheduler, _LOSSES) as executor:
            yield executor
        return
    # Each worker computes on one thread: they would be in each other's way.
    workers = effort.workers or 1
    pool = Workers(workers, dict.fromkeys(_THREADS, "1"))
    try:
        yield pool, workers
    finally:
        pool.shutdown(cancel_futures=True)


@cache
def _catalog(folder: str) -> Catalog:
    return open_catalog([Path(part) for part in folder.split(os.pathsep) if part])


def _placed(cell: Cell, base: Sequence[str]) -> Cell:
    """Return a cell that says in which folders its data files are looked for first."""
    folders = [str(cell.options[SPEC_DIR])] if SPEC_DIR in cell.options else []
    if not folders and not base:
        return cell
    return replace(cell, options={**cell.options, SPEC_DIR: os.pathsep.join([*folders, *base])})


def _folder(cell: Cell) -> str:
    return str(cell.options.get(SPEC_DIR, ""))


def _key(cell: Cell, keep: Sequence[str], data: str, version: str) -> str:
    options = {name: value for name, value in cell.options.items() if name != SPEC_DIR}
    plain = [cell.verb, sorted(options.items()), list(keep), data, version]
    return digest(json.dumps(plain).encode())[:20]


def _rows(report: Report, keep: Sequence[str]) -> tuple[Mapping[str, Any], ...]:
    answer = kept_answer(report)
    keys = keep or answer.columns
    shown = {*keys, *(end + key for key in keys for end in ("low_", "high_")), *_ALWAYS}
    return tuple({key: row[key] for key in row if key in shown} for row in answer.rows)


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
