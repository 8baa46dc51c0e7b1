"""Running a study: its open cells on several processes or a cluster, each kept when it is done."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from trnbench.app.code_version import code_version
from trnbench.app.keeping import UTC_FORMAT, kept_answer
from trnbench.app.study_sample import sample_first, unless_hopeless
from trnbench.app.use_case import Cancel, Progress, never, quiet
from trnbench.catalog.search import SECTIONS, Catalog, open_catalog
from trnbench.errors import EnvironmentFault, InputError, TrnbenchError
from trnbench.records import dataclass
from trnbench.report.report import Report
from trnbench.store.database import Say, StoreFault, opened, store_path
from trnbench.store.snapshot import digest
from trnbench.store.studies import KeptCell, cells_keeper, cells_kept
from trnbench.units import counted
from trnbench.workload.study import Cell, Study, cells_of, read_study

MANY_CELLS = 100_000
"""A study of more is asked for twice."""
SPEC_DIR = "spec_dir"
"""An axis, or a fixed option, that names a folder of data files to look in first."""
INTERRUPTED = 130
_CHUNK_S = 0.4
"""How long a worker is to be busy before it hands in: done cells are kept within a second."""
_LOSSES = 3
"""So often a chunk may take its worker down before its cells count as failed."""
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_ALWAYS = ("feasible", "reasons")

CellAsk = Callable[[str, Mapping[str, Any], Catalog | None], tuple[Report | None, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyEffort:
    """With what a study is run: local `workers`, or those of a Dask `scheduler`.

    `retry`: cells that failed before are asked again. `confirmed`: however many there are.
    `keep`: cells are kept as they are done.
    """

    workers: int = 1
    scheduler: str | None = None
    retry: bool = False
    confirmed: bool = False
    keep: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyAnswer:
    """A study with what came of its cells so far; `asked` cells were answered just now."""

    study: Study
    id: str
    cells: tuple[Cell, ...]
    kept: Mapping[str, KeptCell]
    keys: tuple[str, ...]
    asked: int = 0

    @property
    def complete(self) -> bool:
        """Whether every cell is done or has failed."""
        return all(key in self.kept for key in self.keys)

    def each(self) -> Iterator[tuple[Cell, KeptCell | None]]:
        """Yield every cell with what came of it."""
        for cell, key in zip(self.cells, self.keys, strict=True):
            yield cell, self.kept.get(key)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chunk:
    """Cells that one worker answers one after the other, and what it must have to do so."""

    cells: tuple[tuple[str, Cell], ...]
    keep: tuple[str, ...]
    data: Mapping[str, str]
    version: str


def study_named(catalog: Catalog, name: str) -> Study:
    """Return a shipped study, or the one in a file."""
    if name.endswith(".toml") or os.sep in name:
        return read_study(Path(name))
    return read_study(catalog.find("studies", name).path)


def kept_study(catalog: Catalog, study: Study, *, say: Say) -> StudyAnswer:
    """Return what came of a study so far, asking nothing."""
    base = [str(f.path.resolve()) for f in catalog.folders if f.origin == "--spec-dir"]
    cells = tuple(_placed(cell, base) for cell in cells_of(study))
    if not cells:
        raise InputError(f"{study.name} has no cell: all are excluded")
    data = {folder: data_digest(folder) for folder in {_folder(cell) for cell in cells}}
    version = code_version()
    keys = tuple(_key(cell, study.keep, data[_folder(cell)], version) for cell in cells)
    name = digest("\n".join((study.name, *keys)).encode())[:10]
    kept: dict[str, KeptCell] = {}
    if store_path().is_file():
        try:
            with opened(store_path(), say=say, thorough=True) as connection:
                kept = cells_kept(connection, name)
        except StoreFault as error:
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
    with (
        cells_keeper(before.id, keep=effort.keep, say=say) as keep_done,
        contextlib.closing(_outcomes(before, [*sample, *others], ask, effort, cancel)) as outcomes,
    ):
        for done in unless_hopeless(before.study, outcomes, [key for key, _ in sample]):
            at = datetime.now(tz=UTC).strftime(UTC_FORMAT)
            keep_done(done, at)
            kept |= {cell.key: cell for cell in done}
            asked += len(done)
            left = (time.monotonic() - started) / asked * (len(open_cells) - asked)
            progress(len(kept), len(before.cells), f"{_time(left)} left")
    return StudyAnswer(
        study=before.study,
        id=before.id,
        cells=before.cells,
        kept=kept,
        keys=before.keys,
        asked=asked,
    )


def answer_chunk(ask: CellAsk, chunk: _Chunk) -> list[KeptCell]:
    """Answer cells in this process; one that is interrupted is left out."""
    done = []
    for key, cell in chunk.cells:
        folder = _folder(cell)
        if code_version() != chunk.version or data_digest(folder) != chunk.data[folder]:
            raise EnvironmentFault("a worker has another trnbench or other data files")
        began = time.monotonic()
        rows, reason, code = answered_cell(ask, cell, _catalog(folder), chunk.keep)
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
    told = hashlib.sha256()
    for section in SECTIONS:
        for entry in catalog.entries(section):
            told.update(f"{section}/{entry.name} {digest(entry.path.read_bytes())}\n".encode())
    return told.hexdigest()


def _outcomes(
    before: StudyAnswer,
    cells: Sequence[tuple[str, Cell]],
    ask: CellAsk,
    effort: StudyEffort,
    cancel: Cancel,
) -> Generator[list[KeptCell], None, None]:
    """Yield what came of cells as it comes, with a few chunks on the way at a time."""
    waiting = list(reversed(cells))
    data = {folder: data_digest(folder) for folder in {_folder(cell) for _, cell in cells}}
    losses: dict[str, int] = {}
    size = 1.0
    while waiting and not cancel():
        with _executor(effort) as (executor, workers):
            running: dict[Future[list[KeptCell]], _Chunk] = {}
            broken = False
            while not broken:
                while waiting and len(running) < 2 * workers and not cancel():
                    taken = [waiting.pop() for _ in range(min(round(size), len(waiting)))]
                    chunk = _Chunk(
                        cells=tuple(taken),
                        keep=before.study.keep,
                        data=data,
                        version=code_version(),
                    )
                    running[executor.submit(answer_chunk, ask, chunk)] = chunk
                if not running:
                    break
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    chunk = running.pop(future)
                    try:
                        done = future.result()
                    except BrokenProcessPool:
                        broken = True
                        running[future] = chunk
                        break
                    took = sum(cell.seconds for cell in done) / max(len(done), 1)
                    size = min(max(_CHUNK_S / max(took, 1e-4), 1.0), 2 * size)
                    if done:
                        yield done
            if broken:
                yield from _after_loss([*running.values()], waiting, losses)
                size = 1.0


def _after_loss(
    chunks: Sequence[_Chunk], waiting: list[tuple[str, Cell]], losses: dict[str, int]
) -> Iterator[list[KeptCell]]:
    """Put the cells of lost workers back; one whose worker is lost again and again has failed."""
    for chunk in chunks:
        for key, cell in chunk.cells:
            losses[key] = losses.get(key, 0) + 1
            if losses[key] < _LOSSES or len(chunk.cells) > 1:
                waiting.append((key, cell))
            else:
                yield [KeptCell(key=key, reason="its worker was lost, again and again")]


@contextlib.contextmanager
def _executor(effort: StudyEffort) -> Iterator[tuple[Executor, int]]:
    if effort.scheduler is not None:
        with _dask(effort.scheduler) as found:
            yield found
        return
    # Each worker computes on one thread: they would be in each other's way.
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    pool = ProcessPoolExecutor(effort.workers, mp_context=get_context("spawn"))
    try:
        yield pool, effort.workers
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextlib.contextmanager
def _dask(scheduler: str) -> Iterator[tuple[Executor, int]]:
    try:
        from distributed import Client
    except ImportError:
        raise EnvironmentFault(
            "--scheduler needs Dask", hint="pip install 'trnbench[cluster]'"
        ) from None
    connect: Any = Client
    try:
        client = connect(scheduler, timeout="5s", set_as_default=False)
    except (OSError, ValueError) as error:
        raise EnvironmentFault(f"no Dask scheduler at {scheduler}: {error}") from None
    try:
        workers = sum(client.nthreads().values())
        if not workers:
            raise EnvironmentFault(f"the Dask scheduler at {scheduler} has no workers")
        with client.get_executor(pure=False, retries=_LOSSES) as executor:
            yield executor, workers
    finally:
        client.close()


@cache
def _catalog(folder: str) -> Catalog:
    return open_catalog([Path(one) for one in folder.split(os.pathsep) if one])


def _placed(cell: Cell, base: Sequence[str]) -> Cell:
    """Return a cell that says in which folders its data files are looked for first."""
    folders = [str(cell.options[SPEC_DIR])] if SPEC_DIR in cell.options else []
    if not folders and not base:
        return cell
    return replace(cell, options={**cell.options, SPEC_DIR: os.pathsep.join([*folders, *base])})


def _folder(cell: Cell) -> str:
    return str(cell.options.get(SPEC_DIR, ""))


def _key(cell: Cell, keep: Sequence[str], data: str, version: str) -> str:
    """Return the name of a question on these data with this program."""
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
