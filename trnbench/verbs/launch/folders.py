"""Folders that start a layout: out of rows of other answers, and written with the prediction."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trnbench.errors import EnvironmentFault, InputError, UnknownNameError
from trnbench.facts.catalog.search import Catalog
from trnbench.facts.catalog.whole_file import write_whole
from trnbench.facts.hardware.library import load_platform
from trnbench.facts.records import Record
from trnbench.launch.catalogue import SCHEDULERS, frameworks_on, schedulers_on
from trnbench.launch.folder import PREDICTION
from trnbench.verbs.asking.use_case import Progress, quiet
from trnbench.verbs.launch.question import LaunchQuestion
from trnbench.verbs.launch.rows import framework_of_row, options_of_row
from trnbench.verbs.launch.run import Launched, run


class LaunchChoices(Record):
    """Framework and scheduler for a row of an answer; `stack` is that of the row's stack.

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
        frameworks=tuple(framework.name for framework in frameworks_on(catalog, platform)),
        schedulers=tuple(scheduler.name for scheduler in schedulers_on(platform)),
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
        names = ", ".join(launch_choices(catalog, row).frameworks) or "none"
        raise InputError(
            "no framework that files are written for stands for the training stack of this row",
            hint=f"frameworks on {row['instance']}: {names}",
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
