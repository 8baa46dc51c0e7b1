"""Folders that start a layout: out of rows of other answers, and written with the prediction."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from trnbench.errors import EnvironmentFault, InputError, UnknownNameError
from trnbench.facts.calibration.training_stack import training_stack_of
from trnbench.facts.catalog.foreign import read_object
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.catalog.text_file import refused
from trnbench.facts.catalog.whole_file import write_whole
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.records import Record
from trnbench.facts.units import counted
from trnbench.facts.workload.choices import MachinesFrom
from trnbench.facts.workload.layout import KNOBS
from trnbench.launch.catalogue import SCHEDULERS, framework_for, frameworks_on, schedulers_on
from trnbench.launch.folder import PREDICTION
from trnbench.verbs.asking.use_case import Progress, quiet
from trnbench.verbs.launch.question import LaunchQuestion
from trnbench.verbs.launch.run import Launched, run

_NUMBERS = ("nodes", "lnc", "tokens", "checkpoint_interval_s")
_TEXTS = ("model", "instance", "calibration", "job", "purchase")
_ANSWERS = ("plan", "compare", "train", "launch")


def options_of_answer(catalog: Catalog, path: Path, number: int = 1) -> dict[str, Any]:
    """Return what a row of an answer in JSON says to `launch`; rows count from 1."""
    told = read_object(path)
    rows = told.get("rows")
    if told.get("schema") not in [f"trnbench.{verb}/1" for verb in _ANSWERS]:
        known = ", ".join(_ANSWERS)
        raise refused(path, f"is no answer in JSON of {known}: `trnbench plan ... --json`")
    if not isinstance(rows, list) or not rows:
        raise refused(path, "has no rows: nothing kept what was asked")
    if not 1 <= number <= len(rows):
        raise InputError(f"--row {number}: {path} has {counted(len(rows), 'row')}")
    row = rows[number - 1]
    if not isinstance(row, Mapping) or not row.get("feasible"):
        raise InputError(f"{path}: row {number} is one that cannot run")
    return options_of_row(catalog, with_plain_cells(path, number, row))


def with_plain_cells(path: Path, number: int, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row of a file; refuse one whose cells, as far as they are read, are of no kind."""
    for name in (*_NUMBERS, *_TEXTS, *KNOBS):
        value = row.get(name)
        kinds = int | float if name in _NUMBERS else str if name in _TEXTS else int | float | str
        if value is not None and not isinstance(value, kinds):
            wanted = "a number" if name in _NUMBERS else "a text" if name in _TEXTS else "a value"
            raise refused(path, f"row {number}: key {name}: expected {wanted}; correct it")
    return row


def options_of_row(catalog: Catalog, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a row says to `launch`: model, place, framework, layout, length, purchase."""
    needed = ("model", "instance", "nodes")
    missing = [name for name in needed if row.get(name) is None]
    if missing:
        raise InputError(f"a row to launch needs {', '.join(missing)}")
    bought = row.get("purchase")
    return {
        "model": str(row["model"]),
        "on": f"{row['instance']}:{row['nodes']}",
        "stack": framework_of_row(catalog, row),
        "lnc": row.get("lnc"),
        # Of a run in phases the one that takes longest is started: its length is not told.
        "tokens": None if row.get("phases") else row.get("tokens"),
        "checkpoint_interval": row.get("checkpoint_interval_s"),
        "purchase": bought if bought in get_args(MachinesFrom) else None,
        **{name: row[name] for name in KNOBS if row.get(name) is not None},
    }


def framework_of_row(catalog: Catalog, row: Mapping[str, Any]) -> str | None:
    """Return the framework that the training stack of a row stands for, if there is one.

    A row that names no stack was predicted with the instance's usual one.
    """
    platform = load_platform(catalog, str(row["instance"]))
    stack = str(row.get("calibration") or training_stack_of(catalog, platform.instance.name).name)
    job = row.get("job")
    try:
        return framework_for(catalog, platform, stack, None if job is None else str(job)).name
    except InputError:
        return None  # the command asks for --stack


class LaunchChoices(Record):
    """What can start a row of an answer; `stack` is the framework that the row's stack stands for.

    Without such a framework `stack` is None, and whoever launches the row says which.
    """

    stack: str | None
    frameworks: tuple[str, ...]
    schedulers: tuple[str, ...]


def launch_choices(catalog: Catalog, row: Mapping[str, Any]) -> LaunchChoices:
    """Return the frameworks and schedulers that can start a row."""
    platform = load_platform(catalog, str(row["instance"]))
    return LaunchChoices(
        stack=framework_of_row(catalog, row),
        frameworks=tuple(one.name for one in frameworks_on(catalog, platform)),
        schedulers=tuple(one.name for one in schedulers_on(platform)),
    )


def launch_row(
    catalog: Catalog,
    row: Mapping[str, Any],
    *,
    scheduler: str,
    stack: str | None = None,
    progress: Progress = quiet,
) -> tuple[Launched, LaunchQuestion]:
    """Return the files that start a row of another answer, and what was asked; none is written.

    `stack` is the framework; without it that which the row's training stack stands for.
    """
    options = options_of_row(catalog, row)
    options["stack"] = stack or options["stack"]
    if options["stack"] is None:
        known = ", ".join(launch_choices(catalog, row).frameworks) or "none"
        raise InputError(
            "no framework that files are written for stands for the training stack of this row",
            hint=f"frameworks on {row['instance']}: {known}",
        )
    question = LaunchQuestion.asked(catalog, {**options, "with": scheduler})
    return run(catalog, question, progress=progress), question


def known_scheduler(name: str) -> str:
    if name not in SCHEDULERS:
        raise UnknownNameError("scheduler", name, SCHEDULERS)
    return name


def refuse_full(folder: Path, *, force: bool) -> None:
    """Refuse a folder that has files, unless these may be replaced."""
    if folder.exists() and not folder.is_dir():
        raise EnvironmentFault(f"cannot write {folder}: it is not a folder")
    if folder.is_dir() and any(folder.iterdir()) and not force:
        raise EnvironmentFault(
            f"{folder} has files",
            hint="name another folder; `trnbench launch ... --force` replaces them",
        )


def write_launch(
    folder: str | Path, answer: Launched, inputs: Mapping[str, object], *, force: bool = False
) -> None:
    """Write the files of an answer, each whole; the prediction last, so that it vouches for all."""
    from trnbench.show.formats import render
    from trnbench.show.text_table import Style
    from trnbench.verbs.launch.text import launch_report

    if answer.folder is None:
        raise InputError(f"nothing to write: {'; '.join(answer.step.reasons)}")
    folder = Path(folder)
    refuse_full(folder, force=force)
    for name in (*answer.folder.texts, PREDICTION):
        if (folder / name).is_symlink():
            raise EnvironmentFault(
                f"cannot write {folder / name}: it is a link, which may lead out of the folder",
                hint="remove it, or name another folder",
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentFault(f"cannot make the folder {folder}: {error.strerror}") from error
    for name, text in answer.folder.texts.items():
        write_whole(folder / name, text.encode())
    prediction = render(launch_report(answer, inputs), "json", Style())
    write_whole(folder / PREDICTION, prediction)
